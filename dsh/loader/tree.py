"""The `loader` service: rows of config files, mounted and kept in step with their files.

Whoever watches files calls `refresh`; whoever reloads code calls `reload_rows`; programs call `create`, `update` and
`remove`. Each of them applies whole or not at all, and raises one `LoadError` that says file, line, row and key.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import field
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar

from dsh.cordis import ConfigResolve, Context, Fiber, FiberState, PluginChanged, Service, StatusChanged, resolve_plugin
from dsh.cordis.nearest import did_you_mean
from dsh.cordis.records import record

from .entries import Entry, Tree
from .events import ConfigUpdated, EntryChange, EntryChanged, TreeRefreshed
from .expr import UNDEFINED, resolve_values
from .include import make_include
from .opening import mount_file, open_tree
from .operations import Operation, folded
from .outcomes import outcomes
from .plan import Plan, Step, kept, make_plan
from .problems import LoadError, Problem
from .reports import Reports
from .sources import Reading, Source
from .transaction import Transaction, changes, commit, mount
from .write_queue import WriteQueue
from .yamlio import YamlMap, detach

T = TypeVar("T")

ROOT_INCLUDE = "include"
"""Id of the row that includes the file given on the command line."""


@record
class LoaderOptions:
    """What expressions see of the process, and how long an edit waits for its rows (seconds)."""

    env: Mapping[str, str] = field(default_factory=dict)
    cwd: str = ""
    home: Callable[..., str] | None = None
    argv: Sequence[str] = ()
    settle_limit: float = 30.0


class Loader(Service, name="loader"):
    """Mounts rows and keeps them in step with their files."""

    def __init__(self, ctx: Context, config: LoaderOptions | None = None) -> None:
        self.options = config or LoaderOptions()
        self.include = make_include(self, open_tree)
        self.root_source: Source | None = None
        """What the run was started with."""
        self.root = Tree(self, ctx, Source(None, folder=ctx.base_dir))
        self._entries: dict[Fiber, Entry] = {}
        self._disposing: set[Fiber] = set()
        self._waiting = False
        self.writes = WriteQueue(self)
        self.reports = Reports(self)
        self.editing = asyncio.Lock()
        """Held by whoever edits files and may put back what stood in them."""
        ctx.on(ConfigResolve, self._resolve_config, global_=True)
        ctx.on(PluginChanged, self._note_disposal, global_=True)
        ctx.on(StatusChanged, self._note_status, global_=True)

    def entries(self) -> Iterator[Entry]:
        """All rows of all trees, depth first, in the order of their files."""
        return self.root.walk()

    def find(self, address: str) -> Entry | None:
        """The row with that address (`id`, or `include:id`), or `None`."""
        return next((entry for entry in self.entries() if entry.address == address), None)

    def resolve(self, address: str) -> Entry:
        """The row with that address. Raises `LoadError` naming the nearest one."""
        found = self.find(address)
        if found is None:
            hint = did_you_mean(address, (entry.address for entry in self.entries()))
            raise LoadError([Problem(f'no row has the id "{address}"{hint}')])
        return found

    def locate(self, fiber: Fiber) -> str | None:
        """The address of the row that a fiber, or the nearest fiber above it, belongs to."""
        entry = self.entry_of(fiber)
        return entry.address if entry is not None else None

    def entry_of(self, fiber: Fiber | None) -> Entry | None:
        """The row that a fiber, or the nearest fiber above it, belongs to."""
        lineage = fiber.lineage() if fiber is not None else ()
        return next((self._entries[each] for each in lineage if each in self._entries), None)

    def trees(self) -> Iterator[Tree]:
        """All open trees, outer ones first."""
        return self.root.trees()

    def files(self) -> tuple[Path, ...]:
        """Every config and patch file that some tree reads, existing or not: what to watch."""
        return tuple(dict.fromkeys(path for tree in self.trees() for path in tree.source.files()))

    def fibers(self) -> list[Fiber]:
        """The mounted fibers of all rows."""
        return [entry.fiber for entry in self.entries() if entry.fiber is not None and entry.is_mounted]

    async def refresh(self, path: str | os.PathLike[str] | None = None) -> bool:
        """Read the trees that use `path` (all trees without it) again and apply what changed.

        Returns whether any content was new. An edit is applied whole or not at all: on failure everything is as it
        was, the failed content is forgotten, and `LoadError` says what was wrong. Edits of one tree queue up. The
        work belongs to the loader: cancelling the caller does not stop it.
        """
        real = None if path is None else os.path.realpath(path)

        async def job() -> bool:
            changed = False
            errors: list[LoadError] = []
            for tree in list(self.trees()):
                files = tree.source.files()
                if files and (real is None or any(os.path.realpath(file) == real for file in files)):
                    try:
                        changed = await self._refresh_tree(tree) or changed
                    except LoadError as error:
                        errors.append(error)
            if len(errors) > 1:
                raise LoadError([problem for error in errors for problem in error.problems])
            if errors:
                raise errors[0]
            return changed

        return await self._run(job, "refresh")

    async def _refresh_tree(self, tree: Tree) -> bool:
        async with AsyncExitStack() as turn:
            await turn.enter_async_context(tree.lock)
            if tree.closed:
                return False
            reading = tree.source.read()
            if tree.reading is not None and reading.texts == tree.reading.texts:
                return False
            waited = self.reports.waiting()
            plan = await self.apply_reading(tree, reading, turn)
            self.reports.tell_waiting(waited)
            rows = tuple(
                step.entry.address for each in plan.walk() for step in each.steps if changes(step) or step.leaves
            )
            self.ctx.emit(TreeRefreshed(path=tree.source.shown, rows=rows))
            self.writes.add(tree)
            return True

    async def apply_reading(self, tree: Tree, reading: Reading, turn: AsyncExitStack) -> Plan:
        """Apply a reading of a tree whose lock `turn` holds; it takes those of the includes that are edited along.

        Raises `LoadError`.
        """
        held = {tree}
        while True:
            plan = make_plan(tree, reading)
            plans = list(plan.walk())
            others = [each.tree for each in plans if each.tree not in held]
            if not others:
                break
            for other in others:
                await turn.enter_async_context(other.lock)
            held.update(others)
        problems = [problem for each in plans for problem in each.problems]
        warnings = [warning for each in plans for warning in each.warnings]
        if problems:
            raise LoadError(problems, warnings)
        self.reports.warn(warnings)
        await Transaction(self, [plan]).run()
        return plan

    async def create(self, row: Mapping[str, Any], parent: str | None = None, position: int | None = None) -> str:
        """Add a row; returns its address.

        `parent` is the address of a group, or of an include for the top level of its file, and the row is written into
        that file soon; without it the row goes to the loader's own tree, in memory. Position never changes what a row
        does; it is accepted for callers that order rows.
        """
        if parent is None:
            tree, group = self.root, None
        else:
            owner = self.resolve(parent)
            tree, group = (owner.subtree, None) if owner.subtree is not None else (owner.tree, owner.id)
            if group is not None and not owner.is_group:
                raise LoadError([Problem(f'row "{parent}" is no group and no include; nothing can be put into it')])
        data = detach(row)
        row_id = data.get("id")
        if row_id is None:
            taken = {entry.id for entry in tree.entries.values()}
            row_id = next(name for n in range(1, len(taken) + 2) if (name := f"{data.get('name')}-{n}") not in taken)
            row_id = data["id"] = str(row_id).replace(":", "-")
        if row_id in tree.entries:
            raise LoadError([Problem(f'the id "{row_id}" is taken', row=tree.source.prefix + str(row_id))])
        await self._operate(tree, [Operation("create", str(row_id), data, group)])
        return tree.source.prefix + str(row_id)

    async def update(
        self,
        address: str,
        changes: Mapping[str, Any],
        parent: str | None = None,
        position: int | None = None,
        layer: Literal["file", "user"] = "file",
    ) -> None:
        """Change keys of a row: each named key is replaced whole, `None` deletes it.

        `parent` moves the row to another group of the same file (`""`: to the top level). The change is written soon:
        into the row's file, where that says the keys (what a patch put over it stays in memory, with a warning), or
        with `layer="user"` into the patch file beside the composition.
        """
        entry = self.resolve(address)
        sibling = entry.tree.source.sibling_path
        if layer == "user" and (sibling is None or entry.row.derived_id or None in changes.values()):
            raise LoadError([Problem("the patch file replaces keys of the composition's rows, by id", row=address)])
        operations = [Operation("update", entry.id, dict(changes), layer=layer)] if changes else []
        if parent is not None:
            group = self.resolve(parent) if parent else None
            if group is not None and (group.tree is not entry.tree or not group.is_group):
                raise LoadError([Problem(f'row "{address}" can only move to a group of its own file', row=address)])
            outer = group
            while outer is not None:
                if outer is entry:
                    raise LoadError([Problem(f'row "{address}" cannot move into itself', row=address)])
                outer = outer.parent
            operations.append(Operation("move", entry.id, parent=group.id if group is not None else None))
        await self._operate(entry.tree, operations)

    async def remove(self, address: str) -> None:
        """Take a row out, of its file too."""
        entry = self.resolve(address)
        await self._operate(entry.tree, [Operation("remove", entry.id)])

    async def _operate(self, tree: Tree, operations: list[Operation]) -> None:
        async def job() -> None:
            async with AsyncExitStack() as turn:
                await turn.enter_async_context(tree.lock)
                if tree.closed:
                    raise LoadError([Problem("its file is not open any more")])
                tree.source.program = [*tree.source.program, *operations]
                try:
                    texts = tree.reading.texts if tree.reading is not None else {}
                    await self.apply_reading(tree, tree.source.read(texts=texts), turn)
                    tree.source.program = folded(tree.source.program)
                except BaseException:
                    failed = {id(each) for each in operations}
                    tree.source.program = [each for each in tree.source.program if id(each) not in failed]
                    raise
            self.writes.add(tree)
            self.ctx.emit(ConfigUpdated())

        await self._run(job, "update")

    async def written(self) -> None:
        """Return once all changes so far are in their files. Raises what keeps one from being written."""
        for tree in list(self.trees()):
            await self._run(partial(self.writes.write, tree), "write")

    async def reload_rows(
        self,
        rows: Iterable[Entry],
        plugins: Mapping[str, Any],
        *,
        rollback: bool = True,
        before_rollback: Callable[[], None] | None = None,
    ) -> list[Entry]:
        """Put new plugin objects (by row address) under rows: same raw config, realms and position, new fibers.

        All other rows that run one of the replaced plugin objects come along, with the same new object. If a new
        fiber fails and `rollback` is set, the new fibers are disposed, `before_rollback()` is called (the place to
        put module tables back), the old plugin objects are mounted again, and `LoadError` says what failed, a failing
        return included. Without `rollback` failed rows stay failed. Returns the entries that were reloaded.
        """
        replaced = [(entry.plugin, plugins[entry.address]) for entry in rows if entry.plugin is not None]
        new = {id(old): plugin for old, plugin in replaced}

        async def job() -> list[Entry]:
            async with AsyncExitStack() as turn:
                trees = list(self.trees())
                for tree in trees:
                    await turn.enter_async_context(tree.lock)
                plans: list[Plan] = []  # of what runs now: an edit may have come first
                for tree in trees:
                    steps = [_renewed(entry, new.get(id(entry.plugin))) for entry in tree.entries.values()]
                    if tree.reading is not None and not tree.closed and any(step.renewed for step in steps):
                        plans.append(Plan(tree, tree.reading, steps))
                await Transaction(self, plans, before_rollback, keep_failed=not rollback).run()
            chosen = [step.entry for plan in plans for step in plan.steps if step.renewed]
            for entry in chosen:
                entry.generation += 1
                if entry.fiber is not None:
                    entry.fiber.generation = entry.generation
            return chosen

        return await self._run(job, "reload")

    async def _run(self, job: Callable[[], Awaitable[T]], what: str) -> T:
        """Run an edit in a task of the loader's own, so that it survives whoever asked for it."""
        awaited = True

        async def run() -> tuple[T | None, Exception | None]:
            try:
                return await job(), None
            except Exception as error:
                if not awaited:
                    self.ctx.logger.error("%s failed: %s", what, error)
                return None, error

        task = self.ctx.spawn(run, name=f"loader {what}")
        try:
            await task.ended()
        finally:
            awaited = False
        if task.cancelled():
            raise LoadError([Problem(f"the loader is shutting down; its {what} was given up")])
        result, error = task.result()
        if error is not None:
            raise error
        return result  # type: ignore[return-value]

    def start(self, source: Source, reading: Reading | None = None) -> Entry:
        """Mount the root include on a source, as read before. Rows that fail are noted on their entries; nothing waits
        here."""
        config = {"path": str(source.path or source.folder / "rows.yml")}
        data = YamlMap({"id": ROOT_INCLUDE, "name": "cordis:include", "config": config})
        self.root.source.program.append(Operation("create", ROOT_INCLUDE, data))
        plan = make_plan(self.root, self.root.source.read())
        commit(plan)
        entry = self.root.entries[ROOT_INCLUDE]
        self.root_source = entry.opens = source
        source.ready = reading
        mount(entry, entry, entry.plugin)
        return entry

    async def mount(self, path: str | os.PathLike[str], ctx: Context) -> Tree:
        """Mount another file's rows under a context of the caller's, outside of the audit (agent presets).

        Nothing is ever written back to it. Raises `LoadError`, with nothing left mounted, if a row is not active or
        publishes a service in the root realm.
        """
        return await mount_file(self, Path(os.path.abspath(path)), ctx)

    def announce(self, entry: Entry, kind: EntryChange) -> None:
        """Tell that something happened to a row."""
        self.ctx.root.emit(EntryChanged(entry.address, kind))

    def adopt_fiber(self, entry: Entry, fiber: Fiber) -> None:
        """A new fiber runs a row."""
        if entry.fiber is not None:
            self._entries.pop(entry.fiber, None)
        entry.fiber = fiber
        self._entries[fiber] = entry

    def forget_fiber(self, entry: Entry) -> None:
        """A row runs no more."""
        if entry.fiber is not None:
            self._entries.pop(entry.fiber, None)
        entry.fiber = None
        entry.subtree = None

    async def dispose_fibers(self, fibers: Sequence[Fiber]) -> None:
        """Dispose fibers together and wait until they are gone."""
        self._disposing.update(fibers)
        try:
            await outcomes([fiber.dispose() for fiber in fibers])
        finally:
            self._disposing.difference_update(fibers)

    async def settle(self) -> None:
        """Wait until no row is in transition (no longer than `options.settle_limit` without progress)."""
        await self.settle_fibers(())

    async def settle_fibers(self, ignored: Iterable[Fiber], entries: Iterable[Entry] | None = None) -> list[Entry]:
        """Wait until no row but those of `ignored` fibers is in transition. Returns the rows still loading after
        `options.settle_limit` seconds."""
        caller = self.ctx.runtime.current_task()
        around = caller.fiber.lineage() if caller is not None and caller.fiber is not None else ()
        skipped = {*ignored, *around}  # waiting for those around the calling task would never end
        wanted = None if entries is None else set(entries)
        while True:
            busy = [
                (fiber, entry)
                for fiber, entry in self._entries.items()
                if not fiber.is_settled and fiber not in skipped and (wanted is None or entry in wanted)
            ]
            if not busy:
                return []
            done = await outcomes([fiber.until_settled() for fiber, _ in busy], self.options.settle_limit)
            if done is None:
                return [entry for fiber, entry in busy if not fiber.is_settled]

    def _resolve_config(self, event: ConfigResolve, following: Callable[[], Any]) -> Any:
        value = following()
        entry = self._entries.get(event.fiber)
        if entry is None or entry.plugin is self.include:
            return value
        value = resolve_values(value, entry.scope(event.fiber.ctx))
        return None if value is UNDEFINED else value

    def _note_disposal(self, event: PluginChanged) -> None:
        fiber = event.fiber
        entry = self._entries.get(fiber)
        if entry is None or entry.fiber is not fiber or fiber.uid is not None or fiber in self._disposing:
            return
        parent = fiber.parent
        if parent is not None and not parent.is_retired and parent.is_active:
            entry.stopped = True
            self.announce(entry, "unload")
            self.writes.note_stopped(entry)

    def _note_status(self, event: StatusChanged) -> None:
        entry = self._entries.get(event.fiber)
        if entry is None:
            return
        if event.fiber.state is FiberState.FAILED:
            self.announce(entry, "failed")
            self.reports.tell_failed(entry)
        if self._waiting and not self._is_loading(None):
            self._waiting = False
            self.ctx.runtime.services.notify(("loader", self.ctx.realm("loader")))

    def available_for(self, ctx: Context) -> bool:
        """With `intercept: {loader: {await: true}}` a row starts once no other row is loading."""
        if not ctx.intercepted("loader").get("await"):
            return True
        if self._is_loading(ctx.fiber):
            self._waiting = True
            return False
        return True

    def _is_loading(self, but: Fiber | None) -> bool:
        return any(
            fiber is not but and _is_starting(fiber) and not fiber.ctx.intercepted("loader").get("await")
            for fiber in self.fibers()
        )


def _renewed(entry: Entry, plugin: Any) -> Step:
    """A step that keeps a row, or replaces its plugin only; a row whose plugin stopped itself stays down."""
    step = kept(entry)
    if plugin is not None:
        step.plugin, step.spec, step.renewed = plugin, resolve_plugin(plugin), True
        step.action = "replace" if entry.is_mounted else "keep" if entry.stopped else "mount"
    return step


def _is_starting(fiber: Fiber) -> bool:
    if fiber.state is FiberState.PENDING:
        return not fiber.is_settled and not fiber.missing()
    return fiber.state is FiberState.LOADING
