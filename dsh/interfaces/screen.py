"""Where a conversation is shown: finished text above for good, and a live region below it that is drawn anew."""

from __future__ import annotations

import shutil
import sys
from typing import Protocol, TextIO

from .terminal_text import Style


class Region(Protocol):
    """What goes on just now, drawn by a screen that is `Screen.live` above its input line."""

    @property
    def ticking(self) -> bool:
        """Whether the picture changes with the time alone, so that it is to be drawn about once a second."""

    def live(self, width: int) -> list[str]:
        """The rows of the live region, from the top, with ANSI styles; none wider than ``width`` cells."""

    def status(self, width: int) -> str:
        """The status line, with ANSI styles, at most ``width`` cells wide."""


class Screen(Protocol):
    """Takes text in the order it is to be read."""

    style: Style

    @property
    def live(self) -> bool:
        """Whether it draws a `Region`. One that does not is given streamed text as it comes (`write`)."""

    @property
    def width(self) -> int:
        """Cells in a row, now."""

    def print(self, text: str) -> None:
        """Finished text with ANSI styles, one or more whole lines without the last line feed, below all before."""

    def write(self, text: str) -> None:
        """Streamed text, going on where the last one ended; only for a screen that is not `live`."""

    def changed(self) -> None:
        """What the live region shows is no longer so. Cheap: called for each piece of a stream."""


class PlainScreen:
    """Writes straight to a stream: a pipe, a file, a terminal that cannot move its cursor."""

    live = False

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stdout
        self.style = Style(self._stream)
        self._open = False

    @property
    def width(self) -> int:
        return shutil.get_terminal_size().columns

    def print(self, text: str) -> None:
        if self._open:
            self.write("\n")
        self.write(text + "\n")

    def write(self, text: str) -> None:
        try:
            self._stream.write(text)
        except UnicodeEncodeError:  # a terminal that is not told to speak UTF-8
            encoding = self._stream.encoding
            self._stream.write(text.encode(encoding, "replace").decode(encoding))
        self._stream.flush()
        self._open = not text.endswith("\n") if text else self._open

    def changed(self) -> None:
        pass
