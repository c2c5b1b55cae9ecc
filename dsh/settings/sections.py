"""What happens to the plain data of a settings section: layering, patches, edits, redaction.

Everything here is a pure function of JSON data; inputs are never changed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dsh.cordis import HarnessError
from dsh.cordis.issues import path_text
from dsh.cordis.jsonio import JsonObject, NotJsonError, snapshot_json

NAMESPACE = re.compile(r"[a-z][a-z0-9-]*")
"""What the name of a section looks like."""


class SettingsError(HarnessError):
    """A settings section could not be registered or written; `code` says why."""

    code = "SETTINGS"


class SettingsConflictError(SettingsError):
    """The section changed since the revision the writer had seen."""

    code = "SETTINGS_CONFLICT"

    def __init__(self, ns: str, expected: int, actual: int) -> None:
        super().__init__(
            f'settings section "{ns}" is at revision {actual}, not at the expected {expected}: read it again'
        )
        self.ns = ns
        self.expected = expected
        self.actual = actual


def check_data(ns: str, value: object, what: str) -> JsonObject:
    """`value` as a detached, frozen mapping of JSON data. Raises SettingsError with a `$`-rooted path."""
    try:
        frozen = snapshot_json(value)
    except NotJsonError as error:
        raise SettingsError(f'settings "{ns}": {what} is not JSON data: {error}', "SETTINGS_INVALID") from error
    if not isinstance(frozen, dict):
        raise SettingsError(f'settings "{ns}": {what} must be a mapping', "SETTINGS_INVALID")
    return frozen


def layered(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`over` on top of `base`: mappings merge, everything else (null too) replaces."""
    result = dict(base)
    for key, value in over.items():
        below = result.get(key)
        both = isinstance(value, Mapping) and isinstance(below, Mapping)
        result[key] = layered(below, value) if both else value  # type: ignore[arg-type]
    return result


def patched(section: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """`section` with `patch` merged in; None in a patch means not given."""
    result = dict(section)
    for key, value in patch.items():
        if value is None:
            continue
        if isinstance(value, Mapping):
            below = result.get(key)
            inner = patched(below if isinstance(below, Mapping) else {}, value)
            if inner or not value:
                result[key] = inner
        else:
            result[key] = value
    return result


def check_operations(ns: str, operations: Iterable[Mapping[str, Any]]) -> list[JsonObject]:
    """The edits of a `mutate` call, detached. Raises SettingsError for the first malformed one."""
    checked = []
    for number, operation in enumerate(operations):
        item = check_data(ns, operation, f"operation {number}")
        kind, path = item.get("op"), item.get("path")
        problem = None
        if kind not in ("set", "unset"):
            problem = 'op must be "set" or "unset"'
        elif not isinstance(path, list) or not all(isinstance(key, str) for key in path):
            problem = "path must be a list of keys"
        elif kind == "set" and "value" not in item:
            problem = "set needs a value"
        elif kind == "set" and not path and not isinstance(item["value"], dict):
            problem = "the section itself must be a mapping"
        elif not isinstance(item.get("known", False), bool):
            problem = "known must be true or false"
        elif unknown := item.keys() - {"op", "path", "value", "known"}:
            problem = f"unknown key {min(unknown)}"
        if problem is not None:
            raise SettingsError(f'settings "{ns}": operation {number}: {problem}', "SETTINGS_INVALID")
        checked.append(item)
    return checked


def operated(section: Mapping[str, Any], operations: Iterable[JsonObject]) -> dict[str, Any]:
    """`section` after the edits, in order."""
    result: dict[str, Any] = dict(section)
    for operation in operations:
        path: Sequence[str] = operation["path"]
        if operation["op"] == "set":
            result = _set(result, path, operation["value"])
        else:
            result = _unset(result, path)
    return result


def refuse_unknown(ns: str, operations: Iterable[JsonObject], warnings: Iterable[tuple[str, str]]) -> None:
    """Raise SettingsError for what an edit with `known` sets although the section has no such key.

    `warnings` is what the schema said of the section after the edits.
    """
    for issue in warnings:
        keys: Sequence[Any] = getattr(issue, "keys", ())
        for operation in operations if issue[1].startswith("unknown key") else ():
            path = operation["path"]
            shorter = min(len(keys), len(path))
            if operation["op"] == "set" and operation.get("known") and list(keys[:shorter]) == list(path[:shorter]):
                raise SettingsError(f"{path_text((ns, *keys))}: {issue[1]}", "SETTINGS_UNKNOWN_KEY")


def _set(section: Mapping[str, Any], path: Sequence[str], value: Any) -> dict[str, Any]:
    if not path:
        return dict(value)
    result = dict(section)
    below = result.get(path[0])
    inner = below if isinstance(below, Mapping) else {}
    result[path[0]] = value if len(path) == 1 else _set(inner, path[1:], value)
    return result


def _unset(section: Mapping[str, Any], path: Sequence[str]) -> dict[str, Any]:
    if not path:
        return {}
    result = dict(section)
    below = result.get(path[0])
    if len(path) == 1:
        result.pop(path[0], None)
    elif isinstance(below, Mapping):
        result[path[0]] = _unset(below, path[1:])
    return result


# --- redaction ----------------------------------------------------------------------------------------------------


class Redactor:
    """Cuts the secret fields of one JSON schema (marked `x-dsh-secret`) out of values."""

    def __init__(self, schema: JsonObject) -> None:
        self._schema = schema
        self._definitions: JsonObject = schema.get("definitions", {})

    def cut(self, value: Any) -> Any:
        """A copy of `value` without its secrets."""
        return self._cut(value, [self._schema])

    def slots(self, value: Any) -> list[JsonObject]:
        """Every secret field: `{"path": [...], "set": bool}`. Fields of objects are listed when absent too."""
        found: list[JsonObject] = []
        self._slots(value, [self._schema], [], found, frozenset())
        return found

    def _open(self, schemas: Iterable[Any]) -> tuple[bool, list[JsonObject], frozenset[str]]:
        """All alternatives behind references and unions, whether one is secret, and the references followed."""
        secret, flat, names = False, [], set()
        pending = list(schemas)
        while pending:
            schema = pending.pop()
            if not isinstance(schema, dict):
                continue
            secret = secret or bool(schema.get("x-dsh-secret")) or schema.get("x-dsh-role") == "secret"
            flat.append(schema)
            pending.extend(schema.get("anyOf", ()))
            name = str(schema.get("$ref", "")).rpartition("/")[2]
            if name and name not in names:
                names.add(name)
                pending.append(self._definitions.get(name))
        return secret, flat, frozenset(names)

    @staticmethod
    def _inner(flat: Iterable[JsonObject], key: str | int) -> list[Any]:
        found: list[Any] = []
        for schema in flat:
            if isinstance(key, int):
                items = schema.get("items")
                found.extend(items[key : key + 1] if isinstance(items, list) else [items])
            elif key in schema.get("properties", {}):
                found.append(schema["properties"][key])
            else:
                found.append(schema.get("additionalProperties"))
        return found

    def _cut(self, value: Any, schemas: list[Any]) -> Any:
        _secret, flat, _names = self._open(schemas)
        if isinstance(value, Mapping):
            kept = {}
            for key, item in value.items():
                inner = self._inner(flat, key)
                if not self._open(inner)[0]:
                    kept[key] = self._cut(item, inner)
            return kept
        if isinstance(value, (list, tuple)):
            inners = [(item, self._inner(flat, at)) for at, item in enumerate(value)]
            return [self._cut(item, inner) for item, inner in inners if not self._open(inner)[0]]
        return value

    def _slots(
        self, value: Any, schemas: list[Any], path: list[str | int], found: list[JsonObject], seen: frozenset[str]
    ) -> None:
        secret, flat, names = self._open(schemas)
        if secret:
            found.append({"path": list(path), "set": value is not None and value != ""})
            return
        if isinstance(value, (list, tuple)):
            for at, item in enumerate(value):
                self._slots(item, self._inner(flat, at), [*path, at], found, frozenset())
            return
        present = value if isinstance(value, Mapping) else {}
        declared = [key for schema in flat for key in schema.get("properties", {})]
        if value is None and names & seen:
            return  # a model that contains itself would be listed without end
        below = seen | names if value is None else names
        for key in dict.fromkeys([*declared, *present]):
            self._slots(present.get(key), self._inner(flat, key), [*path, key], found, below)
