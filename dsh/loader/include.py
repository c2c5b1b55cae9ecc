"""The carrier of an include row: opens the tree of another file under its own fiber."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dsh.cordis import ConfigModel, Context, field, plugin
from dsh.cordis.schema import ConfigError, ConfigIssue

from .names import is_include
from .patches import Layer
from .resolve import path_of
from .rows import Row
from .sources import Source

if TYPE_CHECKING:
    from .entries import Entry, Tree
    from .tree import Loader

SUFFIXES = (".yml", ".yaml", ".json")


class IncludeConfig(ConfigModel):
    """Config of an include row. It is taken literally: expressions inside belong to the included rows."""

    path: str = field(description="File to include, relative to the file of this row, or a file: URL")
    initial: list[Any] | None = field(None, description="Rows that stand in while the file does not exist")
    patches: list[Any] = field(default_factory=list, description="Patch items applied to the file's rows")
    enable_logs: bool | None = field(None, description="Log what happens to the rows")

    def cross_check(self) -> Iterable[tuple[str, str]]:
        if not self.path.endswith(SUFFIXES):
            yield "path", f"must be a file ending in {', '.join(SUFFIXES)}"


def make_include(loader: Loader, open_tree: Callable[[Loader, Context, Source, Entry | None], object]) -> Any:
    """The include plugin of one loader."""

    def keep_tree(ctx: Context, new: IncludeConfig, old: IncludeConfig, changed: frozenset[str]) -> bool:
        # New patches are reconciled row by row by whoever made the edit; only another file opens another tree.
        return changed <= {"patches", "enable_logs"}

    @plugin(name="include", Config=IncludeConfig, on_update=keep_tree)
    def include(ctx: Context, config: IncludeConfig) -> None:
        entry = loader.entry_of(ctx.fiber)
        assert entry is not None
        source = entry.opens or included(config, entry.address, list(_sources_around(entry)))
        open_tree(loader, ctx, source, entry)

    return include


def included(config: IncludeConfig, address: str, around: Sequence[Source]) -> Source:
    """The source that the include row at `address` opens; `around` are those it stands in, the innermost first.

    Raises `ConfigError` for a file that includes itself.
    """
    path = path_of(config.path, around[0].base_dir)
    for outer in around:
        if outer.path is not None and os.path.realpath(outer.path) == os.path.realpath(path):
            raise ConfigError([ConfigIssue(("path",), f"{outer.shown} would include itself")])
    return Source(path, initial=config.initial, prefix=address + ":", inline=inline_layers(address, config))


def inline_layers(address: str, config: IncludeConfig) -> list[Layer]:
    """The patches that the include row at `address` carries."""
    return [Layer(f"patches of {address}", config.patches)] if config.patches else []


def _sources_around(entry: Entry) -> Iterator[Source]:
    outer: Tree | None = entry.tree
    while outer is not None:
        yield outer.source
        outer = outer.owner.tree if outer.owner is not None else None


def walk_composition(
    source: Source, *, texts: Mapping[Path, str | None] | None = None, around: Sequence[Source] = ()
) -> Iterator[tuple[Source, Row]]:
    """All rows of a composition with the source each stands in, those of included files after their include.

    Raises `LoadError`. An include that is disabled, or whose path is an expression, is not looked into.
    """
    for row in source.read(texts=texts).parsed.walk():
        yield source, row
        if is_include(row.name) and row.disabled is not True:
            with suppress(ConfigError):  # what is wrong with it is said by a check
                inner = included(IncludeConfig.validate(row.config), source.prefix + row.id, [source, *around])
                yield from walk_composition(inner, texts=texts, around=[source, *around])
