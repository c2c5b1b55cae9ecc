"""Rows as a file says them, before they are checked: plain mappings in lists."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from . import names


def is_group_row(row: Any) -> bool:
    """Whether a raw row is a group, by its name or its `group` key."""
    if not isinstance(row, Mapping):
        return False
    name = row.get("name")
    return row.get("group") is True or (isinstance(name, str) and names.is_group(name))


def identified_rows(rows: Any, group: str = "") -> Iterator[tuple[Any, int, Any, str]]:
    """As `walk_rows`: the list a row stands in, its position there, the row, and its id, given or made of its name."""
    counts: dict[Any, int] = {}
    for index, row in enumerate(rows if isinstance(rows, list) else ()):
        if not isinstance(row, dict):
            continue
        row_id = row.get("id")
        if not isinstance(row_id, str):
            name = str(row.get("name"))
            counts[name] = counts.get(name, 0) + 1
            row_id = f"{group}/{name}#{counts[name]}" if group else f"{name}#{counts[name]}"
        yield rows, index, row, row_id
        if is_group_row(row):
            yield from identified_rows(row.get("config"), row_id)


def walk_rows(rows: Any) -> Iterator[Any]:
    """All rows, children of groups after their group."""
    return (row for _, _, row, _ in identified_rows(rows))
