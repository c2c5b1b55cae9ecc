"""The authoring form of a schema, compiled to JSON Schema.

An author writes a mapping of name to property. A property may say `required: True` (collected into the surrounding
object's `required` list) and `type: "json"` (any JSON value); an object below the parameter root must say whether it is
open or closed. Everything else is the supported JSON Schema subset, and nothing outside it passes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dsh.cordis.jsonio import FrozenDict

from .tool_errors import JsonSchemaError
from .tool_schema import ANNOTATIONS, freeze_schema

_KEYS = frozenset({"type", "oneOf", "properties", "required", "additionalProperties", "items", "enum", "const"})
_AUTHOR_KEYS = _KEYS | frozenset(ANNOTATIONS)


def compile_parameters(parameters: Mapping[str, Any]) -> FrozenDict:
    """The JSON Schema of an open argument object. Raises `JsonSchemaError` with every violation."""
    return _compile({"type": "object", "properties": parameters}, "parameters", is_root=True)


def compile_value(schema: Mapping[str, Any]) -> FrozenDict:
    """The JSON Schema of one value. Raises `JsonSchemaError` with every violation."""
    return _compile(schema, "output.schema", is_root=False)


def _compile(root: object, path: str, *, is_root: bool) -> FrozenDict:
    found: list[str] = []
    box: dict[str, Any] = {}
    open_ids: set[int] = set()
    # An author node, its path, and where the compiled node goes; or a node whose subtree is finished.
    pending: list[tuple[object, str, Any, Any] | int] = [(root, path, box, "root")]
    while pending:
        step = pending.pop()
        if isinstance(step, int):
            open_ids.discard(step)
            continue
        node, at, into, slot = step
        if not isinstance(node, Mapping):
            found.append(f"{at} must be a schema object")
            continue
        if id(node) in open_ids:
            found.append(f"{at} is circular")
            continue
        top = is_root and node is root
        found.extend(f"{at}.{key} is not supported by the value schema DSL" for key in node if key not in _AUTHOR_KEYS)
        required = node.get("required")
        if "required" in node and not isinstance(required, bool) and not _is_names(required):
            found.append(f"{at}.required must be a boolean, or on an object an array of its property names")
        compiled = {
            key: node[key]
            for key in node
            if key in _AUTHOR_KEYS and key not in ("properties", "items", "oneOf", "required")
        }
        if compiled.get("type") == "json":
            del compiled["type"]
        into[slot] = compiled
        open_ids.add(id(node))
        children: list[tuple[object, str, Any, Any]] = []
        if "properties" in node:
            _compile_properties(node, compiled, at, f"{at}." if top else f"{at}.properties.", found, children)
        if node.get("type") == "object" and not top and "additionalProperties" not in node:
            found.append(f"{at}.additionalProperties must be stated (true = open, false = closed)")
        if "items" in node:
            compiled["items"] = None
            children.append((node["items"], f"{at}.items", compiled, "items"))
        if "oneOf" in node:
            branches = node["oneOf"]
            if isinstance(branches, (list, tuple)):
                slots: list[Any] = [None] * len(branches)
                compiled["oneOf"] = slots
                children.extend((branch, f"{at}.oneOf[{i}]", slots, i) for i, branch in enumerate(branches))
            else:
                compiled["oneOf"] = branches
        pending.append(id(node))
        pending.extend(reversed(children))
    if found:
        raise JsonSchemaError(found)
    try:
        return freeze_schema(box["root"], path)
    except JsonSchemaError as error:
        if not is_root:
            raise
        # The author of parameters never wrote the root's `properties`.
        raise JsonSchemaError(text.replace(f"{path}.properties.", f"{path}.", 1) for text in error.violations) from None


def _compile_properties(
    node: Mapping[str, Any],
    compiled: dict[str, Any],
    at: str,
    prefix: str,
    found: list[str],
    children: list[tuple[object, str, Any, Any]],
) -> None:
    properties = node["properties"]
    if not isinstance(properties, Mapping):
        found.append(f"{at}.properties must be an object of schemas")
        return
    slots: dict[str, Any] = dict.fromkeys(properties)
    compiled["properties"] = slots
    named = node["required"] if _is_names(node.get("required")) else ()
    required = [
        name
        for name, child in properties.items()
        if name in named or (isinstance(child, Mapping) and child.get("required") is True)
    ]
    required.extend(name for name in named if name not in properties)  # refused by the schema check, with its text
    if required:
        compiled["required"] = required
    children.extend((child, f"{prefix}{name}", slots, name) for name, child in properties.items())


def _is_names(value: object) -> bool:
    return isinstance(value, (list, tuple)) and all(isinstance(name, str) for name in value)
