"""The authoring form of schemas, the `@tool` decorator, and presenters that never raise."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NotRequired, TypedDict

import pytest

from dsh.cordis.abort import AbortSignal
from dsh.cordis.jsonio import JsonValue, snapshot_json
from dsh.core.hint_schema import HintError
from dsh.core.tool_author import compile_parameters, compile_value
from dsh.core.tool_definition import Output, ToolDefinition, define_tool, text
from dsh.core.tool_errors import JsonSchemaError, ToolArgsError, ToolRegistrationError
from dsh.core.tool_hints import render_plain, split_docstring, tool
from dsh.core.tool_run import ToolInput, ToolRun

TEXT = Output({"type": "string"}, lambda args, value: [text(value)])


def run_of(arguments: Any) -> ToolRun:
    return ToolRun(ToolInput("c1", "t", arguments), snapshot_json(arguments), AbortSignal())


async def call(definition: ToolDefinition, **arguments: Any) -> Any:
    exec = run_of(arguments)
    value = definition.execute(exec.arguments, exec)
    return await value if hasattr(value, "__await__") else value


# -- authoring schema -------------------------------------------------------------------------------------------------


def test_b60a_required_flags_become_required_lists_at_each_level() -> None:
    schema = compile_parameters(
        {
            "path": {"type": "string", "required": True, "description": "Where"},
            "any": {"type": "json"},
            "edits": {
                "type": "array",
                "required": True,
                "items": {
                    "type": "object",
                    "additionalProperties": False,
                    "properties": {
                        "old": {"type": "string", "required": True},
                        "new": {"type": "string"},
                        "where": {
                            "type": "object",
                            "additionalProperties": True,
                            "properties": {"line": {"type": "integer", "required": True}},
                        },
                    },
                },
            },
            "choice": {"oneOf": [{"type": "null"}, {"type": "string", "enum": ["a"]}]},
        }
    )
    assert schema == {
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": "Where"},
            "any": {},
            "edits": {
                "type": "array",
                "items": {
                    "type": "object",
                    "additionalProperties": False,
                    "properties": {
                        "old": {"type": "string"},
                        "new": {"type": "string"},
                        "where": {
                            "type": "object",
                            "additionalProperties": True,
                            "properties": {"line": {"type": "integer"}},
                            "required": ["line"],
                        },
                    },
                    "required": ["old"],
                },
            },
            "choice": {"oneOf": [{"type": "null"}, {"type": "string", "enum": ["a"]}]},
        },
        "required": ["path", "edits"],
    }
    assert compile_parameters({"a": {"type": "string"}}) == {"type": "object", "properties": {"a": {"type": "string"}}}


def test_b60b_an_open_question_an_unknown_key_and_a_cycle_are_refused() -> None:
    with pytest.raises(JsonSchemaError) as caught:
        compile_parameters({"o": {"type": "object", "properties": {"x": {"type": "string", "minLength": 1}}}})
    assert caught.value.violations == (
        "parameters.o.additionalProperties must be stated (true = open, false = closed)",
        "parameters.o.properties.x.minLength is not supported by the value schema DSL",
    )
    cyclic: dict[str, Any] = {"type": "array"}
    cyclic["items"] = cyclic
    with pytest.raises(JsonSchemaError, match=r"parameters\.a\.items is circular"):
        compile_parameters({"a": cyclic})
    with pytest.raises(JsonSchemaError, match=r"parameters\.a\.type must be one of"):
        compile_parameters({"a": {"type": "text"}})
    with pytest.raises(JsonSchemaError, match=r"output\.schema\.additionalProperties must be stated"):
        compile_value({"type": "object", "properties": {}})


def test_b60c_deep_authoring_does_not_recurse() -> None:
    node: dict[str, Any] = {"type": "string"}
    for _ in range(3_000):
        node = {"type": "array", "items": node}
    schema = compile_parameters({"deep": node})
    assert schema["properties"]["deep"]["type"] == "array"


async def test_b10e_invalid_arguments_never_reach_an_authored_body() -> None:
    calls: list[Any] = []

    async def body(args: Any, exec: ToolRun) -> str:
        calls.append(args)
        return "ok"

    definition = define_tool("t", "d", {"a": {"type": "string", "required": True}}, TEXT, body)
    with pytest.raises(ToolArgsError, match='^invalid arguments: missing required property "a"$'):
        await call(definition, b=1)
    assert calls == []
    assert await call(definition, a="x") == "ok"


def test_b05a_an_authored_tool_refuses_a_bad_timeout() -> None:
    for bad in (0, -1, float("inf"), float("nan"), True):
        with pytest.raises(
            ToolRegistrationError, match=r"^defineTool\(t\): timeoutMs must be a positive finite number$"
        ):
            define_tool("t", "d", {}, TEXT, lambda a, e: "", timeout_ms=bad)


# -- presenters -------------------------------------------------------------------------------------------------------


def test_b62_presenters_answer_none_for_anything_odd() -> None:
    def present_call(args: Any) -> Any:
        if args["a"] == "boom":
            raise RuntimeError
        return "not a card" if args["a"] == "odd" else {"card": "generic", "title": args["a"]}

    def present_result(args: Any, result: Any) -> Any:
        return {"card": "terminal", "output": result["meta"]["out"]}

    definition = define_tool(
        "t",
        "d",
        {"a": {"type": "string", "required": True}},
        TEXT,
        lambda a, e: "",
        present_call=present_call,
        present_result=present_result,
    )
    assert definition.present_call is not None and definition.present_result is not None
    assert definition.present_call({"a": "x"}) == {"card": "generic", "title": "x"}
    for malformed in ({}, None, "text", {"a": 1}, {"a": "boom"}, {"a": "odd"}):
        assert definition.present_call(malformed) is None
    assert definition.present_result({"a": "x"}, {"content": [], "isError": False}) is None
    good: Any = {"content": [], "isError": False, "meta": {"out": "hi"}}
    assert definition.present_result({"a": "x"}, good) == {"card": "terminal", "output": "hi"}
    assert definition.present_result({}, good) is None


# -- type hints -------------------------------------------------------------------------------------------------------


class Place(TypedDict):
    """Somewhere."""

    name: Annotated[str, "What people call it"]
    line: NotRequired[int]


@dataclass
class Edit:
    old: str
    new: str = ""
    where: Place | None = None


class SearchArgs(TypedDict):
    query: str
    limit: NotRequired[int]


def test_b60d_hints_give_the_schema_one_would_write_by_hand() -> None:
    @tool
    async def many(
        exec: ToolRun,
        text: Annotated[str, "Some text"],
        count: int,
        ratio: float,
        flag: bool,
        nothing: None,
        tags: list[str],
        mode: Literal["r", "w"],
        either: int | str,
        place: Place,
        edit: Edit,
        free: dict[str, Any],
        data: JsonValue,
        anything: Any,
        maybe: str | None = None,
    ) -> list[str]:
        """Do many things.

        In two paragraphs.

        Args:
            count: How many,
                at most.
            text: ignored, the hint says it
        Returns:
            words
        """
        return tags

    place = {
        "type": "object",
        "additionalProperties": False,
        "required": ["name"],
        "properties": {"name": {"type": "string", "description": "What people call it"}, "line": {"type": "integer"}},
    }
    by_hand = compile_parameters(
        {
            "text": {"type": "string", "required": True, "description": "Some text"},
            "count": {"type": "integer", "required": True, "description": "How many, at most."},
            "ratio": {"type": "number", "required": True},
            "flag": {"type": "boolean", "required": True},
            "nothing": {"type": "null", "required": True},
            "tags": {"type": "array", "items": {"type": "string"}, "required": True},
            "mode": {"type": "string", "enum": ["r", "w"], "required": True},
            "either": {"oneOf": [{"type": "integer"}, {"type": "string"}], "required": True},
            "place": {
                "type": "object",
                "required": True,
                "additionalProperties": False,
                "properties": {
                    "name": {"type": "string", "required": True, "description": "What people call it"},
                    "line": {"type": "integer"},
                },
            },
            "edit": {
                "type": "object",
                "required": True,
                "additionalProperties": False,
                "properties": {
                    "old": {"type": "string", "required": True},
                    "new": {"type": "string"},
                    "where": {"oneOf": [place, {"type": "null"}]},
                },
            },
            "free": {"type": "object", "additionalProperties": True, "required": True},
            "data": {"type": "json", "required": True},
            "anything": {"type": "json", "required": True},
            "maybe": {"oneOf": [{"type": "string"}, {"type": "null"}]},
        }
    )
    assert many.name == "many"
    assert many.description == "Do many things.\n\nIn two paragraphs."
    assert many.parameters == by_hand
    assert many.output.schema == {"type": "array", "items": {"type": "string"}}


async def test_b60e_values_arrive_as_the_hints_promise() -> None:
    seen: dict[str, Any] = {}

    @tool
    def take(edit: Edit, edits: list[Edit], place: Place, ratio: float, either: Edit | str, free: Any) -> None:
        seen.update(edit=edit, edits=edits, place=place, ratio=ratio, either=either, free=free)

    where = {"name": "here"}
    await call(
        take,
        edit={"old": "a", "where": where},
        edits=[{"old": "b", "new": "c"}],
        place=where,
        ratio=2,
        either={"old": "d"},
        free={"x": [1]},
        undeclared=True,
    )
    assert seen["edit"] == Edit("a", where={"name": "here"})
    assert seen["edits"] == [Edit("b", "c")]
    assert seen["either"] == Edit("d")
    assert isinstance(seen["ratio"], float)
    seen["free"]["x"].append(2)
    seen["place"]["name"] = "mutable"


async def test_b60f_one_args_parameter_takes_all_arguments() -> None:
    @tool(name="search", description="Find it")
    async def find(args: SearchArgs, exec: ToolRun) -> str:
        return f"{args['query']} {args.get('limit')} {exec.call_id}"

    @tool
    async def edit(args: Edit) -> Edit:
        return dataclasses.replace(args, new="n")

    assert find.name == "search" and find.description == "Find it"
    assert find.parameters == {
        "type": "object",
        "properties": {"query": {"type": "string"}, "limit": {"type": "integer"}},
        "required": ["query"],
    }
    assert await call(find, query="q") == "q None c1"
    assert await call(edit, old="o") == {"old": "o", "new": "n", "where": None}
    assert edit.output.schema["additionalProperties"] is False


def test_b60g_what_no_schema_can_say_fails_at_definition() -> None:
    def bare_list(a: list) -> None: ...  # type: ignore[type-arg]
    def some_set(a: set[str]) -> None: ...
    def typed_dict(a: dict[str, int]) -> None: ...
    def overlapping(a: int | float) -> None: ...
    def two_lists(a: list[int] | list[str]) -> None: ...
    def any_or(a: Any | str) -> None: ...
    def unhinted(a) -> None: ...  # type: ignore[no-untyped-def]
    def no_return(a: int): ...  # type: ignore[no-untyped-def]
    def variadic(*a: int) -> None: ...
    def odd_note(a: Annotated[int, 3]) -> None: ...
    def unknown(a: NoSuchThing) -> None: ...  # type: ignore[name-defined]  # noqa: F821
    def odd_return() -> bytes: ...
    def tuple_return() -> tuple[int, int]: ...

    refused: list[Callable[..., Any]] = [
        bare_list,
        some_set,
        typed_dict,
        overlapping,
        two_lists,
        any_or,
        unhinted,
        no_return,
        variadic,
        odd_note,
        unknown,
        odd_return,
        tuple_return,
    ]
    for function in refused:
        with pytest.raises(HintError, match=f"tool {function.__name__}"):
            tool(function)


def test_b60h_a_plain_value_is_rendered_as_text() -> None:
    assert render_plain(None, "hi") == [text("hi")]
    assert render_plain(None, None) == render_plain(None, "") == [text("(no output)")]
    assert render_plain(None, {"a": [1, True]}) == [text('{"a":[1,true]}')]


def test_b60i_docstrings_describe_parameters_in_both_common_styles() -> None:
    google = split_docstring("Head.\n\nArgs:\n    a: first\n    b (int): second\n        more\n\nRaises:\n    X: never")
    assert google == ("Head.", {"a": "first", "b": "second more"})
    sphinx = split_docstring("Head.\n\n:param a: first\n:param int b: second\n:returns: no")
    assert sphinx == ("Head.", {"a": "first", "b": "second"})
