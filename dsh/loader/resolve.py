"""From the `name` of a row to a plugin object: built-in names, files, entry points, Python modules."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
import re
import sys
import traceback
from collections.abc import Iterator, Sequence
from importlib.machinery import FileFinder, ModuleSpec
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import Any, Final, Literal
from urllib.parse import unquote, urlsplit

from dsh.cordis.errors import HarnessError, describe_error
from dsh.cordis.nearest import meant, nearest
from dsh.cordis.records import record

from . import names
from .generations import FreshLoader

LOCAL_PACKAGE: Final = "_dsh_local"
"""Parent of the synthetic packages, one a folder, that hold plugins loaded by path."""
ENTRY_POINTS: Final = "dsh.plugins"

_PACKAGE: Final = os.path.dirname(os.path.dirname(__file__))
_DOTTED: Final = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*(?::[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)?")
_SCRIPT_SUFFIXES: Final = (".ts", ".js", ".mjs", ".cjs", ".mts", ".cts")


class ResolveError(HarnessError):
    """A row name that stands for nothing here; `nearest` is the name most like it."""

    code = "UNKNOWN_PLUGIN"

    def __init__(self, message: str, nearest: str | None = None) -> None:
        super().__init__(message)
        self.nearest = nearest


class PluginImportError(HarnessError):
    """A plugin's code could not be imported; the cause is what it raised, `file`/`line` where in its own source."""

    code = "PLUGIN_IMPORT_FAILED"

    def __init__(self, message: str, file: str | None = None, line: int | None = None) -> None:
        super().__init__(message)
        self.file = file
        self.line = line


@record
class Target:
    """What a row name stands for. `module` and `attribute` say where the plugin object is; `path` is its file, if the
    name is one."""

    kind: Literal["plugin", "group", "include", "skipped"]
    module: str | None = None
    attribute: str | None = None
    path: Path | None = None


def resolve(name: str, base_dir: Path) -> Target:
    """Find what `name` stands for, without importing it. Relative paths start at `base_dir`.

    Raises `ResolveError`.
    """
    if names.is_group(name):
        return Target("group")
    if names.is_include(name):
        return Target("include")
    if name.startswith(("./", "../", "/", "file:")) or name in (".", ".."):
        return _resolve_path(name, base_dir)
    if names.is_skipped(name):
        return Target("skipped")
    value = names.module_of(name)
    if value is not None:
        if not _exists(value.partition(":")[0]):
            raise ResolveError(f"the plugin {name} is known, but not built yet")
    elif (reason := names.unavailable_reason(name)) is not None:
        raise ResolveError(f"the plugin {name} is known, but not available: {reason}")
    else:
        value = next((point.value for point in _entry_points() if point.name == name), None)
        if value is None and _DOTTED.fullmatch(name) and _exists(name.partition(":")[0]):
            value = name
    if value is None:
        raise _unknown(name)
    module, _, attribute = value.partition(":")
    return Target("plugin", module, attribute or None)


def load(target: Target) -> Any:
    """Import the plugin object: the module itself, or the attribute the name asks for. Raises `PluginImportError`."""
    assert target.module is not None
    if target.path is not None:
        _local_finder().files[target.module] = target.path
    try:
        found: Any = importlib.import_module(target.module)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise _import_error(error, target) from error
    try:
        return attrgetter(target.attribute)(found) if target.attribute else found
    except AttributeError:
        raise PluginImportError(f"the module {target.module} has no {target.attribute}") from None


def path_of(name: str, base_dir: Path) -> Path:
    """The absolute path that a path, relative to `base_dir`, or a `file:` URL names."""
    return Path(os.path.abspath(base_dir / (unquote(urlsplit(name).path) if name.startswith("file:") else name)))


def _resolve_path(name: str, base_dir: Path) -> Target:
    path = path_of(name, base_dir)
    file = _plugin_file(path)
    if file is None:
        if path.suffix in _SCRIPT_SUFFIXES:
            raise ResolveError(
                f"{name} is JavaScript or TypeScript; this runtime loads Python plugins, and there is no "
                f"{path.with_suffix('.py').name} beside it"
            )
        if path.is_dir():
            raise ResolveError(f"{name} is a folder without __init__.py, so no plugin; name a file in it")
        near = _nearest_file(path, name) or _moved_file(path, base_dir)
        hint = meant(near) or f" (looked in {show_path(path.parent)})"
        raise ResolveError(f"there is no plugin at {name}{hint}", near)
    stem = file.parent.name if file.name == "__init__.py" else file.stem
    folder = file.parent.parent if file.name == "__init__.py" else file.parent
    return Target("plugin", f"{folder_package(folder)}.{stem.replace('.', '_')}", None, file)


def _plugin_file(path: Path) -> Path | None:
    if path.suffix == ".py":
        candidates = [path]
    elif path.suffix in _SCRIPT_SUFFIXES:
        candidates = [path.with_suffix(".py")]
    else:
        candidates = [path.with_name(path.name + ".py"), path / "__init__.py"]
    return next((candidate for candidate in candidates if candidate.is_file()), None)


def _nearest_file(path: Path, name: str) -> str | None:
    try:
        siblings = [entry.name for entry in path.parent.iterdir() if entry.suffix == ".py" or entry.is_dir()]
    except OSError:
        return None
    found = nearest(path.name, [name for name in siblings if not name.startswith(("_", "."))])
    return None if found is None else name[: len(name) - len(path.name)] + found


def _moved_file(path: Path, base_dir: Path) -> str | None:
    """A file of the same name in the folder of the composition, up to two folders further down, or at the same place
    seen from the folder above."""
    from glob import escape

    wanted = path.name if path.suffix == ".py" else f"{path.name}.py"
    try:
        near = [found for down in ("", "*/", "*/*/") for found in sorted(base_dir.glob(down + escape(wanted)))]
    except OSError:
        near = []
    for found in near:
        inside = found.relative_to(base_dir)
        if found.is_file() and not any(part.startswith((".", "_")) for part in inside.parts[:-1]):
            return f"./{inside}"
    if path.is_relative_to(base_dir):
        above = path.relative_to(base_dir).with_name(wanted)
        return f"../{above}" if os.path.isfile(base_dir.parent / above) else None
    return None


def folder_package(folder: Path) -> str:
    """The synthetic package for plugins loaded by path from `folder`; its modules import each other relatively."""
    real = os.path.realpath(folder)
    digest = hashlib.sha256(real.encode("utf-8", "surrogateescape")).hexdigest()[:10]
    package = f"{LOCAL_PACKAGE}.{digest}"
    if package not in sys.modules:
        _local_finder()
        root = sys.modules.setdefault(LOCAL_PACKAGE, _package(LOCAL_PACKAGE, []))
        sys.modules[package] = _package(package, [real])
        setattr(root, digest, sys.modules[package])
    return package


def _package(name: str, path: list[str]) -> ModuleType:
    module = ModuleType(name, "Plugins of one folder." if path else "Plugins that were loaded by path.")
    module.__path__ = path
    module.__spec__ = ModuleSpec(name, None, is_package=True)
    module.__spec__.submodule_search_locations = path
    return module


class LocalFinder:
    """Finds the modules of the synthetic packages. Stands on `sys.meta_path` once the first such plugin is loaded."""

    def __init__(self) -> None:
        self.files: dict[str, Path] = {}
        """Which file a plugin's module is: file names need not be module names."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not fullname.startswith(LOCAL_PACKAGE + ".") or not path:
            return None
        file = self.files.get(fullname)
        if file is not None:
            folders = [str(file.parent)] if file.name == "__init__.py" else None
            return importlib.util.spec_from_file_location(
                fullname, file, loader=FreshLoader(fullname, str(file)), submodule_search_locations=folders
            )
        # A new finder each time: it caches folder listings by their modification time, which is too coarse.
        for folder in path:
            spec = FileFinder(folder, (FreshLoader, [".py"])).find_spec(fullname)
            if spec is not None and spec.loader is not None:
                return spec
        return None


def _local_finder() -> LocalFinder:
    for finder in sys.meta_path:
        if isinstance(finder, LocalFinder):
            return finder
    finder = LocalFinder()
    sys.meta_path.insert(0, finder)
    return finder


def _exists(module: str) -> bool:
    if module in sys.modules:
        return True
    package, _, rest = module.partition(".")
    if package == "dsh" and os.path.isfile(os.path.join(_PACKAGE, *rest.split(".")) + ".py"):
        return True  # the usual case, without asking every finder
    try:
        return importlib.util.find_spec(module) is not None
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        # Looking for a submodule imports the packages around it: what breaks in there, the import says better.
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        return missing is None or not f"{module}.".startswith(f"{missing}.")


def _entry_points() -> Iterator[Any]:
    from importlib.metadata import entry_points

    yield from entry_points(group=ENTRY_POINTS)


def _unknown(name: str) -> ResolveError:
    known = [*names.PLUGINS, *names.CORDIS_PLUGINS, *(point.name for point in _entry_points())]
    word = name
    for prefix in (*names.CORDIS_PREFIXES, names.SCOPE + names.PREFIX, names.PREFIX):
        if name.startswith(prefix):
            word = name.removeprefix(prefix)
            break
    found = nearest(word, known)
    if found is not None:
        head = name[: len(name) - len(word)]
        if found in names.CORDIS_PLUGINS and found not in names.PLUGINS and head.endswith(names.PREFIX):
            head = names.CORDIS_PREFIXES[0]
        found = head + found
    tried = "built-in names, entry points of dsh.plugins, Python modules"
    return ResolveError(
        f'no plugin is called "{name}"{meant(found)} (tried {tried}; a file is written ./name.py)', found
    )


def _import_error(error: BaseException, target: Target) -> PluginImportError:
    """Name the line of the plugin's own source that failed."""
    kind = type(error).__name__
    file: str | None = None
    line: int | None = None
    if isinstance(error, SyntaxError) and error.filename:
        file, line = error.filename, error.lineno
        detail = f"{kind}: {error.msg}"
    else:
        for frame in traceback.extract_tb(error.__traceback__):
            source = frame.filename
            if not source.startswith("<") and source != __file__ and "importlib" not in Path(source).parts:
                file, line = source, frame.lineno
        detail = describe_error(error)
        detail = detail if detail == kind else f"{kind}: {detail}"
    place = f"{show_path(file)}:{line}: " if file else ""
    return PluginImportError(f"{place}{detail}", file, line)


def show_path(path: str | os.PathLike[str]) -> str:
    """A path as messages print it: relative to the working directory where it lies below it."""
    full = os.path.abspath(path)
    try:
        relative = os.path.relpath(full)
    except ValueError:
        return full
    return full if relative.startswith("..") else relative
