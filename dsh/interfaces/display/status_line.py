"""The line at the bottom: which agent and model, how full its context is, what was used, how many tools at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from ..terminal_text import visible
from .amounts import thousands
from .cells import cells
from .ink import DIM, YELLOW, Ink, Piece

NEARLY_FULL: Final = 0.8
"""A context that is used beyond this share stands out."""

_INPUT: Final = ("inputTokens", "cacheReadTokens", "cacheWriteTokens")


class StatusLine:
    """Follows the log of one session."""

    def __init__(self, ink: Ink) -> None:
        self._ink = ink
        self.forget("", lambda: None)

    def forget(self, agent: str, cap: Callable[[], int | None]) -> None:
        """Another session comes. agent: the label of its agent; cap: asks how many tools may run at once."""
        self._agent = visible(agent).replace("\n", " ")
        self._cap = cap
        self._model = ""
        self._window: int | None = None
        self._context = 0
        self._steps: dict[tuple[Any, Any], tuple[int, int]] = {}
        self._earlier = (0, 0)

    def event(self, kind: str, data: Any) -> None:
        """Take from one event what the line tells."""
        if kind == "assistant/chunk" and data["chunk"]["type"] == "usage":
            self._used(data, data["chunk"]["usage"])
        elif kind == "assistant/message" and "usage" in data:
            self._used(data, data["usage"])
        elif kind == "request/context":
            self._model = visible(str(data["model"]))
            window = data.get("contextWindow")
            self._window = window if isinstance(window, int) and window > 0 else None
        elif kind == "compaction/end":
            self._context = 0  # unknown until the next request
        elif kind == "turn/end":
            self._earlier = self._sum()
            self._steps.clear()

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
            pieces.append((5, "", self._agent))
        if self._model:
            pieces.append((3, DIM, self._model.replace("\n", " ")))
        if self._context:
            full = self._context / self._window if self._window else 0.0
            of = f"/{thousands(self._window)} ({full:.0%})" if self._window else ""
            text = f"context {thousands(self._context)}{of}"
            pieces.append((4, YELLOW if full > NEARLY_FULL else DIM, text))
        sent, received = self._sum()
        if sent or received:
            pieces.append((2, DIM, f"{thousands(sent)} in, {thousands(received)} out"))
        cap = self._cap()
        if cap is not None:
            pieces.append((1, DIM, f"{cap} at once"))
        return pieces

    def _used(self, where: Mapping[str, Any], usage: Mapping[str, Any]) -> None:
        sent = sum(count for name in _INPUT if isinstance(count := usage.get(name, 0), int))
        received = usage.get("outputTokens", 0)
        received = received if isinstance(received, int) else 0
        self._context = sent + received
        self._steps[where.get("turn"), where.get("step")] = (sent, received)

    def _sum(self) -> tuple[int, int]:
        """Tokens sent and received in all, each step counted once."""
        counts = [self._earlier, *self._steps.values()]
        return sum(sent for sent, _ in counts), sum(received for _, received in counts)
