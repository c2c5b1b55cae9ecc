"""Server-sent events from bytes."""

from __future__ import annotations

import pytest

from dsh.llm.failure import LlmError
from dsh.llm.transport import sse
from dsh.llm.transport.sse import SseEvent, SseParser

STREAM = (
    b"\xef\xbb\xbfdata: \xe4\xbd\xa0\xe5\xa5\xbd\r\n\r\n"
    b": a comment\r\n"
    b"event: odd\rid: 7\rdata:one\r\ndata: two\n\n"
    b"data\n\ndata:  spaced\r\r"
    b"retry: 5\n\n"
    b"data: \xf0\x9f\x98\x80\n\ndata: cut"
)
EVENTS = [
    ("", "你好".encode()),
    ("odd", b"one\ntwo"),
    ("", b""),
    ("", b" spaced"),
    ("", "😀".encode()),
]


def parse(*slices: bytes) -> list[SseEvent]:
    parser = SseParser()
    return [event for slice_ in slices for event in parser.feed(slice_)]


def test_b20a_the_whole_stream() -> None:
    assert parse(STREAM) == EVENTS


def test_b20b_every_split_into_two_and_every_single_byte() -> None:
    for cut in range(len(STREAM) + 1):
        assert parse(STREAM[:cut], STREAM[cut:]) == EVENTS, cut
    assert parse(*(bytes([byte]) for byte in STREAM)) == EVENTS


@pytest.mark.parametrize("size", [2, 3, 5, 7])
def test_b20c_slices_of_any_size(size: int) -> None:
    assert parse(*(STREAM[at : at + size] for at in range(0, len(STREAM), size))) == EVENTS


def test_b21_other_line_separators_stay_inside_their_string() -> None:
    said = "a\u2028b\u2029c\u0085d\x0be\x0cf".encode()
    assert parse(b"data: " + said + b"\n\n") == [("", said)]


def test_b25a_an_unterminated_tail_is_no_event() -> None:
    assert parse(b"data: one\n\ndata: two\n") == [("", b"one")]
    assert parse(b"data: one\n\ndata: two") == [("", b"one")]


def test_a_byte_order_mark_counts_at_the_start_only() -> None:
    assert parse(b"\xef\xbb", b"\xbfdata: x\n\n") == [("", b"x")]
    assert parse(b"\xef\xbbdata: x\n\n") == []
    assert parse(b"data: a\n\n\xef\xbb\xbfdata: b\n\n") == [("", b"a")]


def test_an_event_beyond_the_limit_is_malformed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "MAX_EVENT_BYTES", 1000)
    small = b"data: " + b"x" * 400 + b"\n\n"
    assert len(parse(*[small] * 20)) == 20
    for slices in ([b"data: " + b"x" * 2000], [b"data: " + b"x" * 90 + b"\n"] * 20, [b"y" * 90] * 20):
        with pytest.raises(LlmError) as raised:
            parse(*slices)
        assert raised.value.code == "MALFORMED_RESPONSE"
