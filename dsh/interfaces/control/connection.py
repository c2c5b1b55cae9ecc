"""One HTTP/1.1 connection: h11 reads and writes it, the routes answer it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing, suppress
from http import HTTPStatus
from typing import Any, Final

import h11

from .doors import Door
from .messages import Answer, ApiError, EventStream, Request

MAX_BODY: Final = 32 * 2**20
MAX_HEAD: Final = 64 * 2**10
IDLE_SECONDS: Final = 75.0
"""How long a connection may be open without a complete request."""

LINGER_SECONDS: Final = 2.0

Handle = Callable[[Request], Awaitable[Answer]]

_COMMON: Final = [("Cache-Control", "no-store"), ("X-Content-Type-Options", "nosniff")]


async def serve_connection(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, first: bytes, door: Door, handle: Handle
) -> None:
    """Answer requests until either side closes. first: bytes that were read already."""
    connection = Connection(reader, writer, door, handle)
    connection.receive(first)
    with suppress(ConnectionError, TimeoutError):
        while await connection.serve_one():
            pass


class _Left(ConnectionError):
    """The client closed the connection."""


class Connection:
    """The state of one connection between its requests."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, door: Door, handle: Handle) -> None:
        self._reader = reader
        self._writer = writer
        self._door = door
        self._handle = handle
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEAD)
        self._head_only = False

    def receive(self, data: bytes) -> None:
        """Take bytes from the client; none mean that it sends no more."""
        self._http.receive_data(data)

    async def serve_one(self) -> bool:
        """Answer the next request; False when the connection is over. Raises ConnectionError, TimeoutError."""
        head: Request | None = None
        try:
            async with asyncio.timeout(IDLE_SECONDS):
                head = await self._head()
                if head is None:
                    return False
                self._door.check(head.headers)
                await self._body(head)
            head.parse_target()
            answer = await self._handle(head)
        except ApiError as error:
            await self._send(error.status, error.body(), "application/json", error.headers)
        except h11.RemoteProtocolError as error:
            said = str(error).partition(": ")[0]  # what follows quotes the client's bytes as Python shows them
            refused = ApiError(error.error_status_hint, "BAD_REQUEST", said)
            await self._send(refused.status, refused.body(), "application/json", {})
        else:
            if isinstance(answer, EventStream):
                await self._send_stream(answer)
                return False
            await self._send(answer.status, answer.encoded(), answer.content_type, {})
        if self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
            await self._read_out()
            return False
        self._http.start_next_cycle()
        return True

    async def _head(self) -> Request | None:
        event = await self._next_event()
        if isinstance(event, h11.ConnectionClosed):
            return None
        assert isinstance(event, h11.Request)
        self._head_only = event.method == b"HEAD"
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in event.headers}
        return Request(event.method.decode("ascii"), event.target.decode("latin-1"), headers)

    async def _body(self, request: Request) -> None:
        length = request.headers.get("content-length", "0")
        if len(length) > 12 or int(length) > MAX_BODY:
            raise _too_large()
        if self._http.they_are_waiting_for_100_continue:
            self._write(h11.InformationalResponse(status_code=100, headers=[]))
        parts = []
        size = 0
        while isinstance(event := await self._next_event(), h11.Data):
            size += len(event.data)
            if size > MAX_BODY:
                raise _too_large()
            parts.append(bytes(event.data))
        if not isinstance(event, h11.EndOfMessage):
            raise _Left
        request.body = b"".join(parts)

    async def _next_event(self) -> Any:
        while (event := self._http.next_event()) is h11.NEED_DATA:
            self.receive(await self._reader.read(65536))
        return event

    async def _send(self, status: int, body: bytes, content_type: str, more: dict[str, str]) -> None:
        if self._http.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            return
        headers = [*_COMMON, ("Content-Type", content_type), ("Content-Length", str(len(body))), *more.items()]
        if self._http.their_state is not h11.DONE:
            headers.append(("Connection", "close"))
        self._write(h11.Response(status_code=status, headers=headers, reason=HTTPStatus(status).phrase.encode()))
        if not self._head_only:
            self._write(h11.Data(data=body))
        self._write(h11.EndOfMessage())
        await self._writer.drain()

    async def _send_stream(self, stream: EventStream) -> None:
        headers = [*_COMMON, ("Content-Type", "text/event-stream")]
        self._write(h11.Response(status_code=200, headers=headers, reason=b"OK"))
        # The client has nothing more to say on this connection: whatever comes, or its end, means that it leaves.
        gone = asyncio.ensure_future(self._silence())
        gone.add_done_callback(lambda _: stream.leave())
        try:
            async with aclosing(stream.chunks) as chunks:  # type: ignore[type-var]
                async for chunk in chunks:
                    self._write(h11.Data(data=chunk))
                    await self._writer.drain()
                    if gone.done():
                        return
            self._write(h11.EndOfMessage())
            await self._writer.drain()
        finally:
            gone.cancel()

    async def _silence(self) -> None:
        with suppress(OSError):
            await self._reader.read(1)

    async def _read_out(self) -> None:
        """Refused before all of it was read: closing at once could take the answer away from the client."""
        with suppress(OSError, RuntimeError):
            self._writer.write_eof()
        with suppress(TimeoutError):
            async with asyncio.timeout(LINGER_SECONDS):
                while await self._reader.read(65536):
                    pass

    def _write(self, event: Any) -> None:
        data = self._http.send(event)
        if self._writer.is_closing():
            raise _Left
        if data:
            self._writer.write(data)


def _too_large() -> ApiError:
    return ApiError(413, "TOO_LARGE", f"a request body holds at most {MAX_BODY} bytes")
