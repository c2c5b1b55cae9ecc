"""Effects: everything a plugin registers stands on a stack and is undone last in, first out."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, contextmanager
from dataclasses import field
from typing import TYPE_CHECKING, Any, Final, Protocol, Self, TypeAlias

from .errors import FAILURES, CordisError
from .records import identity_struct
from .tasks import UNDOING, OwnedTask, StartedWork, finished_within
from .waiting import Eager, Latch, awaiting

if TYPE_CHECKING:
    from .fiber import Fiber

Undo: TypeAlias = Callable[[], Any]
"""Takes back one registration; may return an awaitable."""


class StackItem(Protocol):
    """Something on an effect stack: a registration, a nested stack, a child fiber."""

    @property
    def label(self) -> str: ...

    def begin_undo(self) -> Latch:
        """Start the undo if it has not started; the latch is set when it is over."""


@identity_struct
class EffectStack:
    """The registrations of one owner, oldest first."""

    fiber: Fiber
    parent: EffectStack | None = None
    closed: bool = False
    items: dict[StackItem, None] = field(default_factory=dict)

    def check(self, label: str) -> None:
        """Raise `INACTIVE_EFFECT` unless registrations are accepted."""
        self.fiber.runtime.check_thread(label)
        if not self.is_open:
            raise CordisError(
                "INACTIVE_EFFECT",
                f"{label}: {self.fiber.describe()} is unloading or disposed and takes no new registrations",
            )

    @property
    def is_open(self) -> bool:
        """Whether neither this stack nor one that it lies in is being unwound."""
        stack: EffectStack | None = self
        while stack is not None:
            if stack.closed:
                return False
            stack = stack.parent
        return True

    def holds_up(self, other: EffectStack) -> bool:
        """Whether unwinding `other` cannot end before undo code of this stack has."""
        stack: EffectStack | None = self
        while stack is not None:
            if stack is other:
                return True
            stack = stack.parent
        # A whole fiber also waits for everybody who runs on its services; a part of it does not.
        whole = other is other.fiber.stack
        return whole and any(self.fiber in implementation.users for implementation in other.fiber.provided)

    async def unwind(self, run: Eager) -> None:
        """Undo everything, newest first, each before the next; child fibers lying side by side go together."""
        while self.items:
            batch: list[StackItem] = []
            for item in reversed(self.items):
                side_by_side = getattr(item, "is_fiber", False)
                if batch and not side_by_side:
                    break
                batch.append(item)
                if not side_by_side:
                    break
            latches = [item.begin_undo() for item in batch]
            for item, latch in zip(batch, latches, strict=True):
                await run.wait(latch)
                self.items.pop(item, None)

    def tree(self) -> list[Any]:
        """Labels; a nested stack is `{label: [...]}`."""
        return [{item.label: item.inner.tree()} if isinstance(item, Composite) else item.label for item in self.items]


class Disposer:
    """Takes back one registration. Calling it again does nothing and returns the same awaitable.

    Awaiting the disposer itself (before calling it) waits for an asynchronous setup and returns the disposer.
    """

    __slots__ = ("__weakref__", "_done", "_stack", "_undo", "label")

    def __init__(self, stack: EffectStack, label: str, undo: Undo | None = None, *, late: bool = False) -> None:
        if not late:
            stack.check(label)
        self.label = label
        self._stack = stack
        self._undo = undo
        self._done: Latch | None = None
        stack.items[self] = None

    def __call__(self) -> Awaitable[None]:
        return self.begin_undo()

    def dispose(self) -> Awaitable[None]:
        """The same as calling it."""
        return self()

    def __await__(self) -> Generator[Any, None, Self]:
        return self
        yield

    def __repr__(self) -> str:
        return f"<Disposer {self.label}>"

    @property
    def disposed(self) -> bool:
        """Whether the undo was asked for."""
        return self._done is not None

    def begin_undo(self) -> Latch:
        if self._done is None:
            self._done = Latch()
            if self._undo is not None:
                self._run_undo()
            # else: setup is still running and undoes at its end
        return self._done

    def set_up(self, undo: Undo | None) -> None:
        """The setup is over; if the undo was asked for meanwhile, it runs now."""
        self._undo = undo or _nothing
        if self._done is not None:
            self._run_undo()

    def forget(self) -> None:
        """Leave the stack without undoing: the registration ended by itself."""
        self._finish()

    def _run_undo(self) -> None:
        undo = self._undo
        assert undo is not None
        runtime = self._stack.fiber.runtime
        try:
            pending = undo()
        except FAILURES as error:
            runtime.report(self._stack.fiber, error, "undo of %s failed", self.label)
        else:
            if pending is not None and inspect.isawaitable(pending):
                owned = start_undo(self._stack, pending, self.label)
                runtime.supervise(self._wait(owned), f"undo of {self.label}")
                return
        self._finish()

    async def _wait(self, owned: OwnedTask) -> None:
        await settle_undo(self._stack.fiber, owned, self.label)
        self._finish()

    def _finish(self) -> None:
        self._stack.items.pop(self, None)
        self._undo = _nothing
        if self._done is None:
            self._done = Latch()
        self._done.set()


NOT_BARE: Final = "its yield must be bare: it only separates setup and teardown"


def _nothing() -> None:
    return None


def start_undo(stack: EffectStack, pending: Awaitable[Any], label: str) -> OwnedTask:
    """Run asynchronous undo code in a task that knows whose undo it is."""
    fiber = stack.fiber

    variables = fiber.variables.copy()
    variables.run(UNDOING.set, stack)
    return fiber.runtime.start(awaiting(pending), fiber, "undo", f"undo of {label}", variables)


async def settle_undo(fiber: Fiber, owned: OwnedTask, label: str, *, reports: bool = True) -> None:
    """Wait for undo code: warn when it is slow, cut it off at the root's `dispose_timeout`, log what it raised."""
    runtime = fiber.runtime
    limit = runtime.dispose_timeout
    patience = min(1.0, limit)
    if not await finished_within(owned, patience):
        fiber.ctx.logger.warning("undo of %s takes longer than %g s", label, patience)
        if not await finished_within(owned, limit - patience):
            owned.cancel(force=True)
            await finished_within(owned, patience)
            fiber.leaks += 1
            fiber.ctx.logger.error("undo of %s did not end within %g s and was given up", label, limit)
            return
    error = owned.failure()
    if error is not None and reports:
        runtime.report(fiber, error, "undo of %s failed", label)


class Composite(Disposer):
    """A nested stack that is one effect of its owner."""

    __slots__ = ("inner",)

    def __init__(self, stack: EffectStack, label: str) -> None:
        super().__init__(stack, label)
        self.inner = EffectStack(stack.fiber, stack)
        self._undo = _nothing

    def __call__(self) -> Awaitable[None]:
        done = self.begin_undo()
        return StartedWork(self.inner, f"part {self.label}", lambda: done)

    def _run_undo(self) -> None:
        self.inner.closed = True

        async def unwind(run: Eager) -> None:
            await self.inner.unwind(run)
            self._finish()

        self._stack.fiber.runtime.eagerly(unwind, f"undo of {self.label}")


class Lifespan(Disposer):
    """An async context manager entered and left in one task, so that cancel scopes inside it are legal.

    `value` is what entering it returned. Awaiting waits until it is entered, or raises what entering raised.
    """

    __slots__ = ("_bare", "_cm", "_entered", "_error", "_heard", "_leave", "_owned", "_pending", "_ready", "value")

    def __init__(
        self,
        stack: EffectStack,
        label: str,
        cm: AbstractAsyncContextManager[Any],
        *,
        bare: bool = False,
        pending: Any = None,
    ) -> None:
        super().__init__(stack, label)
        self.value: Any = None
        self._cm = cm
        self._bare = bare
        self._pending = pending
        self._error: BaseException | None = None
        self._heard = False
        self._entered = False
        self._ready = Latch()
        self._leave = Latch()
        fiber = stack.fiber
        self._undo = _nothing
        fiber.runtime.begin()
        self._owned = fiber.runtime.start(self._live(), fiber, "lifespan", label, fiber.variables.copy())
        self._owned.task.add_done_callback(lambda _: self._ended())

    def __await__(self) -> Generator[Any, None, Self]:
        self._heard = True
        yield from self._ready.__await__()
        if self._error is not None:
            raise self._error
        return self

    async def enter(self) -> Any:
        """Wait until entered; cancelling the caller gives the setup up."""
        try:
            await self
        except BaseException:
            await self.begin_undo()
            raise
        return self.value

    async def enter_as_body(self) -> None:
        """Wait until entered, then count as registered now: a body's teardown runs before what its setup registered."""
        await self.enter()
        if self._stack.items.pop(self, self) is None:
            self._stack.items[self] = None

    def _run_undo(self) -> None:
        runtime = self._stack.fiber.runtime
        if self._entered:
            self._leave.set()
        else:
            self._owned.cancel()
        runtime.supervise(self._wait(self._owned), f"undo of {self.label}")

    async def _live(self) -> None:
        try:
            self.value = await self._cm.__aenter__()
            if self._bare and self.value is not None:
                await self._cm.__aexit__(None, None, None)
                raise invalid(self.label, NOT_BARE)
        except BaseException as error:
            self._error = error if isinstance(error, Exception) else self._given_up()
            if self._done is None:
                self._finish()  # off the stack before whoever waits hears of it
            raise
        finally:
            self._stack.fiber.runtime.end()
            self._ready.set()
        self._entered = True
        try:
            if self._done is None:
                await self._leave
        except BaseException as error:
            # A scope opened inside was cancelled because something in it failed, or we are shut down hard.
            UNDOING.set(self._stack)
            if not await self._cm.__aexit__(type(error), error, error.__traceback__):
                raise
        else:
            UNDOING.set(self._stack)
            await self._cm.__aexit__(None, None, None)

    async def _wait(self, owned: OwnedTask) -> None:
        if self._entered or not owned.task.done():
            await settle_undo(self._stack.fiber, owned, self.label)
        self._finish()

    def _given_up(self) -> CordisError:
        return CordisError("INACTIVE_EFFECT", f"{self.label}: given up before it was set up")

    def _ended(self) -> None:
        error = self._owned.failure()
        fiber = self._stack.fiber
        if not self._entered:
            if error is not None and not self._heard and not self._owned.cancelled_by_us:
                fiber.runtime.report(fiber, error, "%s failed to start", self.label)
            if self._owned.task.cancelled() and self._error is None:
                self._error = self._given_up()  # cancelled before its first step
                if inspect.iscoroutine(self._pending):
                    self._pending.close()
                fiber.runtime.end()
                self._ready.set()
        elif self._done is None and error is not None:
            fiber.task_failed(self.label, error)
        if self._done is None:
            self._finish()


def enter_sync(cm: AbstractContextManager[Any], label: str, *, bare: bool = False) -> tuple[Any, Undo]:
    """Enter a plain context manager; returns its value and the undo that leaves it."""
    value = cm.__enter__()
    if bare and value is not None:
        cm.__exit__(None, None, None)
        raise invalid(label, NOT_BARE)
    return value, lambda: cm.__exit__(None, None, None)


def halves(generator: Any) -> Any:
    """A generator (sync or async) with one bare `yield`, as a context manager."""
    if inspect.isasyncgen(generator):
        return asynccontextmanager(lambda: generator)()
    return contextmanager(lambda: generator)()


@asynccontextmanager
async def _async_setup(pending: Awaitable[Any], label: str) -> AsyncIterator[None]:
    """An `async def` setup that returns its undo."""
    undo = as_undo(await pending, label)
    yield
    result = undo() if undo is not None else None
    if inspect.isawaitable(result):
        await result


def as_undo(result: Any, label: str) -> Undo | None:
    """What a setup or body returned, as an undo. Raises `INVALID_EFFECT` for anything but a callable or `None`."""
    if result is None:
        return None
    if callable(result):
        undo: Undo = result
        return undo
    raise invalid(label, f"it returned {type(result).__name__}; return an undo function or nothing")


def invalid(label: str, why: str) -> CordisError:
    return CordisError("INVALID_EFFECT", f"{label}: {why}")


def effect(stack: EffectStack, setup: Any, label: str | None) -> Disposer:
    """Register a setup of any accepted shape (see `Context.effect`)."""
    name = label or f"effect({getattr(setup, '__name__', type(setup).__name__)})"
    if hasattr(setup, "__aenter__"):
        return Lifespan(stack, name, setup)
    disposer = Disposer(stack, name)
    try:
        outcome = setup if hasattr(setup, "__enter__") else setup()
        bare = inspect.isgenerator(outcome) or inspect.isasyncgen(outcome)
        if bare:
            outcome = halves(outcome)
        if hasattr(outcome, "__enter__"):
            disposer.set_up(enter_sync(outcome, name, bare=bare)[1])
        elif hasattr(outcome, "__aenter__"):
            disposer.forget()
            return Lifespan(stack, name, outcome, bare=bare)
        elif inspect.isawaitable(outcome):
            disposer.forget()
            return Lifespan(stack, name, _async_setup(outcome, name), pending=outcome)
        else:
            disposer.set_up(as_undo(outcome, name))
    except BaseException:
        disposer.forget()
        raise
    return disposer
