"""A model server for tests and demos: real HTTP on the loopback interface, answers from a script.

It speaks the chat-completions protocol under any path prefix. Each accepted request consumes one script entry; refused
ones (wrong method, path, key or body) consume none. See `dsh.models.mock_replies` for what an entry may be.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import random
import socket
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from dsh.cordis.jsonio import JsonDecodeError, decode, encode_str
from dsh.models.mock_replies import PING, Entry, MockOptions, Plan, check_entry, choose, plan_entry

Outcome = Literal["completed", "reset", "stalled", "client_closed", "server_error"]
_REASONS = {200: "OK", 400: "Bad Request", 401: "Unauthorized", 404: "Not Found", 405: "Method Not Allowed"}
_MAX_BODY = 256 * 1024 * 1024


@dataclass(slots=True, eq=False)
class MockRequest:
    """One accepted request and what became of it; `done` is set together with `outcome`."""

    attempt: int
    script_behavior: str
    behavior: str
    path: str
    headers: Mapping[str, str]
    body: Any
    raw: bytes
    chunks_sent: int = 0
    outcome: Outcome | None = None
    done: asyncio.Event = field(default_factory=asyncio.Event)

    def to_wire(self) -> dict[str, Any]:
        """The record as a JSON line shows it; the key is blotted out."""
        headers = {key: "***" if key == "authorization" else value for key, value in self.headers.items()}
        return {
            "attempt": self.attempt,
            "scriptBehavior": self.script_behavior,
            "behavior": self.behavior,
            "path": self.path,
            "headers": headers,
            "body": self.body,
            "chunksSent": self.chunks_sent,
            "outcome": self.outcome,
        }


class MockLlmServer:
    """``async with MockLlmServer([...]) as server:`` then point a base URL at ``server.url``.

    `repeat_last` answers with the last entry for ever once the script is used up; otherwise further requests get status
    500 with code ``MOCK_SCRIPT_EXHAUSTED``. With `api_key` every request must carry it as a bearer token. Raises
    `UnknownBehaviour` for a script that names one.
    """

    def __init__(
        self,
        script: Sequence[Entry] = (),
        *,
        repeat_last: bool = False,
        host: str = "127.0.0.1",
        port: int = 0,
        api_key: str | None = None,
        seed: int = 0,
        options: MockOptions | None = None,
        on_record: Callable[[str, MockRequest], None] | None = None,
        **overrides: Any,
    ) -> None:
        for entry in script:
            check_entry(entry)
        self.script: list[Entry] = list(script)
        self.requests: list[MockRequest] = []
        self.options = options or MockOptions(**overrides)
        self._repeat_last = repeat_last
        self._host = host
        self._port = port
        self._api_key = api_key
        self._rng = random.Random(seed)
        self._on_record = on_record
        self._used = 0
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self._arrived = asyncio.Condition()

    async def __aenter__(self) -> MockLlmServer:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def start(self, sock: socket.socket | None = None) -> None:
        """Listen, on `sock` if one is given that is already bound."""
        if sock is not None:
            self._server = await asyncio.start_server(self._serve, sock=sock)
        else:
            self._server = await asyncio.start_server(self._serve, self._host, self._port)
        self._port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Stop listening and cut every connection, stalled ones included."""
        if self._server is not None:
            self._server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    @property
    def port(self) -> int:
        """The port in use, once started."""
        return self._port

    @property
    def url(self) -> str:
        """The base URL for an adapter's configuration."""
        return f"http://{self._host}:{self._port}/v1"

    @property
    def bodies(self) -> list[Any]:
        """The parsed bodies of all accepted requests."""
        return [request.body for request in self.requests]

    async def wait_for_requests(self, count: int) -> None:
        """Return once `count` requests have been accepted."""
        async with self._arrived:
            await self._arrived.wait_for(lambda: len(self.requests) >= count)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            await self._one_request(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        except asyncio.CancelledError:
            writer.transport.abort()
        finally:
            self._connections.discard(task)
            writer.close()

    async def _one_request(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").rstrip().split("\r\n")
        method, path, _ = first.split(" ", 2)
        headers = {key.lower(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
        raw = await reader.readexactly(min(int(headers.get("content-length", 0)), _MAX_BODY))
        refusal = self._refuse(method, path, headers, raw)
        if refusal is not None:
            await _send_head(writer, refusal)
            writer.write(refusal.pieces[0])
            await writer.drain()
            return
        request, plan = self._accept(path, headers, raw)
        async with self._arrived:
            self._arrived.notify_all()
        self._record("request", request)
        gone = asyncio.ensure_future(reader.read(1))
        outcome: Outcome = "server_error"
        try:
            outcome = await self._play(plan, request, writer, gone)
        except ConnectionError:
            outcome = "client_closed"
        except asyncio.CancelledError:
            outcome = "stalled"
            raise
        finally:
            gone.cancel()
            request.outcome = outcome
            request.done.set()
            self._record("result", request)

    def _refuse(self, method: str, path: str, headers: Mapping[str, str], raw: bytes) -> Plan | None:
        def refused(status: int, message: str) -> Plan:
            return plan_entry({"status": status, "error": {"message": message}}, "", self.options)

        if not path.split("?")[0].endswith("/chat/completions"):
            return refused(404, f"no such path: {path}")
        if method != "POST":
            return refused(405, f"method {method} not allowed")
        sent = headers.get("authorization", "").removeprefix("Bearer ")
        if self._api_key is not None and not hmac.compare_digest(sent.encode(), self._api_key.encode()):
            return refused(401, "Authentication fails")
        try:
            body = decode(raw)
        except JsonDecodeError as error:
            return refused(400, f"invalid JSON: {error}")
        return None if isinstance(body, dict) else refused(400, "the body must be an object")

    def _accept(self, path: str, headers: Mapping[str, str], raw: bytes) -> tuple[MockRequest, Plan]:
        body: Any = decode(raw)
        entry: Entry | None = None
        if self._used < len(self.script):
            entry = self.script[self._used]
            self._used += 1
        elif self._repeat_last and self.script:
            entry = self.script[-1]
        name = entry if isinstance(entry, str) else "scripted"
        while callable(entry):
            entry = entry(body)
        if entry is None:
            error = {"message": "the mock script is used up", "code": "MOCK_SCRIPT_EXHAUSTED"}
            name, entry = "exhausted", {"status": 500, "error": error}
        behavior = choose(self.options, self._rng) if name == "random" else name
        plan = plan_entry(behavior if name == "random" else entry, str(body.get("model", "")), self.options)
        request = MockRequest(len(self.requests) + 1, name, behavior, path, headers, body, raw)
        self.requests.append(request)
        return request, plan

    async def _play(
        self, plan: Plan, request: MockRequest, writer: asyncio.StreamWriter, gone: asyncio.Future[bytes]
    ) -> Outcome:
        if plan.status:
            await _send_head(writer, plan)
        wait = self.options.first_delay_ms
        for piece in plan.pieces:
            await _pause(wait, gone)
            wait = self.options.delay_ms if plan.delay_ms is None else plan.delay_ms
            for part in [bytes([byte]) for byte in piece] if plan.single_bytes else [piece]:
                await _send(writer, part, plan, gone)
            request.chunks_sent += 1
        match plan.ending:
            case "reset":
                _reset(writer)
                return "reset"
            case "stall":
                await gone
                return "client_closed"
            case "pings":
                while True:
                    await _pause(self.options.ping_ms, gone)
                    await _send(writer, PING, plan, gone)
        if plan.streamed:
            writer.write(b"0\r\n\r\n")
        await writer.drain()
        return "completed" if plan.status < 400 else "server_error"

    def _record(self, kind: str, request: MockRequest) -> None:
        if self._on_record is not None:
            self._on_record(kind, request)


def load_script(path: Path) -> list[Entry]:
    """The script in a JSON or YAML file. Raises ``ValueError`` when it is no list, OSError."""
    import yaml

    try:
        text = path.read_text("utf-8")
        script: Any = decode(text) if path.suffix == ".json" else yaml.safe_load(text)
    except UnicodeDecodeError:
        raise ValueError(f"{path}: not UTF-8 text") from None
    except (ValueError, yaml.YAMLError) as error:
        raise ValueError(f"{path}: {' '.join(str(error).split())}") from None
    if not isinstance(script, list):
        raise ValueError(f"{path}: a mock script is a list of entries")
    return script


async def serve(
    script: Sequence[Entry],
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    repeat_last: bool = False,
    api_key: str | None = None,
    seed: int = 0,
    options: MockOptions | None = None,
    refuse_ms: float = 1000,
    write_line: Callable[[str], None] = print,
) -> None:
    """Run a server until cancelled, writing one JSON line for ``ready`` and for each ``request`` and ``result``.

    A first entry ``connection_refused`` keeps the port bound but closed for `refuse_ms` milliseconds.
    """

    def record(kind: str, request: MockRequest) -> None:
        write_line(encode_str({"type": kind, **request.to_wire()}))

    entries = list(script)
    options = options or MockOptions(first_delay_ms=25, delay_ms=10)
    refuse = bool(entries) and entries[0] == "connection_refused"
    server = MockLlmServer(
        entries[1:] if refuse else entries,
        repeat_last=repeat_last,
        api_key=api_key,
        seed=seed,
        options=options,
        on_record=record,
    )
    with contextlib.closing(socket.socket(socket.AF_INET, socket.SOCK_STREAM)) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, port))
        url = f"http://{host}:{sock.getsockname()[1]}/v1"
        if refuse:
            write_line(encode_str({"type": "ready", "url": url}))
            await asyncio.sleep(refuse_ms / 1000)
        await server.start(sock)
        try:
            if not refuse:
                write_line(encode_str({"type": "ready", "url": url}))
            await asyncio.Event().wait()
        finally:
            await server.close()


async def _send_head(writer: asyncio.StreamWriter, plan: Plan) -> None:
    length = sum(map(len, plan.pieces))
    framing = "Transfer-Encoding: chunked" if plan.streamed else f"Content-Length: {length}"
    lines = [f"HTTP/1.1 {plan.status} {_REASONS.get(plan.status, 'Status')}", framing, "Connection: close"]
    lines += [f"{key}: {value}" for key, value in plan.headers.items()]
    writer.write("\r\n".join([*lines, "", ""]).encode("latin-1"))
    await writer.drain()


async def _send(writer: asyncio.StreamWriter, part: bytes, plan: Plan, gone: asyncio.Future[bytes]) -> None:
    if gone.done():
        raise ConnectionResetError("the client left")
    writer.write(b"%x\r\n%s\r\n" % (len(part), part) if plan.streamed else part)
    await writer.drain()
    if plan.single_bytes:
        await asyncio.sleep(0)


async def _pause(wait_ms: float, gone: asyncio.Future[bytes]) -> None:
    """Wait, but notice at once when the client leaves."""
    if wait_ms > 0:
        await asyncio.wait({gone}, timeout=wait_ms / 1000)
    if gone.done():
        raise ConnectionResetError("the client left")


def _reset(writer: asyncio.StreamWriter) -> None:
    """End the connection with a reset rather than an orderly close."""
    sock = writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


__all__ = ["Entry", "MockLlmServer", "MockOptions", "MockRequest", "load_script", "serve"]
