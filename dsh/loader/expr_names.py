"""The names of expressions: the services and the launch environment of a scope, and the few functions there are."""

from __future__ import annotations

import math
import os
import posixpath
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn
from urllib.parse import unquote, urlsplit

from dsh.cordis.errors import CordisError
from dsh.cordis.jsonio import JsonDecodeError, decode, encode_str
from dsh.cordis.nearest import meant, nearest

from .expr_values import DECIMAL, UNDEFINED, Facade, Fn, Url, number, text_of, truthy

if TYPE_CHECKING:
    from dsh.cordis import Context


CONTEXT_PLACES: Final = ("baseUrl", "baseDir", "base_dir")
"""What can be read of `ctx` that is no service."""


class _Services(Facade):
    """`ctx`: its members are the services the row declares."""

    __slots__ = ("_scope",)

    def __init__(self, scope: Scope) -> None:
        super().__init__("ctx", {})
        self._scope = scope

    def read(self, name: str) -> Any:
        if name == "get":
            return Fn("ctx.get", self._scope.optional_service)
        if name in CONTEXT_PLACES:
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
                raise ValueError(unknown_name(name)) from None
            raise ValueError(str(error)) from None

    def optional_service(self, name: Any) -> Any:
        """A service if it is there right now, else undefined."""
        if not isinstance(name, str) or name.startswith("_"):
            raise ValueError("ctx.get takes the name of a service")
        found = None if self.ctx is None else self.ctx.get(name)
        return UNDEFINED if found is None else found


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
    match = re.match(DECIMAL, text_of(value).strip())
    return number(match[0]) if match else math.nan


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


def unknown_name(name: str) -> str:
    """What is wrong with a name that stands for nothing, and which one may be meant."""
    near = meant(nearest(name, language_names()))
    return f'"{name}" is neither a known name nor a service this row declares in inject{near}'


def language_names() -> frozenset[str]:
    """The names of the language: what an expression may say without declaring a service."""
    return frozenset({*_GLOBALS, *_SCOPED})


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
