"""The config keys that plugins declare, one by one: for completion, tables and messages that say what is allowed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from dsh.cordis.records import record

EACH: Final = "*"
"""Stands in a path for any key of a mapping; an item of a list is written `[]`."""

JsonSchema = Mapping[str, Any]


@record
class KeyInfo:
    """One key that may be set, as its plugin declares it.

    `row` is the address of the row, or the section of the settings; `path` leads on from there
    (`maxParallelToolCalls`, `agents[].id`, `providers.*.baseURL`).
    """

    row: str
    path: str
    type: str
    """In words: "whole number", "list of strings"."""
    default: Any = None
    required: bool = False
    allowed: tuple[Any, ...] = ()
    """The values there are, if they are few."""
    bounds: str = ""
    """What a number or the length of a text may be, e.g. "≥ 1"; a pattern stands between slashes."""
    unit: str | None = None
    live: bool = False
    """A change applies without a restart."""
    secret: bool = False
    hidden: bool = False
    deprecated: bool | str = False
    description: str = ""
    plugin: str | None = None
    """The row's `name`."""

    @property
    def key(self) -> str:
        """The key as `dsh config set` takes it."""
        return f"{self.row}.{self.path}"

    @property
    def is_place(self) -> bool:
        """Whether the path is one of a composition; otherwise it goes through any item of a list or mapping."""
        return "[]" not in self.path and EACH not in self.path.split(".")


def keys_of(declared: Any, row: str = "", plugin: str | None = None) -> list[KeyInfo]:
    """The keys of one config model, parents before what is inside them; none for any other declaration."""
    schema = getattr(declared, "json_schema", None)
    if not isinstance(declared, type) or schema is None:
        return []
    return keys_of_schema(declared.json_schema(), row, plugin)  # type: ignore[attr-defined]


def keys_of_schema(schema: JsonSchema, row: str = "", plugin: str | None = None) -> list[KeyInfo]:
    """The same from the JSON schema of a config, such as a running daemon sends it."""
    keys = _walk(schema, schema, "", ())
    return [replace(each, row=row, plugin=plugin) for each in keys]


# --- schemas ----------------------------------------------------------------------------------------------------------


def _walk(schema: JsonSchema, root: JsonSchema, path: str, seen: tuple[str, ...]) -> Iterator[KeyInfo]:
    """The keys inside the value that `schema` describes; `seen` holds the models around, against endless ones."""
    for option in options_of(schema):
        ref = option.get("$ref")
        if ref is not None and ref in seen:
            continue
        inner = (*seen, ref) if ref is not None else seen
        option = resolved(option, root)
        if "anyOf" in option:
            yield from _walk(option, root, path, inner)
        required = option.get("required", ())
        for name, part in option.get("properties", {}).items():
            at = f"{path}.{name}" if path else name
            info = _key_info(at, part, root, name in required)
            yield info
            for each in _walk(part, root, at, inner):
                yield replace(each, live=True) if info.live else each
        value = option.get("additionalProperties")
        if isinstance(value, Mapping):
            yield from _walk(value, root, f"{path}.{EACH}" if path else EACH, inner)
        items = option.get("items")
        if isinstance(items, Mapping):
            yield from _walk(items, root, f"{path}[]", inner)


def options_of(schema: JsonSchema) -> list[JsonSchema]:
    """What a value may be, apart from null, each with what is said of all of them."""
    if "anyOf" not in schema:
        return [schema]
    common = {key: value for key, value in schema.items() if key != "anyOf"}
    return [{**each, **common} for each in schema["anyOf"] if each.get("type") != "null"]


def resolved(schema: JsonSchema, root: JsonSchema) -> JsonSchema:
    """A schema in place of a reference to it."""
    ref = schema.get("$ref")
    if not isinstance(ref, str):
        return schema
    rest = {key: value for key, value in schema.items() if key != "$ref"}
    return {**root.get("definitions", {}).get(ref.rpartition("/")[2], {}), **rest}


def _key_info(path: str, schema: JsonSchema, root: JsonSchema, required: bool) -> KeyInfo:
    options = [resolved(each, root) for each in options_of(schema)]
    allowed = [value for each in options for value in each.get("enum", ())]
    if not allowed and [each.get("type") for each in options] == ["boolean"]:
        allowed = [True, False]
    return KeyInfo(
        row="",
        path=path,
        type=type_words(schema, root),
        default=schema.get("default"),
        required=required,
        allowed=tuple(allowed) if all("enum" in each or each.get("type") == "boolean" for each in options) else (),
        bounds=_bounds(schema),
        unit=schema.get("x-dsh-unit"),
        live=bool(schema.get("x-dsh-live")),
        secret=bool(schema.get("x-dsh-secret")),
        hidden=bool(schema.get("x-dsh-hidden")),
        deprecated=schema.get("x-dsh-deprecated", False),
        description=str(schema.get("description", "")),
    )


_WORDS: Final = {
    "string": ("string", "strings"),
    "integer": ("whole number", "whole numbers"),
    "number": ("number", "numbers"),
    "boolean": ("true or false", "true or false"),
    "object": ("mapping", "mappings"),
    "array": ("list", "lists"),
}
"""The types of JSON schema in words, for one and for several."""


def type_words(schema: JsonSchema, root: JsonSchema, *, many: bool = False) -> str:
    """What a value must be, in words."""
    words = [_one_type(resolved(each, root), root, many) for each in options_of(schema)]
    return " or ".join(dict.fromkeys(words))


def _one_type(schema: JsonSchema, root: JsonSchema, many: bool) -> str:
    if "anyOf" in schema:
        return type_words(schema, root, many=many)
    if "enum" in schema:
        return "one of " + ", ".join(str(value) for value in schema["enum"])
    kind = schema.get("type")
    words = _WORDS.get(str(kind))
    if words is None:
        return "values" if many else "any value"
    inside = schema.get("items") if kind == "array" else schema.get("additionalProperties")
    if isinstance(inside, Mapping) and inside:
        return f"{words[many]} of {type_words(inside, root, many=True)}"
    return words[many]


_SAFE_INTEGER: Final = 2**53 - 1
"""The largest whole number that JSON keeps; as a bound it says nothing to a person."""


def _bounds(schema: JsonSchema) -> str:
    low, high, noun = schema.get("minimum"), schema.get("maximum"), ""
    high = None if high is not None and high >= _SAFE_INTEGER else high
    for kind, unit in (("Length", " characters"), ("Items", " items")):
        if f"min{kind}" in schema or f"max{kind}" in schema:
            low, high, noun = schema.get(f"min{kind}"), schema.get(f"max{kind}"), unit
    parts = []
    if low is not None and high is not None:
        parts.append(f"{low} to {high}{noun}")
    elif low is not None:
        parts.append(f"≥ {low}{noun}")
    elif high is not None:
        parts.append(f"≤ {high}{noun}")
    if "pattern" in schema:
        parts.append(f"/{schema['pattern']}/")
    return ", ".join(parts)
