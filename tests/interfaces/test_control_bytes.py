"""The server on bytes of every kind: whatever comes in, the connection ends and nothing is raised."""

from __future__ import annotations

import asyncio
import re
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from dsh.interfaces.control.connection import serve_connection
from dsh.interfaces.control.doors import TokenDoor
from dsh.interfaces.control.messages import Request, Response

PARTS = st.sampled_from(
    [
        b"GET /api/status HTTP/1.1\r\n", b"POST /api/stop HTTP/1.1\r\n", b"HEAD / HTTP/1.0\r\n",
        b"CONNECT a:1 HTTP/1.1\r\n", b"GET http://x/ HTTP/1.1\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"Host: 127.0.0.1:80\r\n", b"Authorization: Bearer secret\r\n", b"Expect: 100-continue\r\n",
        b"Content-Length: 5\r\n", b"Content-Length: 99999999999999999999\r\n", b"Content-Length: -1\r\n",
        b"Transfer-Encoding: chunked\r\n", b"Connection: upgrade\r\nUpgrade: h2c\r\n",
        b"\r\n", b"\n", b"5\r\nhello\r\n", b"0\r\n\r\n", b"hello", b"fffffffff\r\n", b"\x00", b"\xff\xfe",
    ]
)  # fmt: skip


class Sink:
    """A writer that keeps what is written."""

    def __init__(self) -> None:
        self.data = b""

    def write(self, data: bytes) -> None:
        self.data += data

    async def drain(self) -> None: ...

    def write_eof(self) -> None: ...

    def is_closing(self) -> bool:
        return False


async def answers(pieces: list[bytes]) -> bytes:
    reader, sink = asyncio.StreamReader(), Sink()

    async def handle(request: Request) -> Response:
        return Response(body={"method": request.method, "size": len(request.body)})

    for piece in pieces[1:]:
        reader.feed_data(piece)
    reader.feed_eof()
    writer: Any = sink
    await asyncio.wait_for(serve_connection(reader, writer, pieces[0], TokenDoor(80, "secret"), handle), 10)
    return sink.data


@settings(deadline=None, max_examples=100)
@given(st.lists(st.one_of(PARTS, st.binary(min_size=1, max_size=30)), min_size=1, max_size=12))
def test_any_bytes_are_answered_or_refused(pieces: list[bytes]) -> None:
    answered = asyncio.run(answers(pieces))
    assert answered == b"" or re.match(rb"HTTP/1\.1 (100|200|4\d\d|501) ", answered)


def test_requests_that_follow_each_other_are_answered_in_order_however_they_are_cut() -> None:
    head = b"Host: 127.0.0.1:80\r\nAuthorization: Bearer secret\r\n"
    first = b"POST /a HTTP/1.1\r\n" + head + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
    second = b"GET /b HTTP/1.1\r\n" + head + b"\r\n"
    data = first + second
    whole = asyncio.run(answers([data]))
    assert whole.count(b"HTTP/1.1 200 OK") == 2
    assert whole.index(b'{"method":"POST","size":3}') < whole.index(b'{"method":"GET","size":0}')
    for size in (1, 2, 7, 50):
        assert asyncio.run(answers([data[at : at + size] for at in range(0, len(data), size)])) == whole
