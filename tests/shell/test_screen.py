"""Terminal output as text."""

from __future__ import annotations

import pytest

from dsh.shell.screen import LONGEST_SEQUENCE, Sanitizer, Scrollback

STREAM = (
    b"plain\r\n\x1b[1;31mred\x1b[0m\x1b]0;title\x07\x1b]133;D;0\x1b\\caf\xc3\xa9\rover\x1b(B\x1b=\x08\x07tab\there"
    b"\x1bPq\x1b\\\x1b[?2004hdone\r\r\n\x00end\xff"
)
TEXT = "plain\nredcafé\novertab\theredone\nend\ufffd"
COMMANDS = ["0;title", "133;D;0"]


def fed(pieces: list[bytes]) -> tuple[str, list[str]]:
    sanitizer = Sanitizer()
    seen = [item for piece in pieces for item in sanitizer.feed(piece)]
    return (
        "".join(content for kind, content in seen if kind == "text"),
        [content for kind, content in seen if kind == "osc"],
    )


def test_b10a_escape_sequences_are_dropped_wherever_they_are_cut() -> None:
    assert fed([STREAM]) == (TEXT, COMMANDS)
    for cut in range(len(STREAM)):
        assert fed([STREAM[:cut], STREAM[cut:]]) == (TEXT, COMMANDS)
    assert fed([STREAM[i : i + 1] for i in range(len(STREAM))]) == (TEXT, COMMANDS)


def test_b10a_text_and_commands_keep_their_order() -> None:
    seen = list(Sanitizer().feed(b"a\x1b]133;D;1\x07dsh> "))
    assert seen == [("text", "a"), ("osc", "133;D;1"), ("text", "dsh> ")]


@pytest.mark.parametrize("opening", [b"\x1b]0;", b"\x1b[", b"\x1bP"])
def test_b10a_a_sequence_without_end_is_given_up(opening: bytes) -> None:
    sanitizer = Sanitizer()
    assert [*sanitizer.feed(opening + b"1" * LONGEST_SEQUENCE)] == []
    shown = "".join(content for _, content in sanitizer.feed(b"2" * 10 + b"\nnext\n"))
    assert "next\n" in shown
    assert len(sanitizer._pending) <= LONGEST_SEQUENCE


@pytest.mark.parametrize("opening", [b"\x1b]0;title", b"\x1b[31", b"\x1bPq", b"\x1b"])
@pytest.mark.parametrize("end", [b"\x18", b"\x1a"])
def test_b10a_a_sequence_that_is_called_off_takes_nothing_along(opening: bytes, end: bytes) -> None:
    assert fed([b"a" + opening + end + b"1m]b\x07"]) == ("a1m]b", [])
    assert fed([b"a" + opening, end, b"1m]b\x07"]) == ("a1m]b", [])


def test_a_line_without_end_is_kept_in_pieces() -> None:
    screen = Scrollback(max_lines=10, max_bytes=4_000_000)
    screen.append("before\n")
    start = screen.end
    for _ in range(5_000):  # quadratic work would take minutes
        screen.append("x" * 4_000)
    shown, lossy = screen.since(start, 10_000_000)
    assert lossy and len(shown) == 4_000_000 and set(shown) == {"x"}
    assert screen.lines(0, 100).total == 2
    screen.append("\nlast")
    assert screen.lines(None, 1).text == "last"


def test_lines_are_kept_up_to_the_limit() -> None:
    screen = Scrollback(max_lines=4, max_bytes=1000)
    for number in range(10):
        screen.append(f"line {number}\n")
    screen.append("rest")
    kept = screen.lines(None, 100)
    assert (kept.text, kept.first, kept.last, kept.total) == ("line 7\nline 8\nline 9\nrest", 7, 11, 11)
    assert screen.lines(8, 2).text == "line 8\nline 9\n"
    early = screen.lines(0, 1)
    assert (early.text, early.first, early.last) == ("line 7\n", 7, 8)
    assert screen.lines(99, 5).text == ""
    assert screen.lines(None, 2).text == "line 9\nrest"


def test_the_output_since_a_position_says_when_its_beginning_is_lost() -> None:
    screen = Scrollback(max_lines=100, max_bytes=50)
    screen.append("before")
    start = screen.end
    assert screen.since(start, 100) == ("", False)
    screen.append(" é\ntwo")
    assert screen.since(start, 100) == (" é\ntwo", False)
    assert screen.since(start, 4) == ("\ntwo", True)
    assert screen.since(start, 5) == ("\ntwo", True)  # never half a character
    screen.append("x" * 60)
    assert screen.since(start, 100) == ("x" * 60, True)  # by whole pieces, so a little more than asked may be kept
    screen.append("\n" + "y" * 10)
    assert screen.since(start, 100) == ("y" * 10, True)
