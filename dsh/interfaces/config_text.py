"""The text of a running composition, and parts of it for showing one row or key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dsh.cordis import HarnessError
from dsh.cordis.nearest import did_you_mean

if TYPE_CHECKING:
    from dsh.loader.sources import Reading
    from dsh.loader.tree import Loader


def running_rows(loader: Loader) -> Reading:
    """What was read of the composition that runs, though its files say something else by now."""
    source = loader.root_source
    assert source is not None
    return next((tree.reading for tree in loader.trees() if tree.source is source), None) or source.read()


class NoSuchRowError(HarnessError):
    """A row or key that the composition does not have."""

    code = "NO_ROW"


def part_of(text: str, key: str) -> str:
    """The whole text, or the row `key`, or what stands below `row.key` in its config. Raises NoSuchRowError."""
    if not key:
        return text.rstrip("\n")
    from dsh.loader.yamlio import detach, dump_yaml, parse_yaml

    rows = [row for row in detach(parse_yaml(text)) or () if isinstance(row, dict)]
    ids = [str(row.get("id", "")) for row in rows]
    row_id = max((each for each in ids if key == each or key.startswith(f"{each}.")), key=len, default=None)
    if row_id is None:
        raise NoSuchRowError(f'no row "{key}"{did_you_mean(key, ids)}')
    found: Any = rows[ids.index(row_id)]
    path = [part for part in key[len(row_id) + 1 :].split(".") if part]
    if path:
        found = found.get("config") or {}
    for part in path:
        if not isinstance(found, dict) or part not in found:
            known = list(found) if isinstance(found, dict) else []
            raise NoSuchRowError(f'row "{row_id}" says nothing at {".".join(path)}{did_you_mean(part, known)}')
        found = found[part]
    return dump_yaml(found).rstrip("\n").removesuffix("\n...")
