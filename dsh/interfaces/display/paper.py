"""What is printed for good, with an empty line where one kind of thing ends and another begins."""

from __future__ import annotations

from typing import Literal

from ..screen import Screen

Kind = Literal["prompt", "answer", "work", "note"]


class Paper:
    """A screen as the parts of a transcript print on it."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._last: Kind | None = None
        self._streaming: Kind | None = None
        self._open = False

    def print(self, kind: Kind, text: str, *, apart: bool = False) -> None:
        """Finished text, whole lines. apart: it does not go on with what was printed before."""
        gap = "\n" if self._gap(kind) or (apart and self._last == kind) else ""
        self._streaming = None
        self._screen.print(gap + text)
        self._last = kind

    def stream(self, kind: Kind, text: str) -> None:
        """Text as it comes, for a screen without a live region."""
        if self._streaming != kind:
            self.close()
            if self._gap(kind):
                self._screen.print("")
            self._streaming = self._last = kind
            self._open = False
        self._screen.write(text)
        self._open = not text.endswith("\n") if text else self._open

    def close(self) -> None:
        """End what was streamed."""
        if self._streaming is not None:
            self._streaming = None
            if self._open:
                self._screen.write("\n")

    def _gap(self, kind: Kind) -> bool:
        last = self._last
        if last is None or last == kind:
            return False
        return kind == "prompt" or (last != "prompt" and "answer" in (last, kind))
