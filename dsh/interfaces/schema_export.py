"""JSON schemas (draft 07) of the files a person edits: compositions, patches over them, settings.

For editors: stricter than the loader where that helps (a key that nobody reads is marked), never against it where a
value may be an expression. An expression has the form that JSON files give it, `{"__jsExpr": "…"}`; an editor that is
told that the tags `!!js`, `!expr` and `!env` make objects (`CUSTOM_TAGS`) takes tagged text for the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from dsh.cordis.fields import CREDENTIAL_NAME
from dsh.loader import names
from dsh.loader.yamlio import JSON_EXPR_KEY

from .known_plugins import GROUP_NAMES, KnownPlugin

DRAFT: Final = "http://json-schema.org/draft-07/schema#"

CUSTOM_TAGS: Final = ("tag:yaml.org,2002:js scalar:object", "!expr scalar:object", "!env scalar:object")
"""The value of `yaml.customTags` for the YAML language server."""

JsonSchema = dict[str, Any]

_EXPRESSION: Final = {"$ref": "#/definitions/expression"}
_OPEN: Final = {"$ref": "#/definitions/open"}

PATH_NAME: Final = r"^(\.{1,2}(/|$)|/|file:)"
MODULE_NAME: Final = r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)+(:[A-Za-z_][\w.]*)?$|^[A-Za-z_]\w*:[A-Za-z_][\w.]*$"
_SKIPPED_NAME: Final = f"^({names.SCOPE})?{names.PREFIX}({'|'.join([*names.SKIPPED_PREFIXES, *sorted(names.SKIPPED)])})"


def composition_schema(plugins: Iterable[KnownPlugin]) -> JsonSchema:
    """The schema of a `cordis.yml` whose rows may name any of `plugins`."""
    return {
        "$schema": DRAFT,
        "title": "cordis.yml",
        "$ref": "#/definitions/rows",
        "definitions": _definitions(list(plugins), {}),
    }


def patch_schema(plugins: Iterable[KnownPlugin], rows: Mapping[str, str]) -> JsonSchema:
    """The schema of a patch file over a composition; `rows` tells the name of each of its rows by id."""
    return {
        "$schema": DRAFT,
        "title": "patch of cordis.yml",
        "$ref": "#/definitions/patch",
        "definitions": _definitions(list(plugins), rows),
    }


def settings_schema(sections: Mapping[str, Mapping[str, Any]]) -> JsonSchema:
    """The schema of a settings document with these sections; what is required may stand in a row instead."""
    definitions: JsonSchema = {}
    properties: JsonSchema = {}
    for ns, schema in sections.items():
        closed = _Closer(schema, ns, definitions, expressions=False).value(schema)
        properties[ns] = {key: value for key, value in closed.items() if key != "required"}
    return {
        "$schema": DRAFT,
        "title": "settings.yaml",
        "type": ["object", "null"],
        "properties": properties,
        "propertyNames": {"pattern": "^[a-z][a-z0-9-]*$"},
        "additionalProperties": {"type": "object"},
        "definitions": {**_COMMON, **definitions},
    }


# --- rows and patches -------------------------------------------------------------------------------------------------


_COMMON: Final[Mapping[str, Any]] = {  # without descriptions, which editors would show in place of the key's
    "expression": {
        "type": "object",
        "required": [JSON_EXPR_KEY],
        "additionalProperties": False,
        "properties": {JSON_EXPR_KEY: {"type": "string", "pattern": r"\S"}},
    },
    "open": {
        "anyOf": [{"type": "null"}, _EXPRESSION],
    },
}


def _definitions(plugins: Sequence[KnownPlugin], rows: Mapping[str, str]) -> JsonSchema:
    found: JsonSchema = dict(_COMMON)
    by_name: list[JsonSchema] = [
        _when({"name": {"enum": list(GROUP_NAMES)}}, {"config": _GROUP_CONFIG}, required=["name"]),
        _when({"group": {"const": True}}, {"config": _GROUP_CONFIG}, required=["group"]),
    ]
    by_id: list[JsonSchema] = []
    for each in plugins:
        config, needs_config = _config_of(each, found)
        then = {"config": config}
        by_name.append(
            _when({"name": {"enum": list(each.names)}}, then, ["name"], needs=["config"] if needs_config else [])
        )
        ids = [row for row, name in rows.items() if name in each.names]
        if ids:
            by_id.append(_when({"id": {"enum": ids}}, then, ["id"]))
    groups = [row for row, name in rows.items() if names.is_group(name)]
    if groups:
        by_id.append(_when({"id": {"enum": groups}}, {"config": _GROUP_CONFIG}, ["id"]))
    known = [name for each in plugins for name in each.names]
    found["rows"] = {"type": "array", "items": {"$ref": "#/definitions/row"}}
    found["row"] = {
        "type": "object",
        "required": ["name"],
        "additionalProperties": False,
        "properties": {"id": _ID, "name": _name([*GROUP_NAMES, *known]), **_ROW_KEYS},
        "allOf": by_name,
    }
    found["patch"] = {"type": ["array", "null"], "items": {"$ref": "#/definitions/patchItem"}}
    found["patchItem"] = {
        "type": "object",
        "anyOf": [{"required": ["id"]}, {"required": ["insert"]}],
        "additionalProperties": False,
        "properties": {
            "id": _known_id(rows),
            "name": {"type": "string", "description": "The plugin that the row must be of, or the item is skipped."},
            "insert": {"$ref": "#/definitions/rows", "description": "Rows to append, to the group if an id is given."},
            **_ROW_KEYS,
        },
        "allOf": [_without_needs(each) for each in [*by_id, *by_name]],
    }
    return found


def _when(
    properties: JsonSchema, then: JsonSchema, required: Sequence[str] = (), needs: Sequence[str] = ()
) -> JsonSchema:
    """A rule for the rows that fit `properties`: the keys that `then` describes, and those that must be there."""
    result: JsonSchema = {"if": {"properties": properties, "required": list(required)}, "then": {"properties": then}}
    if needs:
        result["then"]["required"] = list(needs)
    return result


def _without_needs(rule: JsonSchema) -> JsonSchema:
    """The rule for a patch, which leaves alone what it does not say."""
    return {"if": rule["if"], "then": {"properties": rule["then"]["properties"]}}


_GROUP_CONFIG: Final = {
    "description": "The rows of the group.",
    "if": {"type": "null"},
    "else": {"$ref": "#/definitions/rows"},
}
_ID: Final = {
    "description": "Identity of the row in its file: edits are matched by it.",
    "type": ["string", "null"],
    "minLength": 1,
    "pattern": "^[^:]+$",
}
_SERVICE: Final = {"minLength": 1}
_ROW_KEYS: Final[Mapping[str, Any]] = {
    "config": {"description": "Passed to the plugin; may hold expressions."},
    "disabled": {
        "description": "The row stays, its plugin is not mounted.",
        "if": _OPEN,
        "else": {"type": "boolean"},
    },
    "group": {"description": "The row is a group: its config is a list of rows.", "type": ["boolean", "null"]},
    "inject": {
        "description": "Services that the row needs beyond those its plugin asks for.",
        "type": ["array", "object", "null"],
        "items": {"type": "string", **_SERVICE},
        "additionalProperties": {"type": ["boolean", "null", "object"], "not": _EXPRESSION},
    },
    "isolate": {
        "description": "Realms by service: true for one of this row's own, a label for one shared by all that name it.",
        "type": ["object", "null"],
        "additionalProperties": {"type": ["boolean", "string", "null"], **_SERVICE},
    },
    "intercept": {
        "description": "Settings of services for this row and the rows below it.",
        "type": ["object", "null"],
        "additionalProperties": {"type": ["object", "boolean", "null"], "not": _EXPRESSION},
    },
    "label": {"description": "Text for people.", "type": ["string", "null"]},
}


_NO_PLUGIN: Final = (
    "No plugin is called so. A built-in one is written dsh-…, a file ./name.py, an installed module package.module."
)


def _name(known: Sequence[str]) -> JsonSchema:
    by_form = "|".join([PATH_NAME, MODULE_NAME, _SKIPPED_NAME])
    own = [name for name in known if name.startswith((names.PREFIX, "cordis:", "."))]
    return {
        "description": "The plugin: a name that is known here, ./file.py, package.module or package.module:attribute.",
        "type": "string",
        "if": {"type": "string", "pattern": by_form},
        "else": {"enum": list(dict.fromkeys(known)), "errorMessage": _NO_PLUGIN},
        "examples": own,
    }


def _known_id(rows: Mapping[str, str]) -> JsonSchema:
    schema: JsonSchema = {"description": "The row that is patched.", "type": "string"}
    return {**schema, "enum": list(rows)} if rows else schema


def _config_of(plugin: KnownPlugin, definitions: JsonSchema) -> tuple[JsonSchema, bool]:
    """The schema of a plugin's config, and whether a row must give one."""
    schema = plugin.schema
    if schema is None:
        return {"description": plugin.about} if plugin.about else {}, False
    closer = _Closer(schema, plugin.names[0], definitions, expressions=not names.is_include(plugin.names[0]))
    closed = closer.value(schema)
    if plugin.about:
        closed["description"] = plugin.about
    if names.is_include(plugin.names[0]):
        closed["properties"]["initial"] = _GROUP_CONFIG
        closed["properties"]["patches"] = {"$ref": "#/definitions/patch"}
    name = f"config of {plugin.names[0]}".replace(" ", "-").replace("/", "-")
    needs = bool(closed.get("required"))
    closed["title"] = f"config of {plugin.names[0]}"
    definitions[name] = {
        "if": _EXPRESSION if needs else _OPEN,
        "else": closed,
        **({"description": plugin.about} if plugin.about else {}),
    }
    return {"$ref": f"#/definitions/{name}"}, needs


# --- values -----------------------------------------------------------------------------------------------------------


class _Closer:
    """Copies the schema of one config model: mappings with known keys take no others, values may be left open."""

    def __init__(self, root: Mapping[str, Any], name: str, definitions: JsonSchema, *, expressions: bool) -> None:
        self._root = root
        self._name = name
        self._definitions = definitions
        self._open = _OPEN if expressions else {"type": "null"}
        self._filled = _EXPRESSION if expressions else None

    def value(self, schema: Mapping[str, Any]) -> JsonSchema:
        """What a value must be that is given and no expression."""
        if "$ref" in schema:
            return {**self._rest(schema, "$ref"), "$ref": self._definition(schema["$ref"])}
        if "anyOf" in schema:
            options = [each for each in schema["anyOf"] if each.get("type") != "null"]
            rest = self._rest(schema, "anyOf")
            if len(options) == 1:
                return {**self.value(options[0]), **rest}
            return {**rest, "anyOf": [self.value(each) for each in options]}
        found = self._rest(schema)
        if "properties" in schema:
            required = schema.get("required", ())
            found["properties"] = {
                key: self._item(part, key not in required) for key, part in schema["properties"].items()
            }
            found["additionalProperties"] = False
        elif isinstance(schema.get("additionalProperties"), Mapping):
            found["additionalProperties"] = self._item(schema["additionalProperties"], True)
        if isinstance(schema.get("items"), Mapping):
            found["items"] = self._item(schema["items"], False)
        elif isinstance(schema.get("items"), list):
            found["items"] = [self._item(each, False) for each in schema["items"]]
        return found

    def _item(self, schema: Mapping[str, Any], optional: bool) -> JsonSchema:
        """A value that may be an expression, and missing if it is optional. What is said of it stands outside."""
        value = self.value(schema)
        if not value.keys() - set(_SAID):
            return value
        passes = self._open if optional else self._filled
        if passes is None:
            return value
        said = {key: value.pop(key) for key in _SAID if key in value}
        if said.get("x-dsh-deprecated"):
            said["deprecationMessage"] = f"deprecated: {said['x-dsh-deprecated']}"
        if said.get("x-dsh-role") == CREDENTIAL_NAME:
            value["patternErrorMessage"] = "Must be the name of a credential, never the key itself."
        allowed = _allowed(value)
        if allowed:
            said["examples"] = allowed
        return {**said, "if": passes, "else": value}

    def _definition(self, ref: str) -> str:
        model = ref.rpartition("/")[2]
        name = f"{self._name}.{model}".replace("/", "-")
        if name not in self._definitions:
            self._definitions[name] = True  # a model inside itself finds it here
            self._definitions[name] = self.value(self._root["definitions"][model])
        return f"#/definitions/{name}"

    @staticmethod
    def _rest(schema: Mapping[str, Any], *without: str) -> JsonSchema:
        dropped = {"$schema", "definitions", "properties", "items", "additionalProperties", *without}
        return {key: value for key, value in schema.items() if key not in dropped}


_SAID: Final = (
    "description",
    "default",
    *(f"x-dsh-{name}" for name in ("step", "unit", "role", "secret", "live", "deprecated", "hidden")),
)
"""Keywords that describe a value and do not judge it."""


def _allowed(value: Mapping[str, Any]) -> list[Any]:
    return list(value.get("enum", [True, False] if value.get("type") == "boolean" else ()))
