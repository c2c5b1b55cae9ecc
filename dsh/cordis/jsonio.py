"""Durable JSON values: validated, detached, deep-frozen; and the one text codec for them.

A value enters through `snapshot_json` once and is shared from then on. Numbers follow what a double can hold, so
that a JavaScript reader sees the same: whole floats below 2**53 are ints, `-0.0` and non-finite numbers are refused.
Nothing here recurses without bound: shallow data takes a recursive fast path, deep data an explicit stack.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from math import copysign, isfinite
from typing import Any, Final, NoReturn, TypeAlias, cast

import orjson

JsonValue: TypeAlias = "bool | int | float | str | list[Any] | dict[str, Any] | None"
JsonObject: TypeAlias = dict[str, Any]

MAX_SAFE: Final = 2**53
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


class JsonDecodeError(ValueError):
    """Text that is not JSON, or holds a number no double can carry; `position` is a character offset."""

    def __init__(self, message: str, position: int) -> None:
        super().__init__(f"{message} at character {position}")
        self.position = position


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


def thaw(value: Any) -> Any:
    """A plain, mutable deep copy of a JSON value."""
    try:
        return _thaw(value, _FAST_DEPTH)
    except _TooDeep:
        return _thaw_deep(value)


def json_equal(a: Any, b: Any) -> bool:
    """Whether two JSON values are the same value: `True` is not `1`, key order does not count."""
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


# --- freezing -------------------------------------------------------------------------------------------------------


def _freeze_root(value: Any) -> Any:
    try:
        return _freeze(value, _FAST_DEPTH)
    except _TooDeep:
        return _freeze_deep(value)


def _freeze(value: Any, room: int) -> Any:
    kind = type(value)
    if kind is str or kind is bool or value is None or kind is FrozenDict or kind is FrozenList:
        return value
    if kind is int and -MAX_SAFE <= value <= MAX_SAFE:
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
        if kind is str:
            continue
        if kind is dict:
            value[key] = _adopt(item, room - 1)
        elif kind is not int or not -MAX_SAFE <= item <= MAX_SAFE:
            value[key] = _freeze(item, room - 1)
    frozen = _new_dict(FrozenDict)
    _fill_dict(frozen, value)
    return frozen


def _freeze_deep(root: Any) -> Any:
    """The same on an explicit stack, with cycle detection."""
    stack: list[tuple[Any, Iterator[Any], Any]] = []  # container, its iterator, what is collected so far
    keys: list[Any] = []  # the key under which each open container's current item goes
    open_ids: set[int] = set()
    done: Any = root
    descend = True
    try:
        while True:
            if descend:
                kind = type(done)
                if kind is not FrozenDict and kind is not FrozenList and isinstance(done, (dict, list, tuple)):
                    if id(done) in open_ids:
                        raise NotJsonError("the value contains itself")
                    open_ids.add(id(done))
                    keys.append(None)
                    if isinstance(done, dict):
                        stack.append((done, iter(done.items()), {}))
                    else:
                        stack.append((done, iter(done), []))
                else:
                    done = _freeze(done, 0)
                    descend = False
            if not descend:
                if not stack:
                    return done
                collected = stack[-1][2]
                if isinstance(collected, dict):
                    collected[_plain_key(keys[-1])] = done
                else:
                    collected.append(done)
            container, iterator, collected = stack[-1]
            entry = next(iterator, _MISSING)
            if entry is _MISSING:
                stack.pop()
                keys.pop()
                open_ids.discard(id(container))
                if isinstance(collected, dict):
                    done = _new_dict(FrozenDict)
                    _fill_dict(done, collected)
                else:
                    done = _new_list(FrozenList)
                    _fill_list(done, collected)
                descend = False
                if not stack:
                    return done
            elif isinstance(collected, dict):
                keys[-1], done = cast(tuple[Any, Any], entry)
                descend = True
            else:
                keys[-1], done = len(collected), entry
                descend = True
    except NotJsonError as error:
        for key in reversed(keys):
            error.under(key)
        raise


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


# --- thawing --------------------------------------------------------------------------------------------------------


def _thaw(value: Any, room: int) -> Any:
    if isinstance(value, dict):
        if not room:
            raise _TooDeep
        return {key: _thaw(item, room - 1) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        if not room:
            raise _TooDeep
        return [_thaw(item, room - 1) for item in value]
    return value


def _thaw_deep(root: Any) -> Any:
    box: list[Any] = [None]
    pending: list[tuple[Any, Any, Any]] = [(root, box, 0)]
    while pending:
        value, into, key = pending.pop()
        if isinstance(value, dict):
            copy: Any = dict.fromkeys(value)
            pending.extend((item, copy, name) for name, item in value.items())
        elif isinstance(value, (list, tuple)):
            copy = [None] * len(value)
            pending.extend((item, copy, index) for index, item in enumerate(value))
        else:
            copy = value
        into[key] = copy
    return box[0]


# --- text -----------------------------------------------------------------------------------------------------------

_SURROGATE = re.compile("[\ud800-\udfff]")


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


def _encode_deep(root: Any) -> str:
    out: list[str] = []
    pending: list[Any] = [(root,)]  # a str is literal output, a 1-tuple holds a value still to write
    while pending:
        step = pending.pop()
        if isinstance(step, str):
            out.append(step)
            continue
        value = step[0]
        if isinstance(value, dict):
            pending.append("}")
            for index, (key, item) in enumerate(reversed(value.items())):
                if index:
                    pending.append(",")
                pending.append((item,))
                pending.append(_encode_text(key) + ":")
            out.append("{")
        elif isinstance(value, list):
            pending.append("]")
            for index, item in enumerate(reversed(value)):
                if index:
                    pending.append(",")
                pending.append((item,))
            out.append("[")
        elif isinstance(value, str):
            out.append(_encode_text(value))
        elif type(value) is int:
            out.append(str(value))
        else:
            out.append(orjson.dumps(value).decode())
    return "".join(out)


def _encode_text(text: str) -> str:
    quoted = json.encoder.encode_basestring(text)
    return _SURROGATE.sub(lambda match: f"\\u{ord(match[0]):04x}", quoted)


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


_BLANK = re.compile(r"[ \t\n\r]*")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_PLAIN_TEXT = re.compile(r'[^"\\\x00-\x1f]*')
_ESCAPES: Final = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_HEX4 = re.compile(r"[0-9a-fA-F]{4}")
_WORDS: Final = {"true": True, "false": False, "null": None}


def _decode_deep(raw: bytes) -> Any:
    """A JSON parser without a depth limit that lets lone surrogate escapes pass."""
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise JsonDecodeError("invalid UTF-8", error.start) from None
    box: list[Any] = []
    stack: list[Any] = [box]
    keys: list[str] = [""]
    at = _skip(text, 0)
    while True:
        # A value starts at `at`.
        head = text[at : at + 1]
        opened: Any = None
        if head == "{":
            opened = {}
        elif head == "[":
            opened = []
        if opened is not None:
            _put(stack[-1], keys[-1], opened)
            at = _skip(text, at + 1)
            if text[at : at + 1] == ("}" if head == "{" else "]"):
                at += 1
            else:
                stack.append(opened)
                keys.append("")
                if head == "{":
                    keys[-1], at = _key(text, at)
                continue
        elif head == '"':
            value, at = _text(text, at)
            _put(stack[-1], keys[-1], value)
        else:
            value, at = _word_or_number(text, at)
            _put(stack[-1], keys[-1], value)
        # A value just ended: close containers or go to the next item.
        while True:
            at = _skip(text, at)
            if len(stack) == 1:
                if at != len(text):
                    raise JsonDecodeError("unexpected text after the value", at)
                return box[0]
            top = stack[-1]
            mark = text[at : at + 1]
            if mark == ",":
                at = _skip(text, at + 1)
                if isinstance(top, dict):
                    keys[-1], at = _key(text, at)
                break
            if mark != ("}" if isinstance(top, dict) else "]"):
                raise JsonDecodeError("expected ',' or the end of the container", at)
            stack.pop()
            keys.pop()
            at += 1


def _put(container: Any, key: str, value: Any) -> None:
    if isinstance(container, dict):
        container[key] = value
    else:
        container.append(value)


def _skip(text: str, at: int) -> int:
    return cast(re.Match[str], _BLANK.match(text, at)).end()


def _key(text: str, at: int) -> tuple[str, int]:
    if text[at : at + 1] != '"':
        raise JsonDecodeError("expected a key in quotes", at)
    key, at = _text(text, at)
    at = _skip(text, at)
    if text[at : at + 1] != ":":
        raise JsonDecodeError("expected ':'", at)
    return key, _skip(text, at + 1)


def _text(text: str, at: int) -> tuple[str, int]:
    parts: list[str] = []
    start = at
    at += 1
    while True:
        run = cast(re.Match[str], _PLAIN_TEXT.match(text, at))
        parts.append(run[0])
        at = run.end()
        mark = text[at : at + 1]
        if mark == '"':
            return "".join(parts), at + 1
        if mark != "\\":
            raise JsonDecodeError("unterminated string" if not mark else "control character in a string", at or start)
        letter = text[at + 1 : at + 2]
        if letter == "u":
            code, at = _escape(text, at)
            if 0xD800 <= code < 0xDC00 and text[at : at + 2] == "\\u":
                low, after = _escape(text, at)
                if 0xDC00 <= low < 0xE000:
                    code, at = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00), after
            parts.append(chr(code))
        elif letter in _ESCAPES and letter:
            parts.append(_ESCAPES[letter])
            at += 2
        else:
            raise JsonDecodeError("unknown escape in a string", at)


def _escape(text: str, at: int) -> tuple[int, int]:
    match = _HEX4.match(text, at + 2)
    if match is None:
        raise JsonDecodeError("expected four hex digits", at)
    return int(match[0], 16), match.end()


def _word_or_number(text: str, at: int) -> tuple[Any, int]:
    for word, value in _WORDS.items():
        if text.startswith(word, at):
            return value, at + len(word)
    match = _NUMBER.match(text, at)
    if match is None:
        raise JsonDecodeError("expected a JSON value" if at < len(text) else "unexpected end of the text", at)
    if match[1] or match[2]:
        number: float = float(match[0])
    else:
        # More than 400 digits cannot be a finite double; checked first because int() of huge text is slow.
        number = float("inf") if len(match[0]) > 400 else int(match[0])
        if isinstance(number, int) and not -(2**63) <= number < 2**64:
            try:
                number = float(number)
            except OverflowError:
                number = float("inf")
    if not isfinite(number):
        raise JsonDecodeError("the number is infinite as a double", at)
    return number, match.end()
