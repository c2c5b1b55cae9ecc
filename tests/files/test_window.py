"""One window of lines, however the text arrives."""

import random

import pytest

from dsh.files.window import LineWindow, WindowLimits

WIDE = WindowLimits(lines=2000, line_chars=2000, total_bytes=51_200)


def read(text: str, offset: int = 1, limits: WindowLimits = WIDE, pieces: int | None = None) -> LineWindow:
    window = LineWindow(offset, limits)
    if pieces is None:
        window.feed_all(text)
        return window
    at = 0
    while at < len(text):
        size = random.randrange(1, pieces + 1)
        window.feed(text[at : at + size])
        at += size
    window.finish()
    return window


def reference(text: str, offset: int, limits: WindowLimits) -> tuple[list[str], int]:
    """The rule said plainly, with the whole text at hand."""
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    lines = [line.removesuffix("\r") for line in lines]
    taken: list[str] = []
    size = 0
    for line in lines[offset - 1 : offset - 1 + limits.lines]:
        if len(line) > limits.line_chars:
            line = f"{line[: limits.line_chars]}... (line truncated to {limits.line_chars} chars)"
        cost = len(line.encode()) + (1 if taken else 0)
        if taken and size + cost > limits.total_bytes:
            break
        size += cost
        taken.append(line)
    return taken, len(lines)


@pytest.mark.parametrize(
    ("text", "lines", "total"),
    [
        ("", [], 0),
        ("a", ["a"], 1),
        ("a\n", ["a"], 1),
        ("a\n\n", ["a", ""], 2),
        ("\n", [""], 1),
        ("a\r\nb\r\n", ["a", "b"], 2),
        ("a\r\r\nb", ["a\r", "b"], 2),
        ("a\x0bb\x85c\u2028d\n", ["a\x0bb\x85c\u2028d"], 1),  # only LF ends a line
    ],
)
def test_b04a_lines_and_their_number(text: str, lines: list[str], total: int) -> None:
    window = read(text)
    assert (window.lines, window.total) == (lines, total)


def test_b04b_the_window_does_not_depend_on_the_pieces() -> None:
    random.seed(11)
    for _ in range(400):
        text = "".join(
            random.choice(["\n", "\r\n", "\r", "ä", "word ", "x" * 9, "😀"]) for _ in range(random.randrange(120))
        )
        limits = WindowLimits(random.randrange(1, 9), random.randrange(1, 12), random.randrange(1, 60))
        offset = random.randrange(1, 9)
        window = read(text, offset, limits, pieces=random.choice([1, 3, 50]))
        assert (window.lines, window.total) == reference(text, offset, limits)


def test_b04c_the_byte_cap_counts_bytes_and_the_total_stays_exact() -> None:
    window = read("ä" * 10 + "\n" + "b" * 10 + "\n" + "c\n" * 100, limits=WindowLimits(2000, 2000, 31))
    assert window.lines == ["ä" * 10, "b" * 10]  # 20 + 1 + 10 bytes
    assert window.total == 102


def test_b04d_one_line_is_taken_whatever_its_size() -> None:
    assert read("x" * 100 + "\ny\n", limits=WindowLimits(10, 2000, 5)).lines == ["x" * 100]


def test_b04e_a_giant_line_is_never_held() -> None:
    window = LineWindow(1, WindowLimits(2000, 100, 51_200))
    piece = "x" * 65_536
    for _ in range(200):
        window.feed(piece)
        assert len(window._held) <= 101
    window.feed("\nend")
    window.finish()
    assert window.lines == ["x" * 100 + "... (line truncated to 100 chars)", "end"]


def test_b04f_a_line_of_exactly_the_limit_with_a_crlf_is_whole() -> None:
    assert read("x" * 10 + "\r\n", limits=WindowLimits(5, 10, 1000)).lines == ["x" * 10]
    assert read("x" * 11 + "\n", limits=WindowLimits(5, 10, 1000)).lines == [
        "x" * 10 + "... (line truncated to 10 chars)"
    ]
