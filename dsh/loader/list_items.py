"""Which item of a list became which, when a list is compared with what it should be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher
from typing import Any

from .rendering import plain_value


def match_items(old: Sequence[Any], new: Sequence[Any]) -> tuple[list[str], list[str]]:
    """Keys that say which item of a list became which: mappings with an id by that, or by all but that; all others by
    being equal, or else by standing between the same neighbours."""
    before, after = [_identity(item) for item in old], [_identity(item) for item in new]
    changed = [at for at, (one, other) in enumerate(zip(before, after, strict=False)) if one != other]
    if len(before) == len(after) and len(changed) == 1 and before[changed[0]][0] != "=":
        return before, before
    for tag, i1, i2, j1, j2 in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        for i, j in zip(range(i1, i2), range(j1, j2), strict=False) if tag == "replace" else ():
            if "=" not in (before[i][0], after[j][0]) or _is_renamed(old[i], new[j]):
                after[j] = before[i]
    return before, after


def _is_renamed(one: Any, other: Any) -> bool:
    both = isinstance(one, Mapping) and isinstance(other, Mapping) and "id" in one and "id" in other
    return bool(both and plain_value({**one, "id": 0}) == plain_value({**other, "id": 0}))


def _identity(item: Any) -> str:
    named = isinstance(item, Mapping) and isinstance(item.get("id"), str)
    return "=" + item["id"] if named else f" {plain_value(item)!r}"
