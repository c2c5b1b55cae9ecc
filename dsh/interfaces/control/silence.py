"""Whether a daemon answers its console: said when it does not, and when it does again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Final

from .client import ControlError

PATIENCE_SECONDS: Final = 0.8
"""How long an answer may take before it is asked whether the daemon is there at all: some work takes its time."""

PROBE_SECONDS: Final = 0.6
"""How long a daemon may take for an answer for which it never has to wait."""


class Silence:
    """Watches what a console asks its daemon.

    probe: asks what is answered at once; fell: called once when that gets no answer; ended: when there is one again.
    """

    def __init__(
        self, probe: Callable[[], Awaitable[object]], fell: Callable[[], None], ended: Callable[[], None]
    ) -> None:
        self._probe = probe
        self._fell = fell
        self._ended = ended
        self._waiting = 0
        self._watch: asyncio.Task[None] | None = None
        self.silent = False

    @contextmanager
    def asking(self) -> Iterator[None]:
        """While an answer is waited for."""
        self._waiting += 1
        timer = asyncio.get_running_loop().call_later(PATIENCE_SECONDS, self._doubt)
        try:
            yield
            self.heard()
        finally:
            timer.cancel()
            self._waiting -= 1

    def heard(self) -> None:
        """The daemon has said something."""
        if self.silent:
            self.silent = False
            self._ended()

    async def answers(self) -> bool:
        """Ask whether it is there; takes a moment at most."""
        try:
            async with asyncio.timeout(PROBE_SECONDS):
                await self._probe()
        except (TimeoutError, ControlError):
            return False
        self.heard()
        return True

    async def close(self) -> None:
        """Watch no longer."""
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.wait({self._watch})

    def _doubt(self) -> None:
        if self._watch is None or self._watch.done():
            self._watch = asyncio.create_task(self._look(), name="attach: silence")

    async def _look(self) -> None:
        while self._waiting and not self.silent:
            if await self.answers():
                await asyncio.sleep(PATIENCE_SECONDS)
            elif self._waiting:
                self.silent = True
                self._fell()
