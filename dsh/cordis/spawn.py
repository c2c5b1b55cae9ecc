"""Background tasks of a plugin."""

from __future__ import annotations

import contextvars
from collections.abc import Awaitable, Coroutine, Generator
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from .effects import settle_undo
from .errors import CordisError
from .waiting import Latch

if TYPE_CHECKING:
    from .context import Context

T = TypeVar("T")


class Spawned(Generic[T]):
    """A running task that is an effect: cancelled and awaited when its owner unloads.

    `await handle` gives the task's result or raises what it raised. Calling the handle cancels and, awaited, waits.
    """

    __slots__ = ("_critical", "_gone", "_owned", "_stack", "label", "name")

    def __init__(
        self, ctx: Context, coroutine: Coroutine[Any, Any, T], name: str, critical: bool, inherit: bool
    ) -> None:
        self.name = name
        self.label = f"task({name})"
        self._critical = critical
        self._stack = ctx.stack
        self._gone: Latch | None = None
        try:
            ctx.stack.check(self.label)
        except BaseException:
            coroutine.close()
            raise
        # The fiber's variables, not the caller's: work started lazily during one agent's call is not that agent's.
        variables = contextvars.copy_context() if inherit else ctx.fiber.variables.copy()
        self._owned = ctx.runtime.start(coroutine, ctx.fiber, "task", name, variables)
        self._stack.items[self] = None
        self._owned.task.add_done_callback(self._ended, context=ctx.runtime.variables)

    def __await__(self) -> Generator[Any, None, T]:
        yield from self._owned.done.__await__()
        return self._owned.task.result()  # type: ignore[no-any-return]

    def __call__(self) -> Awaitable[None]:
        return self.begin_undo()

    def __repr__(self) -> str:
        return f"<{self.label}{' done' if self.done() else ''}>"

    def cancel(self) -> bool:
        """Cancel at its next await (outside of `ctx.shield()`); `False` if it is over already."""
        if self.done():
            return False
        self._owned.cancel()
        return True

    def done(self) -> bool:
        return self._owned.task.done()

    def cancelled(self) -> bool:
        return self._owned.task.cancelled()

    def result(self) -> T:
        """As `asyncio.Task.result`."""
        return self._owned.task.result()  # type: ignore[no-any-return]

    def exception(self) -> BaseException | None:
        """As `asyncio.Task.exception`."""
        return self._owned.task.exception()

    async def ended(self) -> None:
        """Wait until it is over, however it ended."""
        await self._owned.done

    def begin_undo(self) -> Latch:
        if self._gone is None:
            self._gone = Latch()
            if self.done():
                self._leave()
            else:
                self._owned.cancel()
                self._stack.fiber.runtime.supervise(self._wait(), f"end of {self.label}")
        return self._gone

    async def _wait(self) -> None:
        await settle_undo(self._stack.fiber, self._owned, self.label, reports=False)
        self._leave()

    def _leave(self) -> None:
        self._stack.items.pop(self, None)
        if self._gone is not None:
            self._gone.set()

    def _ended(self, _: object) -> None:
        fiber = self._stack.fiber
        error = self._owned.failure()
        if error is not None:
            # What `ctx.sleep` and registrations raise in a task that outlives the start of unloading.
            late = isinstance(error, CordisError) and error.code == "INACTIVE_EFFECT" and not self._stack.is_open
            if not late:
                fiber.task_failed(self.name, error, critical=self._critical and self._gone is None)
        if self._gone is None:
            self._leave()
