"""What expressions can see: JavaScript-like values, the names of a scope, and the few functions that may be called."""

from __future__ import annotations

import math
import os
import posixpath
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, NoReturn
from urllib.parse import unquote, urljoin, urlsplit

from dsh.cordis.errors import CordisError
from dsh.cordis.jsonio import JsonDecodeError, decode, encode_str

if TYPE_CHECKING:
    from dsh.cordis import Context

MAX_TEXT: Final = 100_000


class _Undefined:
    """No value at all: the key it stands under is absent."""

    def __bool__(self) -> bool:
        return False

    def __repr__(self) -> str:
        return "undefined"


UNDEFINED: Final = _Undefined()


class Fn:
    """The only kind of value that can be called."""

    __slots__ = ("_body", "name")

    def __init__(self, name: str, body: Callable[..., Any]) -> None:
        self.name = name
        self._body = body

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


class _Services(Facade):
    """`ctx`: its members are the services the row declares."""

    __slots__ = ("_scope",)

    def __init__(self, scope: Scope) -> None:
        super().__init__("ctx", {})
        self._scope = scope

    def read(self, name: str) -> Any:
        if name == "get":
            return Fn("ctx.get", self._scope.optional_service)
        if name in ("baseUrl", "baseDir", "base_dir"):
            return self._scope.lookup(name)
        return self._scope.service(name)


@dataclass
class Scope:
    """What the names of an expression mean.

    `env` is the launch snapshot, `base_dir` the folder of the file the row stands in, `ctx` the context whose
    declared services can be read (`None`: none), `home` joins path parts to the home folder.
    """

    env: Mapping[str, str] = field(default_factory=dict)
    cwd: str = ""
    base_dir: Path = Path()
    ctx: Context | None = None
    home: Callable[..., str] | None = None
    argv: Sequence[str] = ()

    def lookup(self, name: str) -> Any:
        """The value of a bare name: a name of the language, else a declared service."""
        known = _GLOBALS.get(name)
        if known is not None:
            return known
        maker = _SCOPED.get(name)
        return maker(self) if maker is not None else self.service(name)

    def service(self, name: str) -> Any:
        """A declared service. Raises `ValueError` if the row may not read it."""
        if name.startswith("_"):
            raise ValueError(f"{name} is private")
        if self.ctx is None:
            raise ValueError(f"{name} is not known here")
        try:
            return self.ctx[name]
        except CordisError as error:
            if error.code == "NOT_INJECTED":
                raise ValueError(
                    f'"{name}" is neither a known name nor a service this row declares in inject'
                ) from None
            raise ValueError(str(error)) from None

    def optional_service(self, name: Any) -> Any:
        """A service if it is there right now, else undefined."""
        if not isinstance(name, str) or name.startswith("_"):
            raise ValueError("ctx.get takes the name of a service")
        found = None if self.ctx is None else self.ctx.get(name)
        return UNDEFINED if found is None else found


# --- values ---------------------------------------------------------------------------------------------------------


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
        if re.fullmatch(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?", text):
            return tidy(float(text)) if not text.lstrip("+-").isdigit() or len(text) > 300 else int(text)
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


# --- members --------------------------------------------------------------------------------------------------------


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


# --- functions ------------------------------------------------------------------------------------------------------


def _parse_int(value: Any, radix: Any = 10) -> int | float:
    base = int(number(radix)) or 10
    text = text_of(value).strip()
    match = re.match(r"([-+]?)(0[xX])?([0-9a-zA-Z]*)", text)
    if match is None or not 2 <= base <= 36:
        return math.nan
    if match[2] and base in (10, 16):
        base = 16
    digits = match[3] if not match[2] or base == 16 else match[2] + match[3]
    allowed = "0123456789abcdefghijklmnopqrstuvwxyz"[:base]
    valid = re.match(f"[{allowed}]*", digits.lower())
    if valid is None or not valid[0]:
        return 0 if match[2] else math.nan
    return int(valid[0], base) * (-1 if match[1] == "-" else 1)


def _parse_float(value: Any) -> int | float:
    match = re.match(r"\s*([-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?)", text_of(value))
    return number(match[1]) if match else math.nan


def _json_parse(value: Any) -> Any:
    try:
        return decode(text_of(value))
    except JsonDecodeError as error:
        raise ValueError(f"JSON.parse: {error}") from None


def _round(value: Any) -> int | float:
    exact = number(value)
    return math.floor(exact + 0.5) if math.isfinite(exact) else exact


def _whole(operation: Callable[[float], int]) -> Callable[[Any], int | float]:
    def apply(value: Any) -> int | float:
        exact = number(value)
        return operation(exact) if math.isfinite(exact) else exact

    return apply


def _extreme(pick: Callable[..., Any], empty: float) -> Callable[..., int | float]:
    def apply(*values: Any) -> int | float:
        numbers = [number(value) for value in values]
        if any(math.isnan(value) for value in numbers):
            return math.nan
        return pick(numbers) if numbers else empty

    return apply


def _functions(name: str, **members: Callable[..., Any]) -> Facade:
    return Facade(name, {key: Fn(f"{name}.{key}", body) for key, body in members.items()})


def _make_url(*_: Any) -> NoReturn:
    raise ValueError("write `new URL(path, base)`")


_GLOBALS: Final[Mapping[str, Any]] = {
    "Number": Fn("Number", lambda value=0: number(value)),
    "String": Fn("String", lambda value="": text_of(value)),
    "Boolean": Fn("Boolean", lambda value=UNDEFINED: truthy(value)),
    "parseInt": Fn("parseInt", _parse_int),
    "parseFloat": Fn("parseFloat", _parse_float),
    "URL": Fn("URL", _make_url),
    "JSON": _functions("JSON", parse=_json_parse, stringify=lambda value, *_: encode_str(value)),
    "Math": _functions(
        "Math",
        min=_extreme(min, math.inf),
        max=_extreme(max, -math.inf),
        floor=_whole(math.floor),
        ceil=_whole(math.ceil),
        round=_round,
    ),
}


# --- names that depend on the run -----------------------------------------------------------------------------------


def _texts(parts: Sequence[Any]) -> list[str]:
    for part in parts:
        if not isinstance(part, str):
            raise ValueError(f"a path part must be a string, got {text_of(part)}")
    return list(parts)


def _path_join(*parts: Any) -> str:
    joined = "/".join(part for part in _texts(parts) if part)
    return posixpath.normpath(joined) if joined else "."


def _path_resolve(scope: Scope) -> Callable[..., str]:
    return lambda *parts: os.path.abspath(os.path.join(scope.cwd, *_texts(parts)))


def _path_name(path: Any, suffix: Any = "") -> str:
    name = os.path.basename(text_of(path).rstrip("/"))
    end = text_of(suffix)
    return name.removesuffix(end) if end and name != end else name


def _file_url_to_path(url: Any) -> str:
    parts = urlsplit(text_of(url))
    if parts.scheme != "file":
        raise ValueError(f"{text_of(url)!r} is no file URL")
    return unquote(parts.path)


def _tmpdir() -> str:
    import tempfile

    return tempfile.gettempdir()


def _modules(scope: Scope) -> Mapping[str, Facade]:
    return {
        "path": _functions(
            "path",
            join=_path_join,
            resolve=_path_resolve(scope),
            dirname=lambda path: os.path.dirname(text_of(path)) or ".",
            basename=_path_name,
        ),
        "os": _functions("os", homedir=lambda: os.path.expanduser("~"), tmpdir=_tmpdir),
        "url": _functions(
            "url",
            fileURLToPath=_file_url_to_path,
            pathToFileURL=lambda path: Url(Path(os.path.abspath(os.path.join(scope.cwd, text_of(path)))).as_uri()),
        ),
    }


def _builtin_module(scope: Scope) -> Callable[[Any], Facade]:
    def get(name: Any) -> Facade:
        modules = _modules(scope)
        found = modules.get(text_of(name).removeprefix("node:"))
        if found is None:
            known = ", ".join(f"node:{known}" for known in modules)
            raise ValueError(f"the module {text_of(name)!r} is not available here (known: {known})")
        return found

    return get


def _platform() -> str:
    return "linux" if sys.platform.startswith("linux") else sys.platform


def _base_url(scope: Scope) -> str:
    uri = Path(os.path.abspath(scope.base_dir)).as_uri()
    return uri if uri.endswith("/") else uri + "/"


def _home(scope: Scope) -> Fn:
    def join(*parts: Any) -> str:
        if scope.home is None:
            raise ValueError("there is no home folder here")
        return scope.home(*_texts(parts))

    return Fn("dshHomePath", join)


def _process(scope: Scope) -> Facade:
    return Facade(
        "process",
        {
            "env": scope.env,
            "cwd": Fn("process.cwd", lambda: scope.cwd),
            "platform": _platform(),
            "execPath": sys.executable,
            "argv": list(scope.argv),
            "getBuiltinModule": Fn("process.getBuiltinModule", _builtin_module(scope)),
        },
    )


_SCOPED: Final[Mapping[str, Callable[[Scope], Any]]] = {
    "process": _process,
    "env": lambda scope: scope.env,
    "cwd": lambda scope: Fn("cwd", lambda: scope.cwd),
    "platform": lambda scope: _platform(),
    "baseUrl": _base_url,
    "base_dir": lambda scope: os.path.abspath(scope.base_dir),
    "baseDir": lambda scope: os.path.abspath(scope.base_dir),
    "dshHomePath": _home,
    "home": _home,
    "ctx": _Services,
}
