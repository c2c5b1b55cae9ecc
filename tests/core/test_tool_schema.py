"""Which schemas are accepted, and what is said about values that do not fit."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsh.core.tool_errors import JsonSchemaError, ToolArgsError
from dsh.core.tool_schema import (
    argument_violations,
    freeze_schema,
    object_root_violations,
    schema_violations,
    value_violations,
)


def obj(properties: dict[str, Any], required: list[str] | None = None, **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, **({"required": required} if required else {}), **more}


def test_b10a_every_violation_of_a_call_is_listed_with_its_path() -> None:
    schema = obj(
        {
            "path": {"type": "string"},
            "mode": {"type": "string", "enum": ["r", "w"]},
            "tags": {"type": "array", "items": {"type": "string"}},
            "opts": obj({"depth": {"type": "integer"}}, ["depth"]),
            "where": obj({"line": {"type": "number"}}),
        },
        ["path", "opts"],
    )
    found = argument_violations(schema, {"mode": "x", "tags": ["a", 7], "opts": {}, "where": {"line": "one"}})
    assert found == [
        'missing required property "path"',
        '"mode" must be one of ["r","w"]',
        '"tags[1]" must be a string',
        'missing required property "opts.depth"',
        '"where.line" must be a number',
    ]
    assert str(ToolArgsError(found)) == "invalid arguments: " + "; ".join(found)
    assert ToolArgsError(found).code == "INVALID_ARGS"


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        ("string", 1, '"x" must be a string'),
        ("number", "1", '"x" must be a number'),
        ("number", math.nan, '"x" must be a finite JSON number'),
        ("number", math.inf, '"x" must be a finite JSON number'),
        ("integer", 1.5, '"x" must be an integer'),
        ("boolean", 1, '"x" must be a boolean'),
        ("null", 0, '"x" must be null'),
        ("object", [], '"x" must be an object'),
        ("array", {}, '"x" must be an array'),
    ],
)
def test_b10b_each_type_has_its_text(kind: str, value: Any, text: str) -> None:
    assert argument_violations(obj({"x": {"type": kind}}), {"x": value}) == [text]


def test_b10c_const_and_root_texts() -> None:
    assert argument_violations(obj({"x": {"type": "string", "const": "a"}}), {"x": "b"}) == ['"x" must be "a"']
    assert argument_violations(obj({}), "text") == ['"arguments" must be an object']
    assert value_violations({"type": "string"}, 5) == ['"value" must be a string']
    assert value_violations({"type": "array", "items": {"type": "null"}}, [1]) == ['"value[0]" must be null']


def test_b10d_what_is_not_json_is_named() -> None:
    schema = obj({"any": {}, "free": {"type": "object"}, "list": {"type": "array"}})
    bad = {1, 2}
    assert argument_violations(schema, {"any": bad, "free": {"a": bad}, "list": [bad], "extra": bad}) == [
        '"extra" must be a lossless JSON value',
        '"any" must be a lossless JSON value',
        '"free" must be a lossless JSON object',
        '"list" must be a dense lossless JSON array',
    ]


def test_b11_undeclared_keys_pass_an_open_object_only_and_defaults_stay_documentation() -> None:
    open_schema = obj({"a": {"type": "string", "default": "dflt"}})
    arguments: dict[str, Any] = {"b": 1}
    assert argument_violations(open_schema, arguments) == []
    assert arguments == {"b": 1}
    assert argument_violations({**open_schema, "additionalProperties": False}, arguments) == [
        '"b" is not a declared property (additionalProperties: false)'
    ]


def test_b12_bool_is_no_number_and_a_whole_float_is_an_integer() -> None:
    schema = obj({"n": {"type": "number"}, "i": {"type": "integer"}})
    assert argument_violations(schema, {"n": True}) == ['"n" must be a number']
    assert argument_violations(schema, {"i": True}) == ['"i" must be an integer']
    assert argument_violations(schema, {"i": 1.0}) == []
    assert argument_violations(schema, {"n": math.nan}) != []
    assert argument_violations(schema, {"i": 2**60 + 1}) != []


def test_b13_a_union_wants_exactly_one_branch() -> None:
    schema = obj({"x": {"oneOf": [{"type": "integer"}, {"type": "number"}, {"type": "string"}]}})
    assert argument_violations(schema, {"x": "s"}) == []
    assert argument_violations(schema, {"x": None}) == ['"x" must match exactly one oneOf branch (matched 0)']
    assert argument_violations(schema, {"x": 1}) == ['"x" must match exactly one oneOf branch (matched 2)']


def test_b14a_unsupported_schemas_are_refused_with_all_violations() -> None:
    schema = {
        "type": "object",
        "additionalProperties": "no",
        "required": ["ghost"],
        "properties": {
            "a": {"type": ["string", "null"]},
            "b": {"type": "text"},
            "c": {"type": "string", "oneOf": [{}, {}]},
            "d": {"oneOf": [{}]},
            "e": {"type": "string", "items": {}},
            "f": {"enum": ["x"]},
            "g": {"type": "string", "pattern": "x"},
            "h": "string",
            "i": {"type": "integer", "enum": []},
            "j": {"type": "integer", "enum": [1], "const": 2},
            "k": {"oneOf": [{}, {}], "const": 1},
            "l": {"type": "string", "default": {1}},
            "m": {"type": "boolean", "const": 1},
            "n": {"type": "object", "properties": [], "required": [1]},
        },
    }
    subset = (
        "is not a supported keyword (subset: type/oneOf/properties/required/additionalProperties/items/enum/const "
        "+ annotations)"
    )
    p = "schema.properties"
    expected = [
        "schema.additionalProperties must be a boolean",
        'schema.required names "ghost" which is not in properties',
        f"{p}.a.type must be a single type string (type arrays are not supported)",
        f"{p}.b.type must be one of object/array/string/number/integer/boolean/null",
        f"{p}.c cannot declare both type and oneOf",
        f"{p}.d.oneOf must be an array of at least two schemas",
        f'{p}.e.items is not supported on type "string"',
        f"{p}.f.enum requires type or oneOf",
        f"{p}.g.pattern {subset}",
        f"{p}.h must be a schema object",
        f"{p}.i.enum must be a non-empty array of integer values",
        f"{p}.j.const must be one of {p}.j.enum when both are declared",
        f"{p}.k.const is not supported beside oneOf",
        f"{p}.l.default annotation must be lossless JSON data",
        f"{p}.m.const must be a boolean value",
        f"{p}.n.properties must be an object of schemas",
        f"{p}.n.required must be an array of strings",
    ]
    assert schema_violations(schema) == expected
    with pytest.raises(JsonSchemaError) as caught:
        freeze_schema(schema)
    assert str(caught.value) == "unsupported JSON schema: " + "; ".join(expected)
    assert caught.value.code == "UNSUPPORTED_SCHEMA"


def test_b14b_a_cycle_is_refused_and_a_shared_node_is_fine() -> None:
    cyclic: dict[str, Any] = {"type": "object", "properties": {}}
    cyclic["properties"]["self"] = cyclic
    assert schema_violations(cyclic) == ["schema.properties.self is circular"]
    shared = {"type": "string"}
    frozen = freeze_schema(obj({"a": shared, "b": shared}))
    assert frozen == obj({"a": shared, "b": shared})
    with pytest.raises(TypeError):
        frozen["type"] = "array"


def test_b14c_a_very_deep_union_is_checked_and_validated() -> None:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(5_000):
        schema = {"oneOf": [schema, {"type": "null"}]}
    assert schema_violations(schema) == []
    frozen = freeze_schema(schema)
    assert value_violations(frozen, "x") == []
    assert value_violations(frozen, 1) == ['"value" must match exactly one oneOf branch (matched 0)']
    nested: Any = "x"
    deep: dict[str, Any] = {"type": "string"}
    for _ in range(5_000):
        nested, deep = [nested], {"type": "array", "items": deep}
    assert value_violations(deep, nested) == []


def test_b14d_consumers_of_objects_want_an_object_root() -> None:
    text = 'schema.type must be "object" (structured output is object-rooted)'
    assert object_root_violations({"type": "string"}) == [text]
    assert object_root_violations(obj({})) == []


names = st.text(alphabet="abc", min_size=1, max_size=2)
scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3)
values = st.recursive(
    scalars | st.just({1}) | st.binary(max_size=2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=12,
)
leaf_schemas = (
    st.sampled_from(["string", "number", "integer", "boolean", "null", "object", "array"]).map(lambda t: {"type": t})
    | st.just({})
    | st.lists(st.text(max_size=2), min_size=1, max_size=3).map(lambda e: {"type": "string", "enum": e})
)


@st.composite
def object_schemas(draw: st.DrawFn, inner: st.SearchStrategy[dict[str, Any]]) -> dict[str, Any]:
    properties = draw(st.dictionaries(names, inner, max_size=3))
    required = draw(st.lists(st.sampled_from(sorted(properties)), unique=True)) if properties else []
    schema = obj(properties, required)
    if draw(st.booleans()):
        schema["additionalProperties"] = draw(st.booleans())
    return schema


schemas = st.recursive(
    leaf_schemas,
    lambda inner: (
        inner.map(lambda s: {"type": "array", "items": s})
        | st.lists(inner, min_size=2, max_size=3).map(lambda b: {"oneOf": b})
        | object_schemas(inner)
    ),
    max_leaves=8,
)


@given(schema=schemas, value=values)
def test_b17a_any_schema_answers_for_any_input(schema: dict[str, Any], value: Any) -> None:
    assert schema_violations(schema) == []
    found = value_violations(freeze_schema(schema), value)
    assert all(isinstance(text, str) for text in found)


@given(value=values)
def test_b17b_any_object_taken_for_a_schema_is_judged(value: Any) -> None:
    found = schema_violations(value)
    if not isinstance(value, dict):
        assert found == ["schema must be a schema object"]
    elif not found:
        assert value_violations(value, value) is not None


@given(schema=object_schemas(leaf_schemas), value=st.dictionaries(names, values))
def test_b17c_a_missing_required_key_never_passes(schema: dict[str, Any], value: dict[str, Any]) -> None:
    for name in schema.get("required", ()):
        without = {key: item for key, item in value.items() if key != name}
        assert f'missing required property "{name}"' in value_violations(schema, without)
