"""What counts as a plugin, and what one declares: name, needs, config, body."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any, TypeGuard, TypeVar, get_args, get_origin

from .errors import CordisError, describe_error
from .services import Service, ServiceKey, key_name

if TYPE_CHECKING:
    from .context import Context
    from .fiber import Fiber

F = TypeVar("F")

Needs = dict[str, "dict[str, Any] | None"]
"""Required service names, each with the intercept config for the fiber."""


class PluginSpec:
    """A plugin, understood: built once while it is mounted, shared by its fibers."""

    __slots__ = ("Config", "body", "name", "needs", "on_update", "parameters", "passes_config", "plugin", "provides")

    def __init__(self, plugin: Any, body: Callable[..., Any], holders: tuple[Any, ...]) -> None:
        self.plugin = plugin
        self.body = body
        self.name = next(filter(None, map(_declared_name, holders)), None) or _own_name(plugin, body)
        self.passes_config, self.parameters = _read_signature(body, self.name or "plugin")
        self.needs: Needs = {}
        for holder in holders:
            self.needs.update(read_needs(_attribute(holder, "inject")))
        for service in self.parameters.values():
            self.needs.setdefault(service, None)
        self.Config: Any = next((c for c in (_attribute(h, "Config") for h in holders) if c is not None), None)
        if self.Config is not None and not callable(getattr(self.Config, "validate", None)):
            raise CordisError(
                "INVALID_CONFIG", f"{self.name or 'plugin'}: Config must be a ConfigModel or have validate(data)"
            )
        self.on_update: Any = next((u for u in (_attribute(h, "on_update") for h in holders) if u is not None), None)
        provides: list[str] = []
        for holder in holders:
            provides += [key_name(key) for key in _attribute(holder, "provides") or ()]
        if _is_service(body) and body.service_name:
            provides.append(body.service_name)
        self.provides = tuple(dict.fromkeys(provides))

    def run(self, ctx: Context, config: Any) -> Any:
        """Run the body; services that its parameters name are passed as keywords."""
        services = {parameter: ctx[name] for parameter, name in self.parameters.items()}
        arguments = (ctx, config) if self.passes_config else (ctx,)
        result = self.body(*arguments, **services)
        if not inspect.isclass(self.body):
            return result
        ctx.fiber.instance = result
        return _start_service(ctx, result) if isinstance(result, Service) else None


def _start_service(ctx: Context, service: Service) -> Awaitable[Any] | None:
    if service.service_name:
        ctx.provide(service)
    start, stop = _hook(service, "start"), _hook(service, "stop")
    pending = start() if start is not None else None
    if inspect.isawaitable(pending):

        async def finish() -> Callable[[], Any] | None:
            await pending
            return stop  # as the undo of the body: kept even if the unload was asked for meanwhile

        return finish()
    if stop is not None:
        ctx.defer(stop)
    return None


def _hook(service: Service, name: str) -> Callable[[], Any] | None:
    """A lifecycle method: callable without arguments. A method of that name that needs some is the service's own."""
    method = getattr(type(service), name, None)
    if not inspect.isfunction(method):
        return None
    _, *parameters = inspect.signature(method).parameters.values()
    if any(p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in parameters):
        return None
    return getattr(service, name)  # type: ignore[no-any-return]


def resolve_plugin(plugin: Any) -> PluginSpec:
    """Understand a plugin of any accepted shape.

    A function; a class built as `cls(ctx, config)`; an object with `apply`; a module with an object `plugin`, or
    `apply`, or one `Service` subclass of its own. `name`, `inject`, `Config`, `provides`, `on_update` next to the
    body always count. Raises `CordisError` with `INVALID_PLUGIN` or `INVALID_CONFIG`.
    """
    if isinstance(plugin, ModuleType):
        found = _module_plugin(plugin)
        if isinstance(found, ModuleType):
            raise invalid_plugin(f"module {plugin.__name__}: its `plugin` must not be a module")
        if found is plugin.__dict__.get("apply"):
            return PluginSpec(plugin, _body_of(found), (plugin, found))
        return PluginSpec(plugin, _body_of(found), (found, plugin))
    return PluginSpec(plugin, _body_of(plugin), (plugin,))


def _body_of(plugin: Any) -> Callable[..., Any]:
    if inspect.isclass(plugin):
        if inspect.isabstract(plugin):
            missing = ", ".join(sorted(getattr(plugin, "__abstractmethods__", ())))
            raise invalid_plugin(f"{plugin.__qualname__} is abstract and cannot be mounted (it lacks {missing})")
        if _is_service(plugin) and not plugin.service_name:
            raise invalid_plugin(f'{plugin.__qualname__} has no service name: class {plugin.__name__}(…, name="…")')
        return plugin
    apply = getattr(plugin, "apply", None)
    if callable(apply):
        return apply  # type: ignore[no-any-return]
    if inspect.isroutine(plugin) or isinstance(plugin, functools.partial):
        return plugin
    raise invalid_plugin(f"{plugin!r} is no plugin: it must be a function, a class, a module or have apply(ctx, …)")


def _module_plugin(module: ModuleType) -> Any:
    members = module.__dict__
    explicit = members.get("plugin")
    if explicit is plugin:  # the module imported our decorator
        explicit = None
    apply = members.get("apply")
    if explicit is not None and apply is not None:
        raise invalid_plugin(f"module {module.__name__} has both `plugin` and `apply`: keep one")
    if explicit is not None or apply is not None:
        return explicit if explicit is not None else apply
    classes = [
        value
        for value in members.values()
        if isinstance(value, type)
        and value.__module__ == module.__name__
        and _is_service(value)
        and not inspect.isabstract(value)
    ]
    classes = [cls for cls in dict.fromkeys(classes) if not any(cls in other.__mro__[1:] for other in classes)]
    if len(classes) == 1:
        return classes[0]
    if not classes:
        raise invalid_plugin(
            f"module {module.__name__} is no plugin: define apply(ctx, config) or one Service subclass"
        )
    names = ", ".join(cls.__name__ for cls in classes)
    raise invalid_plugin(f"module {module.__name__} defines several services ({names}): say which with `plugin = …`")


def _is_service(value: Any) -> TypeGuard[type[Service]]:
    """Whether a class is a `Service`; `issubclass` would ask each service there is, as for any abstract class."""
    return isinstance(value, type) and Service in value.__mro__


def invalid_plugin(message: str) -> CordisError:
    return CordisError("INVALID_PLUGIN", message)


def plugin(
    *,
    name: str | None = None,
    inject: Any = None,
    Config: Any = None,
    provides: Iterable[Any] | None = None,
    on_update: Callable[..., Any] | None = None,
) -> Callable[[F], F]:
    """Decorator that declares plugin metadata on a function or class."""

    def mark(target: F) -> F:
        declared = {"name": name, "inject": inject, "Config": Config, "provides": provides, "on_update": on_update}
        for key, value in declared.items():
            if value is not None:
                setattr(target, key, value)
        return target

    return mark


def read_needs(inject: Any) -> Needs:
    """`inject` in any spelling (list, tuple or set of keys; dict key to intercept config) as names."""
    if inject is None:
        return {}
    if isinstance(inject, str) or inspect.isclass(inject) or isinstance(inject, ServiceKey):
        return {key_name(inject): None}
    try:
        if isinstance(inject, Mapping):
            return {
                key_name(key): dict(value) if isinstance(value, Mapping) else None
                for key, value in inject.items()
                if value is not False
            }
        return {key_name(key): None for key in inject}
    except TypeError as error:
        raise invalid_plugin(f"inject: {error}") from None


def _attribute(holder: Any, name: str) -> Any:
    value = getattr(holder, name, None)
    if name == "on_update" and inspect.isclass(holder):
        return None  # a method: called on the instance
    return value


def _declared_name(holder: Any) -> str | None:
    name = getattr(holder, "name", None)
    return name if isinstance(name, str) and name else None


def _own_name(plugin: Any, body: Any) -> str | None:
    if isinstance(plugin, ModuleType):
        return plugin.__name__.rpartition(".")[2]
    holder = plugin.func if isinstance(plugin, functools.partial) else plugin
    name = getattr(holder, "__name__", None) or (type(plugin).__name__ if holder is not body else None)
    return None if name in ("apply", "<lambda>", "SimpleNamespace") else name


def _read_signature(body: Callable[..., Any], name: str) -> tuple[bool, dict[str, str]]:
    """Whether the body takes a config, and which parameters are services (parameter to service name)."""
    function = body
    if inspect.isclass(body):
        if body.__init__ is object.__init__:
            raise invalid_plugin(f"class {name} is no plugin: it must take (ctx, config)")
        function = body.__init__
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return True, {}
    if inspect.isclass(body):
        del parameters[0]  # self
    while isinstance(function, functools.partial):
        function = function.func
    scope = getattr(inspect.unwrap(function), "__globals__", {})
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    variadic = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    if not positional and not variadic:
        raise invalid_plugin(f"{name}: its body must take the context as first argument")
    passes_config = variadic and len(positional) < 2
    services: dict[str, str] = {}
    for index, parameter in enumerate(parameters):
        if parameter in positional[:1] or parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        # `lambda ctx, index=index: …` binds a value of its own; only a `config` may be optional.
        takes_config = parameter in positional[1:2] and (
            parameter.default is parameter.empty or "config" in parameter.name
        )
        service = _service_of(parameter, scope, name, lenient=takes_config)
        if service is not None:
            services[parameter.name] = service
        elif takes_config:
            passes_config = True
        elif parameter.default is parameter.empty:
            raise invalid_plugin(
                f'{name}: parameter "{parameter.name}" of its body is not annotated with a Service class '
                f"(position {index + 1}); annotate it, give it a default, or read the service with ctx[…]"
            )
    return passes_config, services


def _service_of(parameter: inspect.Parameter, scope: dict[str, Any], name: str, *, lenient: bool) -> str | None:
    annotation = parameter.annotation
    if annotation is parameter.empty:
        return None
    if isinstance(annotation, str):
        try:
            annotation = eval(annotation, scope)  # the text of a signature, from source that runs anyway
        except Exception as error:
            if lenient or parameter.default is not parameter.empty:
                return None
            raise invalid_plugin(
                f'{name}: the annotation of parameter "{parameter.name}" cannot be evaluated '
                f"({describe_error(error)}); import it outside TYPE_CHECKING, "
                f"or drop the parameter and declare inject=[…]"
            ) from error
    if get_origin(annotation) is Annotated:
        annotation = next((a for a in get_args(annotation) if isinstance(a, ServiceKey)), get_args(annotation)[0])
    if isinstance(annotation, ServiceKey):
        return annotation.service_name
    if _is_service(annotation) and annotation.service_name:
        return annotation.service_name
    return None


class PluginRegistry:
    """Mounted plugins, each with its fibers. Provided as service `registry`."""

    def __init__(self) -> None:
        self._specs: dict[int, tuple[PluginSpec, dict[Fiber, None]]] = {}

    def spec(self, plugin: Any) -> PluginSpec:
        known = self._specs.get(id(plugin))
        return known[0] if known is not None else resolve_plugin(plugin)

    def add(self, fiber: Fiber) -> None:
        spec = fiber.spec
        assert spec is not None
        self._specs.setdefault(id(spec.plugin), (spec, {}))[1][fiber] = None

    def remove(self, fiber: Fiber) -> None:
        assert fiber.spec is not None
        number = id(fiber.spec.plugin)
        known = self._specs.get(number)
        if known is not None:
            known[1].pop(fiber, None)
            if not known[1]:
                del self._specs[number]

    def __len__(self) -> int:
        return len(self._specs)

    def __contains__(self, plugin: object) -> bool:
        return id(plugin) in self._specs

    def plugins(self) -> list[Any]:
        """The mounted plugin objects."""
        return [spec.plugin for spec, _ in self._specs.values()]

    def fibers(self, plugin: Any) -> list[Fiber]:
        """The fibers of one plugin object."""
        known = self._specs.get(id(plugin))
        return list(known[1]) if known is not None else []

    async def delete(self, plugin: Any) -> bool:
        """Dispose all mounts of a plugin; returns whether there were any."""
        gone = [fiber.dispose() for fiber in self.fibers(plugin)]
        for each in gone:
            await each
        return bool(gone)
