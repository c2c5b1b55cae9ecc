"""The context: the only handle a plugin gets. What it does through it is recorded and undone on unload."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Callable, Coroutine, Hashable, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, overload

from .channels import EventBus
from .dispatch import EventMethods
from .effects import Composite, Disposer, EffectStack, Lifespan, Undo, effect, enter_sync
from .fiber import Fiber
from .framework_events import PluginChanged
from .inspection import inspect_root
from .logger import ContextLogger
from .plugins import PluginSpec, read_needs
from .runtime import Runtime
from .scopes import Scope, ScopeRecord, open_scope, record_of
from .services import Implementation, Realm, ServiceKey, key_name
from .spawn import Spawned
from .tasks import shielded
from .timing import TimeMethods

if TYPE_CHECKING:
    from .clock import Clock

T = TypeVar("T")

Layers = dict[str, tuple[Mapping[str, Any], ...]]


class Context(EventMethods, TimeMethods):
    """A plugin's view of the system. `Context()` makes a root; plugins get theirs, derived from it.

        async with Context() as root:
            await root.plugin(greeter)

    Root options: `dispose_timeout` (seconds an undo may take), `clock`, `debug` (check the calling thread),
    `base_dir` (directory that relative paths of plugins resolve against; the working directory if not given).
    """

    __slots__ = (
        "__weakref__",
        "_bus",
        "_cache",
        "_epoch",
        "_intercepts",
        "_meta",
        "_own_intercepts",
        "_own_realms",
        "_parent",
        "_realms",
        "_shape",
        "_views",
        "fiber",
        "root",
        "runtime",
        "scope_key",
        "scope_record",
        "stack",
    )

    def __init__(
        self,
        *,
        dispose_timeout: float = 10.0,
        clock: Clock | None = None,
        debug: bool = False,
        base_dir: Path | str | None = None,
    ) -> None:
        runtime = Runtime(self, dispose_timeout=dispose_timeout, clock=clock, debug=debug)
        self._prepare(runtime, self, None)
        self._meta: dict[str, Any] = {"base_dir": Path(base_dir) if base_dir is not None else Path.cwd()}
        self.scope_key: Any = None
        self.scope_record: ScopeRecord | None = None
        self.fiber = Fiber(runtime, self, None)
        self.stack: EffectStack = self.fiber.stack
        services = {"events": runtime.events, "registry": runtime.registry, "timer": runtime.clock}
        for name, service in services.items():
            self.provide(name, service)
        self.provide("logger", self.logger)

    def _prepare(self, runtime: Runtime, root: Context, parent: Context | None) -> None:
        self.runtime = runtime
        self.root: Context = root
        self._bus: EventBus = runtime.events
        self._parent = parent
        self._own_realms: dict[str, Hashable] = {}
        self._own_intercepts: dict[str, Mapping[str, Any]] = {}
        self._realms: dict[str, Hashable] = {}
        self._intercepts: Layers = {}
        self._shape = -1
        self._epoch = -1
        self._cache: dict[Any, Any] = {}
        self._views: dict[str, tuple[Implementation, Any]] = {}

    def _derive(self, kind: type[ContextT], fiber: Fiber, stack: EffectStack) -> ContextT:
        made = kind.__new__(kind)
        made._prepare(self.runtime, self.root, self)
        made.fiber = fiber
        made.stack = stack
        made._meta = self._meta
        made.scope_key = self.scope_key
        made.scope_record = self.scope_record
        return made

    def for_fiber(self, fiber: Fiber) -> Context:
        """The context of a fiber that is being mounted here. For the runtime."""
        made = self._derive(Context, fiber, fiber.stack)
        made._own_intercepts = {name: config for name, config in fiber.needs.items() if config}
        return made

    def __repr__(self) -> str:
        return f"Context <{self.fiber.display_name}>"

    async def __aenter__(self) -> Self:
        self.runtime.attach()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Dispose everything under the root and wait for it; raises what broke the runtime itself, if anything."""
        gone = asyncio.ensure_future(self._close())
        if self.runtime.current_task() is not None:  # a plugin's own task, which the disposal will cancel
            await asyncio.shield(gone)
            return
        cancelled: asyncio.CancelledError | None = None
        while not gone.done():
            try:
                await asyncio.shield(gone)
            except asyncio.CancelledError as error:
                if not gone.done():
                    cancelled = error
            except Exception:
                break
        gone.result()
        self.runtime.raise_crash()
        if cancelled is not None:
            raise cancelled

    async def _close(self) -> None:
        disposal = asyncio.ensure_future(self.root.fiber.dispose())
        while not disposal.done():
            await asyncio.wait({disposal}, timeout=self.runtime.dispose_timeout if self.runtime.crash else None)
            if self.runtime.crash:
                disposal.cancel()
                break
        await self.runtime.close()

    async def settle(self) -> None:
        """Wait until no fiber is in transition or about to be, and no async listener has queued events."""
        await self.runtime.settle()

    def inspect(self) -> dict[str, Any]:
        """The whole tree as JSON-able data: fibers, services, events, dependency cycles."""
        return inspect_root(self.runtime)

    def plugin(self, plugin: Any, config: Any = None, *, inject: Any = None, entry_id: str | None = None) -> Fiber:
        """Mount a plugin (or what `resolve_plugin` made of it) as a child fiber; `await` it to see it settled.

        `inject` adds to the services the plugin declares. Raises `INVALID_PLUGIN`, `INACTIVE_EFFECT`.
        """
        spec = plugin if isinstance(plugin, PluginSpec) else self.runtime.registry.spec(plugin)
        self.stack.check(f"plugin({spec.name or 'anonymous'})")
        needs = {**spec.needs, **read_needs(inject)}
        fiber = Fiber(self.runtime, self, spec, config, needs, entry_id)
        self.stack.items[fiber] = None
        self.runtime.registry.add(fiber)
        self.runtime.tell(PluginChanged(fiber))
        fiber.refresh()
        return fiber

    def inject(self, deps: Any, fn: Callable[[Context], Any]) -> Fiber:
        """A child fiber that runs `fn(ctx)` while `deps` are available, again after each change."""
        return self.plugin(fn, inject=deps)

    def effect(self, setup: Any, label: str | None = None) -> Disposer:
        """Run a setup and keep its undo.

        `setup` is a function returning an undo or nothing, a generator function with one bare `yield`, or a context
        manager; all may be async, then the disposer is awaitable. Raises what a synchronous setup raises.
        """
        return effect(self.stack, setup, label)

    def defer(self, fn: Undo, label: str | None = None) -> Disposer:
        """Run `fn()` (sync or async) on unload."""
        return Disposer(self.stack, label or f"defer({getattr(fn, '__name__', 'undo')})", fn)

    def enter(self, cm: AbstractContextManager[T]) -> T:
        """Enter a context manager that is left on unload."""
        disposer = Disposer(self.stack, f"enter({type(cm).__name__})")
        try:
            value, undo = enter_sync(cm, "enter")
        except BaseException:
            disposer.forget()
            raise
        disposer.set_up(undo)
        return value  # type: ignore[no-any-return]

    async def enter_async(self, cm: AbstractAsyncContextManager[T]) -> T:
        """Enter an async context manager in a task of its own, which leaves it on unload."""
        return await Lifespan(self.stack, f"enter({type(cm).__name__})", cm).enter()  # type: ignore[no-any-return]

    def group(self, label: str = "group") -> Group:
        """A nested stack: what is registered through it is undone together. Call it to dispose it."""
        composite = Composite(self.stack, label)
        made = self._derive(Group, self.fiber, composite.inner)
        made.composite = composite
        return made

    def shield(self) -> AbstractAsyncContextManager[None]:
        """`async with ctx.shield():` unloading waits instead of cancelling the body or task inside."""
        return shielded(self.runtime)

    def spawn(
        self,
        fn: Callable[..., Coroutine[Any, Any, T]],
        *args: Any,
        name: str | None = None,
        critical: bool = False,
        inherit: bool = False,
    ) -> Spawned[T]:
        """Start a task that ends with the fiber.

        It runs in the fiber's context variables unless `inherit`. An exception is logged and counted; with `critical`
        it makes the fiber fail. Raises `INACTIVE_EFFECT`.
        """
        shown = name or getattr(fn, "__qualname__", type(fn).__name__).replace("<locals>.", "")
        return Spawned(self, fn(*args), shown, critical, inherit)

    def from_thread(self, fn: Callable[..., T], *args: Any) -> concurrent.futures.Future[T]:
        """Run `fn(*args)` on the loop's thread, from any other thread."""
        future: concurrent.futures.Future[T] = concurrent.futures.Future()

        def call() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(fn(*args))
            except BaseException as error:
                future.set_exception(error)

        self.runtime.loop.call_soon_threadsafe(call)
        return future

    @overload
    def provide(self, name: str, service: Any, /) -> Disposer: ...
    @overload
    def provide(self, service: Any, /) -> Disposer: ...
    def provide(self, *arguments: Any) -> Disposer:
        """Publish a service, as `provide(obj)` or `provide(name, obj)`; `name` may be any service key.

        Others see it once this fiber is active. Raises `DUPLICATE_SERVICE`, `INACTIVE_EFFECT`.
        """
        key, service = arguments if len(arguments) == 2 else (arguments[0], arguments[0])
        return self.runtime.services.provide(self, key_name(key), service)

    @overload
    def __getitem__(self, key: str) -> Any: ...
    @overload
    def __getitem__(self, key: ServiceKey[T]) -> T: ...
    @overload
    def __getitem__(self, key: Callable[..., T]) -> T: ...
    def __getitem__(self, key: Any) -> Any:
        """A declared service. Raises `NOT_INJECTED` or `INACTIVE_SERVICE`."""
        if self._epoch == self.runtime.epoch:
            try:
                return self._cache[key]
            except KeyError:
                pass
        return self._read(key, key_name(key))

    def _read(self, key: Any, name: str) -> Any:
        implementation = self.runtime.services.read(self, name)
        if self._epoch != self.runtime.epoch:
            self._cache = {}
            self._epoch = self.runtime.epoch
        view = self._cache[key] = self._see(implementation)
        return view

    def _see(self, implementation: Implementation) -> Any:
        known = self._views.get(implementation.name)
        if known is not None and known[0] is implementation:
            return known[1]
        view = implementation.for_caller(self)
        self._views[implementation.name] = (implementation, view)
        return view

    def forget_views(self) -> None:
        """A service seen from here was withdrawn: let go of it. For the runtime."""
        self._views = {}
        self._cache = {}

    @overload
    def get(self, key: str) -> Any: ...
    @overload
    def get(self, key: ServiceKey[T]) -> T | None: ...
    @overload
    def get(self, key: Callable[..., T]) -> T | None: ...
    def get(self, key: Any) -> Any:
        """A service if it is there right now, declared or not, else `None`. Do not keep it across an await."""
        implementation = self.runtime.services.look(self, key_name(key))
        return self._see(implementation) if implementation is not None else None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        meta = self._meta
        if name in meta:
            return meta[name]
        if self._epoch == self.runtime.epoch and name in self._cache:
            return self._cache[name]
        return self._read(name, self._wire_name(name))

    def _wire_name(self, name: str) -> str:
        """`agent_loop` is a spelling of `agentLoop`, unless a service of exactly that name is around."""
        if "_" not in name or (name, self.realm(name)) in self.runtime.services.implementations:
            return name
        head, *rest = name.split("_")
        return head + "".join(part[:1].upper() + part[1:] for part in rest)

    def isolate(self, name: Any, label: Hashable = None) -> Context:
        """A context in which a service name means another realm: a private one, or the one all share by `label`."""
        made = self._derive(Context, self.fiber, self.stack)
        made._own_realms = {key_name(name): label if label is not None else Realm()}
        return made

    def intercept(self, name: Any, /, **config: Any) -> Context:
        """A context that carries settings for a service, read by it through `caller.intercepted(name)`."""
        made = self._derive(Context, self.fiber, self.stack)
        made._own_intercepts = {key_name(name): config}
        return made

    def extend(self, **meta: Any) -> Context:
        """A context with extra attributes; `base_dir=` changes where relative paths start."""
        made = self._derive(Context, self.fiber, self.stack)
        made._meta = {**self._meta, **meta}
        return made

    def scope(self, key: object = None, parent: object = None) -> Scope:
        """A context for one scope key (normally an agent) with an effect stack of its own.

        Without `key` a fresh one is made. `parent` binds the key's parent key (once).
        """
        return open_scope(self, key, parent)

    def tagged(self, key: object, stack: EffectStack) -> Context:
        """The context of a new scope. For the runtime."""
        made = self._derive(Context, self.fiber, stack)
        made.scope_key = key
        made.scope_record = record_of(key)
        return made

    @property
    def agent(self) -> Any:
        """The `agent` set by `extend(agent=…)`, `None` elsewhere."""
        return self._meta.get("agent")

    @property
    def base_dir(self) -> Path:
        """Directory that relative plugin names and paths resolve against."""
        return Path(self._meta["base_dir"])

    @property
    def logger(self) -> ContextLogger:
        """Logs under the plugin's name; `ctx.logger("name")` under another."""
        return ContextLogger(self)

    def realm(self, name: str) -> Hashable:
        """The realm a service name maps to here; `None` is the root realm."""
        if self._shape != self.runtime.shape:
            self._reshape()
        return self._realms.get(name)

    def intercepted(self, name: Any) -> dict[str, Any]:
        """The settings that `intercept` put in effect here for a service, merged from the root to here.

        A service class may define `merge_intercept(outer, inner)`; otherwise later keys win.
        """
        if self._shape != self.runtime.shape:
            self._reshape()
        wire = key_name(name)
        layers = self._intercepts.get(wire)
        if layers is None:
            return {}
        found = self.runtime.services.implementations.get((wire, self.realm(wire)))
        merge = getattr(type(found.value), "merge_intercept", None) if found is not None else None
        merged = dict(layers[0])
        for layer in layers[1:]:
            merged = dict(merge(merged, layer)) if merge is not None else {**merged, **layer}
        return merged

    def _reshape(self) -> None:
        """Work the realm and intercept maps out again, from the parent's."""
        parent = self._parent
        if parent is None:
            realms: dict[str, Hashable] = {}
            intercepts: Layers = {}
        else:
            if parent._shape != self.runtime.shape:
                parent._reshape()
            realms, intercepts = parent._realms, parent._intercepts
        if self._own_realms:
            realms = {**realms, **self._own_realms}
        if self._own_intercepts:
            intercepts = dict(intercepts)
            for name, config in self._own_intercepts.items():
                intercepts[name] = (*intercepts.get(name, ()), config)
        self._realms = realms
        self._intercepts = intercepts
        self._shape = self.runtime.shape

    def rebase(self, parent: Context) -> None:
        """Derive from another context from now on. For `Fiber.rebase`."""
        self._parent = parent


ContextT = TypeVar("ContextT", bound=Context)


class Group(Context):
    """A context with a nested effect stack; calling it disposes what was registered through it."""

    __slots__ = ("composite",)

    composite: Composite

    def __call__(self) -> Any:
        return self.composite()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self.composite()
