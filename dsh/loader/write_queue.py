"""Changes that programs made to rows, on their way into the files the rows come from.

A change is in force at once and written soon: all changes of one turn of the event loop by one replacement of the
file. What the file itself says is written into it; a value that a patch put over it never is, and a change of such a
value lasts as long as the process does. A plugin that disposed itself is written down as disabled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dsh.cordis.errors import describe_error

from .operations import Operation, folded
from .patches import Composition, lay_over
from .problems import LoadError, Problem
from .raw_rows import identified_rows, walk_rows
from .resolve import show_path
from .yamlio import Mark, YamlList, YamlMap, detach

if TYPE_CHECKING:
    from .entries import Entry, Tree
    from .tree import Loader


class WriteQueue:
    """Writes the operations of a loader's trees into their files."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader
        self._due: set[Tree] = set()
        self._writing = asyncio.Lock()

    def note_stopped(self, entry: Entry) -> None:
        """The plugin of a row disposed itself."""
        entry.tree.source.program.append(Operation("stop", entry.id))
        self.add(entry.tree)

    def add(self, tree: Tree) -> None:
        """Write what is due of a tree, once everything that runs now has added its changes."""
        if tree not in self._due and any(not each.stays for each in tree.source.program):
            self._due.add(tree)
            self._loader.ctx.spawn(self._write_soon, tree, name=f"write {tree.source.shown}")

    async def _write_soon(self, tree: Tree) -> None:
        started: asyncio.Event | None = self._loader.ctx.get("bootAudited")
        if started is not None:
            await started.wait()  # a start that fails leaves the file as it was
        try:
            await self.write(tree)
        except Exception as error:
            self._loader.ctx.logger.error("%s; the change is in force and is written later", describe_error(error))

    async def write(self, tree: Tree) -> None:
        """Write what is due of a tree now. Raises what keeps it from being written."""
        async with AsyncExitStack() as turn:
            await turn.enter_async_context(tree.lock)
            self._due.discard(tree)
            written = await self._write(tree)
            if tree.closed or not written:
                return
            try:
                # Equal to what runs, unless somebody else saved the file in between: then that edit is applied with it.
                await self._loader.apply_reading(tree, tree.source.read(), turn)
            except LoadError:  # whoever follows the file tells why
                tree.source.program = [*written, *tree.source.program]

    async def finish(self, tree: Tree) -> None:
        """Write what is due of a tree that is being closed. Raises what keeps it from being written."""
        started: asyncio.Event | None = self._loader.ctx.get("bootAudited")
        if started is None or started.is_set():
            await self._write(tree)

    async def _write(self, tree: Tree) -> list[Operation]:
        """Write what belongs into files; the operations that were written.

        A write that began is finished, also while dsh leaves, and one that is asked for meanwhile comes after it.
        """
        async with self._writing, self._loader.ctx.shield():
            return await self._write_due(tree)

    async def _write_due(self, tree: Tree) -> list[Operation]:
        source = tree.source
        self._sort(tree)
        due = [each for each in source.program if not each.stays]
        for path, layer, change in ((source.path, "file", _changed), (source.sibling_path, "user", _patched)):
            operations = [each for each in due if each.layer == layer]
            if path is not None and operations:
                from .writeback import edit_rows  # few runs ever write, and it takes its time

                warnings = await asyncio.to_thread(edit_rows, path, partial(change, tree, operations))
                self._loader.reports.warn(Problem(warning) for warning in warnings)
        source.program = [each for each in source.program if not any(each is done for done in due)]
        return due

    def _sort(self, tree: Tree) -> None:
        """Decide of each new operation whether it is written or stays in memory; a stop that is not written goes."""
        source = tree.source
        if tree.reading is None or all(each.stays for each in source.program):
            return
        from .writeback import is_packaged

        own = _OwnRows(tree, source.read(texts=tree.reading.texts, program=False).composition)
        writable = source.path is not None and tree.audited and not is_packaged(source.path)
        for operation in source.program:
            if operation.stays or not (writable and own.include(operation)):
                own.leave_out(operation)
                if writable and not operation.stays and operation.kind != "stop":
                    self._loader.reports.warn([own.problem(operation)])
                operation.stays = True
        source.program = folded(each for each in source.program if not (each.kind == "stop" and each.stays))


def _changed(tree: Tree, operations: Sequence[Operation], rows: list[Any]) -> list[Any]:
    """The rows of a tree's file with the operations applied."""
    source = tree.source
    if not rows and source.initial and source.path is not None and not source.path.exists():
        rows = detach(source.initial)
    composition = Composition(YamlList(rows))
    for operation in operations:
        if operation.kind == "stop":
            operation = Operation("update", operation.id, {"disabled": True})
        operation.apply(composition)
    return composition.rows


def _patched(_tree: Tree, operations: Sequence[Operation], items: list[Any]) -> list[Any]:
    """The items of the patch file with those that the operations ask for."""
    for operation in operations:
        lay_over(items, operation.id, operation.row)
    return items


class _OwnRows:
    """What of a composition the file itself says."""

    def __init__(self, tree: Tree, composition: Composition) -> None:
        self._tree = tree
        self._origin = composition.origin
        self._rows = {row_id: row for _, _, row, row_id in identified_rows(composition.rows)}
        self._made: set[str] = set()
        self._left_out: set[str] = set()

    def leave_out(self, operation: Operation) -> None:
        """An operation stays in memory; so does whatever builds on a row that it made."""
        if operation.kind == "create":
            self._left_out.add(operation.id)

    def include(self, operation: Operation) -> bool:
        """Whether what the operation changes is said by the file that it would be written into."""
        if not self._left_out.isdisjoint((operation.id, operation.parent)):
            return False
        shown = {self._tree.source.shown}
        if operation.layer == "user":
            shown.add(show_path(self._tree.source.sibling_path or Path()))
        if operation.parent is not None and not self._say(operation.parent, ["config"], shown):
            return False
        if operation.kind == "create":
            self._made.add(operation.id)
            return True
        keys = {"update": operation.row, "stop": ["disabled"]}.get(operation.kind) or ()
        return self._say(operation.id, keys, shown)

    def _say(self, row_id: str, keys: Iterable[str], shown: set[str]) -> bool:
        row = self._rows.get(row_id)
        if row is None or row_id in self._made:  # or it left meanwhile: there is nothing to write
            return True
        origin = self._origin(row)
        if origin is None or origin.source not in shown:
            return False
        for key in keys:
            inner = [self._origin(each) for each in walk_rows(row.get(key))]
            if any(each is None or not shown.issuperset([each.source, *each.patched_by]) for each in inner):
                return False
            if not shown.issuperset(origin.patched_by) and any(mark.file not in shown for mark in _marks(row, key)):
                return False
        return True

    def problem(self, operation: Operation) -> Problem:
        """That an operation is not written."""
        keys = " and ".join(operation.row) if operation.kind == "update" else "the row"
        message = f"{keys} is not said by this file alone; what the program changed is not written and ends with dsh"
        return Problem(message, file=self._tree.source.shown, row=self._tree.source.prefix + operation.id)


def _marks(row: YamlMap, key: str) -> Iterator[Mark]:
    """The places of a key of a row and of everything in its value."""
    if key in row.marks:
        yield row.marks[key]
    pending = [row.get(key)]
    while pending:
        value = pending.pop()
        if isinstance(value, YamlMap):
            yield from value.marks.values()
        pending.extend(value.values() if isinstance(value, dict) else value if isinstance(value, list) else ())
