"""The clock behind the time helpers: the event loop's, or a virtual one that tests move by hand."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Callable
from typing import Any, Protocol


class Timer(Protocol):
    """A scheduled call."""

    def cancel(self) -> object: ...


class Clock(Protocol):
    """Seconds as float; `time` only ever grows."""

    def time(self) -> float: ...

    def call_later(self, seconds: float, fn: Callable[[], Any]) -> Timer: ...


class LoopClock:
    """The running event loop's clock."""

    def time(self) -> float:
        return asyncio.get_running_loop().time()

    def call_later(self, seconds: float, fn: Callable[[], Any]) -> Timer:
        return asyncio.get_running_loop().call_later(max(0.0, seconds), fn)


class VirtualTimer:
    def __init__(self, fn: Callable[[], Any]) -> None:
        self.fn: Callable[[], Any] | None = fn

    def cancel(self) -> None:
        self.fn = None


class VirtualClock:
    """A clock that stands still until `advance` is called."""

    def __init__(self) -> None:
        self._now = 0.0
        self._queue: list[tuple[float, int, VirtualTimer]] = []
        self._numbers = itertools.count()

    def time(self) -> float:
        return self._now

    def call_later(self, seconds: float, fn: Callable[[], Any]) -> Timer:
        timer = VirtualTimer(fn)
        heapq.heappush(self._queue, (self._now + max(0.0, seconds), next(self._numbers), timer))
        return timer

    async def advance(self, seconds: float) -> None:
        """Move on by `seconds`, firing what falls due in order and letting woken tasks run after each."""
        end = self._now + seconds
        await self._breathe()
        while self._queue and self._queue[0][0] <= end:
            self._now, _, timer = heapq.heappop(self._queue)
            if timer.fn is not None:
                timer.fn()
                await self._breathe()
        self._now = end
        await self._breathe()

    @staticmethod
    async def _breathe() -> None:
        for _ in range(10):
            await asyncio.sleep(0)
