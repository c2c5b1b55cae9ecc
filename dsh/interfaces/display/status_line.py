"""The line at the bottom: agent and model, how full its context is, what was used and its cost, tools at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from ..context_use import ContextUse
from ..spending import Spending, cost_text
from ..terminal_text import visible
from .amounts import thousands
from .cells import cells
from .ink import DIM, YELLOW, Ink, Piece

if TYPE_CHECKING:
    from ..spending import Rates

NEARLY_FULL: Final = 0.8
"""A context that is used beyond this share stands out."""


class StatusLine:
    """Follows the log of one session. rates: asks for the prices that are stated now."""

    def __init__(self, ink: Ink) -> None:
        self._ink = ink
        self.rates: Callable[[], Rates] = dict
        self.forget("", lambda: None)

    def forget(self, agent: str, cap: Callable[[], int | None]) -> None:
        """Another session comes. agent: the label of its agent; cap: asks how many tools may run at once."""
        self._agent = visible(agent).replace("\n", " ")
        self._cap = cap
        self.context = ContextUse()
        self.spending = Spending()

    def event(self, kind: str, data: Any) -> None:
        """Take from one event what the line tells."""
        self.context.event(kind, data, self.spending.event(kind, data))

    def line(self, width: int) -> str:
        """The line; what matters less is left out where it does not fit."""
        pieces, separator = self._pieces(), f" {self._ink.glyphs.dot} "
        chosen: list[tuple[int, str, str]] = []
        left = width + len(separator)
        for piece in sorted(pieces, reverse=True):
            taken = cells(piece[2]) + len(separator)
            if taken <= left or not chosen:
                chosen.append(piece)
                left -= taken
        row: list[Piece] = []
        for _, colour, text in (piece for piece in pieces if piece in chosen):
            row += [(DIM, separator), (colour, text)] if row else [(colour, text)]
        return self._ink.row(width, *row)

    def _pieces(self) -> list[tuple[int, str, str]]:
        """What there is to tell: how much it matters, its style, its text."""
        pieces = []
        if self._agent:
            pieces.append((6, "", self._agent))
        used, window = self.context.used, self.context.window
        if self.context.model:
            pieces.append((4, DIM, visible(self.context.model).replace("\n", " ")))
        if used:
            full = used / window if window else 0.0
            of = f"/{thousands(window)} ({full:.0%})" if window else ""
            text = f"context {thousands(used)}{of}"
            pieces.append((5, YELLOW if full > NEARLY_FULL else DIM, text))
        routes = self.spending.routes.values()
        sent, received = sum(each.input + each.cached for each in routes), sum(each.output for each in routes)
        if sent or received:
            pieces.append((2, DIM, f"{thousands(sent)} in, {thousands(received)} out"))
        if cost := cost_text(self.spending, self.rates()):
            pieces.append((3, DIM, cost))
        cap = self._cap()
        if cap is not None:
            pieces.append((1, DIM, f"{cap} at once"))
        return pieces
