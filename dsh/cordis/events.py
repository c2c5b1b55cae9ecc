"""Declaring events: a payload class, its wire name, and the one way it is dispatched.

class CounterChanged(Emit, name="counter/changed"):
    value: int

ctx.emit(CounterChanged(value=3))
"""

from __future__ import annotations

import operator
from collections.abc import Awaitable, Callable
from dataclasses import field
from typing import Any, ClassVar, Generic, Literal, Protocol, Self, TypeAlias, TypeVar, cast, dataclass_transform

from .records import identity_struct

R = TypeVar("R")
L_contra = TypeVar("L_contra", contravariant=True)

Mode = Literal["emit", "parallel", "serial", "bail", "waterfall", "waterfall_sync"]

ScopedBy: TypeAlias = str | Callable[[Any], object] | None

Next: TypeAlias = Callable[[], Awaitable[R]]
"""The rest of a waterfall, as a listener sees it."""


class EventInfo:
    """What an event class declares. Holds no reference to the class, so reloaded modules can be collected."""

    __slots__ = ("mode", "name", "scope_of", "single_next", "veto")

    def __init__(self, name: str, mode: Mode, scoped_by: ScopedBy, veto: bool, single_next: bool) -> None:
        self.name = name
        self.mode: Mode = mode
        self.veto = veto
        self.single_next = single_next
        self.scope_of: Callable[[Any], object] | None = (
            cast("Callable[[Any], object]", operator.attrgetter(scoped_by)) if isinstance(scoped_by, str) else scoped_by
        )


@dataclass_transform(eq_default=False, field_specifiers=(field,))
class EventMeta(type):
    """Makes each event class a dataclass with slots."""

    def __new__(
        mcs,
        class_name: str,
        bases: tuple[type, ...],
        namespace: dict[str, Any],
        /,
        *,
        name: str | None = None,
        scoped_by: ScopedBy = None,
        veto: bool = False,
        sync: bool = False,
        single_next: bool = False,
    ) -> Any:
        made = super().__new__(mcs, class_name, bases, namespace)
        if "__dataclass_fields__" in namespace:
            return made  # the slotted twin that identity_struct() builds
        if name is not None:
            mode: Mode = "waterfall_sync" if sync else made.__mode__  # type: ignore[attr-defined]
            made.__event__ = EventInfo(name, mode, scoped_by, veto, single_next)  # type: ignore[attr-defined]
        return identity_struct(cast("type", made))


class Event(metaclass=EventMeta):
    """Base of the mode classes; not used directly.

    Class options: `name` (wire name `namespace/action`), `scoped_by` (payload field, dotted path or function that
    gives the routing key), `veto` (Emit: a raising listener stops the dispatch and reaches the emitter), `sync`
    (Waterfall: dispatched with `waterfall_sync`), `single_next` (Waterfall: `next()` at most once).
    """

    __event__: ClassVar[EventInfo | None] = None
    __mode__: ClassVar[Mode] = "emit"


class Emit(Event):
    """Every listener runs, in order, each contained. `ctx.emit(E(...))`."""

    __mode__ = "emit"

    def __accepts__(self, listener: Callable[[Self], object], /) -> None: ...


class Parallel(Event):
    """Every listener is started, all are awaited, failures are gathered. `await ctx.parallel(E(...))`."""

    __mode__ = "parallel"

    def __accepts__(self, listener: Callable[[Self], object], /) -> None: ...


class Serial(Event, Generic[R]):
    """Listeners are awaited in order; the first result but `None` wins. `await ctx.serial(E(...))`."""

    __mode__ = "serial"

    def __accepts__(self, listener: Callable[[Self], R | Awaitable[R | None] | None], /) -> None: ...


class Bail(Event, Generic[R]):
    """As `Serial`, synchronous. `ctx.bail(E(...))`."""

    __mode__ = "bail"

    def __accepts__(self, listener: Callable[[Self], R | None], /) -> None: ...


class Waterfall(Event, Generic[R]):
    """Middleware around a default: `async def listener(e, next): return await next()`.

    `await ctx.waterfall(E(...), default)`; with `sync=True`, `ctx.waterfall_sync(E(...), default)` and plain
    listeners, whose `next()` returns the value itself.
    """

    __mode__ = "waterfall"

    def __accepts__(self, listener: Callable[[Self, Any], R | Awaitable[R]], /) -> None: ...


class Listens(Protocol[L_contra]):
    """An event class seen by a type checker: `L_contra` is the type its listeners must have."""

    def __accepts__(self, listener: L_contra, /) -> None: ...
