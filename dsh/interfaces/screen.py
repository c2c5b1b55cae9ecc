"""Where a conversation is shown: lines, and one line that is still being written."""

from __future__ import annotations

import sys
from typing import Protocol, TextIO

from .terminal_text import Style


class Screen(Protocol):
    """Takes text in the order it is to be read."""

    style: Style

    def write(self, text: str) -> None:
        """Go on writing where the last text ended."""

    def line(self, text: str) -> None:
        """A line of its own, below whatever was being written."""

    def close_line(self) -> None:
        """End the line that is being written, if there is one."""


class PlainScreen:
    """Writes straight to a stream."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stdout
        self.style = Style(self._stream)
        self._open = False

    def write(self, text: str) -> None:
        try:
            self._stream.write(text)
        except UnicodeEncodeError:  # a terminal that is not told to speak UTF-8
            encoding = self._stream.encoding
            self._stream.write(text.encode(encoding, "replace").decode(encoding))
        self._stream.flush()
        self._open = not text.endswith("\n") if text else self._open

    def line(self, text: str) -> None:
        self.close_line()
        self.write(text + "\n")

    def close_line(self) -> None:
        if self._open:
            self.write("\n")
