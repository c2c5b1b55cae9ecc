"""A clock that a test moves by hand: the time of the event loop, and with it every sleep, timer and timeout."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Callable
from contextvars import Context
from typing import Any

TURNS = 50
"""How often the loop turns after each timer, so that what it woke can run."""


class _Handle(asyncio.TimerHandle):
    """What the loop's caller gets, to cancel its call. The loop itself knows nothing of it."""

    def cancel(self) -> None:
        asyncio.Handle.cancel(self)


class _Timer:
    """A scheduled call."""

    __slots__ = ("_args", "_callback", "context", "handle")

    def __init__(
        self, handle: asyncio.TimerHandle, callback: Callable[..., Any], args: Any, context: Context | None
    ) -> None:
        self.handle = handle
        self.context = context
        self._callback = callback
        self._args = args

    def run(self) -> None:
        if not self.handle.cancelled():
            self._callback(*self._args)


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
        self._queue: list[tuple[float, int, _Timer]] = []
        self._numbers = itertools.count()
        self._loop: Any = None

    def time(self) -> float:
        """The loop's time in seconds, as it was moved."""
        return self._now

    async def advance(self, seconds: float) -> None:
        """Move on by `seconds`, firing what falls due in order; what each timer wakes runs before the next one."""
        end = self._now + seconds
        await self._turn()
        while self._queue and self._queue[0][0] <= end:
            self._now = max(self._now, self._queue[0][0])
            timer = heapq.heappop(self._queue)[2]
            if not timer.handle.cancelled():
                asyncio.get_running_loop().call_soon(timer.run, context=timer.context)
                await self._turn()
        self._now = end
        await self._turn()

    def __enter__(self) -> FakeClock:
        loop: Any = asyncio.get_running_loop()
        if self._loop is not None:
            raise RuntimeError("this clock is in use; every run needs a clock of its own")
        self._loop = loop
        self._now = loop.time()  # deadlines taken before the block still mean what they meant
        loop.time, loop.call_at, loop.call_later = self.time, self._call_at, self._call_later
        return self

    def __exit__(self, *error: object) -> None:
        self.release()

    def release(self) -> None:
        """Give the loop its own time back; what is still scheduled goes on with it. The end of the block does it."""
        loop, self._loop = self._loop, None
        if loop is None:
            return
        del loop.time, loop.call_at, loop.call_later  # the loop's class has its own
        left, self._queue = self._queue, []
        for when, _, timer in left:
            if not timer.handle.cancelled():
                loop.call_later(max(0.0, when - self._now), timer.run, context=timer.context)

    def _call_at(self, when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None) -> Any:
        timer = _Timer(_Handle(when, callback, args, self._loop, context), callback, args, context)
        heapq.heappush(self._queue, (when, next(self._numbers), timer))
        return timer.handle

    def _call_later(
        self, delay: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> Any:
        return self._call_at(self._now + delay, callback, *args, context=context)

    @staticmethod
    async def _turn() -> None:
        for _ in range(TURNS):
            await asyncio.sleep(0)
