"""Patch lists: small edits that one layer makes to the rows of the layers below it.

    - {id: clock, config: {timezone: UTC}}                  # replaces the named keys of that row, each one whole
    - insert: [{id: mine, name: ./plugins/mine.py}]         # appends rows
    - {id: tools-group, insert: [...]}                      # appends to the children of a group

The same function composes what boots, what a running tree re-reads and what `dsh config show` prints.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

from dsh.cordis.issues import show
from dsh.cordis.nearest import meant, nearest
from dsh.cordis.records import identity_struct, struct

from . import names
from .problems import Problem
from .raw_rows import is_group_row, walk_rows
from .yamlio import YamlList, YamlMap, detach, find_mark


@struct
class Layer:
    """One list of patch items, and what it is called in messages.

    gives_way: rows it inserts are left out when there is one of the same id or plugin already.
    """

    name: str
    items: Any
    gives_way: bool = False


@struct
class Origin:
    """Where a row comes from: the file or layer that brought it, and the layers that changed it since."""

    source: str
    patched_by: list[str] = field(default_factory=list)

    def touch(self, layer: str) -> None:
        """Note that a layer changed the row."""
        if layer not in (self.source, *self.patched_by):
            self.patched_by.append(layer)


@struct
class Composition:
    """Rows after all layers. `origins` is keyed by the identity of each row's mapping."""

    rows: YamlList
    origins: dict[int, Origin] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)

    def origin(self, row: Mapping[str, Any]) -> Origin | None:
        """Where one of the rows comes from."""
        return self.origins.get(id(row))


def compose(rows: Any, source: str, layers: Sequence[Layer] = ()) -> Composition:
    """Apply layers in order to a deep copy of `rows`; nothing that is passed in changes.

    An item that finds no row, or whose `name` does not match, is skipped with a warning. A layer that is no list,
    or an item that is no mapping, is a problem.
    """
    result = Composition(detach(rows) if isinstance(rows, list) else rows)
    if not isinstance(rows, list):
        return result
    composer = _Composer(result)
    composer.adopt(result.rows, source)
    for layer in layers:
        composer.apply(layer)
    return result


def lay_over(items: list[Any], row_id: str, keys: Mapping[str, Any]) -> None:
    """Let a patch list replace keys of a row: in the last item about it, or in a new one."""
    own = [each for each in items if isinstance(each, dict) and each.get("id") == row_id]
    if not own:
        own.append(YamlMap({"id": row_id}))
        items.append(own[0])
    own[-1].update(detach(keys))


@identity_struct
class _Composer:
    _result: Composition
    _index: dict[str, YamlMap] = field(default_factory=dict)

    def adopt(self, rows: Sequence[Any], source: str) -> None:
        """Make rows, and the children of groups among them, known under their ids."""
        for row in walk_rows(rows):
            self._result.origins[id(row)] = Origin(source)
            if isinstance(row.get("id"), str):
                self._index.setdefault(row["id"], row)

    def _forget(self, rows: Any) -> None:
        for row in walk_rows(rows):
            row_id = str(row.get("id"))
            if self._index.get(row_id) is row:
                del self._index[row_id]

    def apply(self, layer: Layer) -> None:
        if layer.items is None:
            return
        if not isinstance(layer.items, list):
            problem = Problem(f"a patch must be a list of items, got {show(layer.items)}", "patch", file=layer.name)
            self._result.problems.append(problem.at(find_mark(layer.items, ())))
            return
        for index, item in enumerate(layer.items):
            if not isinstance(item, Mapping):
                message = f"patch item {index + 1} must be a mapping, got {show(item)}"
                problem = Problem(message, "patch", file=layer.name).at(find_mark(layer.items, (index,)))
                self._result.problems.append(problem)
                continue
            self._apply_item(layer, item, index + 1)

    def _apply_item(self, layer: Layer, item: Mapping[str, Any], number: int) -> None:
        inserted = item.get("insert")
        if "insert" in item and not (isinstance(inserted, list) and all(isinstance(row, Mapping) for row in inserted)):
            message = f"patch item {number}: insert must be a list of rows, got {show(inserted)}"
            problem = Problem(message, "patch", file=layer.name, key="insert").at(find_mark(item, ("insert",)))
            self._result.problems.append(problem)
            return
        target_id = item.get("id")
        if target_id is None:
            rest = [key for key in item if key != "insert"]
            if rest or inserted is None:
                what = f"has {', '.join(rest)} but no id" if rest else "is empty"
                self._warn(layer, item, number, (), f"{what}; it is skipped")
                return
            self._insert(layer, self._result.rows, inserted)
            return
        target = self._find(layer, item, number, target_id)
        if target is None:
            return
        if inserted is not None and not is_group_row(target):
            self._warn(
                layer, item, number, ("insert",), f'row "{target_id}" is no group; nothing can be inserted into it'
            )
            return
        self._replace_keys(layer, target, item)
        if inserted is not None:
            if not isinstance(target.get("config"), list):
                target["config"] = YamlList()
            self._insert(layer, target["config"], inserted)

    def _find(self, layer: Layer, item: Mapping[str, Any], number: int, target_id: Any) -> YamlMap | None:
        target = self._index.get(target_id) if isinstance(target_id, str) else None
        if target is None:
            near = nearest(str(target_id), self._index)
            message = f'no row has the id "{target_id}", so it is skipped{meant(near)}'
            self._warn(layer, item, number, ("id",), message, near)
            return None
        wanted = item.get("name")
        if wanted is not None and wanted != target.get("name"):
            message = f'row "{target_id}" is {target.get("name")}, not {wanted}; it is skipped'
            self._warn(layer, item, number, ("name",), message)
            return None
        return target

    def _replace_keys(self, layer: Layer, target: YamlMap, item: Mapping[str, Any]) -> None:
        changed = [key for key in item if key not in ("id", "name", "insert")]
        for key in changed:
            if key == "config" and is_group_row(target):
                # The single pass never looks into rows that a replaced config brings.
                self._forget(target.get("config"))
            target[key] = detach(item[key])
            mark = find_mark(item, (key,))
            if mark is not None:
                target.marks[key] = mark
            if key == "config" and is_group_row(target):
                self._result.origins.update((id(row), Origin(layer.name)) for row in walk_rows(target[key]))
        if changed:
            self._result.origins[id(target)].touch(layer.name)

    def _insert(self, layer: Layer, into: YamlList, rows: list[Any]) -> None:
        copies = detach(rows)
        if layer.gives_way:
            copies = YamlList([row for row in copies if not self._has(row)])
        into.extend(copies)
        into.marks.extend([None] * (len(into) - len(copies) - len(into.marks)))
        into.marks.extend(getattr(copies, "marks", ()))
        self.adopt(copies, layer.name)

    def _has(self, wanted: Mapping[str, Any]) -> bool:
        plugin = names.short_name(str(wanted.get("name")))
        rows = walk_rows(self._result.rows)
        return wanted.get("id") in self._index or any(names.short_name(str(row.get("name"))) == plugin for row in rows)

    def _warn(
        self,
        layer: Layer,
        item: Mapping[str, Any],
        number: int,
        keys: tuple[str, ...],
        message: str,
        near: str | None = None,
    ) -> None:
        warning = Problem(f"patch item {number}: {message}", "patch", file=layer.name, nearest=near)
        self._result.warnings.append(warning.at(find_mark(item, keys)))
