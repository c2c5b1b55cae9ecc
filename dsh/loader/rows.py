"""Rows: what one entry of a config file says, checked, with the place of every key."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, Final

from dsh.cordis.issues import path_text, show
from dsh.cordis.nearest import nearest
from dsh.cordis.records import identity_struct, struct

from . import names
from .expr import ExprError, check_expr
from .problems import Problem
from .yamlio import Expr, Mark, YamlMap, expressions_in, find_mark

ROW_KEYS: Final = ("id", "name", "config", "disabled", "group", "inject", "isolate", "intercept", "label")


@identity_struct
class Row:
    """One checked row. `config` is raw (expressions unevaluated); the config of a group is in `children` instead."""

    id: str
    name: str
    source: YamlMap
    config: Any = None
    disabled: bool | Expr = False
    is_group: bool = False
    inject: dict[str, Any] = field(default_factory=dict)
    isolate: dict[str, bool | str] = field(default_factory=dict)
    intercept: dict[str, Any] = field(default_factory=dict)
    label: str | None = None
    children: tuple[Row, ...] = ()
    unknown: tuple[str, ...] = ()
    """Keys that no row has."""
    derived_id: bool = False
    """The file gives no id; this one was made from name and position."""

    @property
    def mark(self) -> Mark | None:
        """Where the row begins."""
        return self.source.mark

    def find_mark(self, keys: Sequence[str | int] = ()) -> Mark | None:
        """Where the value under `keys` (from the row on) stands, or the nearest thing around it."""
        return find_mark(self.source, keys)

    def walk(self) -> Iterator[Row]:
        """The row and all rows below it, depth first."""
        yield self
        for child in self.children:
            yield from child.walk()


@struct
class ParsedRows:
    """The rows of one tree, and what is wrong with them."""

    rows: tuple[Row, ...] = ()
    problems: list[Problem] = field(default_factory=list)

    def walk(self) -> Iterator[Row]:
        """All rows, depth first."""
        for row in self.rows:
            yield from row.walk()


def parse_rows(data: Any, *, file: str, prefix: str = "") -> ParsedRows:
    """Check the composed list of rows of one tree. All problems are collected.

    `file` is named where a value has no place of its own; `prefix` is the address of the include around the tree.
    """
    result = ParsedRows()
    if not isinstance(data, list):
        if data is None:
            message = 'must be a list of rows, the file is empty; a row is written "- {id: …, name: …}"'
        else:
            dash = '; a row begins with a dash, as in "- id: …"' if isinstance(data, Mapping) else ""
            message = f"must be a list of rows, got {show(data)}{dash}"
        result.problems.append(Problem(message, "parse", file=file).at(find_mark(data, ())))
        return result
    reader = _Reader(result, file, prefix)
    result.rows = tuple(reader.read_list(data, ""))
    reader.check_ids()
    return result


@identity_struct
class _Reader:
    _result: ParsedRows
    _file: str
    _prefix: str

    def _refuse(self, row: str | None, source: Any, keys: Sequence[str | int], message: str, **extra: Any) -> None:
        address = None if row is None else self._prefix + row
        problem = Problem(message, file=self._file, row=address, key=path_text(tuple(keys)) or None, **extra)
        self._result.problems.append(problem.at(find_mark(source, keys)))

    def _refuse_value(self, row: Row, keys: Sequence[str | int], value: Any, wanted: str, **extra: Any) -> None:
        self._refuse(row.id, row.source, keys, _literal(str(keys[-1]), value, wanted), **extra)

    def read_list(self, data: Sequence[Any], group: str) -> Iterator[Row]:
        """The rows of one list; `group` is the id of the group it belongs to."""
        counts: dict[str, int] = {}
        for index, source in enumerate(data):
            if not isinstance(source, YamlMap):
                self._refuse(group or None, data, [index], f"a row must be a mapping with a name, got {show(source)}")
                continue
            row = self._read_row(source, counts, group)
            if row is not None:
                yield row

    def _read_row(self, source: YamlMap, counts: dict[str, int], group: str) -> Row | None:
        name, given_id = source.get("name"), source.get("id")
        shown = given_id if isinstance(given_id, str) else name if isinstance(name, str) else None
        before = len(self._result.problems)
        if not isinstance(name, str) or not name:
            near = nearest("name", [key for key in source if key not in ROW_KEYS])
            hint = f' (the row has "{near}")' if near else f"; it says which plugin the row is, {_NAME_EXAMPLES}"
            message = f"a row needs a name{hint}" if name is None else _literal("name", name, "the plugin's name")
            self._refuse(shown, source, ["name"] if "name" in source else [], message)
        if given_id is not None and (not isinstance(given_id, str) or not given_id or ":" in given_id):
            hint = "; put a number in quotes" if isinstance(given_id, int) else ""
            self._refuse(shown, source, ["id"], _literal("id", given_id, f"text without ':'{hint}"))
        if len(self._result.problems) > before or not isinstance(name, str):
            return None
        derived = not isinstance(given_id, str)
        if derived:
            counts[name] = counts.get(name, 0) + 1
        local_id = f"{name}#{counts[name]}" if derived else str(given_id)
        row = Row(f"{group}/{local_id}" if derived and group else local_id, name, source, derived_id=derived)
        row.disabled = self._disabled(row)
        row.is_group = self._flag(row, "group") or names.is_group(name)
        row.inject = self._inject(row)
        row.isolate = self._services(row, "isolate")
        row.intercept = self._services(row, "intercept")
        row.label = source["label"] if isinstance(source.get("label"), str) else None
        row.unknown = tuple(key for key in source if key not in ROW_KEYS)
        if row.is_group:
            row.children = self._children(row)
        else:
            row.config = source.get("config")
            self._check_expressions(row, "config", row.config)
        return row

    def _children(self, row: Row) -> tuple[Row, ...]:
        config = row.source.get("config")
        if config is None:
            return ()
        if not isinstance(config, list):
            message = f"the config of a group is its list of rows, got {show(config)}"
            self._refuse(row.id, row.source, ["config"], message)
            return ()
        return tuple(self.read_list(config, row.id))

    def _disabled(self, row: Row) -> bool | Expr:
        value = row.source.get("disabled")
        if isinstance(value, Expr):
            self._check_expressions(row, "disabled", value)
            return value
        return self._flag(row, "disabled", "true, false or an expression")

    def _flag(self, row: Row, key: str, wanted: str = "true or false") -> bool:
        value = row.source.get(key)
        if value is not None and not isinstance(value, bool):
            self._refuse_value(row, [key], value, wanted, allowed=("true", "false"))
        return value is True

    def _inject(self, row: Row) -> dict[str, Any]:
        value = row.source.get("inject")
        if isinstance(value, list) and all(isinstance(item, str) and item for item in value):
            return dict.fromkeys(value)
        return {name: None if item is True else item for name, item in self._services(row, "inject").items()}

    def _services(self, row: Row, key: str) -> dict[str, Any]:
        """A mapping from services to values that hold no expression; `false` leaves a service out."""
        value = row.source.get(key)
        if value is None:
            return {}
        wanted, wanted_item, accepts = _SERVICE_KEYS[key]
        if not isinstance(value, Mapping):
            self._refuse_value(row, [key], value, wanted)
            return {}
        found: dict[str, Any] = {}
        for service, item in value.items():
            if accepts(item):
                if not self._has_expression(row, item, [key, service]):
                    found[service] = item
            elif item is not False and item is not None:
                self._refuse_value(row, [key, service], item, wanted_item)
        return found

    def _check_expressions(self, row: Row, key: str, value: Any) -> None:
        for keys, expression in expressions_in(value, (key,)):
            try:
                check_expr(expression)
            except ExprError as error:
                self._refuse(row.id, row.source, keys, str(error), error=error)

    def _has_expression(self, row: Row, value: Any, keys: Sequence[str | int]) -> bool:
        found = list(expressions_in(value, tuple(keys)))
        for at, expression in found:
            self._refuse_value(row, at, expression, "a plain value")
        return bool(found)

    def check_ids(self) -> None:
        """Refuse ids that stand twice anywhere in the tree."""
        seen: dict[str, Row] = {}
        for row in self._result.walk():
            first = seen.setdefault(row.id, row)
            if first is not row:
                place = f" (the other is at {first.mark})" if first.mark else ""
                message = f"the id stands twice{place}; give one of the rows another id"
                self._refuse(row.id, row.source, ["id"] if "id" in row.source else [], message)


_NAME_EXAMPLES: Final = "such as dsh-tools or ./plugins/mine.py"

_SERVICE_KEYS: Final[Mapping[str, tuple[str, str, Callable[[Any], bool]]]] = {
    "inject": (
        "a list of service names, or a mapping",
        "null, true or a mapping for that service",
        lambda item: item is None or item is True or isinstance(item, Mapping),
    ),
    "isolate": (
        "a mapping from service to true or a label",
        "true or the label of a shared realm",
        lambda item: item is True or (isinstance(item, str) and item != ""),
    ),
    "intercept": (
        "a mapping from service to its settings",
        "a mapping",
        lambda item: isinstance(item, Mapping),
    ),
}
"""Keys that say something of services: what they take, what they take for one service, and the test for that."""


def _literal(key: str, value: Any, wanted: str) -> str:
    if isinstance(value, Expr):
        return f"{key} takes no expression; only config and disabled do (wanted {wanted})"
    return f"must be {wanted}, got {show(value)}"
