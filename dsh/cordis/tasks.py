"""Tasks with an owner: every task of the runtime belongs to a fiber and is known by what it is for."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import AsyncIterator, Callable, Coroutine, Generator
from contextlib import asynccontextmanager
from dataclasses import field
from typing import TYPE_CHECKING, Any, Literal

from .errors import CordisError
from .records import identity_struct
from .waiting import Latch

if TYPE_CHECKING:
    from .effects import EffectStack
    from .fiber import Fiber
    from .runtime import Runtime

TaskKind = Literal["body", "task", "undo", "lifespan", "listener", "host"]

UNDOING: contextvars.ContextVar[EffectStack | None] = contextvars.ContextVar("dsh_undoing", default=None)
"""The effect stack whose undo code is running; inherited by tasks that undo code starts."""


@identity_struct
class OwnedTask:
    """One asyncio task of a fiber. Our own cancellation waits while the task is inside `ctx.shield()`."""

    task: asyncio.Task[Any]
    coroutine: Coroutine[Any, Any, Any]
    fiber: Fiber | None
    kind: TaskKind
    name: str
    done: Latch = field(default_factory=Latch)
    cancelled_by_us: bool = False
    _shields: int = 0
    _cancel_wanted: bool = False

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


@asynccontextmanager
async def shielded(runtime: Runtime) -> AsyncIterator[None]:
    """See `Context.shield`."""
    owned = runtime.current_task()
    if owned is None:
        yield
        return
    owned._shields += 1
    try:
        yield
    finally:
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


@identity_struct
class StartedWork:
    """What `restart()`, `update()` and `dispose()` return: the work has begun, awaiting it is optional.

    Awaiting it from undo code that the work itself waits for would never end, so that raises `SELF_AWAIT`.
    """

    _stack: EffectStack
    _what: str
    _make: Callable[[], Coroutine[Any, Any, None] | Latch]

    def __await__(self) -> Generator[Any, None, None]:
        check_self_await(self._stack, self._what)
        return self._make().__await__()


def check_self_await(stack: EffectStack, what: str) -> None:
    """Raise `SELF_AWAIT` inside undo code that unwinding `stack` waits for."""
    undoing = UNDOING.get()
    if undoing is not None and undoing.holds_up(stack):
        raise CordisError(
            "SELF_AWAIT",
            f"{stack.fiber.describe()}: awaiting its {what} inside undo code of {undoing.fiber.describe()} "
            "would never end; call it without await",
        )
