"""Durable JSON values: validated, detached, deep-frozen; and the one text codec for them.

A value enters through `snapshot_json` once and is shared from then on. Numbers follow what a double can hold, so
that a JavaScript reader sees the same: whole floats below 2**53 are ints, `-0.0` and non-finite numbers are refused.
Nothing here recurses without bound: shallow data takes a recursive fast path, deep data an explicit stack.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import copysign, isfinite
from typing import Any, Final, NoReturn, TypeAlias, TypeVar, cast

import orjson

from .jsontext import JsonDecodeError as JsonDecodeError
from .jsontext import decode_deep as _decode_deep
from .jsontext import encode_deep as _encode_deep

JsonValue: TypeAlias = "bool | int | float | str | list[Any] | dict[str, Any] | None"
JsonObject: TypeAlias = dict[str, Any]
F = TypeVar("F", bound=Mapping[str, Any])

MAX_SAFE: Final = 2**53
_MIN_SAFE: Final = -MAX_SAFE
_FAST_DEPTH: Final = 200
_MISSING: Final = object()


class NotJsonError(TypeError):
    """A value that JSON cannot hold without loss; `path` says where (`$.items[0].when`)."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self._steps: list[str] = []

    @property
    def path(self) -> str:
        """Where the value stands, starting at `$`."""
        return "$" + "".join(reversed(self._steps))

    def under(self, key: object) -> None:
        """Note that the value was found under `key` of its container (used while unwinding)."""
        self._steps.append(f"[{key}]" if isinstance(key, int) else f".{key}")

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


def _frozen(*_: object, **__: object) -> NoReturn:
    raise TypeError("this JSON value is frozen; use thaw() for a mutable copy")


class FrozenDict(dict[str, Any]):
    """A JSON object that cannot change. Equal to the plain dict, accepted by `json.dumps` and orjson."""

    __slots__ = ("__weakref__",)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(_freeze_root(dict(*args, **kwargs)))

    __setitem__ = __delitem__ = __ior__ = _frozen
    clear = pop = popitem = setdefault = update = _frozen

    def __copy__(self) -> FrozenDict:
        return self

    def __deepcopy__(self, memo: object) -> FrozenDict:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return FrozenDict, (dict(self),)


class FrozenList(list[Any]):
    """A JSON array that cannot change. Equal to the plain list, accepted by `json.dumps` and orjson."""

    __slots__ = ("__weakref__",)

    def __init__(self, items: Any = ()) -> None:
        super().__init__(_freeze_root(list(items)))

    __setitem__ = __delitem__ = __iadd__ = __imul__ = _frozen
    append = extend = insert = pop = remove = clear = sort = reverse = _frozen

    def __copy__(self) -> FrozenList:
        return self

    def __deepcopy__(self, memo: object) -> FrozenList:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return FrozenList, (list(self),)


_new_dict = FrozenDict.__new__
_new_list = FrozenList.__new__
_fill_dict = dict.update
_fill_list = list.extend


class _TooDeep(Exception):
    """The fast path met more nesting than it may recurse into (or a cycle)."""


def snapshot_json(value: Any) -> JsonValue:
    """A validated, detached, deep-frozen copy of `value`; an already frozen value is returned as it is.

    Tuples become arrays; subclasses of str, int, float, list and dict become the plain kind. Raises `NotJsonError`
    for anything JSON cannot hold without loss (NaN, infinities, `-0.0`, other objects, keys that are no strings,
    cycles, ints a double cannot carry). What the value's own code raises passes through.
    """
    return cast(JsonValue, _freeze_root(value))


def freeze_json(value: Any) -> JsonValue:
    """Adopt freshly parsed data: the checks and result of `snapshot_json`, but plain containers are used up.

    Faster, and the caller must not look at `value` again: its nested containers may have been replaced by frozen ones.
    """
    if type(value) is dict:
        try:
            return _adopt(value, _FAST_DEPTH)
        except (_TooDeep, NotJsonError):
            pass  # what is frozen by now has an equal value: the full walk below decides, and finds the path
    return cast(JsonValue, _freeze_root(value))


def frozen_object(fields: F) -> F:
    """A frozen object of fields that are plain strings, small integers, booleans, None or frozen: nothing is checked.

    For what is built once a stream chunk, where the walk of `snapshot_json` costs five times as much.
    """
    frozen = _new_dict(FrozenDict)
    _fill_dict(frozen, fields)
    return cast("F", frozen)


def thaw(value: Any) -> Any:
    """A plain, mutable deep copy of a JSON value."""
    box: list[Any] = [None]
    pending: list[tuple[Any, Any, Any]] = [(value, box, 0)]
    while pending:
        item, into, key = pending.pop()
        if isinstance(item, dict):
            copy: Any = dict.fromkeys(item)
            pending.extend((inner, copy, name) for name, inner in item.items())
        elif isinstance(item, (list, tuple)):
            copy = [None] * len(item)
            pending.extend((inner, copy, index) for index, inner in enumerate(item))
        else:
            copy = item
        into[key] = copy
    return box[0]


def json_equal(a: Any, b: Any) -> bool:
    """Whether two values are the same: `True` is not `1`, key order does not count, a tuple is a list.

    Anything else inside (a config model, an expression) counts by `==`.
    """
    pending = [(a, b)]
    while pending:
        left, right = pending.pop()
        if left is right:
            continue
        if isinstance(left, bool) or isinstance(right, bool) or left is None or right is None:
            return False
        if isinstance(left, dict):
            if not isinstance(right, dict) or len(left) != len(right):
                return False
            for key, item in left.items():
                other = right.get(key, _MISSING)
                if other is _MISSING:
                    return False
                pending.append((item, other))
        elif isinstance(left, (list, tuple)):
            if not isinstance(right, (list, tuple)) or len(left) != len(right):
                return False
            pending.extend(zip(left, right, strict=True))
        elif left != right:
            return False
    return True


def _freeze_root(value: Any) -> Any:
    try:
        return _freeze(value, _FAST_DEPTH)
    except _TooDeep:
        return _freeze_deep(value)


def _freeze(value: Any, room: int) -> Any:
    kind = type(value)
    if kind is str or kind is bool or value is None or kind is FrozenDict or kind is FrozenList:
        return value
    if kind is int and _MIN_SAFE <= value <= MAX_SAFE:
        return value
    if isinstance(value, dict):
        if not room:
            raise _TooDeep
        fields: dict[str, Any] = {}
        key: Any = None
        try:
            for key, item in value.items():
                name = key if type(key) is str else _plain_key(key)
                fields[name] = item if type(item) is str else _freeze(item, room - 1)
        except NotJsonError as error:
            error.under(key)
            raise
        frozen = _new_dict(FrozenDict)
        _fill_dict(frozen, fields)
        return frozen
    if isinstance(value, (list, tuple)):
        if not room:
            raise _TooDeep
        items: list[Any] = []
        try:
            for item in value:
                items.append(item if type(item) is str else _freeze(item, room - 1))
        except NotJsonError as error:
            error.under(len(items))
            raise
        array = _new_list(FrozenList)
        _fill_list(array, items)
        return array
    return _scalar(value)


def _adopt(value: dict[str, Any], room: int) -> FrozenDict:
    """`_freeze` for a plain dict that nobody else holds, without building its fields anew."""
    if not room:
        raise _TooDeep
    for key, item in value.items():
        if type(key) is not str:
            raise NotJsonError("")
        kind = type(item)
        if kind is str or (kind is int and _MIN_SAFE <= item <= MAX_SAFE):
            continue
        value[key] = _adopt(item, room - 1) if kind is dict else _freeze(item, room - 1)
    frozen = _new_dict(FrozenDict)
    _fill_dict(frozen, value)
    return frozen


def _freeze_deep(root: Any) -> Any:
    """The same on an explicit stack, with cycle detection: mutable copies first, then frozen from the inside out."""
    box: list[Any] = [None]
    copies: list[tuple[Any, Any, Any]] = []  # container, what holds it and where; outer ones first
    open_ids: set[int] = set()
    # What to copy, where to put it, and the keys that lead to it. `_MISSING` closes the container of that id.
    pending: list[tuple[Any, Any, Any, Any]] = [(root, box, 0, None)]
    while pending:
        value, into, key, trail = pending.pop()
        if value is _MISSING:
            open_ids.discard(key)
            continue
        kind = type(value)
        try:
            if kind is FrozenDict or kind is FrozenList or not isinstance(value, (dict, list, tuple)):
                into[key] = _freeze(value, 0)
                continue
            if id(value) in open_ids:
                raise NotJsonError("the value contains itself")
            items: list[tuple[Any, Any]]
            if isinstance(value, dict):
                items = [(_plain_key(name), item) for name, item in value.items()]
            else:
                items = list(enumerate(value))
        except NotJsonError as error:
            while trail is not None:
                step, trail = trail
                error.under(step)
            raise
        open_ids.add(id(value))
        into[key] = copy = dict.fromkeys(name for name, _ in items) if isinstance(value, dict) else [None] * len(items)
        copies.append((copy, into, key))
        pending.append((_MISSING, None, id(value), None))
        pending.extend((item, copy, name, (name, trail)) for name, item in reversed(items))
    for copy, into, key in reversed(copies):
        if isinstance(copy, dict):
            into[key] = _new_dict(FrozenDict)
            _fill_dict(into[key], copy)
        else:
            into[key] = _new_list(FrozenList)
            _fill_list(into[key], copy)
    return box[0]


def _plain_key(key: Any) -> str:
    if type(key) is str:
        return key
    if isinstance(key, str):
        return str.__str__(key)
    raise NotJsonError(f"the key {key!r} is not a string")


def _scalar(value: Any) -> Any:
    """A number or a str subclass as its plain kind; raises for everything else."""
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        number = int(value)
        if -MAX_SAFE <= number <= MAX_SAFE:
            return number
        try:
            exact = int(float(number)) == number
        except OverflowError:
            exact = False
        if not exact:
            raise NotJsonError(f"the integer {_short(number)} does not fit a double exactly")
        return number
    if isinstance(value, float):
        if not isfinite(value):
            raise NotJsonError(f"{value!r} is not a JSON number")
        if value == 0 and copysign(1.0, value) < 0:
            raise NotJsonError("-0.0 is not a JSON number")
        return int(value) if value.is_integer() and -MAX_SAFE < value < MAX_SAFE else float(value)
    raise NotJsonError(f"a {type(value).__name__} is not a JSON value")


def _short(number: int) -> str:
    return str(number) if number.bit_length() < 256 else f"of {number.bit_length()} bits"


def encode(value: Any) -> bytes:
    """Compact UTF-8 JSON. A value that is not frozen yet is checked as by `snapshot_json` first.

    Lone surrogates are written as `\\udXXX` escapes; any depth works.
    """
    kind = type(value)
    if kind is not FrozenDict and kind is not FrozenList:
        value = _freeze_root(value)
    try:
        return orjson.dumps(value)
    except (TypeError, ValueError):  # a lone surrogate, an int beyond 64 bits, or too deep
        return _encode_deep(value).encode("utf-8")


def encode_str(value: Any) -> str:
    """`encode` as text."""
    return encode(value).decode("utf-8")


# What may hide a number that needs a second look: a fraction or an exponent, or text that looks like one. Patterns that
# start with one fixed byte search several times faster than a class of digits would.
_fraction = re.compile(rb"\.[0-9]").search
_exponent = re.compile(rb"e[-+0-9]").search


def decode(data: bytes | bytearray | memoryview | str) -> JsonValue:
    """Parse JSON text into plain values. Raises `JsonDecodeError`; `-0.0`, NaN and infinities are refused.

    Whole floats below 2**53 become ints; ints beyond 64 bits become the equal float. A repeated key keeps its last
    value.
    """
    raw = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else bytes(data)
    value: JsonValue
    try:
        value = orjson.loads(raw)
    except orjson.JSONDecodeError:
        value = _decode_deep(raw)
    if not (_exponent(raw) or (b"." in raw and _fraction(raw)) or b"E" in raw):
        return value
    try:
        return cast(JsonValue, _whole_floats(value))
    except NotJsonError as error:
        raise JsonDecodeError(error.reason, 0) from None


def _whole_floats(root: Any) -> Any:
    """Turn whole floats into ints, in place, and refuse what is no JSON number."""
    box = [root]
    pending: list[Any] = [box]
    while pending:
        container = pending.pop()
        entries = container.items() if isinstance(container, dict) else enumerate(container)
        for key, item in entries:
            if type(item) is float:
                container[key] = _scalar(item)
            elif isinstance(item, (dict, list)):
                pending.append(item)
    return box[0]
