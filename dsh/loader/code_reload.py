"""Replacing the code of running plugins: what a changed source affects, and the exchange with its way back.

The unit is a row. New code is imported completely before any fiber is disposed; what cannot be imported, or does not
start, leaves the old modules and the old plugin objects running.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import decode_source
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

import anyio.to_thread

from dsh.cordis import CordisError, HarnessError, resolve_plugin
from dsh.loader.generations import ModuleSwap, drop_stale_bytecode, source_of
from dsh.loader.graph import ImportGraph, ModuleSource, digest_of, reachable, reaching
from dsh.loader.resolve import LOCAL_PACKAGE, PluginImportError, Target, load, show_path

FRAMEWORK = ("dsh.cordis", "dsh.loader", "dsh.cli")
"""Packages that run the plugins; with all they import they cannot be exchanged under a running process."""


class ReloadError(HarnessError):
    """New code that was not taken over; the old code runs. The text says what to mend."""

    code = "RELOAD_FAILED"


class Row(Protocol):
    """What a reload needs to know of a loader entry."""

    plugin: Any
    target: Target | None

    @property
    def address(self) -> str: ...

    @property
    def module(self) -> str | None: ...


Exchange = Callable[[Mapping[Any, Any], Callable[[], None]], Awaitable[None]]
"""`exchange(plugins by row, undo_code)`: mount the new plugin objects; on failure call `undo_code`, bring the old ones
back and raise."""


@dataclass(frozen=True, slots=True)
class Reloaded:
    """A reload that was taken over."""

    rows: tuple[str, ...]
    modules: tuple[str, ...]
    generation: int


@dataclass(frozen=True, slots=True)
class Survey:
    """The loaded project modules, what they import, and which of them differ from their files."""

    sources: Mapping[str, ModuleSource]
    edges: Mapping[str, frozenset[str]]
    changed: Mapping[str, str]
    """Module name -> digest of the file now (`absent` for a file that is gone)."""

    @property
    def files(self) -> dict[str, str]:
        """Real path of a source -> its module."""
        return {os.path.realpath(source.file): name for name, source in self.sources.items()}


class CodeReloader:
    """Finds changed code and exchanges it. One `check` at a time."""

    def __init__(self, roots: Sequence[Path], skip: Callable[[Path], bool]) -> None:
        self._roots = [Path(os.path.realpath(root)) for root in roots]
        self._skip = skip
        self._graph = ImportGraph()
        self._installed = tuple(
            os.path.realpath(path) + os.sep
            for path in {*sysconfig.get_paths().values(), *sys.path}
            if _is_library(path)
        )
        self._covered: dict[str, bool] = {}
        self._refused: dict[str, str] = {}
        self.generation = 0

    # -- which modules -----------------------------------------------------------------------------------------------

    def is_ours(self, file: str) -> bool:
        """Whether a source belongs to the project: below a root, or neither of Python's library nor installed."""
        known = self._covered.get(file)
        if known is None:
            real = os.path.realpath(file)
            known = self._covered[file] = self.is_covered(real) or not real.startswith(self._installed)
        return known

    def is_covered(self, file: str) -> bool:
        """Whether a real path lies below a root and no skipped folder."""
        path = Path(file)
        for root in self._roots:
            if path.is_relative_to(root):
                folders = [parent for parent in path.parents if parent != root and parent.is_relative_to(root)]
                if not any(self._skip(folder) for folder in folders):
                    return True
        return False

    def is_followed(self, source: ModuleSource) -> bool:
        """Whether edits of a loaded module are looked for: below a root, or loaded by path."""
        return source.name.startswith(LOCAL_PACKAGE + ".") or self.is_covered(os.path.realpath(source.file))

    def sources(self) -> dict[str, ModuleSource]:
        """The loaded modules of the project."""
        found: dict[str, ModuleSource] = {}
        for name, module in list(sys.modules.items()):
            file = getattr(module, "__file__", None)
            if not isinstance(file, str) or getattr(module, "__name__", None) != name or not self.is_ours(file):
                continue
            source = source_of(module)
            if source is not None:
                found[name] = source
        return found

    async def survey(self) -> Survey:
        """Compare what is loaded with what is on disk."""
        sources = self.sources()
        followed = [source for source in sources.values() if self.is_followed(source)]
        digests = await anyio.to_thread.run_sync(lambda: {source.name: _file_digest(source) for source in followed})
        changed = {name: digest for name, digest in digests.items() if digest != sources[name].digest}
        return Survey(sources, self._graph.edges(sources), changed)

    # -- a reload ----------------------------------------------------------------------------------------------------

    async def reload(self, survey: Survey, rows: Sequence[Any], exchange: Exchange) -> Reloaded | None:
        """Take changed code over. None when there is none, or nothing that was not refused before.

        Raises ReloadError; the same texts are not tried, nor complained about, twice.
        """
        changed = dict(survey.changed)
        if not changed or changed == self._refused:
            return None
        self._refused = changed
        affected, modules = self._affected(survey, rows)
        for name in modules:
            drop_stale_bytecode(survey.sources[name].file)
        swap = ModuleSwap(modules, self.is_ours)
        fresh = self._import(swap, affected)
        try:
            await exchange(fresh, swap.restore)
        except BaseException:
            swap.restore()
            raise
        swap.accept()
        self._refused = {}
        self.generation += 1
        addresses = tuple(sorted(row.address for row in affected))
        return Reloaded(addresses, tuple(sorted(modules)), self.generation)

    def framework(self, survey: Survey) -> set[str]:
        """The changed modules that only a restart can exchange."""
        if not survey.changed:
            return set()
        starts = [name for name in survey.sources if name == "__main__" or any(_inside(name, top) for top in FRAMEWORK)]
        return reachable(survey.edges, starts) & survey.changed.keys()

    def unreached(self, survey: Survey, rows: Iterable[Any]) -> set[str]:
        """The changed modules that no row leads to."""
        modules = [row.module for row in rows if row.module in survey.sources]
        return set(survey.changed) - reachable(survey.edges, modules)

    def forget(self, survey: Survey, names: Iterable[str], rows: Iterable[Any]) -> set[str]:
        """Unload those of the modules that were loaded by path: the row they were loaded for has left.

        A row that comes back later then gets their code as it is by then. Returns the modules that were unloaded.
        """
        local = {name for name in names if _inside(name, LOCAL_PACKAGE)}
        used = reachable(survey.edges, [row.module for row in rows if row.module in survey.sources])
        gone = {name for name in reaching(survey.edges, local) if _inside(name, LOCAL_PACKAGE)} - used
        for name in gone:
            module = sys.modules.pop(name, None)
            parent, _, child = name.rpartition(".")
            if module is not None and sys.modules[parent].__dict__.get(child) is module:
                delattr(sys.modules[parent], child)
        return gone

    def _affected(self, survey: Survey, rows: Sequence[Any]) -> tuple[list[Any], set[str]]:
        """The rows that reach a change, and every module on their ways to it."""
        upwards = reaching(survey.edges, survey.changed)
        affected = [row for row in rows if row.module in upwards]
        firm = {row.module for row in affected if not _reloads_alone(row.module)}
        movable = [row for row in affected if row.module not in firm]
        carried = reachable(survey.edges, [row.module for row in movable])
        stuck = sorted(firm - carried)
        if stuck:
            raise ReloadError(
                f"{', '.join(stuck)} set __dsh_reload__ = False and no other row imports them: restart to take the "
                "change over"
            )
        downwards = reachable(survey.edges, [row.module for row in affected])
        return affected, upwards & downwards

    def _import(self, swap: ModuleSwap, affected: Sequence[Any]) -> dict[Any, Any]:
        def load_all() -> dict[Any, Any]:
            found = {}
            for row in affected:
                assert row.target is not None
                plugin = found[row] = load(row.target)
                try:
                    resolve_plugin(plugin)
                except CordisError as error:
                    raise ReloadError(f'row "{row.address}": {error}') from error
            return found

        try:
            return swap.run(load_all)
        except PluginImportError as error:
            raise ReloadError(f"{error}{code_frame(error.file, error.line)}") from error


def followed_files(sources: Iterable[ModuleSource], reloader: CodeReloader) -> Iterator[Path]:
    """The files of loaded modules whose edits are looked for."""
    for source in sources:
        if reloader.is_followed(source):
            yield Path(source.file)


def code_frame(file: str | None, line: int | None, around: int = 2) -> str:
    """The lines around a place in a source, the line itself marked; empty when there is none to show."""
    if file is None or line is None:
        return ""
    try:
        lines = decode_source(Path(file).read_bytes()).splitlines()
    except (OSError, SyntaxError, UnicodeDecodeError):
        return ""
    if not 0 < line <= len(lines):
        return ""
    shown = range(max(1, line - around), min(len(lines), line + around) + 1)
    width = len(str(shown[-1]))
    body = "\n".join(f"{'>' if at == line else ' '} {at:>{width}} | {lines[at - 1].rstrip()}" for at in shown)
    return f"\n{body}"


def describe_files(survey: Survey, names: Iterable[str]) -> str:
    """The files of modules, as messages print them."""
    return ", ".join(show_path(survey.sources[name].file) for name in sorted(names))


def _reloads_alone(name: str) -> bool:
    module: ModuleType | None = sys.modules.get(name)
    return getattr(module, "__dsh_reload__", True) is not False


def _file_digest(source: ModuleSource) -> str:
    try:
        return digest_of(decode_source(Path(source.file).read_bytes()))
    except FileNotFoundError:
        return "absent"
    except (OSError, SyntaxError, UnicodeDecodeError) as error:
        return f"unreadable: {type(error).__name__}"


def _inside(name: str, package: str) -> bool:
    return name == package or name.startswith(package + ".")


def _is_library(path: str) -> bool:
    """Whether an import path holds installed code rather than the project's own."""
    folded = os.path.realpath(path)
    return os.path.basename(folded) in ("site-packages", "dist-packages") or folded in {
        os.path.realpath(sysconfig.get_path("stdlib")),
        os.path.realpath(sysconfig.get_path("platstdlib")),
    }
