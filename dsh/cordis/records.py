"""Records and structs: small slotted classes, as the standard library's dataclasses make them, at less cost.

`@record` means what `@dataclass(frozen=True, slots=True)` means, `@struct` what `@dataclass(slots=True)` means, for a
fraction of the time: only the constructor is compiled for each class, when it is first called, and everything else is
shared. There are two hundred of these classes, and each start of the process defines them anew.
"""

from __future__ import annotations

from dataclasses import MISSING, Field, FrozenInstanceError, dataclass, fields
from dataclasses import field as data_field
from typing import Any, TypeVar, cast, dataclass_transform

T = TypeVar("T", bound=type[Any])


@dataclass_transform(frozen_default=True, field_specifiers=(data_field,))
def record(cls: T) -> T:
    """A frozen dataclass with slots: equal to another of its class with equal fields, and hashed by them."""
    return _complete(cls, {**_FROZEN, "__eq__": _eq, "__hash__": _hash})


@dataclass_transform(frozen_default=True, eq_default=False, field_specifiers=(data_field,))
def identity_record(cls: T) -> T:
    """A record that is equal to itself alone."""
    return _complete(cls, _FROZEN)


@dataclass_transform(field_specifiers=(data_field,))
def struct(cls: T) -> T:
    """A dataclass with slots whose fields may change: equal to another of its class with equal fields, not hashable."""
    return _complete(cls, {"__repr__": _repr, "__eq__": _eq, "__hash__": None}, frozen=False)


@dataclass_transform(eq_default=False, field_specifiers=(data_field,))
def identity_struct(cls: T) -> T:
    """A dataclass with slots whose fields may change, equal to itself alone."""
    return _complete(cls, {"__repr__": _repr}, frozen=False)


def _complete(cls: T, methods: dict[str, Any], *, frozen: bool = True) -> T:
    added = {name: method for name, method in methods.items() if name not in cls.__dict__}
    made = _slotted(cls)

    def construct_first(self: Any, *args: Any, **kwargs: Any) -> None:
        made.__init__ = constructor = _constructor(made, frozen)
        constructor(self, *args, **kwargs)

    for name, method in {**added, "__init__": construct_first}.items():
        setattr(made, name, method)
    return cast("T", made)


@dataclass
class _Plain:
    """Lends its kind of field and its parameters, so that `dataclasses.fields` and `replace` take our classes."""

    field: int = 0


def _slotted(cls: Any) -> Any:
    """The class made again with slots in place of its annotated names, and with what makes it a dataclass."""
    found: dict[str, Field[Any]] = {}
    taken: set[str] = set()
    for base in reversed(cls.__mro__[1:]):
        found |= base.__dict__.get("__dataclass_fields__", {})
        taken |= set(base.__dict__.get("__slots__", ()))
    namespace = {name: value for name, value in cls.__dict__.items() if name not in ("__dict__", "__weakref__")}
    for name, annotation in namespace.get("__annotations__", {}).items():
        if "ClassVar" in str(annotation):
            continue
        default = namespace.pop(name, MISSING)
        made: Any = default if isinstance(default, Field) else data_field(default=default)
        if made.default.__class__.__hash__ is None:
            raise ValueError(f"{cls.__qualname__}.{name}: all instances would share this default; use default_factory")
        made.name, made.type, made.kw_only = name, annotation, False
        made._field_type = _KIND
        found[name] = made
    namespace["__dataclass_fields__"] = found
    namespace["__dataclass_params__"] = _Plain.__dataclass_params__  # type: ignore[attr-defined]
    namespace["__match_args__"] = tuple(field.name for field in found.values() if field.init)
    namespace["__slots__"] = tuple(name for name in found if name not in taken)
    again = type(cls)(cls.__name__, cls.__bases__, namespace)
    again.__qualname__ = cls.__qualname__
    return again


_KIND = _Plain.__dataclass_fields__["field"]._field_type  # type: ignore[attr-defined]


def _constructor(cls: Any, frozen: bool) -> Any:
    scope: dict[str, Any] = {"_put": object.__setattr__, "_MISSING": MISSING}
    parameters, body = ["self"], []
    for field in fields(cls):
        name, value = field.name, field.name
        if field.default_factory is not MISSING:
            scope[f"_make_{name}"] = field.default_factory
            made = f"_make_{name}()"
            value = f"{made} if {name} is _MISSING else {name}" if field.init else made
            default = "=_MISSING"
        elif field.default is not MISSING:
            scope[f"_default_{name}"] = field.default
            value = name if field.init else f"_default_{name}"
            default = f"=_default_{name}"
        else:
            default = ""
        if field.init:
            parameters.append(name + default)
        body.append(f" _put(self, {name!r}, {value})" if frozen else f" self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        body.append(" self.__post_init__()")
    exec(f"def __init__({', '.join(parameters)}):\n" + "\n".join(body or [" pass"]), scope)
    made = scope["__init__"]
    made.__qualname__, made.__module__ = f"{cls.__qualname__}.__init__", cls.__module__
    return made


def _repr(self: Any) -> str:
    shown = (f"{field.name}={getattr(self, field.name)!r}" for field in fields(self) if field.repr)
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _values(self: Any) -> tuple[Any, ...]:
    return tuple([getattr(self, field.name) for field in fields(self) if field.compare])


def _eq(self: Any, other: Any) -> Any:
    if other is self:
        return True
    return _values(self) == _values(other) if type(other) is type(self) else NotImplemented


def _hash(self: Any) -> int:
    return hash(_values(self))


def _setattr(self: Any, name: str, value: Any) -> None:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _delattr(self: Any, name: str) -> None:
    raise FrozenInstanceError(f"cannot delete field {name!r}")


def _getstate(self: Any) -> list[Any]:
    return [getattr(self, field.name) for field in fields(self)]


def _setstate(self: Any, state: list[Any]) -> None:
    for field, value in zip(fields(self), state, strict=True):
        object.__setattr__(self, field.name, value)


_FROZEN = {
    "__repr__": _repr,
    "__setattr__": _setattr,
    "__delattr__": _delattr,
    "__getstate__": _getstate,
    "__setstate__": _setstate,
}
