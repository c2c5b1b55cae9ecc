"""The two waiting tools of the runtime: a flag many may await, and coroutines that run at once until they must wait."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine, Generator
from typing import Any, TypeVar

T = TypeVar("T")


async def awaiting(work: Awaitable[T]) -> T:
    """Anything awaitable as a coroutine, which can be a task."""
    return await work


class Latch:
    """A flag that is set once and that any number of tasks may await.

    Cancelling one waiter disturbs neither the others nor the work behind the flag.
    """

    __slots__ = ("_waiters", "is_set")

    def __init__(self) -> None:
        self.is_set = False
        self._waiters: list[asyncio.Future[None]] = []

    def set(self) -> None:
        """Set the flag and wake everybody; later calls do nothing."""
        if self.is_set:
            return
        self.is_set = True
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def __await__(self) -> Generator[Any, None, None]:
        if not self.is_set:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            try:
                yield from waiter
            finally:
                if waiter in self._waiters:
                    self._waiters.remove(waiter)


class _Handoff:
    """Yielded by a coroutine that ran eagerly and now needs a task."""

    def __await__(self) -> Generator[Any, None, None]:
        yield self


class Eager:
    """Given to a coroutine that runs outside of any task until its first real wait.

    Every wait inside such a coroutine goes through `wait`, so most mounts and unmounts never need a task.
    """

    __slots__ = ("_in_task",)

    def __init__(self) -> None:
        self._in_task = False

    async def wait(self, latch: Latch) -> None:
        if latch.is_set:
            return
        if not self._in_task:
            self._in_task = True
            await _Handoff()
        await latch


class _Rest:
    """Makes a started coroutine awaitable: plain `await` refuses one that is already suspended."""

    def __init__(self, started: Coroutine[Any, Any, None]) -> None:
        self._started = started

    def __await__(self) -> Generator[Any, None, None]:
        return self._started.__await__()


def run_at_once(coroutine: Coroutine[Any, Any, None]) -> Coroutine[Any, Any, None] | None:
    """Run a coroutine written for `Eager`. Returns `None` if it ended, else the rest of it, to be run as a task."""
    try:
        coroutine.send(None)
    except StopIteration:
        return None

    async def rest() -> None:
        await _Rest(coroutine)

    return rest()
