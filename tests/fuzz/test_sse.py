"""Event streams of bytes: any cut gives the same events, only the documented error, bounded memory."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsh.llm.failure import LlmError
from dsh.llm.transport import sse
from dsh.llm.transport.sse import SseParser
from tests.fuzz.kit import CUTS, fuzz, slices

LINE_END = st.sampled_from([b"\n", b"\r", b"\r\n"])
FIELD = st.sampled_from(
    [
        b"data: ",
        b"data:",
        b"data",
        b"data:  ",
        b"event: ",
        b"event:",
        b"event",
        b"id: ",
        b"retry: 3",
        b": ",
        b"",
        b"\xef\xbb\xbf",
    ]
)
VALUE = st.sampled_from(
    [b"", b"x", b" ", b"{}", "日本 😀\u2028\u0085".encode(), b"\xff\xfe", b"\0", b"a: b", b"[DONE]"]
)
LINE = st.tuples(FIELD, VALUE, LINE_END).map(b"".join)
STREAM = st.lists(LINE | LINE_END | st.binary(max_size=8), max_size=24).map(b"".join)


def parse(pieces: list[bytes]) -> list[tuple[str, bytes]]:
    parser = SseParser()
    return [(name, data) for piece in pieces for name, data in parser.feed(piece)]


def held(parser: SseParser) -> int:
    """The bytes that a parser keeps, wherever it keeps them."""
    kept: list[Any] = [getattr(parser, name) for name in SseParser.__slots__]
    lists = [item for value in kept if isinstance(value, list) for item in value]
    return sum(len(item) for item in [*kept, *lists] if isinstance(item, bytes | bytearray))


def reference(data: bytes) -> list[tuple[str, bytes]]:
    """The rules of the standard, one line after the other over the whole stream."""
    data = data.removeprefix(b"\xef\xbb\xbf")
    lines = re.split(rb"\r\n|\n|\r", data)[:-1]
    events: list[tuple[str, bytes]] = []
    name, parts = "", []
    for line in lines:
        if not line:
            if parts:
                events.append((name, b"\n".join(parts)))
            name, parts = "", []
            continue
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            parts.append(value)
        elif field == b"event":
            name = value.decode("utf-8", "replace")
    return events


@fuzz(400)
@given(STREAM, CUTS)
def test_any_cut_gives_the_events_of_the_standard(data: bytes, cuts: list[float]) -> None:
    expected = reference(data)
    assert parse([data]) == expected
    assert parse(slices(data, cuts)) == expected
    assert parse([bytes([byte]) for byte in data]) == expected


@fuzz(150)
@given(STREAM, CUTS, st.integers(1, 60))
def test_what_is_held_is_bounded_and_too_much_is_the_documented_error(
    data: bytes, cuts: list[float], limit: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sse, "MAX_EVENT_BYTES", limit)
        parser = SseParser()
        for piece in slices(data, cuts):
            try:
                parser.feed(piece)
            except LlmError as error:
                assert error.code == "MALFORMED_RESPONSE"
                return
            assert held(parser) <= limit + 3
