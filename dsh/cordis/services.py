"""Services: typed keys, the store of published implementations, and views that know who calls."""

from __future__ import annotations

import functools
import operator
import weakref
from abc import ABC
from collections.abc import Callable, Hashable, Iterable
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Concatenate,
    Generic,
    ParamSpec,
    Self,
    TypeAlias,
    TypeVar,
    cast,
    overload,
)

from .effects import Disposer
from .errors import CordisError
from .records import identity_struct
from .waiting import Latch

if TYPE_CHECKING:
    from .context import Context
    from .fiber import Fiber
    from .runtime import Runtime

T = TypeVar("T")
S = TypeVar("S")
P = ParamSpec("P")
R = TypeVar("R")

StoreKey: TypeAlias = tuple[str, Hashable]
"""Service name and realm; every name maps to realm `None` unless a context isolates it."""


@identity_struct
class Realm:
    """A private realm; equal to nothing but itself."""

    label: str = "private"

    def __repr__(self) -> str:
        return f"<Realm {self.label}>"


class Service(ABC):
    """Base of services. The class is a typed handle for its wire name, and a plugin that provides itself.

        class Counter(Service, name="counter"):
            def __init__(self, ctx: Context, config: Config) -> None: ...
            async def start(self) -> None: ...   # optional, awaited before the plugin is active
            async def stop(self) -> None: ...    # optional, first to run when it unloads

    `self.ctx` is the context it was built with. A subclass without `name=` implements its base's capability.
    A method called `start` or `stop` that needs arguments is an ordinary method, not a lifecycle hook.
    """

    service_name: ClassVar[str] = ""
    __owned_names__: ClassVar[frozenset[str]] = frozenset()
    ctx: Context

    def __init_subclass__(cls, *, name: str | None = None, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if name is not None:
            cls.service_name = name
        names = {key for key, value in vars(cls).items() if isinstance(value, owned)}
        for key in cls.__owned_names__ - names:
            if key in vars(cls):
                raise TypeError(f"{cls.__qualname__}.{key} overrides an @owned method: mark it @owned too")
        cls.__owned_names__ = cls.__owned_names__ | names

    def __new__(cls, ctx: Context, *args: Any, **kwargs: Any) -> Self:
        self = super().__new__(cls)
        self.ctx = ctx
        return self

    def __init__(self, ctx: Context, config: Any = None) -> None:
        pass


class ServiceKey(Generic[T]):
    """A typed key for a service that is not a `Service` subclass, such as an ABC or Protocol."""

    __slots__ = ("service_name", "type")

    def __init__(self, name: str, type: Callable[..., T] | None = None) -> None:
        self.service_name = name
        self.type = type

    def __repr__(self) -> str:
        return f"ServiceKey({self.service_name!r})"


def key_name(key: Any) -> str:
    """The wire name behind a key: a `Service` subclass, a `ServiceKey`, or the name itself."""
    name = key if isinstance(key, str) else getattr(key, "service_name", None)
    if not isinstance(name, str) or not name:
        raise TypeError(f"{key!r} is no service key: use a Service subclass with a name, a ServiceKey or a name")
    return name


class owned(Generic[S, P, R]):
    """Marks a service method that must know who calls: its first argument is the caller's context, filled in.

        @owned
        def watch(self, caller: Context, fn: Callable[[], None]) -> Disposer: ...

    Read through `ctx[Counter]`, the method takes `fn` only and `caller` is that `ctx`; read from the service object
    itself, `caller` is the service's own context. `Counter.watch(service, caller, fn)` passes one on.
    """

    def __init__(self, fn: Callable[Concatenate[S, Context, P], R]) -> None:
        self.fn = fn
        self.__isabstractmethod__ = getattr(fn, "__isabstractmethod__", False)
        functools.update_wrapper(cast("Callable[..., Any]", self), fn)

    @overload
    def __get__(self, instance: None, owner: type) -> Callable[Concatenate[S, Context, P], R]: ...
    @overload
    def __get__(self, instance: object, owner: type) -> Callable[P, R]: ...
    def __get__(self, instance: Any, owner: Any) -> Any:
        if instance is None:
            return self.fn
        return functools.partial(self.fn, instance, instance.ctx)


_FORWARDED = (
    "__call__",
    "__len__",
    "__iter__",
    "__contains__",
    "__getitem__",
    "__setitem__",
    "__delitem__",
    "__aiter__",
    "__bool__",
)


class ServiceView:
    """A service as one context sees it: everything is the service's own, `@owned` methods get that context."""

    __slots__ = ("__view_caller__", "__view_target__", "__weakref__")

    def __init__(self, target: Any, caller: Context) -> None:
        object.__setattr__(self, "__view_target__", target)
        object.__setattr__(self, "__view_caller__", caller)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__view_target__, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.__view_target__, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self.__view_target__, name)

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return type(self.__view_target__)

    def __eq__(self, other: object) -> bool:
        return bool(self.__view_target__ == unwrap(other))

    def __hash__(self) -> int:
        return hash(self.__view_target__)

    def __repr__(self) -> str:
        return repr(self.__view_target__)

    def __dir__(self) -> list[str]:
        return dir(self.__view_target__)


def unwrap(service: Any) -> Any:
    """The service object behind a view; anything else as it is."""
    return service.__view_target__ if issubclass(type(service), ServiceView) else service


def _owned_forward(fn: Callable[..., Any]) -> Callable[..., Any]:
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return fn(self.__view_target__, self.__view_caller__, *args, **kwargs)

    functools.update_wrapper(method, fn)
    return method


def _dunder_forward(name: str) -> Callable[..., Any]:
    def method(self: Any, *args: Any) -> Any:
        return getattr(self.__view_target__, name)(*args)

    return method


def view_class(cls: type) -> type[ServiceView] | None:
    """The view class for services of class `cls`; `None` if it has no `@owned` methods and needs no view."""
    names: frozenset[str] = getattr(cls, "__owned_names__", frozenset())
    if not names:
        return None
    made = cls.__dict__.get("__view_class__")
    if made is None:
        members: dict[str, Any] = {"__slots__": ()}
        for name in dir(cls):
            if name in names:
                members[name] = _owned_forward(getattr(cls, name))
            elif not name.startswith("__"):  # runs in C, several times faster than falling through to __getattr__
                members[name] = property(operator.attrgetter(f"__view_target__.{name}"))
        for name in _FORWARDED:
            if hasattr(cls, name):
                members[name] = _dunder_forward(name)
        made = type(f"{cls.__name__}View", (ServiceView,), members)
        cls.__view_class__ = made  # type: ignore[attr-defined]
    return made


class Implementation:
    """One published object: who provides it, under which name and realm, and who runs on it."""

    __slots__ = ("ctx", "fiber", "free", "name", "realm", "serial", "users", "value", "view", "viewers")

    def __init__(self, ctx: Context, name: str, realm: Hashable, value: Any, serial: int) -> None:
        self.ctx = ctx
        self.fiber: Fiber = ctx.fiber
        self.name = name
        self.realm = realm
        self.value = value
        self.serial = serial
        self.view = view_class(type(value))
        self.viewers: weakref.WeakSet[Context] = weakref.WeakSet()
        self.users: dict[Fiber, None] = {}
        self.free: Latch | None = None

    @property
    def key(self) -> StoreKey:
        return self.name, self.realm

    def for_caller(self, caller: Context) -> Any:
        self.viewers.add(caller)
        return self.value if self.view is None else self.view(self.value, caller)

    def available_to(self, ctx: Context) -> bool:
        """Whether a fiber with context `ctx` may run on it."""
        if not self.fiber.is_active:
            return False
        check = getattr(self.value, "available_for", None)
        if check is None:
            return True
        try:
            return bool(check(ctx))
        except Exception as error:
            self.fiber.runtime.report(self.fiber, error, "available_for of service %s failed", self.name)
            return False

    def release(self, user: Fiber) -> None:
        self.users.pop(user, None)
        if not self.users and self.free is not None:
            self.free.set()
            self.free = None

    def until_free(self) -> Latch:
        """Set once no fiber runs on this implementation."""
        if not self.users:
            free = Latch()
            free.set()
            return free
        self.free = self.free or Latch()
        return self.free


class ServiceStore:
    """Published services by (name, realm), and the fibers that need each."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._serial = 0
        self.implementations: dict[StoreKey, Implementation] = {}
        self.dependants: dict[StoreKey, dict[Fiber, None]] = {}

    def provide(self, ctx: Context, name: str, value: Any) -> Disposer:
        label = f"provide({name})"
        ctx.stack.check(label)
        key = (name, ctx.realm(name))
        holder = self.implementations.get(key)
        if holder is not None:
            raise CordisError(
                "DUPLICATE_SERVICE",
                f'service "{name}" is already provided by {holder.fiber.describe()}; '
                f"{ctx.fiber.describe()} cannot provide it too (isolate the name, or withdraw the other first)",
            )
        self._serial += 1
        implementation = Implementation(ctx, name, key[1], unwrap(value), self._serial)
        fiber = ctx.fiber

        def undo() -> Any:
            if fiber.unwinding:
                return None  # leaves with the fiber, after its own undo code could still use it
            self.withdraw(implementation)
            return implementation.until_free() if implementation.users else None

        disposer = Disposer(ctx.stack, label, undo)
        self.implementations[key] = implementation
        fiber.provided.append(implementation)
        self._runtime.epoch += 1
        self._announce(implementation, implementation.value)
        if fiber.is_active:
            self.notify(key)
        return disposer

    def withdraw(self, implementation: Implementation) -> None:
        """Take the binding away; whoever runs on it is told to leave."""
        if self.implementations.get(implementation.key) is not implementation:
            return
        del self.implementations[implementation.key]
        implementation.fiber.provided.remove(implementation)
        self._runtime.epoch += 1
        for viewer in list(implementation.viewers):
            viewer.forget_views()
        self.notify(implementation.key)
        self._announce(implementation, None)

    def _announce(self, implementation: Implementation, value: Any) -> None:
        from .framework_events import ServiceChanged

        self._runtime.tell(ServiceChanged(implementation.name, value, implementation.realm))

    def notify(self, key: StoreKey) -> None:
        """What stands under `key` came, went, or changed availability: its dependants look again."""
        fibers = self.dependants.get(key)
        if fibers:
            for fiber in list(fibers):
                fiber.refresh()

    def index(self, fiber: Fiber, keys: Iterable[StoreKey]) -> None:
        for key in keys:
            self.dependants.setdefault(key, {})[fiber] = None

    def unindex(self, fiber: Fiber, keys: Iterable[StoreKey]) -> None:
        for key in keys:
            fibers = self.dependants.get(key)
            if fibers is not None:
                fibers.pop(fiber, None)
                if not fibers:
                    del self.dependants[key]

    def read(self, ctx: Context, name: str) -> Implementation:
        """The implementation `ctx` may use. Raises `NOT_INJECTED` or `INACTIVE_SERVICE`."""
        realm = ctx.realm(name)
        fiber = ctx.fiber
        standing = self.implementations.get((name, realm))
        if fiber.parent is None:
            if standing is not None and (standing.fiber.is_active or standing.fiber is fiber):
                return standing
            state = "its provider is not active" if standing is not None else "nothing provides it"
            raise ServiceAccessError("INACTIVE_SERVICE", f'service "{name}" is not available: {state}')
        reader = fiber.describe()
        if fiber.is_disposed:
            raise ServiceAccessError(
                "INACTIVE_SERVICE", f'service "{name}" was read through a kept context of {reader}, which is disposed'
            )
        walker: Fiber = fiber
        while walker.parent is not None:
            # A fiber that was moved keeps what it runs on, and what it provides, until it is out: compare where the
            # name leads from here and from there, not where the implementation stands.
            same_realm = walker.ctx.realm(name) == realm
            committed = walker.committed.get(name) if walker.committed is not None else None
            if committed is not None and same_realm:
                return committed
            own = next((each for each in walker.provided if each.name == name and each.ctx.realm(name) == realm), None)
            if own is not None:
                return own
            if name in walker.needs:
                if same_realm:
                    raise ServiceAccessError(
                        "INACTIVE_SERVICE", f'service "{name}" is not available to {reader} at this moment'
                    )
                break
            walker = walker.parent
        raise ServiceAccessError(
            "NOT_INJECTED",
            f'{reader} reads service "{name}" without declaring it: '
            f'annotate a parameter of its body, add "{name}" to inject, or use ctx.get for an optional read',
        )

    def look(self, ctx: Context, name: str) -> Implementation | None:
        """What `ctx` could use right now, without any declaration."""
        found = self.implementations.get((name, ctx.realm(name)))
        if found is None or not (found.fiber is ctx.fiber or found.available_to(ctx)):
            return None
        return found


class ServiceAccessError(CordisError, AttributeError):
    """A service read that is refused. Also an `AttributeError`, so that `hasattr(ctx, name)` works."""
