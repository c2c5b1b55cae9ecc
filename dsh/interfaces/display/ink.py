"""The means of one screen: its colours, its signs, and rows fitted to its width."""

from __future__ import annotations

from typing import Final

from ..terminal_text import Style
from .cells import cells, cut
from .glyphs import glyphs_for

Piece = tuple[str, str]
"""An SGR style such as ``"2"`` (dim) or ``""``, and text without control characters."""

DIM: Final = "2"
BOLD: Final = "1"
RED: Final = "31"
GREEN: Final = "32"
YELLOW: Final = "33"
CYAN: Final = "36"

LEAST: Final = 8
"""Cells that the flexible part of a row keeps at least, as long as the row has them."""


class Ink:
    """What the parts of a display draw with."""

    def __init__(self, style: Style) -> None:
        self.style = style
        self.glyphs = glyphs_for(style.encoding)

    def __call__(self, code: str, text: str) -> str:
        """``text`` in an SGR style, line by line so that a terminal that is cut anywhere shows it right."""
        if not code or not text:
            return text
        return "\n".join(self.style(code, line) if line else "" for line in text.split("\n"))

    def row(self, width: int, *pieces: Piece) -> str:
        """The pieces in a row, the last ones cut where ``width`` ends."""
        shown: list[str] = []
        for code, text in pieces:
            kept = cut(text, width, self.glyphs.ellipsis)
            width -= cells(kept)
            shown.append(self(code, kept))
            if kept != text:
                break
        return "".join(shown)

    def fitted(self, width: int, head: list[Piece], flexible: Piece, tail: list[Piece]) -> str:
        """A row whose middle gives way first."""
        fixed = sum(cells(text) for _, text in (*head, *tail))
        code, text = flexible
        kept = cut(text, max(min(LEAST, cells(text)), width - fixed), self.glyphs.ellipsis)
        return self.row(width, *head, (code, kept), *tail)

    def spinner(self, now: float) -> str:
        """The frame of the spinner at the time ``now``, in seconds."""
        return self.glyphs.spinner[int(now * 8) % len(self.glyphs.spinner)]
