"""Streamed text on its way to an editor: few frames a second, whatever the model's pace."""

from __future__ import annotations

import asyncio

from .committed import message_chunk
from .outbox import Outbox

FRAMES_PER_SECOND = 30


class StreamedText:
    """Collects deltas and sends them at most ``FRAMES_PER_SECOND`` times a second."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._kind = ""
        self._pieces: list[str] = []
        self._timer: asyncio.TimerHandle | None = None
        self._last = 0.0

    def push(self, kind: str, text: str) -> None:
        """Add a piece of a message or a thought; ``kind`` is the update it belongs to."""
        if not text:
            return
        if kind != self._kind:
            self.flush()
            self._kind = kind
        self._pieces.append(text)
        if self._timer is not None:
            return
        clock = asyncio.get_running_loop()
        due = self._last + 1 / FRAMES_PER_SECOND
        if clock.time() >= due:
            self.flush()
        else:
            self._timer = clock.call_at(due, self.flush)

    def flush(self) -> None:
        """Send what has come together."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._pieces:
            text = "".join(self._pieces)
            self._pieces.clear()
            self._last = asyncio.get_running_loop().time()
            self._outbox.send(message_chunk(text, self._kind))
