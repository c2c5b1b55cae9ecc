"""One window of lines out of a text that may be far larger than memory should hold."""

from __future__ import annotations

from dataclasses import field

from dsh.cordis.records import record, struct

PIECE = 1 << 16
"""A good size for the pieces fed to a window, in characters."""


@record
class WindowLimits:
    """What a window may hold: lines, characters of one line, and UTF-8 bytes in all, line ends between included."""

    lines: int
    line_chars: int
    total_bytes: int


@struct
class LineWindow:
    """Collects lines from number `offset` (1-based) on; feed it the text in pieces.

    Lines end at LF, one CR before it is dropped, and a final line end starts no further line. A line that is too long
    is cut and says so. Once the window is full the lines are only counted. The result does not depend on how the text
    was cut into pieces; of the line being read at most `line_chars + 1` characters are held. The first line of a
    window is taken even when it alone exceeds `total_bytes`, so that a reader always gets on.
    """

    offset: int
    limits: WindowLimits
    lines: list[str] = field(default_factory=list)
    total: int = 0
    """Lines seen so far; exact after `finish`."""
    _bytes: int = 0
    _full: bool = False
    _held: str = ""  # the beginning of the line being read
    _length: int = 0  # how many of its characters have been seen
    _last: str = ""  # the last of them

    def feed(self, text: str) -> None:
        """Take the next piece."""
        if self._full or self.total + text.count("\n") < self.offset - 1:
            line_ends = text.count("\n")
            self.total += line_ends
            self._length = len(text) - text.rfind("\n") - 1 + (0 if line_ends else self._length)
            return
        first, *others = text.split("\n")
        self._add(first)
        for part in others:
            self._end_line()
            self._add(part)

    def feed_all(self, text: str) -> None:
        """Take a whole text and finish."""
        for start in range(0, len(text), PIECE):
            self.feed(text[start : start + PIECE])
        self.finish()

    def finish(self) -> None:
        """The text is over: what follows the last line end is a line unless it is empty."""
        if self._length:
            self._end_line()

    def _add(self, part: str) -> None:
        if part:
            self._length += len(part)
            self._last = part[-1]
            room = self.limits.line_chars + 1 - len(self._held)
            if room > 0:
                self._held += part[:room]

    def _end_line(self) -> None:
        self.total += 1
        if self.total >= self.offset and not self._full:
            self._take()
        self._held, self._length, self._last = "", 0, ""

    def _take(self) -> None:
        length = self._length - (self._last == "\r")
        longest = self.limits.line_chars
        line = self._held[:length]
        if length > longest:
            line = f"{line[:longest]}... (line truncated to {longest} chars)"
        size = len(line.encode()) + bool(self.lines)
        if self.lines and self._bytes + size > self.limits.total_bytes:
            self._full = True
            return
        self._bytes += size
        self.lines.append(line)
        self._full = len(self.lines) == self.limits.lines
