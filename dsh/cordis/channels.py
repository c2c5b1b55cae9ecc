"""Who hears an event: one channel a name and root, rebuilt when a listener comes or goes, only read by dispatch."""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import field
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from .effects import Disposer
from .errors import CordisError, InvariantError
from .events import Event, EventInfo, Mode
from .records import identity_struct
from .scopes import ScopeRecord, record_of
from .waiting import Latch

if TYPE_CHECKING:
    from .context import Context
    from .runtime import Runtime
    from .tasks import OwnedTask

Call: TypeAlias = Callable[..., Any]

MAILBOX_WARNING = 1000


class Listener:
    """One registration on a channel."""

    __slots__ = ("_concurrent", "_once", "call", "ctx", "fn", "global_", "is_async", "mailbox", "tag")

    def __init__(self, ctx: Context, fn: Call, *, global_: bool, concurrent: bool, once: Disposer | None) -> None:
        self.ctx = ctx
        self.fn = fn
        self.tag: ScopeRecord | None = None if global_ else ctx.scope_record
        self.global_ = global_
        self.is_async = is_async(fn)
        self.mailbox: Mailbox | None = None
        self.call: Call = fn
        # A queue for a single call would be closed by the unregistering that comes before the call.
        self._concurrent = concurrent or once is not None
        self._once = once

    def adapt(self, channel: Channel) -> None:
        """Choose how dispatch calls the function; decided once, by the channel's mode."""
        mode = channel.mode
        if mode == "emit" and self.is_async:
            if self._concurrent:
                self.call = self._spawn
            else:
                self.mailbox = Mailbox(self, channel.name)
                self.call = self.mailbox.post
        elif mode == "waterfall" and not self.is_async:
            self.call = _awaitable_listener(self.fn)
        elif mode in ("bail", "waterfall_sync") and self.is_async:
            raise CordisError(
                "WRONG_MODE",
                f'{self.ctx.fiber.describe()}: event "{channel.name}" is synchronous, its listener must not be async',
            )
        if self._once is not None:
            self.call = _leave_first(self._once, self.call)

    def _spawn(self, event: Event) -> None:
        if self.ctx.stack.is_open:
            self.ctx.spawn(self.fn, event, name=f"listener of {event.__event__.name if event.__event__ else '?'}")


@identity_struct
class Mailbox:
    """The queue of an async listener of an Emit event: one invocation at a time, in order, in one task."""

    _listener: Listener
    _name: str
    _queue: deque[Event] = field(default_factory=deque)
    _wake: Latch = field(default_factory=Latch)
    _owned: OwnedTask | None = None
    _busy: bool = False
    _closed: bool = False

    def post(self, event: Event) -> None:
        if self._closed:  # removed by somebody who was told before it
            return
        self._queue.append(event)
        fiber = self._listener.ctx.fiber
        if not self._busy:
            if self._owned is None:
                self._owned = fiber.runtime.start(
                    self._serve(), fiber, "listener", f"listener of {self._name}", fiber.variables.copy()
                )
            else:
                self._wake.set()
            self._busy = True
            fiber.runtime.begin()
        elif len(self._queue) == MAILBOX_WARNING:
            fiber.ctx.logger.warning("%d events %s wait for one listener", MAILBOX_WARNING, self._name)

    async def _serve(self) -> None:
        fiber, task = self._listener.ctx.fiber, cast("asyncio.Task[None]", asyncio.current_task())
        while True:
            while self._queue:
                try:
                    await self._listener.fn(self._queue.popleft())
                except (Exception, asyncio.CancelledError) as error:
                    # Awaiting something that was cancelled raises here too; that ends one invocation, not the queue.
                    if isinstance(error, asyncio.CancelledError) and task.cancelling():
                        raise
                    fiber.runtime.report(fiber, error, "listener of %s failed", self._name)
            self._wake = Latch()
            self._rest()
            await self._wake

    def _rest(self) -> None:
        if self._busy:
            self._busy = False
            self._listener.ctx.fiber.runtime.end()

    def close(self) -> Awaitable[None] | None:
        """Drop what is queued and cancel what runs; awaitable if something does."""
        self._closed = True
        self._queue.clear()
        if self._owned is None:
            return None
        self._owned.cancel()
        return self._end(self._owned)

    async def _end(self, owned: OwnedTask) -> None:
        await owned.done
        self._rest()


Listeners: TypeAlias = tuple[Listener, ...]


class Channel:
    """The listeners of one event name, in calling order."""

    __slots__ = ("all", "internal", "mode", "name", "plans", "routed", "untagged")

    def __init__(self, name: str) -> None:
        self.name = name
        self.internal = name.startswith("internal/")
        self.mode: Mode | None = None
        self.all: Listeners = ()
        self.untagged: Listeners = ()
        self.routed = False
        """Whether some listeners hear only certain scopes."""
        self.plans: dict[Hashable, Listeners] = {}

    def bind(self, info: EventInfo) -> None:
        """Take the mode of the event class, which a reload may have changed while nobody listens.

        Listeners registered by name before the class was known are adapted now.
        One that does not fit is logged and left out: the emitter is not to blame.
        """
        if self.mode == info.mode:
            return
        if self.mode is not None and self.all:
            raise CordisError("WRONG_MODE", f'event "{self.name}" is {self.mode}, an event class says {info.mode}')
        self.mode = info.mode
        for listener in self.all:
            try:
                listener.adapt(self)
            except CordisError as error:
                self.remove(listener)
                listener.ctx.runtime.report(listener.ctx.fiber, error, "it does not hear %s", self.name)

    def add(self, listener: Listener, prepend: bool) -> None:
        if self.mode is not None:
            listener.adapt(self)
        self._replace((listener, *self.all) if prepend else (*self.all, listener))

    def remove(self, listener: Listener) -> None:
        self._replace(tuple(each for each in self.all if each is not listener))

    def _replace(self, listeners: Listeners) -> None:
        self.all = listeners
        self.untagged = tuple(listener for listener in listeners if listener.tag is None)
        self.routed = len(self.all) != len(self.untagged)
        self.plans = {}

    def route(self, info: EventInfo, event: Event, scope: object, origin: object) -> Listeners:
        """The listeners for a routing key and an origin; kept until a listener or a parent link changes."""
        key = info.scope_of(event) if scope is None and info.scope_of is not None else scope
        if origin is None:
            if key is None:
                return self.untagged
            try:
                return self.plans[key.__scope__.token]  # type: ignore[attr-defined]
            except (AttributeError, KeyError):
                record = record_of(key)
                plan = self.plans.get(record.token)
                return plan if plan is not None else self._plan(record.token, self._admitted(record))
        origin_record = record_of(key) if key is not None else None
        name, realm = _realm_of(origin)
        token = (origin_record.token if origin_record is not None else None, name, realm)
        plan = self.plans.get(token)
        if plan is None:
            near = (each for each in self._admitted(origin_record) if each.global_ or each.ctx.realm(name) == realm)
            plan = self._plan(token, tuple(near))
        return plan

    def _admitted(self, record: ScopeRecord | None) -> Listeners:
        lineage = record.lineage() if record is not None else ()
        return tuple(each for each in self.all if each.tag is None or each.tag in lineage)

    def _plan(self, token: Hashable, listeners: Listeners) -> Listeners:
        if len(self.plans) >= 1024:  # keys that came and went without any listener changing
            self.plans.clear()
        self.plans[token] = listeners
        return listeners


class EventBus:
    """All channels of a root."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self.channels: dict[str, Channel] = {}
        self.guards: Channel = self.channel("internal/dispatch")

    def channel(self, name: str) -> Channel:
        found = self.channels.get(name)
        if found is None:
            found = self.channels[name] = Channel(name)
        return found

    def bind(self, event: type[Event], mode: Mode) -> Channel:
        """The channel of a class seen for the first time. Raises `WRONG_MODE` if it is not dispatched this way."""
        info = getattr(event, "__event__", None)
        if not isinstance(info, EventInfo):
            raise TypeError(f"{event.__name__} is no event: subclass Emit, Parallel, … with name='…'")
        if info.mode != mode:
            verb = {"emit": "ctx.emit", "bail": "ctx.bail", "waterfall_sync": "ctx.waterfall_sync"}.get(
                info.mode, f"await ctx.{info.mode}"
            )
            raise CordisError("WRONG_MODE", f'event "{info.name}" is {info.mode}: dispatch it with {verb}(…)')
        channel = self.channel(info.name)
        channel.bind(info)
        return channel

    def listen(
        self,
        ctx: Context,
        event: type[Any] | str,
        fn: Call,
        *,
        once: bool = False,
        prepend: bool = False,
        global_: bool = False,
        concurrent: bool = False,
    ) -> Disposer:
        if isinstance(event, str):
            info, name = None, event
        else:
            info = getattr(event, "__event__", None)
            if info is None:
                raise TypeError(f"{event!r} is no event class with a name")
            name = info.name
        channel = self.channel(name)
        if info is not None:
            channel.bind(info)
        disposer = Disposer(ctx.stack, f"on({name})")
        listener = Listener(ctx, fn, global_=global_, concurrent=concurrent, once=disposer if once else None)
        try:
            channel.add(listener, prepend)
        except BaseException:
            disposer.forget()
            raise

        def undo() -> Any:
            channel.remove(listener)
            return listener.mailbox.close() if listener.mailbox is not None else None

        disposer.set_up(undo)
        return disposer

    def forget_plans(self) -> None:
        """Realms of existing contexts changed."""
        for channel in self.channels.values():
            channel.plans = {}

    def guard(self, info: EventInfo, event: Event, scope: object) -> None:
        """Ask the guards; what they raise refuses the event."""
        from .framework_events import Dispatching

        if scope is None and info.scope_of is not None:
            scope = info.scope_of(event)
        question = Dispatching(info.mode, info.name, event, scope)
        for listener in self.guards.all:
            listener.call(question)

    def contain(self, channel: Channel, listener: Listener, error: BaseException) -> InvariantError | None:
        """Log what a listener raised; an `InvariantError` is handed back for the emitter."""
        self._runtime.report(listener.ctx.fiber, error, "listener of %s failed", channel.name)
        return error if isinstance(error, InvariantError) else None


def is_async(fn: Call) -> bool:
    """Whether calling `fn` returns a coroutine."""
    return inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(getattr(fn, "__call__", None))  # noqa: B004


def _leave_first(disposer: Disposer, call: Call) -> Call:
    def once(event: Event, *following: Call) -> Any:
        if disposer.disposed:  # a dispatch that began before an inner one came here first
            return following[0]() if following else None
        disposer()
        return call(event, *following)

    return once


def _awaitable_listener(fn: Call) -> Call:
    async def call(event: Event, next: Call) -> Any:
        result = fn(event, next)
        return await result if hasattr(result, "__await__") else result

    return call


def _realm_of(origin: object) -> tuple[str, Hashable]:
    name = getattr(origin, "service_name", None)
    ctx = getattr(origin, "ctx", None)
    if not name or ctx is None:
        raise TypeError(f"origin={origin!r} must be a service")
    return name, ctx.realm(name)
