"""The HTTP client of a provider adapter: lazy, streaming, and free of TLS work where there is no TLS.

``httpx`` is imported with the first request, or before it by `HttpClient.warm`.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import ipaddress
import os
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import orjson

from dsh import __version__
from dsh.cordis.errors import describe_error
from dsh.cordis.jsonio import encode
from dsh.llm.failure import LlmError
from dsh.llm.transport.deadline import StreamDeadline
from dsh.llm.transport.sse import SseEvent, SseParser

if TYPE_CHECKING:
    import ssl

    import httpx

USER_AGENT = f"dsh/{__version__} (+https://pypi.org/project/dsh)"
MAX_JSON_BYTES = 16 * 1024 * 1024
_UPLOAD_SLICE = 256 * 1024
_THREAD_ABOVE = 1024 * 1024


class HttpClient:
    """One plugin's connections. Nothing is opened before the first request; `close` ends everything at once."""

    def __init__(self) -> None:
        # Keyed by (TLS, loopback): a plain URL must not pay for a TLS context, and loopback never uses a proxy.
        self._clients: dict[tuple[bool, bool], httpx.AsyncClient] = {}
        self._closed = False

    async def warm(self, url: str) -> None:
        """Import the client and, for https, build the TLS context, in a thread: off the path of the first token."""
        await asyncio.to_thread(_tls_context if _kind(url)[0] else _import_httpx)

    async def post(
        self,
        url: str,
        headers: Mapping[str, str],
        body: Sequence[bytes],
        deadline: StreamDeadline,
        *,
        connect_timeout_ms: float = 30_000,
    ) -> Reply:
        """Send the pieces of `body` and return once the headers are there; leave the reply with ``aclose``.

        Raises `LlmError` ``TRANSPORT`` when the peer cannot be reached or breaks off, and what `deadline` raises.
        """
        import httpx

        client = await deadline.wait(self._client(url))
        timeout = httpx.Timeout(connect=connect_timeout_ms / 1000, write=60, read=None, pool=None)
        request = client.build_request(
            "POST",
            url,
            # Identity: a compressing proxy would hold tokens back.
            headers={"Accept-Encoding": "identity", **headers, "Content-Length": str(sum(map(len, body)))},
            content=_upload(body, deadline),
            timeout=timeout,
        )
        try:
            response = await deadline.wait(client.send(request, stream=True))
        except httpx.HTTPError as error:
            raise _transport_error(error, host_of(url)) from error
        except RuntimeError as error:
            if not client.is_closed:
                raise
            raise LlmError.of("TRANSPORT", f"the client for {host_of(url)} was closed") from error
        return Reply(response, deadline, host_of(url))

    async def close(self) -> None:
        """Close all connections; requests still running fail."""
        self._closed = True
        clients, self._clients = self._clients, {}
        for client in clients.values():
            await client.aclose()

    async def _client(self, url: str) -> httpx.AsyncClient:
        import httpx

        kind = tls, loopback = _kind(url)
        if kind not in self._clients:
            verify: ssl.SSLContext | bool = await asyncio.to_thread(_tls_context) if tls else False
            if self._closed:
                raise LlmError.of("TRANSPORT", f"the client for {host_of(url)} was closed")
            if kind not in self._clients:
                _note_absent_library()
                self._clients[kind] = httpx.AsyncClient(
                    verify=verify,
                    trust_env=not loopback,
                    follow_redirects=False,
                    limits=httpx.Limits(max_connections=None, max_keepalive_connections=20, keepalive_expiry=30),
                )
        return self._clients[kind]


class Reply:
    """A response whose body is still coming."""

    def __init__(self, response: httpx.Response, deadline: StreamDeadline, where: str) -> None:
        self.status: int = response.status_code
        self.headers: Mapping[str, str] = response.headers
        self._response = response
        self._deadline = deadline
        self.progressed: Callable[[], None] = deadline.event
        """A piece of the reply has come: the progress clock starts anew."""
        self._where = where
        encoded = response.headers.get("content-encoding", "identity") != "identity"
        self._slices: AsyncIterator[bytes] = response.aiter_bytes() if encoded else response.aiter_raw()
        self._head = b""

    async def aclose(self) -> None:
        """Close the connection unless the reply was read to its end."""
        await self._response.aclose()

    async def read(self, limit: int) -> bytes:
        """The rest of the body, cut after `limit` bytes."""
        parts = [self._head]
        size = len(self._head)
        while size < limit and (slice_ := await self._next()):
            parts.append(slice_)
            size += len(slice_)
        return b"".join(parts)[:limit]

    async def read_unless_events(self) -> bytes | None:
        """None when an event stream follows (read it with `batches`), else the whole body.

        The first visible byte decides and not the content type, which servers get wrong in both directions.
        """
        while not (visible := self._head.removeprefix(b"\xef\xbb\xbf").lstrip()):
            slice_ = await self._next()
            if not slice_:
                return b""
            self._head += slice_
        return await self.read(MAX_JSON_BYTES) if visible[:1] in (b"{", b"[", b"<") else None

    async def batches(self) -> AsyncGenerator[list[SseEvent], None]:
        """Events as they arrive, in lists: one slice of the network may complete several.

        Call `progressed` for those that bring something: a ping may be an event too.
        """
        parser = SseParser()
        slice_ = self._head or await self._next()
        while slice_:
            if events := parser.feed(slice_):
                yield events
            slice_ = await self._next()

    async def drain(self, seconds: float = 0.25) -> None:
        """Read what follows the last event, briefly: a reply read to its end leaves the connection for the next."""
        with contextlib.suppress(TimeoutError, LlmError):
            async with asyncio.timeout(seconds):
                while await self._next():
                    pass

    async def _next(self) -> bytes:
        """The next slice, empty at the end of the body."""
        import httpx

        try:
            return await self._deadline.wait(self._slices.__anext__()) or await self._next()
        except StopAsyncIteration:
            return b""
        except httpx.HTTPError as error:
            raise _transport_error(error, self._where) from error


def host_of(url: str) -> str:
    """The part of `url` that names the peer in a message: host and port."""
    return urlsplit(url).netloc.rpartition("@")[2] or url


async def encode_body(body: Mapping[str, Any], size_hint: int = 0) -> bytes:
    """The request body as compact UTF-8 JSON; lone surrogates, which no server takes, become U+FFFD.

    Above a mebibyte of text (`size_hint`) the work moves to a thread.
    """
    if size_hint > _THREAD_ABOVE:
        return await asyncio.to_thread(_encode, body)
    return _encode(body)


def _encode(body: Mapping[str, Any]) -> bytes:
    try:
        return orjson.dumps(body)
    except (TypeError, ValueError):
        return encode(_well_formed(body))


def _well_formed(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, Mapping):
        return {_well_formed(key): _well_formed(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_well_formed(item) for item in value]
    return value


async def _upload(body: Sequence[bytes], deadline: StreamDeadline) -> AsyncIterator[bytes]:
    for piece in body:
        for start in range(0, len(piece), _UPLOAD_SLICE):
            yield piece[start : start + _UPLOAD_SLICE]
            deadline.alive()


def _kind(url: str) -> tuple[bool, bool]:
    parts = urlsplit(url)
    host = parts.hostname or ""
    try:
        loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        loopback = host == "localhost" or host.endswith(".localhost")
    return parts.scheme == "https", loopback


def _import_httpx() -> None:
    import httpx  # noqa: F401


def _note_absent_library() -> None:
    """Let imports of `sniffio` fail at once when it is not there: httpcore tries six times a request, and a search in
    vain takes a tenth of a millisecond."""
    if "sniffio" not in sys.modules and importlib.util.find_spec("sniffio") is None:
        sys.modules["sniffio"] = None  # type: ignore[assignment]


@cache
def _tls_context() -> ssl.SSLContext:
    """The one TLS context of the process: reading the trusted certificates takes about 90 ms."""
    import httpx

    return httpx.create_ssl_context()


def _transport_error(error: httpx.HTTPError, where: str) -> LlmError:
    import httpx

    # A reset connection comes without any text.
    text = str(error).strip() or (
        "the peer reset it" if isinstance(error, httpx.NetworkError) else describe_error(error)
    )
    if isinstance(error, httpx.ConnectTimeout):
        message = f"cannot connect to {where}: no answer in time"
    elif isinstance(error, httpx.ProxyError):
        message = f"the proxy on the way to {where} failed: {text}"
    elif isinstance(error, httpx.ConnectError):
        message = f"cannot connect to {where}: {_system_reason(error) or text}"
        if "CERTIFICATE_VERIFY_FAILED" in text:
            message += "; if the certificate is your own, name its authority's file in SSL_CERT_FILE"
    else:
        message = f"the connection to {where} broke: {text}"
    return LlmError.of("TRANSPORT", message)


def _system_reason(error: BaseException) -> str | None:
    """What the system said of a connection that failed; the client's own words only say that every attempt did."""
    import socket
    import ssl

    pending: list[BaseException | None] = [error]
    while pending:
        each = pending.pop()
        if each is None:
            continue
        if isinstance(each, OSError) and each.errno is not None:
            # The resolver and TLS have numbers of their own.
            own = isinstance(each, socket.gaierror | ssl.SSLError)
            return each.strerror if own else os.strerror(each.errno)
        pending += [each.__context__, each.__cause__]
        if isinstance(each, BaseExceptionGroup):
            pending += each.exceptions
    return None
