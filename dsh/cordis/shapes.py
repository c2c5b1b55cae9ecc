"""What a type annotation of a config model accepts: one small class per kind of annotation.

A shape reads a raw value into a typed one and notes every problem with its path in a `Walk`; it also describes itself
in words and as JSON schema.
"""

from __future__ import annotations

import datetime
import enum
import re
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import isnan
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeVar, Union, get_args, get_origin

from .issues import BAD, MISSING, Keys, Walk, show
from .nearest import nearest


class Shape:
    """Accepts anything; base of all shapes."""

    words = "any value"
    has_validators = False

    def read(self, value: Any, walk: Walk, keys: Keys) -> Any:
        """The typed value, or `BAD` after noting why not."""
        if self.fits(value):
            return self.take(value, walk, keys)
        return walk.fail(keys, f"must be {self.words}", value, remedy=remedy(self.words, value))

    def take(self, value: Any, walk: Walk, keys: Keys) -> Any:
        """`read` of a value that fits."""
        return value

    def fits(self, value: Any) -> bool:
        """Whether `value` is of this shape's kind at all: decides which branch of a union is blamed."""
        return True

    def default(self, walk: Walk, keys: Keys) -> Any:
        """What an absent value becomes when the field declares no default; `MISSING` means it is required."""
        return MISSING

    def schema(self, defs: dict[str, Any]) -> dict[str, Any]:
        """Draft-07 JSON schema; shared definitions go into `defs`."""
        return {}

    def nested_keys(self) -> Iterable[tuple[str, str]]:
        """`(key, path)` of the keys inside, to recognise a key set one level too high."""
        return ()


def remedy(words: str, value: Any) -> str:
    """What to do about dashes or quotes that are too many or missing, the usual slips of spelling."""
    if isinstance(value, str) and words in ("a whole number", "a number", "true or false"):
        slip = value.lower() in ("true", "false") if words == "true or false" else _is_number(value)
        return "remove the quotes" if slip else ""
    if words == "a string":
        return "put it in quotes" if isinstance(value, (int, float)) else ""
    if words == "a mapping" and isinstance(value, (list, tuple)):
        return "write its keys without dashes" if all(isinstance(item, Mapping) for item in value) else ""
    if words.startswith("a list") and not isinstance(value, (list, tuple)):
        return "each item begins with a dash"
    return ""


_SCALARS: Final[Mapping[Any, tuple[str, str]]] = {
    str: ("a string", "string"),
    int: ("a whole number", "integer"),
    float: ("a number", "number"),
    bool: ("true or false", "boolean"),
    type(None): ("null", "null"),
}
"""The scalar types, in words and as JSON schema calls them."""


class _Scalar(Shape):
    def __init__(self, kind: type) -> None:
        self.kind = kind
        self.words, self.schema_name = _SCALARS[kind]

    def fits(self, value: Any) -> bool:
        if self.kind is float:
            if isinstance(value, int):
                return not isinstance(value, bool) and abs(value) < 2**1023
            return isinstance(value, float) and not isnan(value)
        if self.kind is int:
            return isinstance(value, int) and not isinstance(value, bool)
        return isinstance(value, self.kind)

    def take(self, value: Any, walk: Walk, keys: Keys) -> Any:
        return float(value) if self.kind is float else value

    def schema(self, defs: dict[str, Any]) -> dict[str, Any]:
        return {"type": self.schema_name}


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


class Choice(Shape):
    """One of a fixed set of values: `Literal`, an enum, or `choices=`."""

    def __init__(self, values: Sequence[Any], results: Sequence[Any] | None = None) -> None:
        self.values = list(values)
        self.results = self.values if results is None else list(results)
        self.allowed = tuple(show(value).strip('"') if isinstance(value, str) else show(value) for value in values)
        listed = ", ".join(show(value) for value in self.values)
        self.words = listed if len(self.values) == 1 else f"one of {listed}"

    def _index(self, value: Any) -> int:
        for index, candidate in enumerate(self.values):
            if candidate == value and isinstance(candidate, bool) == isinstance(value, bool):
                return index
        for index, result in enumerate(self.results):
            if result is value:
                return index
        return -1

    def fits(self, value: Any) -> bool:
        return self._index(value) >= 0

    def read(self, value: Any, walk: Walk, keys: Keys) -> Any:
        index = self._index(value)
        if index >= 0:
            return self.results[index]
        words = [candidate for candidate in self.values if isinstance(candidate, str)]
        near = nearest(value, words) if isinstance(value, str) else None
        return walk.fail(keys, f"must be {self.words}", value, self.allowed, near)

    def schema(self, defs: dict[str, Any]) -> dict[str, Any]:
        return {"enum": list(self.values)}


class _Sequence(Shape):
    words = "a list"

    def __init__(self, item: Shape, build: Callable[[list[Any]], Any]) -> None:
        self.item = item
        self.build = build
        self.has_validators = item.has_validators

    def fits(self, value: Any) -> bool:
        return isinstance(value, (list, tuple, set, frozenset))

    def take(self, value: Any, walk: Walk, keys: Keys) -> Any:
        items = [_read(self.item, item, walk, (*keys, index)) for index, item in enumerate(value)]
        return BAD if any(item is BAD for item in items) else self.build(items)

    def default(self, walk: Walk, keys: Keys) -> Any:
        return self.build([])

    def schema(self, defs: dict[str, Any]) -> dict[str, Any]:
        return {"type": "array", "items": self.item.schema(defs)}


class _Tuple(Shape):
    def __init__(self, items: Sequence[Shape]) -> None:
        self.items = items
        self.words = f"a list of {len(items)} items"
        self.has_validators = any(item.has_validators for item in items)

    def fits(self, value: Any) -> bool:
        return isinstance(value, (list, tuple))

    def take(self, value: Any, walk: Walk, keys: Keys) -> Any:
        if len(value) != len(self.items):
            return walk.fail(keys, f"must be {self.words}, got {len(value)}")
        read = [
            _read(shape, item, walk, (*keys, index))
            for index, (shape, item) in enumerate(zip(self.items, value, strict=True))
        ]
        return BAD if any(item is BAD for item in read) else tuple(read)

    def schema(self, defs: dict[str, Any]) -> dict[str, Any]:
        size = len(self.items)
        return {
            "type": "array",
            "items": [item.schema(defs) for item in self.items],
            "minItems": size,
            "maxItems": size,
        }


class _Mapping(Shape):
    words = "a mapping"

    def __init__(self, key: Shape, value: Shape) -> None:
        self.key = key
        self.value = value
        self.has_validators = key.has_validators or value.has_validators

    def fits(self, value: Any) -> bool:
        return isinstance(value, Mapping)

    def take(self, value: Any, walk: Walk, keys: Keys) -> Any:
        read: list[tuple[Any, Any]] = []
        for key, item in value.items():
            at = (*keys, str(key))
            read.append((self.key.read(key, walk, at), _read(self.value, item, walk, at)))
        return BAD if any(name is BAD or item is BAD for name, item in read) else dict(read)

    def default(self, walk: Walk, keys: Keys) -> Any:
        return {}

    def schema(self, defs: dict[str, Any]) -> dict[str, Any]:
        return {"type": "object", "additionalProperties": self.value.schema(defs)}


class _Model(Shape):
    """A nested config model; the class does the reading."""

    words = "a mapping"

    def __init__(self, model: Any) -> None:
        self.model = model

    def fits(self, value: Any) -> bool:
        return isinstance(value, (Mapping, self.model))

    def read(self, value: Any, walk: Walk, keys: Keys) -> Any:
        return self.model.__read_config__(value, walk, keys)

    def default(self, walk: Walk, keys: Keys) -> Any:
        return self.model.__read_config__({}, walk, keys)

    def schema(self, defs: dict[str, Any]) -> dict[str, Any]:
        schema: dict[str, Any] = self.model.__config_schema__(defs)
        return schema

    def nested_keys(self) -> Iterable[tuple[str, str]]:
        return [(info.key, info.key) for info in self.model.fields().values()]


class _Union(Shape):
    """Options tried in order; one that reads without a warning beats an earlier one that does not."""

    def __init__(self, options: Sequence[Shape]) -> None:
        self.options = options
        self.optional = any(isinstance(option, _Scalar) and option.kind is type(None) for option in options)
        spoken = [option.words for option in options if option.words != "null"]
        self.words = " or ".join(dict.fromkeys(spoken))
        self.has_validators = any(option.has_validators for option in options)

    def fits(self, value: Any) -> bool:
        return any(option.fits(value) for option in self.options)

    def read(self, value: Any, walk: Walk, keys: Keys) -> Any:
        attempts: list[tuple[Shape, Walk]] = []
        accepted: tuple[Any, Walk] | None = None
        for option in self.options:
            attempt = walk.fork()
            read = option.read(value, attempt, keys)
            if read is not BAD and not attempt.issues:
                if not attempt.warnings:
                    return read
                if accepted is None or len(attempt.warnings) < len(accepted[1].warnings):
                    accepted = read, attempt
            attempts.append((option, attempt))
        if accepted is not None:
            walk.join(accepted[1])
            return accepted[0]
        # Blame the branch that was meant: the one of the right kind whose fixed choices match and that came closest.
        meant = [attempt for option, attempt in attempts if option.fits(value)]
        if meant:
            walk.join(min(meant, key=lambda attempt: sum(100 if issue.allowed else 1 for issue in attempt.issues)))
            return BAD
        allowed = [word for option in self.options if isinstance(option, Choice) for word in option.allowed]
        near = nearest(value, allowed) if isinstance(value, str) else None
        return walk.fail(keys, f"must be {self.words}", value, allowed, near, remedy(self.words, value))

    def default(self, walk: Walk, keys: Keys) -> Any:
        return None if self.optional else MISSING

    def schema(self, defs: dict[str, Any]) -> dict[str, Any]:
        return {"anyOf": [option.schema(defs) for option in self.options]}

    def nested_keys(self) -> Iterable[tuple[str, str]]:
        return [pair for option in self.options for pair in option.nested_keys()]


class _Parsed(Shape):
    """A value object written as text: a path, a pattern, a date."""

    def __init__(self, kind: type, words: str, parse: Callable[[str], Any], format_name: str | None) -> None:
        self.kind = kind
        self.words = words
        self.parse = parse
        self.format_name = format_name

    def fits(self, value: Any) -> bool:
        return isinstance(value, (str, self.kind))

    def take(self, value: Any, walk: Walk, keys: Keys) -> Any:
        if isinstance(value, self.kind):
            return value
        try:
            return self.parse(value)
        except (ValueError, re.error) as error:
            reason = "" if walk.secret else f" ({error})"
            return walk.fail(keys, f"must be {self.words}{reason}")

    def schema(self, defs: dict[str, Any]) -> dict[str, Any]:
        return {"type": "string", "format": self.format_name} if self.format_name else {"type": "string"}


class _Instance(Shape):
    """Any other class: the value must already be one (configs passed from code)."""

    def __init__(self, kind: type) -> None:
        self.kind = kind
        self.words = f"a {kind.__name__}"

    def fits(self, value: Any) -> bool:
        return isinstance(value, self.kind)


class Checked(Shape):
    """Another shape plus checks: limits of a field, or validators of an `Annotated`."""

    def __init__(self, inner: Shape, checks: Sequence[Any], is_transform: bool = False) -> None:
        self.inner = inner
        self.checks = checks
        self.words = inner.words
        self.has_validators = is_transform or inner.has_validators

    def fits(self, value: Any) -> bool:
        return self.inner.fits(value)

    def read(self, value: Any, walk: Walk, keys: Keys) -> Any:
        read = self.inner.read(value, walk, keys)
        for check in self.checks:
            if read is BAD or read is None:
                break
            read = check.check(read, walk, keys)
        return read

    def default(self, walk: Walk, keys: Keys) -> Any:
        return self.inner.default(walk, keys)

    def schema(self, defs: dict[str, Any]) -> dict[str, Any]:
        schema = self.inner.schema(defs)
        for check in self.checks:
            check.extend_schema(schema)
        return schema

    def nested_keys(self) -> Iterable[tuple[str, str]]:
        return self.inner.nested_keys()


def _read(shape: Shape, value: Any, walk: Walk, keys: Keys) -> Any:
    if walk.opaque is not None and walk.opaque(value):
        return value
    return shape.read(value, walk, keys)


_LISTS: Final[dict[Any, Callable[[list[Any]], Any]]] = {
    list: list,
    Sequence: list,
    Iterable: list,
    tuple: tuple,
    set: set,
    frozenset: frozenset,
}


def shape_of(annotation: Any, checks_of: Callable[[Shape, Sequence[Any]], Shape]) -> Shape:
    """The shape for a resolved annotation. `checks_of` turns the extras of an `Annotated` into a checked shape.

    Raises `TypeError` for an annotation a config cannot have.
    """

    def make(inner: Any) -> Shape:
        return shape_of(inner, checks_of)

    if annotation is None or any(annotation is kind for kind in _SCALARS):
        return _Scalar(type(None) if annotation is None else annotation)
    if annotation is Any or annotation is object:
        return Shape()
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return checks_of(make(args[0]), args[1:])
    if origin is Literal:
        return Choice(args)
    if origin in (Union, types.UnionType):
        return _Union([make(arg) for arg in args])
    if isinstance(annotation, TypeVar):
        return Shape()
    kind = origin or annotation
    if kind is tuple and args and not (len(args) == 2 and args[1] is Ellipsis):
        return _Tuple([make(arg) for arg in args])
    if kind in _LISTS:
        return _Sequence(make(args[0]) if args else Shape(), _LISTS[kind])
    if isinstance(kind, type) and issubclass(kind, Mapping):
        return _Mapping(*(make(arg) for arg in args[:2])) if args else _Mapping(_Scalar(str), Shape())
    if isinstance(kind, type):
        return _class_shape(kind)
    raise TypeError(f"a config field cannot be annotated {annotation!r}")


def _class_shape(kind: type) -> Shape:
    if hasattr(kind, "__read_config__"):
        return _Model(kind)
    if issubclass(kind, enum.Enum):
        members = list(kind)
        return Choice([member.value for member in members], members)
    if kind is Path:
        return _Parsed(Path, "a path", Path, None)
    if kind is re.Pattern:
        return _Parsed(re.Pattern, "a regular expression", re.compile, "regex")
    if kind is datetime.datetime:
        return _Parsed(kind, "a date and time such as 2024-05-01T12:30:00", kind.fromisoformat, "date-time")
    if kind is datetime.date:
        return _Parsed(kind, "a date such as 2024-05-01", kind.fromisoformat, "date")
    return _Instance(kind)
