"""The event methods of a context."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar, Unpack, cast, overload

from .channels import Channel, EventBus, Listener, Listeners
from .effects import Disposer
from .errors import FAILURES, CordisError, InvariantError, as_failure
from .events import Bail, Emit, Event, EventInfo, Listens, Mode, Parallel, Serial, Waterfall
from .records import identity_struct

if TYPE_CHECKING:
    from .context import Context

L = TypeVar("L")
F = TypeVar("F", bound=Callable[..., Any])
R = TypeVar("R")


class ListenOptions(TypedDict, total=False):
    """How to listen: `prepend` goes before all others; `global_` ignores scopes; `concurrent` lets an async listener
    of an Emit event run several invocations at once, which normally queue."""

    prepend: bool
    global_: bool
    concurrent: bool


@identity_struct
class Outlet:
    """The way of one event class to one scope, for who emits event after event: what stays the same is looked up once.

    `reach` and `tell` are the halves of an emit around a commit, as `prepare` and `run` are.
    """

    _bus: EventBus
    _channel: Channel
    _info: EventInfo
    _scope: object

    def reach(self, event: Event) -> Listeners:
        """Ask the guards, whose exceptions refuse the event; returns the listeners that will hear it."""
        channel = self._channel
        if self._bus.guards.all:
            self._bus.guard(self._info, event, self._scope)
        return channel.route(self._info, event, self._scope, None) if channel.routed else channel.all

    def tell(self, listeners: Listeners, event: Event) -> None:
        """Notify. What is committed cannot be refused: everything a listener raises is contained."""
        for listener in listeners:
            try:
                listener.call(event)
            except FAILURES as error:
                self._bus.contain(self._channel, listener, error)


@identity_struct
class Prepared:
    """An event that passed its guards, with the listeners it will reach."""

    _outlet: Outlet
    _event: Event
    _listeners: Listeners

    def run(self) -> None:
        """Notify; see `Outlet.tell`."""
        self._outlet.tell(self._listeners, self._event)


class EventMethods:
    """Mixed into `Context`."""

    __slots__ = ()

    _bus: EventBus

    @overload
    def on(self, event: type[Listens[L]], fn: L, **options: Unpack[ListenOptions]) -> Disposer: ...
    @overload
    def on(self, event: type[Listens[L]], **options: Unpack[ListenOptions]) -> Callable[[L], L]: ...
    @overload
    def on(self, event: str, fn: Callable[..., Any], **options: Unpack[ListenOptions]) -> Disposer: ...
    @overload
    def on(self, event: str, **options: Unpack[ListenOptions]) -> Callable[[F], F]: ...
    def on(self, event: Any, fn: Any = None, **options: Unpack[ListenOptions]) -> Any:
        """Listen to an event class, or to a wire name. Without `fn`, a decorator.

        Listeners are called in the order of registration. Options as in `ListenOptions`.
        Raises `WRONG_MODE` for an async listener of a synchronous event, `INACTIVE_EFFECT`.
        """
        return self._listen(event, fn, False, options)

    @overload
    def once(self, event: type[Listens[L]], fn: L, **options: Unpack[ListenOptions]) -> Disposer: ...
    @overload
    def once(self, event: type[Listens[L]], **options: Unpack[ListenOptions]) -> Callable[[L], L]: ...
    @overload
    def once(self, event: str, fn: Callable[..., Any], **options: Unpack[ListenOptions]) -> Disposer: ...
    def once(self, event: Any, fn: Any = None, **options: Unpack[ListenOptions]) -> Any:
        """As `on`, for one call; unregisters before it."""
        return self._listen(event, fn, True, options)

    def _listen(self, event: Any, fn: Any, once: bool, options: ListenOptions) -> Any:
        def register(listener: Any) -> Any:
            disposer = self._bus.listen(cast("Context", self), event, listener, once=once, **options)
            return disposer if fn is not None else listener

        return register(fn) if fn is not None else register

    def emit(self, event: Emit, scope: object = None, origin: object = None) -> None:
        """Tell every listener. A raising listener is logged and the others still run.

        A guard that raises keeps the event from everybody; an `InvariantError` is raised after all ran; for an event
        class with `veto` the first exception stops the dispatch and is raised.
        `scope` is the routing key if the payload does not name it; `origin` a service: only listeners that would
        resolve its name in the same realm hear the event. Raises `WRONG_MODE`.
        """
        info: EventInfo = event.__event__  # type: ignore[assignment]
        bus = self._bus
        channel = bus.channels.get(info.name) if info is not None else None
        if channel is None or channel.mode != "emit" or info.mode != "emit":
            channel = bus.bind(type(event), "emit")
        if bus.guards.all and not channel.internal:
            bus.guard(info, event, scope)
        listeners = channel.all
        if not listeners:
            return
        if channel.routed or origin is not None:
            listeners = channel.route(info, event, scope, origin)
        if info.veto:
            for listener in listeners:
                listener.call(event)
            return
        broken: InvariantError | None = None
        for listener in listeners:
            try:
                listener.call(event)
            except FAILURES as error:
                broken = broken or bus.contain(channel, listener, error)
        if broken is not None:
            raise broken

    def prepare(self, event: Emit, scope: object = None, origin: object = None) -> Prepared:
        """First half of an emit around a commit: asks the guards and fixes the listeners. Then call `run()`."""
        _, listeners = self._reach(event, "emit", scope, origin)
        return Prepared(self.outlet(type(event), scope), event, listeners)

    def outlet(self, event: type[Emit], scope: object = None) -> Outlet:
        """Where events of this class for `scope` go from here, for who emits very many. Raises `WRONG_MODE`."""
        channel = self._bus.bind(event, "emit")
        return Outlet(self._bus, channel, cast("EventInfo", event.__event__), scope)

    async def parallel(self, event: Parallel, scope: object = None, origin: object = None) -> int:
        """Start all listeners, await all; returns how many. Raises an `ExceptionGroup` in listener order."""
        channel, listeners = self._reach(event, "parallel", scope, origin)
        if not listeners:
            return 0
        if len(listeners) == 1:
            outcomes = [await _outcome(listeners[0], event)]
        else:
            outcomes = await asyncio.gather(*(_outcome(listener, event) for listener in listeners))
        errors = [error for error in outcomes if error is not None]
        if errors:
            raise ExceptionGroup(f"{len(errors)} listeners of {channel.name} failed", errors)
        return len(listeners)

    async def serial(self, event: Serial[R], scope: object = None, origin: object = None) -> R | None:
        """Await the listeners in order until one returns something other than `None`."""
        for listener in self._reach(event, "serial", scope, origin)[1]:
            result = listener.call(event)
            if result is not None and hasattr(result, "__await__"):
                result = await result
            if result is not None:
                return cast("R", result)
        return None

    def bail(self, event: Bail[R], scope: object = None, origin: object = None) -> R | None:
        """Call the listeners in order until one returns something other than `None`."""
        for listener in self._reach(event, "bail", scope, origin)[1]:
            result = listener.call(event)
            if result is not None:
                return cast("R", result)
        return None

    async def waterfall(
        self,
        event: Waterfall[R],
        default: Callable[[], Awaitable[R] | R],
        scope: object = None,
        origin: object = None,
    ) -> R:
        """Run the middleware chain; `default`, without arguments, is its innermost part."""
        channel, listeners = self._reach(event, "waterfall", scope, origin)
        if not listeners:
            result: Any = default()
            return cast("R", await result if hasattr(result, "__await__") else result)
        return cast("R", await run_waterfall(channel, listeners, event, default))

    def waterfall_sync(
        self, event: Waterfall[R], default: Callable[[], R], scope: object = None, origin: object = None
    ) -> R:
        """As `waterfall`, for event classes declared with `sync=True`."""
        channel, listeners = self._reach(event, "waterfall_sync", scope, origin)
        return cast("R", _link(channel, listeners, event, default)()) if listeners else default()

    def _reach(self, event: Event, mode: Mode, scope: object, origin: object) -> tuple[Channel, Listeners]:
        info: EventInfo = event.__event__  # type: ignore[assignment]
        bus = self._bus
        channel = bus.channels.get(info.name) if info is not None else None
        if channel is None or channel.mode != mode or info.mode != mode:
            channel = bus.bind(type(event), mode)
        if bus.guards.all and not channel.internal:
            bus.guard(info, event, scope)
        if channel.all and (channel.routed or origin is not None):
            return channel, channel.route(info, event, scope, origin)
        return channel, channel.all


async def _outcome(listener: Listener, event: Event) -> Exception | None:
    try:
        result = listener.call(event)
        if result is not None and hasattr(result, "__await__"):
            await result
    except FAILURES as error:
        return as_failure(error)
    return None


async def run_waterfall(channel: Channel, listeners: Listeners, event: Event, default: Callable[[], Any]) -> Any:
    """Run a middleware chain over chosen listeners."""
    return await _link(channel, listeners, event, _innermost(default))()


def _innermost(default: Callable[[], Any]) -> Callable[[], Awaitable[Any]]:
    async def run() -> Any:
        result = default()
        return await result if hasattr(result, "__await__") else result

    return run


def _link(channel: Channel, listeners: Listeners, event: Event, default: Callable[[], Any]) -> Callable[[], Any]:
    """Build `next` for the first listener out of the rest, from the inside out."""
    info = event.__event__
    step = _step_once if info is not None and info.single_next else _step
    chain = default
    for listener in reversed(listeners):
        chain = step(listener.call, event, chain, channel.name)
    return chain


def _step(call: Callable[..., Any], event: Event, rest: Callable[[], Any], name: str) -> Callable[[], Any]:
    return lambda: call(event, rest)


def _step_once(call: Callable[..., Any], event: Event, rest: Callable[[], Any], name: str) -> Callable[[], Any]:
    def run() -> Any:
        used = False

        def next_once() -> Any:
            nonlocal used
            if used:
                raise CordisError("NEXT_TWICE", f"a listener of {name} called next() twice")
            used = True
            return rest()

        return call(event, next_once)

    return run
