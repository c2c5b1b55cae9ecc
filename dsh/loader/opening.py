"""Opening a file of rows under a context: the rows of an include, or of a file that a program mounts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from .entries import Entry, Tree
from .failures import explain, not_running
from .plan import make_plan
from .problems import LoadError
from .sources import Source
from .transaction import commit, mount

if TYPE_CHECKING:
    from dsh.cordis import Context

    from .tree import Loader


def open_tree(loader: Loader, ctx: Context, source: Source, entry: Entry | None, *, audited: bool = True) -> Tree:
    """Read a source and mount its rows under `ctx`, the context of an include's fiber; `entry` is the include's row.

    Raises `LoadError` if the file cannot be used at all; a row that cannot be mounted gets its `problems` noted.
    """
    reading, source.ready = source.ready, None
    tree = Tree(loader, ctx.extend(base_dir=source.base_dir), source, entry, audited=audited)
    plan = make_plan(tree, reading or source.read())
    if entry is not None:
        entry.subtree = tree

    async def close() -> None:
        tree.closed = True
        for each in tree.entries.values():
            loader.forget_fiber(each)
        await loader.writes.finish(tree)

    ctx.defer(close, f"tree({source.shown})")
    commit(plan)
    loader.reports.warn(plan.warnings)
    for step in plan.steps:
        if step.starts and not step.problems:
            try:
                mount(step.entry, step, step.spec)
            except Exception as error:
                step.entry.problems = explain(step.entry, step.row, error)
                continue
            loader.announce(step.entry, "apply")
        elif step.problems:
            loader.announce(step.entry, "failed")
    return tree


async def mount_file(loader: Loader, path: Path, ctx: Context) -> Tree:
    """See `Loader.mount`."""
    opened: list[Tree] = []

    def subtree(ctx: Context) -> None:
        opened.append(open_tree(loader, ctx, Source(path), None, audited=False))

    fiber = ctx.plugin(subtree)
    try:
        await fiber
        tree = opened[-1]
        await loader.settle_fibers((), list(tree.walk()))
        problems = not_running(tree)
        if problems:
            raise LoadError(problems)
    except BaseException:
        await fiber.dispose()
        raise
    return tree
