"""The carrier of an include row: opens the tree of another file under its own fiber."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from dsh.cordis import ConfigModel, Context, field, plugin
from dsh.cordis.schema import ConfigError, ConfigIssue

from .patches import Layer
from .sources import Source, absolute

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
        given = entry.opens if entry is not None else None
        open_tree(loader, ctx, given or source_of(entry, config, ctx), entry)

    return include


def source_of(entry: Entry | None, config: IncludeConfig, ctx: Context) -> Source:
    """The source an include row names. Raises `ConfigError` for a file that includes itself."""
    base_dir = entry.tree.base_dir if entry is not None else ctx.base_dir
    source = Source(include_path(config, base_dir), initial=config.initial)
    if entry is not None:
        source.prefix = entry.address + ":"
        source.inline = inline_layers(entry, config)
        outer: Tree | None = entry.tree
        while outer is not None:
            if outer.source.path is not None and _same_file(outer.source.path, source.path):
                raise ConfigError([ConfigIssue(("path",), f"{outer.source.shown} would include itself")])
            outer = outer.owner.tree if outer.owner is not None else None
    return source


def include_path(config: IncludeConfig, base_dir: Path) -> Path:
    """The file an include row names, absolute."""
    path = unquote(urlsplit(config.path).path) if config.path.startswith("file:") else config.path
    return absolute(base_dir / path)


def inline_layers(entry: Entry, config: IncludeConfig) -> list[Layer]:
    """The patches that an include row carries."""
    return [Layer(f"patches of {entry.address}", config.patches)] if config.patches else []


def _same_file(left: Any, right: Any) -> bool:
    return left is not None and right is not None and os.path.realpath(left) == os.path.realpath(right)
