"""JSON-RPC 2.0 as lines of text: one compact object a line, requests side by side, one writer.

Both protocols over standard input and output use it; what they do with malformed lines differs.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Awaitable, Callable, Mapping
from typing import Any

from dsh.cordis.errors import describe_error
from dsh.cordis.jsonio import JsonDecodeError, decode, encode

from .stdin import stdin_chunks as stdin_chunks
from .stdout import LineOutput, say

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603

Handler = Callable[[str, Any], Awaitable[Any]]
NotificationHandler = Callable[[str, Any], Awaitable[None] | None]

_NONE = object()


class RpcError(Exception):
    """An error answer: what a handler raises to choose one, and what a request to the client raises."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data


def handler_error(exc: BaseException) -> RpcError:
    """The error a failed handler is answered with: an ``RpcError`` as it is, else its text as an internal error."""
    return exc if isinstance(exc, RpcError) else RpcError(INTERNAL_ERROR, describe_error(exc))


class JsonRpcPeer:
    """One side of a JSON-RPC connection over a byte input and a line output.

    ``handle(method, params)`` answers a request: its result is sent, an ``RpcError`` as that error, any other
    exception as an internal error. ``params`` is what the frame says, ``{}`` when it says nothing. Requests and
    notifications begin in the order they arrive and then run side by side. With ``answer_malformed`` lines that are
    no frames are answered by errors, otherwise they are ignored. With ``at_once`` a notification is handled before the
    next frame is looked at, by a function that returns nothing: for a side that only asks.
    """

    def __init__(
        self,
        output: LineOutput,
        handle: Handler,
        *,
        on_notification: NotificationHandler | None = None,
        answer_malformed: bool = False,
        at_once: bool = False,
    ) -> None:
        self._output = output
        self._handle = handle
        self._on_notification = on_notification
        self._answer_malformed = answer_malformed
        self._at_once = at_once
        self._running: set[asyncio.Task[None]] = set()
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._last_id = 0
        self._ended = False

    async def serve(self, source: AsyncIterable[bytes], *, grace: float = 0.0) -> None:
        """Take frames until ``source`` ends or this is cancelled; then cancel what still runs and wait for it.

        After the end of the input, requests that were taken before may still run for ``grace`` seconds.
        """
        rest: list[bytes] = []  # the pieces of a line that has not ended yet
        try:
            async for chunk in source:
                first, *others = chunk.split(b"\n")
                rest.append(first)
                if others:
                    self._receive(b"".join(rest))
                    for line in others[:-1]:
                        self._receive(line)
                    rest = [others[-1]]
            if self._running and grace:
                await asyncio.wait(self._running, timeout=grace)
        finally:
            await self._end()

    def notify(self, method: str, params: Mapping[str, Any]) -> None:
        """Send a notification; the order of calls is the order on the wire."""
        self._output.write_json({"jsonrpc": "2.0", "method": method, "params": params})

    def notify_later(self, method: str, params: Callable[[], Mapping[str, Any]]) -> None:
        """Like :meth:`notify`, but ``params()`` is asked for when the client has room for it, in another thread.

        For notifications about data that never changes, of which a slow client may leave many waiting.
        """
        self._output.write_later(lambda: encode({"jsonrpc": "2.0", "method": method, "params": params()}) + b"\n")

    async def request(self, method: str, params: Mapping[str, Any]) -> Any:
        """Ask the other side; its result. Raises ``RpcError`` for its error, ``ConnectionError`` once it is gone."""
        return await self.ask(method, params)

    def ask(self, method: str, params: Mapping[str, Any]) -> asyncio.Future[Any]:
        """Send a request now; what will be its result. Raises ``ConnectionError`` once the other side is gone."""
        if self._ended:
            raise ConnectionError(f"{method}: the client is gone")
        self._last_id += 1
        request_id = self._last_id
        answer = self._waiting[request_id] = asyncio.get_running_loop().create_future()
        answer.add_done_callback(lambda _: self._waiting.pop(request_id, None))
        self._output.write_json({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params})
        return answer

    # -- incoming -------------------------------------------------------------------------------------------------

    def _receive(self, line: bytes) -> None:
        if not line or line.isspace():
            return
        try:
            frame: Any = decode(line)
        except (JsonDecodeError, UnicodeError):
            self._malformed(None, PARSE_ERROR, "Parse error")
            return
        if not isinstance(frame, dict):
            self._malformed(None, INVALID_REQUEST, "Invalid Request")
            return
        method = frame.get("method", _NONE)
        request_id = frame.get("id", _NONE)
        if isinstance(method, str):
            params = frame.get("params", {})
            if request_id is _NONE and self._at_once and self._on_notification is not None:
                self._on_notification(method, params)
            elif request_id is _NONE:
                self._start(self._notified(method, params))
            else:
                self._start(self._answer(request_id, method, params))
        elif method is _NONE and ("result" in frame or "error" in frame):
            self._answered(request_id, frame)
        else:
            self._malformed(request_id, INVALID_REQUEST, "Invalid Request")

    def _malformed(self, request_id: Any, code: int, message: str) -> None:
        if self._answer_malformed:
            self._fail(None if request_id is _NONE else request_id, RpcError(code, message))

    def _start(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _answer(self, request_id: Any, method: str, params: Any) -> None:
        try:
            result = await self._handle(method, params)
            line = encode({"jsonrpc": "2.0", "id": request_id, "result": result}) + b"\n"
        except Exception as error:
            self._fail(request_id, handler_error(error))
        else:
            self._output.write_line(line)

    def _fail(self, request_id: Any, error: RpcError) -> None:
        wire = {"code": error.code, "message": error.message}
        if error.data is not None:
            wire["data"] = error.data
        self._output.write_json({"jsonrpc": "2.0", "id": request_id, "error": wire})

    async def _notified(self, method: str, params: Any) -> None:
        if self._on_notification is None:
            return
        try:
            work = self._on_notification(method, params)
            if work is not None:
                await work
        except Exception as error:
            say(f"notification {method}: {describe_error(error)}")

    def _answered(self, request_id: Any, frame: Mapping[str, Any]) -> None:
        answer = self._waiting.get(request_id) if type(request_id) is int else None
        if answer is None or answer.done():
            return
        error = frame.get("error")
        if error is None:
            answer.set_result(frame.get("result"))
        elif isinstance(error, Mapping) and type(error.get("code")) is int:
            answer.set_exception(RpcError(error["code"], str(error.get("message", "")), error.get("data")))
        else:
            answer.set_exception(RpcError(INTERNAL_ERROR, describe_error(Exception(str(error)))))

    async def _end(self) -> None:
        self._ended = True
        for answer in list(self._waiting.values()):
            if not answer.done():
                answer.set_exception(ConnectionError("the client is gone"))
        running = list(self._running)
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)
