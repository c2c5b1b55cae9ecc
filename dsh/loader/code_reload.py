"""Replacing the code of running plugins: what a changed source affects, and the exchange with its way back.

The unit is a row. New code is imported completely before any fiber is disposed; what cannot be imported, or does not
start, leaves the old modules and the old plugin objects running.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from importlib.util import decode_source
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import anyio.to_thread

from dsh.cordis import CordisError, HarnessError, resolve_plugin
from dsh.cordis.records import record
from dsh.loader.generations import ModuleSwap, drop_stale_bytecode, source_of, take_out
from dsh.loader.graph import ImportGraph, ModuleSource, closure, digest_of, reversed_edges
from dsh.loader.problems import LoadError, unreadable
from dsh.loader.resolve import LOCAL_PACKAGE, PluginImportError, load, show_path
from dsh.loader.row_checks import row_problem

FRAMEWORK = ("dsh.cordis", "dsh.loader", "dsh.cli")
"""Packages that run the plugins; with all they import they cannot be exchanged under a running process."""


class ReloadError(HarnessError):
    """New code that was not taken over; the old code runs. The text says what to mend."""

    code = "RELOAD_FAILED"


Exchange = Callable[[Mapping[Any, Any], Callable[[], None]], Awaitable[None]]
"""`exchange(plugins by row, undo_code)`: mount the new plugin objects; on failure call `undo_code`, bring the old ones
back and raise."""


@record
class Reloaded:
    """A reload that was taken over."""

    rows: tuple[str, ...]
    modules: tuple[str, ...]
    generation: int


@record
class Survey:
    """The followed modules, which of them differ from their files, and who imports those."""

    sources: Mapping[str, ModuleSource]
    changed: Mapping[str, str]
    """Module name -> digest of the file now (`absent` for a file that is gone)."""
    importers: Mapping[str, set[str]]
    """For each changed module, and each on a way to one, the modules that import it."""

    @property
    def files(self) -> set[str]:
        """The real paths of the followed modules."""
        return {os.path.realpath(source.file) for source in self.sources.values()}

    def without(self, names: set[str]) -> Survey:
        """The same with some changes left out."""
        changed = {name: digest for name, digest in self.changed.items() if name not in names}
        return Survey(self.sources, changed, self.importers)


class _Place(NamedTuple):
    is_covered: bool
    is_ours: bool


class CodeReloader:
    """Finds changed code and exchanges it. One `check` at a time."""

    def __init__(self, roots: Sequence[Path], skip: Callable[[Path], bool]) -> None:
        self._roots = [Path(os.path.realpath(root)) for root in roots]
        self._skip = skip
        self._graph = ImportGraph()
        folders = [*sys.path, os.path.dirname(os.__file__)]
        self._installed = tuple({os.path.realpath(path) + os.sep for path in folders if _is_library(path)})
        self._places: dict[str, _Place] = {}
        self._refused: dict[str, str] = {}
        self.generation = 0

    def is_ours(self, file: str) -> bool:
        """Whether a source belongs to the project: below a root, or neither of Python's library nor installed."""
        return self._place_of(file).is_ours

    def followed(self) -> dict[str, ModuleSource]:
        """The loaded modules whose edits are looked for: below a root, or loaded by path.

        The text of a module that was loaded the usual way is taken to be the one of the first call.
        """
        return _sources(
            (name, module)
            for name, module in self._loaded()
            if name.startswith(LOCAL_PACKAGE + ".") or self._place_of(module.__file__ or "").is_covered
        )

    def _place_of(self, file: str) -> _Place:
        """What the folder of a file is; hundreds of modules lie in few folders."""
        folder = os.path.dirname(os.path.realpath(file) if os.path.islink(file) else file)
        known = self._places.get(folder)
        if known is None:
            real = os.path.realpath(folder)
            covered = any(self._covers(root, Path(real)) for root in self._roots)
            known = self._places[folder] = _Place(covered, covered or not (real + os.sep).startswith(self._installed))
        return known

    def _covers(self, root: Path, folder: Path) -> bool:
        """Whether a real folder is the root or lies below it, in no skipped folder."""
        if not folder.is_relative_to(root):
            return False
        folders = [each for each in (folder, *folder.parents) if each != root and each.is_relative_to(root)]
        return not any(self._skip(each) for each in folders)

    def _loaded(self) -> Iterator[tuple[str, ModuleType]]:
        for name, module in list(sys.modules.items()):
            file = getattr(module, "__file__", None)
            if isinstance(file, str) and getattr(module, "__name__", None) == name and self.is_ours(file):
                yield name, module

    async def survey(self) -> Survey:
        """Compare what is loaded with what is on disk. Reading and parsing do not hold up the event loop."""
        followed = self.followed()
        digests = await anyio.to_thread.run_sync(lambda: {name: _file_digest(each) for name, each in followed.items()})
        changed = {name: digest for name, digest in digests.items() if digest != followed[name].digest}
        if not changed:
            return Survey(followed, {}, {})
        loaded = list(self._loaded())
        importers = await anyio.to_thread.run_sync(lambda: self._graph.importers(_sources(loaded), changed))
        return Survey(followed, changed, importers)

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
            drop_stale_bytecode(sys.modules[name].__file__ or "")
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

    def taken_back(self, survey: Survey) -> set[str]:
        """The modules whose refused code is no more: what runs is what their files say. Told once."""
        if survey.changed:
            return set()
        names, self._refused = set(self._refused), {}
        return names

    def framework(self, survey: Survey) -> set[str]:
        """The changed modules that only a restart can exchange."""

        def is_top(name: str) -> bool:
            return name == "__main__" or any(_inside(name, package) for package in FRAMEWORK)

        return {name for name in survey.changed if any(map(is_top, closure(survey.importers, [name])))}

    def unreached(self, survey: Survey, rows: Iterable[Any]) -> set[str]:
        """The changed modules that no row leads to."""
        modules = {row.module for row in rows}
        return {name for name in survey.changed if modules.isdisjoint(closure(survey.importers, [name]))}

    def forget(self, survey: Survey, names: Iterable[str]) -> set[str]:
        """Unload those of the unreached modules that were loaded by path: the row they were loaded for has left.

        A row that comes back later then gets their code as it is by then. Returns the modules that were unloaded.
        """
        local = [name for name in names if _inside(name, LOCAL_PACKAGE)]
        gone = {name for name in closure(survey.importers, local) if _inside(name, LOCAL_PACKAGE)}
        for name in gone:
            take_out(name)
        return gone

    def _affected(self, survey: Survey, rows: Sequence[Any]) -> tuple[list[Any], set[str]]:
        """The rows that reach a change, and every module on their ways to it."""
        upwards = closure(survey.importers, survey.changed)
        imports = reversed_edges({name: survey.importers[name] for name in upwards if name in survey.importers})
        affected = [row for row in rows if row.module in upwards]
        firm = {row.module for row in affected if getattr(sys.modules.get(row.module), "__dsh_reload__", True) is False}
        carried = closure(imports, [row.module for row in affected if row.module not in firm])
        stuck = sorted(firm - carried)
        if stuck:
            raise ReloadError(
                f"{', '.join(stuck)} set __dsh_reload__ = False and no other row imports them: restart to take the "
                "change over"
            )
        return affected, upwards & closure(imports, [row.module for row in affected])

    def _import(self, swap: ModuleSwap, affected: Sequence[Any]) -> dict[Any, Any]:
        def load_all() -> dict[Any, Any]:
            found = {}
            for row in affected:
                assert row.target is not None
                try:
                    plugin = found[row] = load(row.target)
                except PluginImportError as error:
                    raise _lost_file(row, error.__cause__) or error from error.__cause__
                try:
                    resolve_plugin(plugin)
                except CordisError as error:
                    raise ReloadError(f'row "{row.address}": {error}') from error
            return found

        try:
            return swap.run(load_all)
        except PluginImportError as error:
            raise ReloadError(f"{error}{_code_frame(error.file, error.line)}") from error


def _lost_file(row: Any, cause: BaseException | None) -> LoadError | None:
    """What to say of a row whose own file is not there any more, or cannot be read."""
    path = row.target.path
    if path is None or not isinstance(cause, OSError) or cause.filename is None or Path(cause.filename) != path:
        return None
    text = f"{show_path(path)}: {unreadable(cause, '').message}"
    return LoadError([row_problem(row.tree.source, row.row, text, "import", ("name",), error=cause)])


def _code_frame(file: str | None, line: int | None) -> str:
    """The lines around a place in a source, the line itself marked; empty when there is none to show."""
    if file is None or line is None:
        return ""
    try:
        lines = decode_source(Path(file).read_bytes()).splitlines()
    except (OSError, SyntaxError, UnicodeDecodeError):
        return ""
    if not 0 < line <= len(lines):
        return ""
    shown = range(max(1, line - 2), min(len(lines), line + 2) + 1)
    width = len(str(shown[-1]))
    body = "\n".join(f"{'>' if at == line else ' '} {at:>{width}} | {lines[at - 1].rstrip()}" for at in shown)
    return f"\n{body}"


def describe_files(survey: Survey, names: Iterable[str]) -> str:
    """The files of modules, as messages print them."""
    return ", ".join(show_path(survey.sources[name].file) for name in sorted(names))


def _sources(modules: Iterable[tuple[str, ModuleType]]) -> dict[str, ModuleSource]:
    found = ((name, source_of(module)) for name, module in modules)
    return {name: source for name, source in found if source is not None}


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
    """Whether an import path holds Python's library or installed code rather than the project's own."""
    folder = os.path.realpath(path)
    return os.path.basename(folder) in ("site-packages", "dist-packages") or folder == os.path.realpath(
        os.path.dirname(os.__file__)
    )
