"""The supported subset of JSON Schema: which schemas are accepted, and whether a value fits one.

Both walks use an explicit stack, so depth costs memory and never the interpreter's recursion limit. A keyword nobody
enforces would let a model believe in a rule that does not exist; therefore everything outside the subset is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from dsh.cordis.jsonio import MAX_SAFE, FrozenDict, FrozenList, encode_str, json_equal, snapshot_json

from .tool_errors import JsonSchemaError

TYPES: Final = ("object", "array", "string", "number", "integer", "boolean", "null")
ANNOTATIONS: Final = ("description", "title", "default", "examples")
_SCALARS: Final = frozenset(TYPES[2:])
_CONSTRAINTS: Final = {
    "properties": frozenset({"object"}),
    "required": frozenset({"object"}),
    "additionalProperties": frozenset({"object"}),
    "items": frozenset({"array"}),
    "enum": _SCALARS,
    "const": _SCALARS,
}
_SUBSET: Final = (
    "is not a supported keyword (subset: type/oneOf/properties/required/additionalProperties/items/enum/const "
    "+ annotations)"
)
_A: Final = {
    "object": "an object",
    "array": "an array",
    "string": "a string",
    "number": "a number",
    "integer": "an integer",
    "boolean": "a boolean",
    "null": "null",
}


def freeze_schema(schema: object, path: str = "schema") -> FrozenDict:
    """`schema` checked and deep-frozen, ready to be shared. Raises `JsonSchemaError` naming every violation."""
    if violations := schema_violations(schema, path):
        raise JsonSchemaError(violations)
    frozen = snapshot_json(schema)
    assert isinstance(frozen, FrozenDict)
    return frozen


def schema_violations(schema: object, path: str = "schema") -> list[str]:
    """Everything that puts `schema` outside the subset, in reading order; empty when it is fine."""
    found: list[str] = []
    open_ids: set[int] = set()  # the nodes between the root and the current one
    done: set[int] = set()  # shared nodes are checked once
    pending: list[tuple[object, str, bool]] = [(schema, path, True)]
    while pending:
        node, at, entering = pending.pop()
        if not entering:
            open_ids.discard(id(node))
            done.add(id(node))
            continue
        if not isinstance(node, dict):
            found.append(f"{at} must be a schema object")
            continue
        if id(node) in open_ids:
            found.append(f"{at} is circular")
            continue
        if id(node) in done:
            continue
        open_ids.add(id(node))
        children: list[tuple[object, str]] = []
        _check_node(node, at, found, children)
        pending.append((node, at, False))
        pending.extend((child, where, True) for child, where in reversed(children))
    return found


def object_root_violations(schema: object) -> list[str]:
    """As `schema_violations`, for consumers whose values must be objects."""
    found = schema_violations(schema)
    if not isinstance(schema, dict) or schema.get("type") != "object":
        found.append('schema.type must be "object" (structured output is object-rooted)')
    return found


def _check_node(node: dict[Any, Any], at: str, found: list[str], children: list[tuple[object, str]]) -> None:
    kind = node.get("type")
    has_union = "oneOf" in node
    if "type" in node:
        if isinstance(kind, (list, tuple)):
            found.append(f"{at}.type must be a single type string (type arrays are not supported)")
        elif not isinstance(kind, str) or kind not in TYPES:
            found.append(f"{at}.type must be one of {'/'.join(TYPES)}")
        if has_union:
            found.append(f"{at} cannot declare both type and oneOf")
    known = kind if isinstance(kind, str) and kind in TYPES else None
    for key, value in node.items():
        if key in ANNOTATIONS:
            if not _is_json(value):
                found.append(f"{at}.{key} annotation must be lossless JSON data")
        elif key == "oneOf":
            if not isinstance(value, (list, tuple)) or len(value) < 2:
                found.append(f"{at}.oneOf must be an array of at least two schemas")
            else:
                children.extend((branch, f"{at}.oneOf[{index}]") for index, branch in enumerate(value))
        elif key in _CONSTRAINTS:
            if has_union:
                found.append(f"{at}.{key} is not supported beside oneOf")
            elif "type" not in node:
                found.append(f"{at}.{key} requires type or oneOf")
            elif known is not None and known not in _CONSTRAINTS[key]:
                found.append(f'{at}.{key} is not supported on type "{known}"')
            elif known is not None:
                _check_constraint(node, known, key, value, at, found, children)
        elif key != "type":
            found.append(f"{at}.{key} {_SUBSET}")


def _check_constraint(
    node: dict[Any, Any],
    kind: str,
    key: str,
    value: Any,
    at: str,
    found: list[str],
    children: list[tuple[object, str]],
) -> None:
    if key == "properties":
        if not isinstance(value, dict) or not all(isinstance(name, str) for name in value):
            found.append(f"{at}.properties must be an object of schemas")
        else:
            children.extend((child, f"{at}.properties.{name}") for name, child in value.items())
    elif key == "items":
        children.append((value, f"{at}.items"))
    elif key == "additionalProperties":
        if not isinstance(value, bool):
            found.append(f"{at}.additionalProperties must be a boolean")
    elif key == "required":
        if not isinstance(value, (list, tuple)) or not all(isinstance(name, str) for name in value):
            found.append(f"{at}.required must be an array of strings")
        else:
            declared = node.get("properties")
            names = declared if isinstance(declared, dict) else {}
            found.extend(
                f'{at}.required names "{name}" which is not in properties' for name in value if name not in names
            )
    elif key == "enum":
        if not isinstance(value, (list, tuple)) or not value or not all(_fits_scalar(kind, item) for item in value):
            found.append(f"{at}.enum must be a non-empty array of {kind} values")
    elif not _fits_scalar(kind, value):
        found.append(f"{at}.const must be a {kind} value")
    else:
        choices = node.get("enum")
        if isinstance(choices, (list, tuple)) and not any(json_equal(value, choice) for choice in choices):
            found.append(f"{at}.const must be one of {at}.enum when both are declared")


# Steps of a walk: a value to compare with a node (schema, value, path, sink), or a finished union whose matching
# branches are to be counted (one sink a branch, path, sink).
_Compare: TypeAlias = tuple[Mapping[str, Any], Any, str, list[str]]
_Count: TypeAlias = tuple[list[list[str]], str, list[str]]


def argument_violations(schema: Mapping[str, Any], arguments: object) -> list[str]:
    """What keeps `arguments` from fitting a tool's (checked) `parameters`; empty when they fit."""
    return value_violations(schema, arguments, "arguments")


def value_violations(schema: Mapping[str, Any], value: object, root: str = "value") -> list[str]:
    """Everything in which `value` differs from the (checked) `schema`, all of it at once; `root` names the value.

    Total: answers for any Python object and never raises. Keys a schema does not declare are allowed unless the object
    is closed; defaults are documentation and are never filled in.
    """
    found: list[str] = []
    pending: list[_Compare | _Count] = [(schema, value, "", found)]
    while pending:
        step = pending.pop()
        if len(step) == 3:
            branches, at, sink = step
            matched = sum(not branch for branch in branches)
            if matched != 1:
                sink.append(f'"{at or root}" must match exactly one oneOf branch (matched {matched})')
            continue
        node, item, at, sink = step
        union = node.get("oneOf")
        if union is not None:
            sinks: list[list[str]] = [[] for _ in union]
            pending.append((sinks, at, sink))
            pending.extend((branch, item, at, branch_sink) for branch, branch_sink in zip(union, sinks, strict=True))
            continue
        kind = node.get("type")
        if kind == "object":
            if not isinstance(item, dict):
                sink.append(f'"{at or root}" must be an object')
            else:
                pending.extend(reversed(_object_steps(node, item, at, root, sink)))
        elif kind == "array":
            if not isinstance(item, (list, tuple)):
                sink.append(f'"{at or root}" must be an array')
            elif (items := node.get("items")) is None:
                if not _is_json(item):
                    sink.append(f'"{at or root}" must be a dense lossless JSON array')
            else:
                base = at or root
                entries = [(items, entry, f"{base}[{index}]", sink) for index, entry in enumerate(item)]
                pending.extend(reversed(entries))
        elif kind is None:
            if not _is_json(item):
                sink.append(f'"{at or root}" must be a lossless JSON value')
        elif (wrong := _scalar_violation(node, kind, item)) is not None:
            sink.append(f'"{at or root}" must be {wrong}')
    return found


def _object_steps(node: Mapping[str, Any], item: dict[Any, Any], at: str, root: str, sink: list[str]) -> list[_Compare]:
    """Report missing and undeclared keys of an object; answer the declared properties still to compare."""
    prefix = at + "." if at else ""
    properties = node.get("properties") or {}
    for name in node.get("required") or ():
        if name not in item:
            sink.append(f'missing required property "{prefix}{name}"')
    if len(item) > len(properties) or any(key not in properties for key in item):
        closed = node.get("additionalProperties") is False
        if not closed and not properties:
            if not _is_json(item):
                sink.append(f'"{at or root}" must be a lossless JSON object')
            return []
        for key, entry in item.items():
            if key in properties:
                continue
            if closed:
                sink.append(f'"{prefix}{key}" is not a declared property (additionalProperties: false)')
            elif not isinstance(key, str) or not _is_json(entry):
                sink.append(f'"{prefix}{key}" must be a lossless JSON value')
    return [(child, item[name], prefix + name, sink) for name, child in properties.items() if name in item]


def _scalar_violation(node: Mapping[str, Any], kind: str, item: Any) -> str | None:
    if not _fits_scalar(kind, item):
        number = kind == "number" and isinstance(item, float)
        return "a finite JSON number" if number else _A[kind]
    choices = node.get("enum")
    if choices is not None and item not in choices:
        return f"one of {encode_str(choices)}"
    if "const" in node and item != node["const"]:
        return encode_str(node["const"])
    return None


def _fits_scalar(kind: str, item: Any) -> bool:
    if kind == "string":
        return isinstance(item, str)
    if kind == "boolean":
        return isinstance(item, bool)
    if kind == "null":
        return item is None
    if isinstance(item, bool):
        return False
    if isinstance(item, int):
        return -MAX_SAFE <= item <= MAX_SAFE or _is_json(item)
    return isinstance(item, float) and _is_json(item) and (kind == "number" or item.is_integer())


def _is_json(value: object) -> bool:
    if isinstance(value, (FrozenDict, FrozenList)):
        return True
    try:
        snapshot_json(value)
    except Exception:
        return False
    return True
