"""Fresh module objects under the names of old ones, with the way back.

`importlib.reload` runs new code inside the old module, so that old instances see new globals and nothing can be taken
back. Here the old modules leave `sys.modules` first, the new text is imported into new objects, and until the swap is
accepted the old table can be restored. Sources are compiled from their text: the byte code cache goes by size and
whole second, and would serve yesterday's code for a quick edit of the same length.
"""

from __future__ import annotations

import importlib
import importlib.util
import linecache
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.machinery import ModuleSpec, SourceFileLoader
from types import CodeType, ModuleType
from typing import Any, TypeVar

from dsh.loader.graph import ModuleSource

T = TypeVar("T")

_TEXT = "__dsh_source__"
_SOURCE = "__dsh_module_source__"


class FreshLoader(SourceFileLoader):
    """Loads a module from its text, never from byte code, and leaves the text in the module."""

    def get_code(self, fullname: str) -> CodeType:
        """The compiled text of the file as it is now."""
        path = self.get_filename(fullname)
        data = self.get_data(path)
        linecache.cache.pop(path, None)
        code = self.source_to_code(data, path)
        self._text = importlib.util.decode_source(data)
        return code

    def exec_module(self, module: ModuleType) -> None:
        """Run the module, and leave it the text it came from."""
        super().exec_module(module)
        module.__dict__[_TEXT] = self._text


def source_of(module: ModuleType) -> ModuleSource | None:
    """The text a module was loaded from; None for what has no Python source.

    Modules that a `FreshLoader` loaded know it; for others it is the file as it is at the first call.
    """
    known: ModuleSource | None = module.__dict__.get(_SOURCE)
    if known is not None:
        return known
    name = getattr(module, "__name__", None)
    file = getattr(module, "__file__", None)
    if not isinstance(name, str) or not isinstance(file, str) or not file.endswith(".py"):
        return None
    text = module.__dict__.get(_TEXT)
    if text is None:
        try:
            with open(file, "rb") as stream:
                text = importlib.util.decode_source(stream.read())
        except (OSError, SyntaxError, UnicodeDecodeError):
            return None
    spec = getattr(module, "__spec__", None)
    source = ModuleSource(name, file, text, getattr(spec, "submodule_search_locations", None) is not None)
    module.__dict__[_SOURCE] = source
    return source


def take_out(name: str) -> ModuleType | None:
    """Forget a module, and that the package around it has it; returns that package."""
    module = sys.modules.pop(name, None)
    around, _, child = name.rpartition(".")
    package = sys.modules.get(around)
    if module is None or package is None or package.__dict__.get(child) is not module:
        return None
    delattr(package, child)
    return package


class ModuleSwap:
    """One exchange of a set of modules. Import the new ones, then `accept` or `restore`.

    `ours(file)` says which files count as sources of the project; modules of other files that the new code imports
    stay loaded whatever becomes of the swap.
    """

    def __init__(self, names: Iterable[str], ours: Callable[[str], bool]) -> None:
        self._ours = ours
        self._old = {name: sys.modules[name] for name in names if name in sys.modules}
        self._packages: dict[str, ModuleType] = {}
        self._before: frozenset[str] = frozenset()
        self._taken_out = False

    def run(self, load: Callable[[], T]) -> T:
        """Take the old modules out and return what `load()`, which imports anew, returns.

        On any error the old modules are back when it leaves. `load` is synchronous, so that nobody sees half a table.
        """
        self._before = frozenset(sys.modules)
        for name in sorted(self._old, reverse=True):  # what lies in a package goes before the package
            if (package := take_out(name)) is not None:
                self._packages[name] = package
        self._taken_out = True
        importlib.invalidate_caches()
        try:
            with _fresh_imports(self._ours):
                return load()
        except BaseException:
            self.restore()
            raise

    def restore(self) -> None:
        """Put the old modules back and forget what only the new code brought in."""
        if not self._taken_out:
            return
        self._taken_out = False
        for name in list(sys.modules):
            if name in self._old or (name not in self._before and self._is_ours(sys.modules[name])):
                take_out(name)
        sys.modules.update(self._old)
        for name, package in self._packages.items():
            setattr(package, name.rpartition(".")[2], self._old[name])
        for module in self._old.values():
            source = source_of(module)
            if source is not None:
                # Tracebacks of the old code show the text it was made from, not the file as it is now.
                lines = source.text.splitlines(keepends=True)
                linecache.cache[source.file] = (len(source.text), None, lines, source.file)

    def accept(self) -> None:
        """Keep the new modules; the swap lets go of the old ones."""
        self._taken_out = False
        self._old.clear()
        self._packages.clear()

    def _is_ours(self, module: Any) -> bool:
        file = getattr(module, "__file__", None)
        return isinstance(file, str) and self._ours(file)


class _FreshFinder:
    """First on the meta path while new code is imported: project sources are compiled from text."""

    def __init__(self, ours: Callable[[str], bool]) -> None:
        self._ours = ours

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            if finder is self or find is None:
                continue
            spec: ModuleSpec | None = find(fullname, path, target)
            if spec is None:
                continue
            origin = spec.origin
            if type(spec.loader) is SourceFileLoader and origin is not None and self._ours(origin):
                spec.loader = FreshLoader(fullname, origin)
                spec.cached = None
            return spec
        return None


@contextmanager
def _fresh_imports(ours: Callable[[str], bool]) -> Iterator[None]:
    finder: Any = _FreshFinder(ours)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


def drop_stale_bytecode(file: str) -> None:
    """Remove the cached byte code of a changed source, which the next start could take for current."""
    with suppress(OSError, NotImplementedError):
        os.unlink(importlib.util.cache_from_source(file))
