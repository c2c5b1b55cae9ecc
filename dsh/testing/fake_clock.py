"""A clock that a test moves by hand: the time of the event loop, and with it every sleep, timer and timeout."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import Context
from typing import Any

TURNS = 50
"""How often the loop turns after each timer, so that what it woke can run."""


class FakeClock:
    """Time stands still until `advance`.

        clock = FakeClock()
        with clock:
            waiting = asyncio.create_task(asyncio.sleep(60))
            await clock.advance(60)

    Inside the block the loop's time is this clock: `ctx.sleep`, `ctx.every` and the other helpers of a context,
    `asyncio.sleep`, `asyncio.timeout`, `loop.call_later`. The wall clock (`time.time`), threads and other processes
    keep their own time. Timers that are still open when the block ends go on in real time.
    """

    def __init__(self) -> None:
        self._now = 0.0
        self._queue: list[tuple[float, int, asyncio.TimerHandle, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._installed: Any = None

    def time(self) -> float:
        """The loop's time in seconds, as it was moved."""
        return self._now

    async def advance(self, seconds: float) -> None:
        """Move on by `seconds`, firing what falls due in order; what each timer wakes runs before the next one."""
        end = self._now + seconds
        await self._turn()
        while self._queue and self._queue[0][0] <= end:
            self._now = max(self._now, self._queue[0][0])
            _, _, handle, fire = heapq.heappop(self._queue)
            if not handle.cancelled():
                fire()
                await self._turn()
        self._now = end
        await self._turn()

    def __enter__(self) -> FakeClock:
        self._installed = self._install()
        self._installed.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._installed.__exit__(*error)

    @contextmanager
    def _install(self) -> Iterator[None]:
        loop: Any = asyncio.get_running_loop()

        def call_at(
            when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
        ) -> asyncio.TimerHandle:
            handle = asyncio.TimerHandle(when, callback, args, loop, context)

            def fire() -> None:
                def run() -> None:
                    if not handle.cancelled():
                        callback(*args)

                loop.call_soon(run, context=context)

            heapq.heappush(self._queue, (when, next(self._numbers), handle, fire))
            return handle

        def call_later(delay: float, callback: Callable[..., Any], *args: Any, context: Context | None = None) -> Any:
            return call_at(self._now + delay, callback, *args, context=context)

        real = {"time": loop.time, "call_at": loop.call_at, "call_later": loop.call_later}
        self._now = loop.time()  # deadlines taken before the block still mean what they meant
        loop.time, loop.call_at, loop.call_later = self.time, call_at, call_later
        try:
            yield
        finally:
            for name in real:
                delattr(loop, name)
            left, self._queue = self._queue, []
            for when, _, handle, fire in left:
                if not handle.cancelled():
                    real["call_later"](max(0.0, when - self._now), fire)

    @staticmethod
    async def _turn() -> None:
        for _ in range(TURNS):
            await asyncio.sleep(0)
