"""Changes that the program made to the rows of a tree, applied again after each read, last of all layers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal

from dsh.cordis.records import struct

from .patches import Composition, Origin
from .raw_rows import identified_rows, is_group_row
from .yamlio import YamlList, detach

PROGRAM = "program"


@struct
class Operation:
    """One change that the program made to the rows of a tree; applied again after each read, last of all layers.

    An operation whose row (or group) is not there any more does nothing. `layer` is the file it shall be written into,
    `stays` says that it is not written. A `stop` is for the file alone: the plugin disposed itself.
    """

    kind: Literal["create", "update", "move", "remove", "stop"]
    id: str
    row: Any = None
    parent: str | None = None
    layer: Literal["file", "user"] = "file"
    stays: bool = False

    def apply(self, composition: Composition) -> None:
        """Change the composed rows."""
        if self.kind == "stop":
            return
        place = _find_list(composition.rows, self.id)
        if self.kind == "create":
            target = _children_of(composition.rows, self.parent)
            if target is not None and place is None:
                row = detach(self.row)
                target.append(row)
                composition.origins[id(row)] = Origin(PROGRAM)
            return
        if place is None:
            return
        rows, index = place
        row = rows[index]
        if self.kind == "update":
            for key, value in self.row.items():
                if value is None:
                    row.pop(key, None)
                else:
                    row[key] = detach(value)
                row.marks.pop(key, None)
            origin = composition.origin(row)
            if origin is not None:
                origin.touch(PROGRAM)
            return
        target = None if self.kind == "remove" else _children_of(composition.rows, self.parent)
        if self.kind == "remove" or target is not None:
            del rows[index]
            del rows.marks[index : index + 1]
        if target is not None:
            target.append(row)


def folded(operations: Iterable[Operation]) -> list[Operation]:
    """The same changes in fewer operations, so that what a program does again and again does not pile up.

    A row that the program made and took out leaves nothing behind, and updates of one row become one.
    """
    result: list[Operation] = []
    for operation in operations:
        if operation.kind == "update" and (at := _earlier_update(result, operation)) is not None:
            merged = {**result[at].row, **operation.row}
            result[at] = Operation("update", operation.id, merged, layer=operation.layer, stays=operation.stays)
        elif operation.kind == "remove" and (gone := _made_here(result, operation.id)):
            result = [each for each in result if each.id not in gone]
        else:
            result.append(operation)
    return result


def _earlier_update(operations: Sequence[Operation], operation: Operation) -> int | None:
    """Where the same row was updated before, with nothing after it that could bring or move rows."""
    for at in reversed(range(len(operations))):
        earlier = operations[at]
        if earlier.kind != "update" or isinstance(earlier.row.get("config"), list):
            return None
        if earlier.id == operation.id:
            return at if (earlier.stays, earlier.layer) == (operation.stays, operation.layer) else None
    return None


def _made_here(operations: Sequence[Operation], row_id: str) -> set[str]:
    """The row and the rows put into it, if the program made them all; empty if some came from a file."""
    made = {each.id for each in operations if each.kind == "create"}
    gone = {row_id}
    for each in operations:
        if each.parent in gone:
            gone.add(each.id)
    return gone if gone <= made else set()


def _find_list(rows: YamlList, row_id: str) -> tuple[YamlList, int] | None:
    """The list a row stands in, and its position there."""
    return next(((place, index) for place, index, _, found in identified_rows(rows) if found == row_id), None)


def _children_of(rows: YamlList, group: str | None) -> YamlList | None:
    if group is None:
        return rows
    place = _find_list(rows, group)
    if place is None or not is_group_row(place[0][place[1]]):
        return None
    row = place[0][place[1]]
    if not isinstance(row.get("config"), YamlList):
        row["config"] = YamlList()
    children: YamlList = row["config"]
    return children
