"""Tasks with an owner: every task of the runtime belongs to a fiber and is known by what it is for."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Coroutine, Generator
from typing import TYPE_CHECKING, Any, Literal

from .errors import CordisError
from .waiting import Latch

if TYPE_CHECKING:
    from .fiber import Fiber
    from .runtime import Runtime

TaskKind = Literal["body", "task", "undo", "lifespan", "listener", "host"]

UNDOING: contextvars.ContextVar[Fiber | None] = contextvars.ContextVar("dsh_undoing", default=None)
"""The fiber whose undo code is running; inherited by tasks that undo code starts."""


class OwnedTask:
    """One asyncio task of a fiber. Our own cancellation waits while the task is inside `ctx.shield()`."""

    __slots__ = ("_cancel_wanted", "_shields", "cancelled_by_us", "done", "fiber", "kind", "name", "task")

    def __init__(self, task: asyncio.Task[Any], fiber: Fiber | None, kind: TaskKind, name: str) -> None:
        self.task = task
        self.fiber = fiber
        self.kind = kind
        self.name = name
        self.done = Latch()
        self.cancelled_by_us = False
        self._shields = 0
        self._cancel_wanted = False

    def cancel(self, *, force: bool = False) -> None:
        """Cancel at the next await outside of a shield; `force` ignores shields."""
        self.cancelled_by_us = True
        if self._shields and not force:
            self._cancel_wanted = True
        else:
            self.task.cancel()

    def failure(self) -> BaseException | None:
        """What the finished task raised; `None` for success and for cancellation."""
        return None if self.task.cancelled() else self.task.exception()


class Shield:
    """`async with ctx.shield():` a critical section of a body or task that unloading must not cut through."""

    __slots__ = ("_owned", "_runtime")

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._owned: OwnedTask | None = None

    async def __aenter__(self) -> None:
        self._owned = self._runtime.current_task()
        if self._owned is not None:
            self._owned._shields += 1

    async def __aexit__(self, *exc: object) -> None:
        owned = self._owned
        if owned is None:
            return
        owned._shields -= 1
        if owned._cancel_wanted and not owned._shields:
            owned._cancel_wanted = False
            owned.task.cancel()
            await asyncio.sleep(0)  # the postponed cancellation arrives here


async def finished_within(owned: OwnedTask, seconds: float) -> bool:
    """Wait for a task at most `seconds`, without cancelling it."""
    if not owned.task.done():
        await asyncio.wait({owned.task}, timeout=seconds)
    return owned.task.done()


class FiberWait:
    """What `restart()`, `update()` and `dispose()` return: starting it is already done, awaiting it is optional.

    Awaiting from undo code that the awaited fiber itself waits for would never end, so it raises `SELF_AWAIT`.
    """

    __slots__ = ("_fiber", "_make", "_what")

    def __init__(self, fiber: Fiber, what: str, make: Any) -> None:
        self._fiber = fiber
        self._what = what
        self._make = make

    def __await__(self) -> Generator[Any, None, None]:
        check_self_await(self._fiber, self._what)
        result: Coroutine[Any, Any, Any] | Latch = self._make()
        return result.__await__()


def check_self_await(fiber: Fiber, what: str) -> None:
    undoing = UNDOING.get()
    if undoing is not None and fiber.waits_for(undoing):
        raise CordisError(
            "SELF_AWAIT",
            f"{fiber.describe()}: awaiting its {what} inside undo code of {undoing.describe()} would never end; "
            "call it without await",
        )
