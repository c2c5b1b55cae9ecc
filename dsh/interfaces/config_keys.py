"""The config keys of a composition: what the plugins of its rows declare."""

from __future__ import annotations

from typing import Any

from dsh.loader.include import IncludeConfig, walk_composition
from dsh.loader.names import is_include
from dsh.loader.row_checks import find_plugin
from dsh.loader.rows import Row
from dsh.loader.sources import Source
from dsh.settings.keys import KeyInfo, keys_of


def known_keys(source: Source) -> list[KeyInfo]:
    """Every key of the rows of a composition, those of included files too; their plugins are imported, not started.

    A row whose plugin is not found has none. Raises `LoadError` when the composition cannot be read.
    """
    found: list[KeyInfo] = []
    for tree, row in walk_composition(source):
        declared = declared_config(tree, row)
        found += keys_of(declared, tree.prefix + row.id, row.name)
    return found


def declared_config(tree: Source, row: Row) -> Any:
    """What the plugin of a row says of its config; `None` for a group, and when there is no such plugin."""
    if row.is_group:
        return None
    if is_include(row.name):
        return IncludeConfig
    spec = find_plugin(tree, row, None).spec
    return None if spec is None else spec.Config
