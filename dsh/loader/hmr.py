"""Hot reload (row `hmr`): the running composition follows its config files, and running plugins follow their sources.

A config edit is applied as one transaction by the loader; an edit that cannot be applied changes nothing. Changed code
is imported beside the running one first; code that cannot be imported or does not start leaves the old one running.

What a plugin author should know: module-level state does not survive a reload; old code that imports lazily while it
is torn down sees the new modules; `isinstance` across generations is false, so keep shared classes in a module that
does not change, and find services by name; native threads and `atexit` hooks are not undone.
"""

from __future__ import annotations

import asyncio
import fnmatch
import os
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import anyio

from dsh.cordis import ConfigModel, Context, Disposer, Emit, Fiber, Parallel, Service, field, owned
from dsh.cordis.errors import error_chain
from dsh.loader.code_reload import CodeReloader, ReloadError, Survey, describe_files
from dsh.loader.config_watch import ConfigFile, ConfigWatches
from dsh.loader.entries import Entry, Tree
from dsh.loader.events import ConfigUpdated, EntryChanged, TreeRefreshed
from dsh.loader.problems import LoadError
from dsh.loader.resolve import show_path
from dsh.loader.tree import Loader
from dsh.loader.watch import Watch

_START_LIMIT = 1.0
"""Seconds that watching waits for a start that hangs: the edit that mends it must be seen."""

IGNORED = ("**/.*", "**/__pycache__", "**/node_modules", "cache", "data")


class HmrConfig(ConfigModel):
    """Hot reload of config files and plugin sources."""

    base: str | None = field(None, description="Folder that `root` and `ignored` start at (default: the config's)")
    root: list[str] = field(
        default_factory=lambda: ["."], description="Folders whose sources are followed; empty: config files only"
    )
    ignored: list[str] = field(
        default_factory=lambda: list(IGNORED), description="Folders and files left out, as globs below a root"
    )
    debounce: int = field(100, min=1, unit="ms", description="Quiet time before a change is taken over")
    rollback: bool = field(True, description="Bring the old code back when the new one does not start")


class HmrChange(Emit, name="hmr/change"):
    """A source below a root changed that no module was loaded from."""

    path: str


class HmrRestartRequired(Emit, name="hmr/restart-required"):
    """A source changed that only a restart of the process can take over."""

    path: str


class HmrReload(Emit, name="hmr/reload"):
    """New code runs: the edited files, the rows' addresses, the exchanged modules, how many reloads there were."""

    path: str
    rows: tuple[str, ...]
    modules: tuple[str, ...]
    generation: int


class HmrConfigUpdateFailed(Parallel, name="hmr/config-update-failed"):
    """A change of a config file or of plugin code was not taken over; what ran before runs on."""

    path: str
    error: Exception


class Hmr(Service, name="hmr"):
    """Follows files for the loader, and for whoever has config files of their own."""

    Config = HmrConfig

    def __init__(self, ctx: Context, config: HmrConfig, loader: Loader) -> None:
        self._loader = loader
        self._config = config
        base = ctx.base_dir if config.base is None else ctx.base_dir / config.base
        self._base = Path(os.path.abspath(base))
        self._watch = Watch(
            self._changed,
            say=lambda message: self.ctx.logger.warning("%s", message),
            debounce=config.debounce / 1000,
            begin=self._begin,
        )
        self._configs = ConfigWatches(self._watch, self._config_failed, self._mended)
        self._trees: dict[Tree, ConfigFile] = {}
        self._roots = [Path(os.path.realpath(self._base / root)) for root in config.root]
        self._skipped: dict[Path, bool] = {}
        self._code = CodeReloader(self._roots, self._skips)
        self._followed: dict[Path, Callable[[], None]] = {}
        self._announced: dict[str, str] = {}
        self._code_pending: set[Path] | None = None
        self._code_turn = asyncio.Lock()
        self._look_queued = False
        self._following = False
        self._closed = False

    async def start(self) -> None:
        """Watch everything that is loaded now, and whatever is loaded later.

        The root value `followFiles: False` (a launcher that was told not to watch) leaves the row without work.
        """
        if self.ctx.get("followFiles") is False:
            return
        self.ctx.on(EntryChanged, self._rows_changed)
        self.ctx.on(ConfigUpdated, self._rows_changed)
        self.ctx.spawn(self._run, name="hmr watch")

    async def _run(self) -> None:
        """Watch, once the composition stands (or hangs): before, both would compete for the processor."""
        with anyio.move_on_after(_START_LIMIT):
            await self._loader.settle()
        await self._watch.run()

    def _begin(self) -> None:
        for root in self._roots:
            self._watch.add_tree(root, self._skips)
        self._following = True
        self._look()

    def stop(self) -> None:
        """Watch nothing any more. A refresh that runs belongs to the loader and goes on; it may be what unloads us."""
        self._closed = True
        self._watch.stop()
        self._configs.abandon()
        self._trees.clear()

    @owned
    def watch_config(
        self, caller: Context, path: str | os.PathLike[str], refresh: Callable[[], Awaitable[object]]
    ) -> Disposer:
        """Call `refresh()` now if the file exists, and after each change of its content (its removal included).

        Calls never overlap, changes during one make one more. A failure is logged and sent as
        `hmr/config-update-failed`. The disposer, which also runs when the caller unloads, waits for a running call.
        """
        config = self._configs.add([Path(path)], refresh, self.ctx)

        async def end() -> None:
            self._configs.remove(config)
            await config.close()

        return caller.effect(lambda: end, f"watch_config({Path(path).name})")

    async def wait_armed(self) -> None:
        """Return once no change of what was loaded when the row started can be missed."""
        await self._watch.wait_armed()

    async def refresh(self) -> None:
        """Read every config file and every source again now, as after a change: for when watching does not work."""
        self._configs.wake_all()
        await self._configs.idle()
        await self._check_code(set())

    def _rows_changed(self, _event: object) -> None:
        """Many rows change in one edit; look once, when all of them did."""
        if self._following and not self._look_queued and self.ctx.stack.is_open:
            self._look_queued = True
            self.ctx.call_later(0, self._look)

    def _look(self) -> None:
        self._look_queued = False
        self._follow_trees()
        self._follow_sources()

    def _follow_trees(self) -> None:
        if self._closed:
            return
        trees = dict.fromkeys(self._loader.trees())
        for tree in [tree for tree in self._trees if tree not in trees]:
            gone = self._trees.pop(tree)
            gone.abandon()
            self._configs.remove(gone)
        for tree in trees:
            if tree not in self._trees and tree.source.path is not None:
                known = tree.reading.texts if tree.reading is not None else None
                # Applying an edit is the loader's own task: it may replace this very row, which must not cut it short.
                refresh = partial(self._loader.refresh, tree.source.path)
                self._trees[tree] = self._configs.add(tree.source.files(), refresh, self.ctx, known)

    async def _config_failed(self, path: Path, error: Exception) -> None:
        if self._closed or not self._loader.ctx.fiber.is_active:
            return  # everything is being shut down
        if isinstance(error, LoadError):
            self._loader.reports.warn(error.warnings)  # a misspelt key may be what is behind it
            for problem in error.problems:
                self.ctx.logger.error("%s", problem)
            self.ctx.logger.error("%s was not taken over; what ran before runs on", show_path(path))
        else:
            self.ctx.logger.error("%s was not taken over: %s", show_path(path), error_chain(error))
        await self._tell_failure(str(path), error)

    def _mended(self, path: str | os.PathLike[str]) -> None:
        """What was refused was put back to what runs: say that it is over, though no row changed."""
        if not self._closed and self._loader.ctx.fiber.is_active:
            self.ctx.emit(TreeRefreshed(path=show_path(path), rows=()))

    async def _tell_failure(self, path: str, error: Exception) -> None:
        try:
            await self.ctx.parallel(HmrConfigUpdateFailed(path=path, error=error))
        except Exception as failure:
            self.ctx.logger.error("an observer of hmr/config-update-failed failed: %s", error_chain(failure))

    def _skips(self, folder: Path) -> bool:
        """Whether a folder is left out: it matches `ignored`, or holds a virtual environment."""
        known = self._skipped.get(folder)
        if known is None:
            matches = any(self._matches(folder, pattern) for pattern in self._config.ignored)
            known = self._skipped[folder] = matches or (folder / "pyvenv.cfg").exists()
        return known

    def _matches(self, folder: Path, pattern: str) -> bool:
        if pattern.startswith("**/"):
            return fnmatch.fnmatchcase(folder.name, pattern[3:])
        inside = (folder.relative_to(root).as_posix() for root in self._roots if folder.is_relative_to(root))
        return any(fnmatch.fnmatchcase(path, pattern.rstrip("/")) for path in inside)

    def _follow_sources(self) -> None:
        """Watch the loaded modules one by one: some lie outside of every root, and new ones come with each edit."""
        if self._closed or not self._roots:
            return
        files = {Path(source.file) for source in self._code.followed().values()}
        for file in [file for file in self._followed if file not in files]:
            self._followed.pop(file)()
        for file in files:
            if file not in self._followed:
                self._followed[file] = self._watch.add_file(file)

    def _changed(self, paths: frozenset[Path]) -> None:
        rest = self._configs.changed(paths)
        sources = {path for path in rest if path.suffix == ".py"}
        if sources:
            self._code_soon(sources)

    def _code_soon(self, paths: set[Path]) -> None:
        if self._closed or not self._roots:
            return
        if self._code_pending is None:
            self._code_pending = set()
            self._loader.ctx.spawn(self._follow_code, name="hmr reload")
        self._code_pending |= paths

    async def _follow_code(self) -> None:
        """One batch after the other. Config edits go first: a row may leave together with its source."""
        try:
            while self._code_pending and not self._closed:
                await self._configs.idle()
                paths, self._code_pending = self._code_pending, set()
                await self._check_code(paths)
        finally:
            self._code_pending = None

    async def _check_code(self, paths: set[Path]) -> None:
        async with self._code_turn:
            await self._take_code_over(paths)

    async def _take_code_over(self, paths: set[Path]) -> None:
        survey = await self._code.survey()
        if self._closed:
            return
        mended = self._announce(survey, paths)
        rows = [entry for entry in self._loader.entries() if entry.plugin is not None and entry.target is not None]
        stuck = self._code.framework(survey)
        loose = self._code.unreached(survey, rows) - stuck
        forgotten = self._code.forget(survey, loose)
        self._ask_for_restart(survey, (stuck | loose) - forgotten)
        changed = survey.without(stuck | loose)
        if put_back := sorted(self._code.taken_back(changed) & changed.sources.keys()):
            self._mended(changed.sources[put_back[0]].file)
        try:
            done = await self._code.reload(changed, rows, self._exchange)
        except (ReloadError, LoadError) as error:
            files = describe_files(survey, changed.changed)
            self.ctx.logger.error("%s", error)
            self.ctx.logger.error("the code of %s was not taken over; the old one runs on", files)
            await self._tell_failure(files, error)
            return
        if done is not None:
            names = ", ".join(done.rows)
            self.ctx.logger.info("reloaded %s (%d modules, generation %d)", names, len(done.modules), done.generation)
            self._follow_sources()
            files = describe_files(survey, changed.changed)
            self.ctx.emit(HmrReload(path=files, rows=done.rows, modules=done.modules, generation=done.generation))
        if mended or forgotten or done is not None:
            self._configs.retry_failing()

    async def _exchange(self, plugins: Mapping[Entry, Any], undo_code: Callable[[], None]) -> None:
        await self._loader.reload_rows(
            plugins,
            {entry.address: plugin for entry, plugin in plugins.items()},
            rollback=self._config.rollback,
            before_rollback=undo_code,
        )

    def _announce(self, survey: Survey, paths: set[Path]) -> bool:
        """Tell of sources that nothing was loaded from. Whether there were any."""
        loaded = survey.files
        unknown = sorted(path for path in paths if os.path.realpath(path) not in loaded)
        for path in unknown:
            self.ctx.emit(HmrChange(path=str(path)))
        return bool(unknown)

    def _ask_for_restart(self, survey: Survey, names: set[str]) -> None:
        fresh = {name for name in names if self._announced.get(name) != survey.changed[name]}
        self._announced = {name: survey.changed[name] for name in names}
        for name in sorted(fresh):
            path = survey.sources[name].file
            self.ctx.logger.warning("%s changed; restart dsh to take it over", show_path(path))
            self.ctx.emit(HmrRestartRequired(path=path))


def mount_watcher(root: Context, loader: Loader) -> Fiber | None:
    """Follow the config files for a composition without an `hmr` row; None if it has one.

    The service stays in a realm of its own, so that a row added later is no duplicate.
    """
    if any(entry.module == __name__ for entry in loader.entries()):
        return None
    return root.isolate("hmr").plugin(Hmr, {"root": []})


def keep_following(root: Context, loader: Loader) -> None:
    """Follow the config files whatever an edit does to the `hmr` row: without one, they are followed from here.

    An editor that saves half a file may well leave a list of rows that is valid and has no such row.
    """
    watcher = mount_watcher(root, loader)

    def look(_refreshed: TreeRefreshed) -> None:
        nonlocal watcher
        if watcher is None or watcher.is_retired:
            watcher = mount_watcher(root, loader)
        elif any(entry.module == __name__ for entry in loader.entries()):
            watcher.dispose()

    root.on(TreeRefreshed, look)
