"""The values of expressions: what JavaScript makes of them, and what can be read of each."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final
from urllib.parse import urljoin, urlsplit

from dsh.cordis.records import identity_struct

MAX_TEXT: Final = 100_000
DECIMAL: Final = r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?"


class _Undefined:
    """No value at all: the key it stands under is absent."""

    def __bool__(self) -> bool:
        return False

    def __repr__(self) -> str:
        return "undefined"


UNDEFINED: Final = _Undefined()


@identity_struct
class Fn:
    """The only kind of value that can be called."""

    name: str
    _body: Callable[..., Any]

    def call(self, arguments: list[Any], step: Callable[[int], None]) -> Any:
        """Run it. Raises `ValueError` for wrong arguments and for results that are too large."""
        step(sum(len(item) for item in arguments if isinstance(item, list)))
        try:
            result = self._body(*arguments)
        except TypeError as error:
            raise ValueError(f"{self.name}: {error}") from None
        if isinstance(result, list):
            step(len(result))
        return _bounded(result)


def _bounded(value: Any) -> Any:
    if isinstance(value, (str, list)) and len(value) > MAX_TEXT:
        raise ValueError(f"a value grew beyond {MAX_TEXT} characters or items")
    return value


class Facade:
    """A namespace such as `process` or `Math`: only what it lists can be read."""

    __slots__ = ("_members", "name")
    __expr_facade__: ClassVar[bool] = True

    def __init__(self, name: str, members: Mapping[str, Any]) -> None:
        self.name = name
        self._members = members

    def read(self, name: str) -> Any:
        return self._members.get(name, UNDEFINED)


def truthy(value: Any) -> bool:
    """JavaScript truth: empty lists and mappings are true; `''`, 0, NaN, null and undefined are false."""
    if value is None or value is UNDEFINED or value is False or value == "":
        return False
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return value != 0 and not math.isnan(value)
    return True


def type_name(value: Any) -> str:
    """What `typeof` says."""
    if value is UNDEFINED:
        return "undefined"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, (int, float)):
        return "number"
    if isinstance(value, str):
        return "string"
    return "function" if isinstance(value, Fn) else "object"


def strict_equal(left: Any, right: Any) -> bool:
    """`===`: same kind and value; lists and objects by identity."""
    if type_name(left) != type_name(right):
        return False
    if isinstance(left, (bool, int, float, str)):
        return bool(left == right)
    return left is right


def number(value: Any) -> int | float:
    """JavaScript's `Number(value)`."""
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, (int, float)):
        return value
    if value is None:
        return 0
    if isinstance(value, str):
        text = value.strip()
        if not text:
            return 0
        if re.fullmatch(r"0[xXoObB][0-9a-fA-F]+", text):
            try:
                return int(text, 0)
            except ValueError:
                return math.nan
        if re.fullmatch(DECIMAL, text):
            return tidy(float(text))
        if text.lstrip("+-") == "Infinity":
            return -math.inf if text.startswith("-") else math.inf
    return math.nan


def tidy(value: int | float) -> int | float:
    """A whole float as an int, as JavaScript prints it."""
    whole = isinstance(value, float) and value.is_integer() and abs(value) < 2**53
    return int(value) if whole else value


def text_of(value: Any) -> str:
    """JavaScript's `String(value)`."""
    if isinstance(value, str):
        return value
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        if isinstance(value, float) and not math.isfinite(value):
            return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        return str(tidy(value))
    if isinstance(value, (list, tuple)):
        return ",".join("" if item is None or item is UNDEFINED else text_of(item) for item in value)
    if value is UNDEFINED or isinstance(value, Url):
        return str(value)
    return "[object Object]"


def add(left: Any, right: Any) -> Any:
    """`+`: concatenates if either side is a string, else sums."""
    if isinstance(left, (str, Url)) or isinstance(right, (str, Url)):
        return _bounded(text_of(left) + text_of(right))
    return tidy(number(left) + number(right))


def divide(left: Any, right: Any) -> Any:
    """`/`, with infinity and NaN where the divisor is zero."""
    top, bottom = number(left), number(right)
    if bottom == 0:
        return math.nan if top == 0 or math.isnan(top) else math.copysign(math.inf, top)
    return tidy(top / bottom)


def remainder(left: Any, right: Any) -> Any:
    """`%`, with the sign of the dividend."""
    top, bottom = number(left), number(right)
    return math.nan if bottom == 0 or not math.isfinite(top) else tidy(math.fmod(top, bottom))


def compare(left: Any, right: Any, holds: Callable[[Any, Any], bool]) -> bool:
    """An order comparison: text by characters, everything else as numbers."""
    if isinstance(left, str) and isinstance(right, str):
        return holds(left, right)
    return holds(number(left), number(right))


class Url:
    """The result of `new URL(path, base)`."""

    __slots__ = ("href",)
    __expr_facade__: ClassVar[bool] = False

    def __init__(self, href: str) -> None:
        self.href = href

    @classmethod
    def make(cls, path: Any, base: Any = UNDEFINED) -> Url:
        """Resolve `path` against `base`. Raises `ValueError` if the result is no absolute URL."""
        joined = text_of(path) if base is UNDEFINED else urljoin(text_of(base), text_of(path))
        if not urlsplit(joined).scheme:
            raise ValueError(f"{joined!r} is no absolute URL")
        return cls(joined)

    def read(self, name: str) -> Any:
        parts = urlsplit(self.href)
        host = parts.hostname or ""
        port = f":{parts.port}" if parts.port else ""
        return {
            "href": self.href,
            "protocol": f"{parts.scheme}:",
            "host": host + port,
            "hostname": host,
            "port": port[1:],
            "pathname": parts.path or "/",
            "search": f"?{parts.query}" if parts.query else "",
            "hash": f"#{parts.fragment}" if parts.fragment else "",
            "origin": f"{parts.scheme}://{host}{port}",
        }.get(name, UNDEFINED)

    def __str__(self) -> str:
        return self.href


def member(value: Any, key: Any) -> Any:
    """`value.key` or `value[key]`. Raises `ValueError` where nothing may be read."""
    if value is None or value is UNDEFINED:
        raise ValueError(f"cannot read {text_of(key)!r} of {text_of(value)}")
    if isinstance(value, (Facade, Url)):
        return value.read(text_of(key))
    if isinstance(value, str):
        return _text_member(value, key)
    if isinstance(value, (list, tuple)):
        return _list_member(value, key)
    if isinstance(value, Mapping):
        return value.get(text_of(key), UNDEFINED)
    if isinstance(value, (bool, int, float, Fn)):
        return UNDEFINED
    return _attribute(value, text_of(key))


def _attribute(value: Any, name: str) -> Any:
    """A public attribute of a service, in camelCase or snake_case."""
    if name.startswith("_"):
        raise ValueError(f"{name} is private")
    snake = re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
    for spelling in dict.fromkeys((name, snake)):
        try:
            found = getattr(value, spelling)
        except AttributeError:
            continue
        if callable(found):
            raise ValueError(f"{name} is a method of a service; expressions read values only")
        return found
    return UNDEFINED


def _position(key: Any, size: int) -> int | None:
    if isinstance(key, str) and key.isdigit():
        key = int(key)
    return key if isinstance(key, int) and not isinstance(key, bool) and 0 <= key < size else None


def _text_member(text: str, key: Any) -> Any:
    if key == "length":
        return len(text)
    at = _position(key, len(text))
    if at is not None:
        return text[at]
    method = _TEXT_METHODS.get(key) if isinstance(key, str) else None
    return UNDEFINED if method is None else Fn(key, lambda *arguments: method(text, *arguments))


def _list_member(items: Sequence[Any], key: Any) -> Any:
    if key == "length":
        return len(items)
    at = _position(key, len(items))
    if at is not None:
        return items[at]
    method = _LIST_METHODS.get(key) if isinstance(key, str) else None
    return UNDEFINED if method is None else Fn(key, lambda *arguments: method(items, *arguments))


def _split(text: str, separator: Any = UNDEFINED, limit: Any = UNDEFINED) -> list[str]:
    if separator is UNDEFINED:
        parts = [text]
    else:
        parts = list(text) if separator == "" else text.split(text_of(separator))
    return parts if limit is UNDEFINED else parts[: int(number(limit))]


def _replace(text: str, old: Any, new: Any) -> str:
    return text.replace(text_of(old), text_of(new), 1)


def _slice(text: str, start: Any = 0, end: Any = UNDEFINED) -> str:
    stop = None if end is UNDEFINED else int(number(end))
    return text[int(number(start)) : stop]


def _join(items: Sequence[Any], separator: Any = ",") -> str:
    parts = ["" if item is None or item is UNDEFINED else text_of(item) for item in items]
    glue = text_of(separator)
    if sum(map(len, parts)) + len(glue) * len(parts) > MAX_TEXT:
        raise ValueError(f"a value grew beyond {MAX_TEXT} characters or items")
    return glue.join(parts)


def _concat(items: Sequence[Any], *others: Any) -> list[Any]:
    result = list(items)
    for other in others:
        result.extend(other if isinstance(other, (list, tuple)) else [other])
    return result


def _list_includes(items: Sequence[Any], wanted: Any) -> bool:
    return any(strict_equal(item, wanted) for item in items)


_TEXT_METHODS: Final[Mapping[str, Callable[..., Any]]] = {
    "trim": lambda text: text.strip(),
    "toLowerCase": lambda text: text.lower(),
    "toUpperCase": lambda text: text.upper(),
    "startsWith": lambda text, part: text.startswith(text_of(part)),
    "endsWith": lambda text, part: text.endswith(text_of(part)),
    "includes": lambda text, part: text_of(part) in text,
    "split": _split,
    "replace": _replace,
    "slice": _slice,
    "toString": lambda text: text,
}
_LIST_METHODS: Final[Mapping[str, Callable[..., Any]]] = {
    "includes": _list_includes,
    "concat": _concat,
    "join": _join,
}
