"""What differs between two compositions: rows that came or left, and values inside rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dsh.cordis.issues import Keys, path_text
from dsh.cordis.records import record
from dsh.loader.problems import Problem
from dsh.loader.raw_rows import identified_rows, is_group_row
from dsh.loader.yamlio import find_mark, same_value


@record
class Difference:
    """One difference: of a value inside a row, or of a whole row if there are no `keys`.

    `before` or `after` is None where there is no such thing; for a row it is the row's `name`.
    """

    row: str
    keys: Keys
    kind: str
    """`added`, `removed` or `changed`."""
    before: Any = None
    after: Any = None

    @property
    def name(self) -> str:
        """Row and keys as a command takes them; those of the config stand for themselves."""
        keys = self.keys[1:] if self.keys[:1] == ("config",) and len(self.keys) > 1 else self.keys
        return f"{self.row}.{path_text(keys)}" if keys else self.row


def differences(before: Any, after: Any) -> Iterator[Difference]:
    """How the rows `after` differ from the rows `before`, in their order. Position in a list means nothing."""
    old = {row_id: row for _, _, row, row_id in identified_rows(before)}
    new = {row_id: row for _, _, row, row_id in identified_rows(after)}
    for row_id, row in old.items():
        if row_id not in new:
            yield Difference(row_id, (), "removed", before=row.get("name"))
    for row_id, row in new.items():
        if row_id in old:
            yield from _inside(row_id, (), _own(old[row_id]), _own(row))
        else:
            yield Difference(row_id, (), "added", after=row.get("name"))


def dropped(before: Any, after: Any) -> Iterator[Problem]:
    """What layers take out of configs by replacing them whole, a note for each row: whoever wrote a patch may have
    meant to change one key only. `before` are the rows of the file alone, `after` those with the layers over it."""
    old = {row_id: row for _, _, row, row_id in identified_rows(before)}
    gone: dict[str, list[str]] = {}
    for each in differences(before, after):
        if each.kind == "removed" and each.keys[:1] == ("config",) and len(each.keys) > 1:
            gone.setdefault(each.row, []).append(path_text(each.keys[1:]))
    for _, _, row, row_id in identified_rows(after):
        if keys := gone.get(row_id):
            below = find_mark(old[row_id], ["config"])
            where = f" of {below}" if below is not None else ""
            again = "them to keep them" if len(keys) > 1 else "it to keep it"
            text = f"this replaces the whole config, without {', '.join(keys)}{where}; repeat {again}"
            yield Problem(text, row=row_id, key="config").at(find_mark(row, ["config"]))


def _own(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """A row without its children, which are rows themselves."""
    return {key: value for key, value in row.items() if key != "config"} if is_group_row(row) else row


def _inside(row_id: str, keys: Keys, old: Any, new: Any) -> Iterator[Difference]:
    if same_value(old, new):
        return
    if not (isinstance(old, Mapping) and isinstance(new, Mapping)):
        yield Difference(row_id, keys, "changed", old, new)
        return
    for key in {**old, **new}:
        at = (*keys, key)
        if key not in new:
            yield Difference(row_id, at, "removed", before=old[key])
        elif key not in old:
            yield Difference(row_id, at, "added", after=new[key])
        else:
            yield from _inside(row_id, at, old[key], new[key])
