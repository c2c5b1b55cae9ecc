"""Entries: rows in the running system. An entry keeps its identity for as long as its row keeps its id."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dsh.cordis import Context, Fiber, FiberState, Realm

from .expr import Scope
from .problems import Problem
from .resolve import Target
from .rows import Row
from .sources import Reading, Source
from .yamlio import same_value

if TYPE_CHECKING:
    from .tree import Loader

Shape = tuple[tuple[str, str, Any], ...]
"""What a row's context adds to that of its tree: `(kind, service, realm or settings)` from the outermost group in."""


@dataclass(slots=True, eq=False)
class Standing:
    """How a row stands in its tree: what the composed file says, the group around it, the plugin its name leads to,
    and the context it is mounted under."""

    row: Row
    base: Context
    parent: Entry | None = None
    target: Target | None = None
    plugin: Any = None
    shape: Shape = ()
    injected: Mapping[str, Any] = field(default_factory=dict)

    def stand_as(self, other: Standing) -> None:
        """Stand as `other` does."""
        for name in Standing.__slots__:
            setattr(self, name, getattr(other, name))


class Entry(Standing):
    """One row of a running tree, as it stands now.

    `fiber` is its mount (`None` for groups, disabled and failed rows), `module` the name of the module its plugin came
    from, `problems` why it does not run.
    """

    __slots__ = ("__weakref__", "fiber", "generation", "opens", "problems", "realms", "stopped", "subtree", "tree")

    def __init__(self, tree: Tree, row: Row) -> None:
        super().__init__(row, tree.ctx)
        self.tree = tree
        self.fiber: Fiber | None = None
        self.subtree: Tree | None = None
        self.opens: Source | None = None
        """What an include row opens, if it is not what its config says."""
        self.problems: list[Problem] = []
        self.stopped = False
        """The plugin disposed itself; the row stays down until it changes."""
        self.generation = 0
        """How often new code was put under the row."""
        self.realms: dict[str, Realm] = {}

    @property
    def id(self) -> str:
        """The id inside its file."""
        return self.row.id

    @property
    def address(self) -> str:
        """The id with those of the includes around it: `outer:inner`."""
        return self.tree.source.prefix + self.row.id

    @property
    def name(self) -> str:
        """The row's `name`: which plugin it asks for."""
        return self.row.name

    @property
    def module(self) -> str | None:
        """The name of the Python module the plugin came from."""
        return self.target.module if self.target is not None else None

    @property
    def is_group(self) -> bool:
        return self.row.is_group

    @property
    def is_mounted(self) -> bool:
        """Whether there is a fiber that is not on its way out."""
        return self.fiber is not None and not self.fiber.is_retired

    @property
    def state(self) -> str:
        """`pending loading active failed unloading`, or `group`, `disabled`, `skipped`."""
        if self.row.is_group:
            return "group"
        if self.fiber is not None and self.fiber.state is not FiberState.DISPOSED:
            return self.fiber.state.phase or "disabled"
        if self.problems:
            return "failed"
        return "skipped" if self.target is not None and self.target.kind == "skipped" else "disabled"

    def realm(self, service: str) -> Realm:
        """The private realm of this row's subtree for a service; it stays the same while the row exists."""
        if service not in self.realms:
            self.realms[service] = Realm(f"{self.address}/{service}")
        return self.realms[service]

    def scope(self, ctx: Context) -> Scope:
        """What names mean in the expressions of this row."""
        options, base_dir = self.tree.loader.options, self.tree.source.base_dir
        return Scope(options.env, options.cwd or os.getcwd(), base_dir, ctx, options.home, options.argv)

    def __repr__(self) -> str:
        return f"<Entry {self.address} {self.name} {self.state}>"


class Tree:
    """The rows of one include, running under one context."""

    def __init__(
        self, loader: Loader, ctx: Context, source: Source, owner: Entry | None = None, *, audited: bool = True
    ) -> None:
        self.loader = loader
        self.ctx = ctx
        self.source = source
        self.owner = owner
        """The include row that opened it."""
        self.audited = audited
        self.entries: dict[str, Entry] = {}
        """By id, in the order of the file, depth first."""
        self.reading: Reading | None = None
        """The last committed read."""
        self.lock = asyncio.Lock()
        self.closed = False

    def walk(self) -> Iterator[Entry]:
        """All entries, those of includes below it after their include."""
        for entry in list(self.entries.values()):
            yield entry
            if entry.subtree is not None and not entry.subtree.closed:
                yield from entry.subtree.walk()

    def trees(self) -> Iterator[Tree]:
        """This tree and the trees of the includes below it."""
        yield self
        for entry in list(self.entries.values()):
            if entry.subtree is not None and not entry.subtree.closed:
                yield from entry.subtree.trees()


def shape_of(row: Row, entry: Entry, outer: Shape) -> Shape:
    """The shape of a row inside a group (or tree) of shape `outer`."""
    own: list[tuple[str, str, Any]] = []
    for service, label in row.isolate.items():
        own.append(("isolate", service, entry.realm(service) if label is True else label))
    for service, settings in row.intercept.items():
        own.append(("intercept", service, settings))
    return (*outer, *own)


def same_shape(left: Shape, right: Shape) -> bool:
    """Whether two shapes make equal contexts."""
    return len(left) == len(right) and all(
        a[:2] == b[:2] and (a[2] is b[2] or same_value(a[2], b[2])) for a, b in zip(left, right, strict=True)
    )


def derive(ctx: Context, shape: Shape) -> Context:
    """The context that rows of that shape are mounted under."""
    for kind, service, value in shape:
        ctx = ctx.isolate(service, value) if kind == "isolate" else ctx.intercept(service, **value)
    return ctx
