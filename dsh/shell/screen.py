"""What a terminal shows, as plain text: escape sequences taken out, the latest lines kept."""

from __future__ import annotations

import codecs
import re
from collections import deque
from collections.abc import Iterator
from typing import Final, Literal

from dsh.cordis.records import record

_SPECIAL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_STRING: Final = re.compile(r"\x1b([\]PX^_])([^\x07\x18\x1a\x1b]*)(?:\x07|\x1b\\)")
_SEQUENCE: Final = re.compile(
    r"\x1b(?:[\]PX^_][^\x07\x18\x1a\x1b]*|\[[0-?]*[ -/]*|[ -/]*)[\x18\x1a]"  # called off by CAN or SUB
    r"|\x1b\[[0-?]*[ -/]*[@-~]|\x1b[ -/]*[0-Z\\^-~]"
)
_UNFINISHED: Final = re.compile(r"\x1b(?:[\]PX^_][^\x07\x18\x1a\x1b]*\x1b?|\[[0-?]*[ -/]*|[ -/]*)|\r+")
_LINE_END: Final = re.compile(r"\r+\n?")

LONGEST_SEQUENCE: Final = 8192
"""Characters after which an escape sequence that does not end is given up."""


class Sanitizer:
    """Turns the bytes of a terminal into text and operating system commands, wherever the bytes are cut.

    CR and CRLF become LF (a terminal may put one more CR in front); tabs stay; all other controls and escape sequences
    are dropped.
    """

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._pending = ""

    def feed(self, data: bytes) -> Iterator[tuple[Literal["text", "osc"], str]]:
        """What these bytes complete, in order."""
        text = self._pending + self._decoder.decode(data)
        self._pending = ""
        at = 0
        while (special := _SPECIAL.search(text, at)) is not None:
            start = special.start()
            if start > at:
                yield "text", text[at:start]
            if (unfinished := _UNFINISHED.fullmatch(text, start)) is not None:
                if len(unfinished[0]) <= LONGEST_SEQUENCE:
                    self._pending = unfinished[0]
                return
            at = start + 1
            if (line_end := _LINE_END.match(text, start)) is not None:
                yield "text", "\n"
                at = line_end.end()
            elif (string := _STRING.match(text, start)) is not None:
                at = string.end()
                if string[1] == "]":
                    yield "osc", string[2]
            elif (sequence := _SEQUENCE.match(text, start)) is not None:
                at = sequence.end()
        if at < len(text):
            yield "text", text[at:]


@record
class Lines:
    """Some lines of a terminal: numbers `first` to `last` (exclusive) of `total`, counted from its start."""

    text: str
    first: int
    last: int
    total: int


class Scrollback:
    """The latest output of a terminal. Positions are characters since it was opened."""

    def __init__(self, max_lines: int, max_bytes: int) -> None:
        self._max_lines = max_lines
        self._max_bytes = max_bytes
        self._lines: deque[str] = deque()
        self._lines_size = 0
        self._last: deque[str] = deque()  # pieces of the line that has not ended
        self._last_size = 0
        self._dropped = 0
        self.end = 0
        """The position behind the last character."""

    def append(self, text: str) -> None:
        """Add output, letting go of what is too old."""
        self.end += len(text)
        *complete, rest = text.split("\n")
        if complete:
            self._last.append(complete[0])
            complete[0] = "".join(self._last)
            self._last.clear()
            self._last_size = 0
            for line in complete:
                self._lines.append(line + "\n")
                self._lines_size += _size(line) + 1
        if rest:
            self._last.append(rest)
            self._last_size += _size(rest)
        while self._last_size > self._max_bytes and len(self._last) > 1:
            self._last_size -= _size(self._last.popleft())
        room = self._max_bytes - self._last_size
        while self._lines and (len(self._lines) >= self._max_lines or self._lines_size > room):
            self._lines_size -= _size(self._lines.popleft())
            self._dropped += 1

    def since(self, position: int, most: int) -> tuple[str, bool]:
        """The output from `position` on, and whether its beginning is lost; at most the last `most` bytes of it."""
        wanted = self.end - position
        pieces: list[str] = []
        have = size = 0
        for piece in (*reversed(self._last), *reversed(self._lines)):
            if have >= wanted or size >= most:
                break
            pieces.append(piece)
            have += len(piece)
            size += _size(piece)
        text = "".join(reversed(pieces))[-wanted:] if wanted else ""
        cut = _last_bytes(text, most)
        return cut, len(cut) < wanted

    def lines(self, offset: int | None, count: int) -> Lines:
        """`count` lines from number `offset` on (None: the last ones), as far as they are kept."""
        kept = [*self._lines, "".join(self._last)] if self._last else [*self._lines]
        total = self._dropped + len(kept)
        first = max(self._dropped, min(total, total - count if offset is None else offset))
        last = min(total, first + count)
        return Lines("".join(kept[first - self._dropped : last - self._dropped]), first, last, total)


def _size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))


def _last_bytes(text: str, most: int) -> str:
    if _size(text) <= most:
        return text
    return text.encode("utf-8", "replace")[-most:].decode("utf-8", "ignore")
