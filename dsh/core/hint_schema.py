"""From type hints to schemas, and from the JSON values a model sends to the Python values a function wants.

A hint that the schema subset cannot express is refused when the tool is defined; nothing is ever silently widened.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable, Mapping
from typing import (
    Annotated,
    Any,
    Literal,
    NotRequired,
    Required,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from dsh.cordis.errors import describe_error
from dsh.cordis.jsonio import json_equal, thaw
from dsh.cordis.records import record

from .tool_errors import ToolRegistrationError
from .tool_schema import value_violations

Decode = Callable[[Any], Any]

_SCALARS: Mapping[Any, str] = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}
# What the alias `JsonValue` spells out to.
_JSON_MEMBERS = frozenset({type(None), bool, int, float, str, list[Any], dict[str, Any]})


class HintError(ToolRegistrationError):
    """A type hint a tool cannot be made from."""

    def __init__(self, where: str, problem: str) -> None:
        super().__init__(f"{where}: {problem}")


@record
class Hint:
    """One hint, compiled: its schema, how its JSON becomes a Python value (None = as it is), dataclasses inside."""

    schema: dict[str, Any]
    decode: Decode | None = None
    has_dataclass: bool = False


@record
class Field:
    """One named entry of an object hint."""

    hint: Hint
    required: bool


def resolve_hints(owner: Any, where: str) -> dict[str, Any]:
    """The evaluated annotations of a function or class. Raises `HintError` for one that cannot be evaluated."""
    try:
        # `Any` is supplied because the alias `JsonValue` is text that names it.
        return get_type_hints(owner, localns={"Any": Any}, include_extras=True)
    except Exception as error:
        raise HintError(
            where,
            f"a type hint cannot be evaluated ({describe_error(error)}); "
            "import what it names at module level, outside TYPE_CHECKING",
        ) from error


def compile_hint(hint: Any, where: str, inside: tuple[Any, ...] = ()) -> Hint:
    """The schema of `hint`. `where` names it in errors, `inside` lists the classes it stands in.

    Raises `HintError` when the subset has no schema that means exactly this.
    """
    if hint is None:
        hint = type(None)
    if hint is Any:
        return Hint({}, thaw)
    if isinstance(hint, type) and hint in _SCALARS:
        return Hint({"type": _SCALARS[hint]}, float if hint is float else None)
    origin = get_origin(hint)
    arguments = get_args(hint)
    if origin is Annotated:
        return _annotated(arguments, where, inside)
    if origin is Literal:
        return Hint(_literal(arguments, where))
    if origin is Union or origin is types.UnionType:
        return _union(arguments, where, inside)
    if origin is list:
        return _list(arguments[0], where, inside)
    if origin is dict:
        if arguments != (str, Any):
            raise HintError(where, f"{_show(hint)} is not supported; use dict[str, Any], or a TypedDict for known keys")
        return Hint({"type": "object", "additionalProperties": True}, thaw)
    if is_typeddict(hint) or (isinstance(hint, type) and dataclasses.is_dataclass(hint)):
        return _object(hint, where, inside)
    if hasattr(hint, "__supertype__"):  # NewType
        return compile_hint(hint.__supertype__, where, inside)
    if type(hint).__name__ == "TypeAliasType":
        return compile_hint(hint.__value__, where, inside)
    raise HintError(
        where,
        f"the hint {_show(hint)} is not supported (use str, int, float, bool, None, list[T], Literal, T | U, "
        "dict[str, Any], Any, a TypedDict or a dataclass)",
    )


def object_fields(cls: Any, where: str, inside: tuple[Any, ...] = ()) -> dict[str, Field]:
    """The fields of a TypedDict or dataclass, in order."""
    if cls in inside:
        raise HintError(where, f"{_show(cls)} contains itself, which the schema subset cannot express")
    hints = resolve_hints(cls, where)
    found: dict[str, Field] = {}
    if is_typeddict(cls):
        for name, hint in hints.items():
            bare, required = _requirement(hint, name in cls.__required_keys__)
            found[name] = Field(compile_hint(bare, f"{where}.{name}", (*inside, cls)), required)
        return found
    for entry in dataclasses.fields(cls):
        if entry.init:
            required = entry.default is dataclasses.MISSING and entry.default_factory is dataclasses.MISSING
            hint = compile_hint(hints[entry.name], f"{where}.{entry.name}", (*inside, cls))
            found[entry.name] = Field(hint, required)
    return found


def object_schema(fields: Mapping[str, Field], *, closed: bool) -> dict[str, Any]:
    """The object schema of `fields`; `required` is left out when empty."""
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {name: entry.hint.schema for name, entry in fields.items()},
    }
    required = [name for name, entry in fields.items() if entry.required]
    if required:
        schema["required"] = required
    if closed:
        schema["additionalProperties"] = False
    return schema


def decode_fields(fields: Mapping[str, Field], value: Mapping[str, Any]) -> dict[str, Any]:
    """The declared entries of a JSON object as Python values; entries nobody declared are dropped."""
    return {
        name: value[name] if entry.hint.decode is None else entry.hint.decode(value[name])
        for name, entry in fields.items()
        if name in value
    }


def to_json(value: Any) -> Any:
    """`value` with the dataclasses in it turned into objects."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {entry.name: to_json(getattr(value, entry.name)) for entry in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {key: to_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_json(item) for item in value]
    return value


def describe(schema: dict[str, Any], text: str | None) -> dict[str, Any]:
    """The schema with a description, if there is one and it has none yet."""
    return schema if not text or "description" in schema else {**schema, "description": text}


def _annotated(arguments: tuple[Any, ...], where: str, inside: tuple[Any, ...]) -> Hint:
    bare, *notes = arguments
    odd = [note for note in notes if not isinstance(note, str)]
    if odd:
        raise HintError(where, f"Annotated may hold a description text only, not {_show(odd[0])}")
    inner = compile_hint(bare, where, inside)
    return dataclasses.replace(inner, schema={**inner.schema, "description": notes[0]})


def _literal(values: tuple[Any, ...], where: str) -> dict[str, Any]:
    by_kind: dict[str, list[Any]] = {}
    for value in values:
        kind = _SCALARS.get(type(value))
        if kind is None:
            raise HintError(where, f"Literal value {_show(value)} is not a string, number, bool or None")
        by_kind.setdefault(kind, []).append(value)
    branches = [
        {"type": kind} if kind == "null" else {"type": kind, "enum": choices} for kind, choices in by_kind.items()
    ]
    return branches[0] if len(branches) == 1 else {"oneOf": branches}


def _list(item: Any, where: str, inside: tuple[Any, ...]) -> Hint:
    inner = compile_hint(item, f"{where}[]", inside)
    decode = inner.decode
    schema: dict[str, Any] = {"type": "array", "items": inner.schema} if inner.schema else {"type": "array"}
    if decode is None:
        return Hint(schema, list, inner.has_dataclass)
    return Hint(schema, lambda value: [decode(entry) for entry in value], inner.has_dataclass)


def _object(cls: Any, where: str, inside: tuple[Any, ...]) -> Hint:
    fields = object_fields(cls, where, inside)
    schema = object_schema(fields, closed=True)
    nested = any(entry.hint.has_dataclass for entry in fields.values())
    if is_typeddict(cls):
        return Hint(schema, lambda value: decode_fields(fields, value), nested)
    return Hint(schema, lambda value: cls(**decode_fields(fields, value)), True)


def _union(members: tuple[Any, ...], where: str, inside: tuple[Any, ...]) -> Hint:
    if frozenset(members) == _JSON_MEMBERS:
        return Hint({}, thaw)
    branches = [compile_hint(member, where, inside) for member in members]
    flat: list[dict[str, Any]] = []
    for branch in branches:
        flat.extend(branch.schema["oneOf"] if set(branch.schema) == {"oneOf"} else [branch.schema])
    for index, schema in enumerate(flat):
        for other in flat[:index]:
            if _overlap(schema, other):
                raise HintError(where, f"one value can match two members of {' | '.join(map(_show, members))}")
    nested = any(branch.has_dataclass for branch in branches)
    if all(branch.decode is None for branch in branches):
        return Hint({"oneOf": flat}, None, nested)

    def decode(value: Any) -> Any:
        for branch in branches:
            if not value_violations(branch.schema, value):
                return value if branch.decode is None else branch.decode(value)
        return value

    return Hint({"oneOf": flat}, decode, nested)


def _overlap(one: Mapping[str, Any], two: Mapping[str, Any]) -> bool:
    """Whether some value may fit both schemas; a union of such members would refuse that value."""
    kinds = {one.get("type"), two.get("type")}
    if None in kinds or kinds == {"integer", "number"}:
        return True
    if len(kinds) == 2:
        return False
    if kinds == {"object"}:
        return _objects_overlap(one, two)
    if "enum" in one and "enum" in two:
        return any(json_equal(value, choice) for value in one["enum"] for choice in two["enum"])
    return True


def _objects_overlap(one: Mapping[str, Any], two: Mapping[str, Any]) -> bool:
    if one.get("additionalProperties") is not False or two.get("additionalProperties") is not False:
        return True
    first, second = one["properties"], two["properties"]
    needed = set(one.get("required", ())), set(two.get("required", ()))
    if not (needed[0] <= set(second) and needed[1] <= set(first)):
        return False
    return all(_overlap(first[name], second[name]) for name in needed[0] & needed[1])


def _requirement(hint: Any, required: bool) -> tuple[Any, bool]:
    origin = get_origin(hint)
    if origin is Required or origin is NotRequired:
        return get_args(hint)[0], origin is Required
    return hint, required


def _show(hint: Any) -> str:
    if isinstance(hint, type) and get_origin(hint) is None:
        return hint.__qualname__
    return repr(hint).replace("typing.", "")
