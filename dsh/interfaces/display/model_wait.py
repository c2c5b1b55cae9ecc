"""What a request to the model waits for: its first word, or the moment to try again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ..terminal_text import visible
from .amounts import duration, elapsed
from .ink import DIM, YELLOW, Ink

PATIENCE: Final = 1.0
"""Seconds between two parts of a reply that need no word."""


class ModelWait:
    """Told what happens to a request, at times in seconds."""

    def __init__(self, ink: Ink) -> None:
        self._ink = ink
        self._asked: float | None = None
        self._retry = ""
        self._reason = ""
        self._again = 0.0

    @property
    def running(self) -> bool:
        """Whether something is waited for."""
        return self._asked is not None or bool(self._retry)

    def ask(self, now: float) -> None:
        """A request was sent."""
        self._asked, self._retry = now, ""

    def go_on(self, now: float) -> None:
        """A part of the reply has ended; the next one may come at once, so this is told after a while only."""
        self._asked, self._retry = now + PATIENCE, ""

    def done(self) -> None:
        """Nothing is waited for."""
        self._asked, self._retry = None, ""

    def retry(self, data: Mapping[str, Any], now: float) -> str:
        """A request failed and is sent again after a while: which retry it is, and why."""
        most = data.get("maxRetries")
        of = f" of {most}" if isinstance(most, int) else ""
        failure = data["failure"]
        self._retry = f"retry {data['retry']}{of}"
        self._again = now + data["delayMs"] / 1000
        self._asked = None
        self._reason = visible(str(failure["message"])).replace("\n", " ")
        return f"{self._retry}, after {duration(data['delayMs'] / 1000)}: {self._reason}"

    def live(self, width: int, now: float) -> list[str]:
        """A row with the time that it takes, or that is left."""
        if self._retry:
            left = f" in {elapsed(self._again - now + 0.99)}: "
            sign = f"{self._ink.glyphs.retry} "
            return [self._ink.row(width, (YELLOW, sign + self._retry + left), (YELLOW, self._reason))]
        if self._asked is not None and now >= self._asked:
            spin = self._ink.spinner(now)
            return [self._ink.row(width, (DIM, f"{spin} waiting for the model, {elapsed(now - self._asked)}"))]
        return []
