"""Time helpers of a context. Seconds as float, on the root's clock; every one ends with the fiber."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, cast, overload

from .channels import is_async
from .effects import Disposer
from .errors import FAILURES, CordisError

if TYPE_CHECKING:
    from .clock import Clock, Timer
    from .context import Context
    from .spawn import Spawned

P = ParamSpec("P")


class TimeMethods:
    """Mixed into `Context`."""

    __slots__ = ()

    async def sleep(self, seconds: float) -> None:
        """Wait. Raises `INACTIVE_EFFECT` if the fiber unloads meanwhile."""
        ctx = cast("Context", self)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        timer = ctx.runtime.clock.call_later(seconds, lambda: None if done.done() else done.set_result(None))

        def wake() -> None:
            timer.cancel()
            if not done.done():
                done.set_exception(CordisError("INACTIVE_EFFECT", f"{ctx.fiber.describe()} unloaded during ctx.sleep"))

        try:
            disposer = ctx.defer(wake, "sleep")
        except BaseException:
            timer.cancel()
            raise
        try:
            await done
        finally:
            timer.cancel()
            disposer.forget()

    def call_later(self, seconds: float, fn: Callable[[], Any]) -> Disposer:
        """Call `fn()` once, `seconds` from now. An exception in it counts as a failed task."""
        ctx = cast("Context", self)
        disposer = ctx.defer(lambda: timer.cancel(), "call_later")

        def fire() -> None:
            disposer.forget()
            _run(ctx, fn, "call_later")

        timer = ctx.runtime.clock.call_later(seconds, fire)
        return disposer

    @overload
    def every(self, seconds: float) -> AsyncIterator[None]: ...
    @overload
    def every(self, seconds: float, fn: Callable[[], Any]) -> Disposer: ...
    def every(self, seconds: float, fn: Callable[[], Any] | None = None) -> Any:
        """Call `fn()` each `seconds`; without `fn`, an async iterator over the ticks, which ends with the fiber.

        Ticks keep to the original raster; ticks missed while the consumer was busy are skipped.
        """
        ctx = cast("Context", self)
        if fn is None:
            return _ticks(ctx, seconds)
        clock = ctx.runtime.clock
        timer: Timer
        due = clock.time() + seconds
        running: Spawned[Any] | None = None

        def fire() -> None:
            nonlocal timer, due, running
            due = _next_due(clock, due, seconds)
            timer = clock.call_later(due - clock.time(), fire)
            if running is None or running.done():
                running = _run(ctx, fn, "every")

        disposer = ctx.defer(lambda: timer.cancel(), "every")
        timer = clock.call_later(seconds, fire)
        return disposer

    def debounce(self, fn: Callable[P, Any], seconds: float) -> Debounced[P]:
        """A callable that runs `fn` with its latest arguments once it was not called for `seconds`."""
        return Debounced(cast("Context", self), fn, seconds)

    def throttle(self, fn: Callable[P, Any], seconds: float, trailing: bool = True) -> Throttled[P]:
        """A callable that runs `fn` at once and then at most every `seconds`; `trailing` runs the last skipped call."""
        return Throttled(cast("Context", self), fn, seconds, trailing)


def _next_due(clock: Clock, due: float, seconds: float) -> float:
    due += seconds
    now = clock.time()
    return due if due > now else now + seconds


def _run(ctx: Context, fn: Callable[..., Any], name: str, *args: Any, **kwargs: Any) -> Spawned[Any] | None:
    """Call `fn`; if it is async, in a task, which is returned."""
    if is_async(fn):
        return ctx.spawn(lambda: fn(*args, **kwargs), name=name) if ctx.stack.is_open else None
    try:
        fn(*args, **kwargs)
    except FAILURES as error:
        ctx.fiber.task_failed(name, error)
    return None


async def _ticks(ctx: Context, seconds: float) -> AsyncIterator[None]:
    clock = ctx.runtime.clock
    due = clock.time() + seconds
    while True:
        try:
            await ctx.sleep(due - clock.time())
        except CordisError as error:
            if error.code == "INACTIVE_EFFECT":
                return
            raise
        yield
        due = _next_due(clock, due, seconds)


class _Paced(Generic[P]):
    """What debounce and throttle share: the call to make, one timer, and `dispose`."""

    def __init__(self, ctx: Context, fn: Callable[P, Any], seconds: float) -> None:
        self._ctx = ctx
        self._fn = fn
        self._seconds = seconds
        self._timer: Timer | None = None
        self._call: tuple[tuple[Any, ...], dict[str, Any]] | None = None
        self._disposer = ctx.defer(self._drop, type(self).__name__.lower())

    def dispose(self) -> None:
        """Drop what is scheduled; nothing is scheduled any more."""
        self._disposer()

    def _drop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self, seconds: float) -> None:
        self._drop()
        self._timer = self._ctx.runtime.clock.call_later(seconds, self._fire)

    def _fire(self) -> None:
        self._timer = None
        call, self._call = self._call, None
        if call is not None:
            _run(self._ctx, self._fn, type(self).__name__.lower(), *call[0], **call[1])


class Debounced(_Paced[P]):
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> None:
        if not self._disposer.disposed:
            self._call = (args, kwargs)
            self._arm(self._seconds)


class Throttled(_Paced[P]):
    def __init__(self, ctx: Context, fn: Callable[P, Any], seconds: float, trailing: bool) -> None:
        super().__init__(ctx, fn, seconds)
        self._trailing = trailing
        self._quiet_until = float("-inf")

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> None:
        left = self._quiet_until - self._ctx.runtime.clock.time()
        if left <= 0:
            self._call = (args, kwargs)
            self._fire()
        elif self._trailing and not self._disposer.disposed:
            self._call = (args, kwargs)
            if self._timer is None:
                self._arm(left)

    def _fire(self) -> None:
        self._quiet_until = self._ctx.runtime.clock.time() + self._seconds
        super()._fire()
