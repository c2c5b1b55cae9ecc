"""Connections straight to a server: HTTP/1.1 by h11 on asyncio, as a transport of httpx.

The transport that httpx brings goes through httpcore and anyio, which takes twice the processor time for the same
exchange and longer to import; it stays for what needs a proxy.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from typing import Any, TypeAlias

import h11
import httpx

MAX_HEAD = 100 * 1024
_MAX_UNREAD = 256 * 1024
"""Bytes of a reply that may wait for their reader before the peer is made to wait."""
_KEPT = 20
_KEPT_SECONDS = 30.0
_HEAD_START = 0.25
"""Seconds that one address of a name may take before the next is tried beside it (RFC 8305)."""

Origin: TypeAlias = tuple[str, int]


class Connections(httpx.AsyncBaseTransport):
    """One client's connections to servers: a new one for each request, unless one that is idle can be used again.

    tls: wanted for https; without it everything is sent in the clear. Times are those of the request, in seconds.
    """

    def __init__(self, tls: ssl.SSLContext | None) -> None:
        self._tls = tls
        self._open: set[Connection] = set()
        self._idle: dict[Origin, list[Connection]] = {}  # the newest last
        self._is_closed = False

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request; the reply as soon as its head is there. Raises `httpx.TransportError`."""
        seconds: dict[str, float | None] = request.extensions.get("timeout", {})
        connection = await self._connection(request.url, seconds.get("connect"))
        try:
            await connection.send(request, seconds.get("write"))
            head = await connection.head()
        except BaseException:
            connection.abort()
            raise
        version: bytes = b"HTTP/" + head.http_version
        return httpx.Response(
            head.status_code,
            headers=head.headers.raw_items(),
            stream=_Body(self, connection),
            extensions={"http_version": version, "reason_phrase": bytes(head.reason)},
        )

    async def aclose(self) -> None:
        """End all connections; who still reads from one learns that it broke."""
        self._is_closed = True
        for connection in tuple(self._open):
            connection.abort()
        if gone := [connection.gone for connection in self._open]:
            await asyncio.wait(gone)

    def keep(self, connection: Connection) -> None:
        """Take back a connection whose exchange is over."""
        if not connection.begin_again():
            connection.close()
            return
        idle = self._idle.setdefault(connection.origin, [])
        idle.append(connection)
        if len(idle) > _KEPT:
            idle.pop(0).close()

    async def _connection(self, url: httpx.URL, seconds: float | None) -> Connection:
        tls = self._tls if url.scheme == "https" else None
        origin = url.raw_host.decode("ascii"), url.port or (443 if tls else 80)
        idle = self._idle.get(origin, [])
        while idle:
            connection = idle.pop()
            if connection.take():
                return connection
            connection.close()
        try:
            async with asyncio.timeout(seconds):
                connection = await _connect(origin, tls)
        except TimeoutError as error:
            raise httpx.ConnectTimeout("no connection in time") from error
        except (OSError, ExceptionGroup, UnicodeError) as error:  # the last: a name that cannot be one
            raise httpx.ConnectError(str(error)) from error
        if self._is_closed:
            connection.abort()
            raise httpx.ConnectError("the client was closed")
        self._open.add(connection)
        connection.gone.add_done_callback(lambda _: self._open.discard(connection))
        return connection


class Connection(asyncio.Protocol):
    """One connection, and the exchange that is going on over it.

    gone: is done when the connection is closed.
    """

    def __init__(self, origin: Origin) -> None:
        self.origin = origin
        self._loop = asyncio.get_running_loop()
        self.gone: asyncio.Future[None] = self._loop.create_future()
        self._transport: Any = None  # the loops' own transports are no subclasses of asyncio's
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=MAX_HEAD)
        self._reader: asyncio.Future[None] | None = None  # who waits for bytes
        self._writer: asyncio.Future[None] | None = None  # is there while the peer takes none
        self._unread = 0
        self._is_paused = False
        self._is_over = False  # the peer sends no more
        self._error: Exception | None = None  # why the connection is gone
        self._broken: httpx.RemoteProtocolError | None = None  # what is wrong behind what was read
        self._idle_since: float | None = None

    # -- what the loop calls ----------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if self._idle_since is not None:
            self.abort()  # an answer to nothing
            return
        self._http.receive_data(data)
        self._unread += len(data)
        if self._unread > _MAX_UNREAD and not self._is_paused:
            self._is_paused = True
            self._transport.pause_reading()
        self._wake()

    def eof_received(self) -> None:
        self._end()

    def connection_lost(self, exc: Exception | None) -> None:
        self._error = exc
        self._end()
        if self._writer is not None:
            self.resume_writing()
        if not self.gone.done():
            self.gone.set_result(None)

    def pause_writing(self) -> None:
        self._writer = self._loop.create_future()

    def resume_writing(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None and not writer.done():
            writer.set_result(None)

    def _end(self) -> None:
        if not self._is_over:
            self._is_over = True
            if self._error is None:
                self._http.receive_data(b"")
        self._wake()

    def _wake(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    # -- what an exchange calls -------------------------------------------------------------------------------------

    async def send(self, request: httpx.Request, seconds: float | None) -> None:
        """Send a request; `seconds` bounds each wait for a peer that takes nothing. Stops where the peer hangs up:
        it may have answered nonetheless."""
        assert isinstance(request.stream, httpx.AsyncByteStream)
        head = h11.Request(method=request.method, target=request.url.raw_path, headers=request.headers.raw)
        try:
            self._write(head)
            async for piece in request.stream:
                if self._is_over:
                    return
                self._write(h11.Data(data=piece))
                if self._writer is not None:
                    async with asyncio.timeout(seconds):
                        await self._writer
            self._write(h11.EndOfMessage())
        except h11.LocalProtocolError as error:
            raise httpx.LocalProtocolError(str(error)) from error
        except TimeoutError as error:
            raise httpx.WriteTimeout("the peer took nothing in time") from error

    async def head(self) -> h11.Response:
        """Status and headers of the reply."""
        while not isinstance(event := self._next(), h11.Response):
            if event is h11.NEED_DATA:
                await self._more()
        return event

    async def body(self) -> bytes:
        """What has arrived of the body, waiting if that is nothing; empty at its end."""
        pieces: list[bytes] = []
        while self._http.their_state is h11.SEND_BODY:
            try:
                event = self._next()
            except httpx.RemoteProtocolError as error:
                if not pieces:
                    raise
                self._broken = error  # what came before it is read first
                break
            if isinstance(event, h11.Data):
                pieces.append(event.data)
            elif pieces:
                break
            elif event is h11.NEED_DATA:
                await self._more()
        if not pieces and self._broken is not None:
            raise self._broken
        return b"".join(pieces)

    def take(self) -> bool:
        """End being idle; whether the connection can be used for another exchange."""
        since, self._idle_since = self._idle_since, None
        return not self._is_over and since is not None and self._loop.time() < since + _KEPT_SECONDS

    def begin_again(self) -> bool:
        """Be idle, if the exchange came to an end on both sides and the connection stays open."""
        if self._is_over or not self._http.our_state is self._http.their_state is h11.DONE:
            return False
        if self._http.trailing_data[0]:
            return False
        self._http.start_next_cycle()
        self._unread = 0
        self._idle_since = self._loop.time()
        return True

    def close(self) -> None:
        """Close in order."""
        self._transport.close()

    def abort(self) -> None:
        """Close at once: nothing more is sent."""
        self._transport.abort()

    def _write(self, event: h11.Event) -> None:
        if data := self._http.send(event):
            self._transport.write(data)

    def _next(self) -> Any:
        """The next event of the reply, or `h11.NEED_DATA`."""
        waits_for_head = self._http.their_state is h11.SEND_RESPONSE
        try:
            return self._http.next_event()
        except h11.RemoteProtocolError as error:
            text = "the server hung up without an answer" if self._is_over and waits_for_head else str(error)
            raise httpx.RemoteProtocolError(text) from error

    async def _more(self) -> None:
        """Wait for bytes of the peer, all that came before were read."""
        self._unread = 0
        if self._is_paused:
            self._is_paused = False
            self._transport.resume_reading()
        if self._error is not None:
            text = "" if isinstance(self._error, ConnectionError) else str(self._error)
            raise httpx.ReadError(text) from self._error
        self._reader = self._loop.create_future()
        try:
            await self._reader
        finally:
            self._reader = None


class _Body(httpx.AsyncByteStream):
    """The body of a reply, which gives its connection back when it was read to the end."""

    def __init__(self, connections: Connections, connection: Connection) -> None:
        self._connections = connections
        self._connection: Connection | None = connection

    async def __aiter__(self) -> AsyncIterator[bytes]:
        connection = self._connection
        assert connection is not None
        while piece := await connection.body():
            yield piece
        self._connection = None
        self._connections.keep(connection)

    async def aclose(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.abort()


async def _connect(origin: Origin, tls: ssl.SSLContext | None) -> Connection:
    host, port = origin
    loop = asyncio.get_running_loop()
    sock = await _dial(host, port)
    try:
        _, connection = await loop.create_connection(
            lambda: Connection(origin), sock=sock, ssl=tls, server_hostname=host if tls else None
        )
    except BaseException:
        sock.close()
        raise
    return connection


async def _dial(host: str, port: int) -> socket.socket:
    """A socket connected to one of the addresses of `host`. Raises `OSError`, or a group of them."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    if len(found) == 1:
        return await _try(found[0])
    # The second try is of the other family: one of them may lead nowhere.
    found.insert(1, found.pop(next((at for at, one in enumerate(found) if one[0] != found[0][0]), 1)))
    running: set[asyncio.Task[socket.socket]] = set()
    errors: list[OSError] = []
    try:
        while found or running:
            if found:
                running.add(loop.create_task(_try(found.pop(0))))
            patience = _HEAD_START if found else None
            for task in (await asyncio.wait(running, timeout=patience, return_when=asyncio.FIRST_COMPLETED))[0]:
                running.discard(task)
                try:
                    return task.result()
                except OSError as error:
                    errors.append(error)
    finally:
        for task in running:
            if not task.cancel() and task.exception() is None:
                task.result().close()
        if running:
            await asyncio.wait(running)
    raise ExceptionGroup("no address answers", errors)


async def _try(found: Any) -> socket.socket:
    """Connect to one address."""
    family, kind, protocol, _, address = found
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, address)
    except BaseException:
        sock.close()
        raise
    return sock
