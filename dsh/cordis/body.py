"""The body of a plugin while it starts: what calling it gave, its awaitable part, and giving that up."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any

from .effects import Disposer, Lifespan, as_undo, enter_sync, halves
from .errors import AbortError, CordisError
from .tasks import OwnedTask, finished_within
from .waiting import Eager, awaiting

if TYPE_CHECKING:
    from .fiber import Fiber


class Body:
    """One start of one fiber. `task` runs its awaitable part, if it has one."""

    __slots__ = ("_fiber", "task")

    def __init__(self, fiber: Fiber) -> None:
        self._fiber = fiber
        self.task: OwnedTask | None = None

    async def run(self, run: Eager, outcome: Any) -> BaseException | None:
        """Bring what calling the body gave to its end and keep the undo it leaves; the error if it failed by itself."""
        pending = self._take(outcome)
        if pending is None:
            return None
        fiber = self._fiber
        coroutine = pending if inspect.iscoroutine(pending) else awaiting(pending)
        body = self.task = fiber.runtime.start(coroutine, fiber, "body", fiber.label, fiber.variables)
        if fiber.is_stale():
            self.cancel()
        await run.wait(body.done)
        self.task = None
        if not body.task.done():
            return None  # given up
        error = body.failure()
        if error is None and not body.task.cancelled():
            self._keep_undo(body.task.result())
        if not body.cancelled_by_us:
            return error or (
                AbortError(f"{fiber.label} was cancelled while loading") if body.task.cancelled() else None
            )
        # One that only learned of it by a refused registration did not fail.
        if error is not None and not (isinstance(error, CordisError) and error.code == "INACTIVE_EFFECT"):
            fiber.runtime.report(fiber, error, "%s failed while its loading was given up", fiber.label)
        return None

    def cancel(self) -> None:
        """Give the start up: cancel what runs of it, with more and more insistence."""
        if self.task is not None and not self.task.cancelled_by_us:
            self.task.cancel()
            self._fiber.runtime.supervise(self._insist(self.task), f"cancelling {self._fiber.label}")

    async def _insist(self, body: OwnedTask) -> None:
        fiber = self._fiber
        limit = fiber.runtime.dispose_timeout
        if not await finished_within(body, limit):
            body.cancel(force=True)
            if not await finished_within(body, min(1.0, limit)):
                fiber.leaks += 1
                fiber.ctx.logger.error("%s did not stop loading within %g s and was given up", fiber.label, limit)
                body.done.set()

    def _take(self, outcome: Any) -> Awaitable[Any] | None:
        """What calling the body gave: `None`, an undo, a generator's halves, or something to await."""
        if outcome is None:
            return None
        stack, label = self._fiber.stack, self._fiber.label
        if inspect.isasyncgen(outcome):
            return Lifespan(stack, label, halves(outcome), bare=True).enter_as_body()
        if inspect.isawaitable(outcome):
            return outcome
        self._keep_undo(enter_sync(halves(outcome), label, bare=True)[1] if inspect.isgenerator(outcome) else outcome)
        return None

    def _keep_undo(self, result: Any) -> None:
        undo = as_undo(result, self._fiber.label)
        if undo is not None:  # even if the disposal was asked for meanwhile: what it undoes has happened
            Disposer(self._fiber.stack, "teardown", undo, late=True)
