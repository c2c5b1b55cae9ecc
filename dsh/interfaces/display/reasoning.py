"""What the model thinks: the end of it while it comes, one line afterwards, all of it on demand."""

from __future__ import annotations

from typing import Final

from ..terminal_text import visible
from .amounts import MOMENT, counted, duration
from .cells import wrapped
from .ink import DIM, Ink

LIVE_ROWS: Final = 3
TAIL: Final = 1000
"""Characters of the end that are kept at least, for the live rows."""
KEPT: Final = 200_000
"""Characters of the last reasoning that can be shown afterwards; of more the end."""


class Reasoning:
    """The reasoning of one reply after the other; `text` is the last one."""

    def __init__(self, ink: Ink) -> None:
        self._ink = ink
        self.text = ""
        self._pieces: list[str] = []
        self._tail = ""
        self._began = 0.0

    def feed(self, text: str, now: float) -> None:
        """Take a piece at the time ``now``, in seconds."""
        if not self._pieces:
            self._began, self._tail = now, ""
        self._pieces.append(text)
        self._tail += visible(text)
        if len(self._tail) > 4 * TAIL:  # seldom: each time the rows are broken anew
            self._tail = self._tail[-TAIL:]

    def finish(self, now: float, *, whole: bool, hint: str) -> str | None:
        """It has ended: the line to print, or all of it; None when there was none. hint: how to see more."""
        if not self._pieces:
            return None
        self.text = visible("".join(self._pieces))[-KEPT:].strip("\n")
        self._pieces.clear()
        if not self.text.strip():
            return None
        if whole:
            return self.text
        took = now - self._began
        time = f" for {duration(took)}" if took >= MOMENT else ""
        words = counted(len(self.text.split()), "word")
        return f"{self._ink.glyphs.thought} thought{time}, {words}{hint}"

    def live(self, width: int) -> list[str]:
        """The rows of its end while it comes."""
        if not self._pieces:
            return []
        rows = wrapped(self._tail.strip("\n"), width)[-LIVE_ROWS:]
        return [self._ink(DIM, row) for row in rows]
