"""The list of tasks an agent keeps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import dsh.policy.todo
from dsh.cordis import ConfigError, Context
from dsh.cordis.jsonio import thaw
from dsh.core.tools import Tools
from dsh.policy.todo import fold_todos
from dsh.testing import call as scripted_call
from dsh.testing import run_plugin, say
from tests.files.helpers import FakeAgent, call, root_with_tools, told

PARALLEL = {"allowParallelInProgress": True}
LIST = [
    {"content": "read the code", "status": "in_progress"},
    {"content": " watch the build ", "status": "in_progress"},
    {"content": "write the fix", "status": "pending"},
]


async def write(root: Context, todos: Any, agent: Any) -> Any:
    return await call(root, "todo_write", {"todos": todos}, agent)


async def test_a_list_is_logged_and_counted(tmp_path: Path) -> None:
    agent = FakeAgent(tmp_path)
    async with root_with_tools((dsh.policy.todo, PARALLEL)) as root:
        result = await write(root, LIST, agent)
        assert told(result) == "Updated todo list: 1 pending, 2 in progress, 0 completed."
        (event,) = agent.session.events
        assert event.type == "todo/write"
        assert [item["content"] for item in event.data["todos"]] == [
            "read the code",
            "watch the build",
            "write the fix",
        ]
        assert told(await write(root, [], agent)) == "Updated todo list: 0 pending, 0 in progress, 0 completed."


async def test_the_parameters_are_closed_where_they_must_be() -> None:
    async with root_with_tools((dsh.policy.todo, PARALLEL)) as root:
        (schema,) = root[Tools].schemas()
        parameters = thaw(schema["parameters"])
        assert parameters["properties"]["todos"].pop("description")
        assert parameters == {
            "type": "object",
            "properties": {
                "todos": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "additionalProperties": False,
                        "properties": {
                            "content": {"type": "string"},
                            "status": {"type": "string", "enum": ["pending", "in_progress", "completed"]},
                        },
                        "required": ["content", "status"],
                    },
                }
            },
            "required": ["todos"],
        }


@pytest.mark.parametrize(
    ("todos", "parallel", "text"),
    [
        ([{"content": " ", "status": "pending"}], True, "invalid todo: `content` must be a non-empty string"),
        (
            [{"content": "a", "status": "pending"}, {"content": " a", "status": "completed"}],
            True,
            'invalid todos: duplicate content "a"',
        ),
        (LIST, False, "invalid todos: at most one task may be in_progress (got 2)"),
        (
            [{"content": "a", "status": "done"}],
            True,
            'invalid arguments: "todos[0].status" must be one of ["pending","in_progress","completed"]',
        ),
        (
            [{"content": "a", "status": "pending", "id": 1}],
            True,
            'invalid arguments: "todos[0].id" is not a declared property (additionalProperties: false)',
        ),
    ],
)
async def test_lists_that_are_refused(tmp_path: Path, todos: Any, parallel: bool, text: str) -> None:
    agent = FakeAgent(tmp_path)
    async with root_with_tools((dsh.policy.todo, {"allowParallelInProgress": parallel})) as root:
        result = await write(root, todos, agent)
        assert (result.is_error, told(result)) == (True, f"Error: {text}")
        assert len(agent.session) == 0


async def test_nobody_keeps_no_list() -> None:
    async with root_with_tools((dsh.policy.todo, PARALLEL)) as root:
        assert told(await write(root, LIST, None)) == "Error: todo_write requires an owning agent session"


async def test_the_row_must_say_whether_tasks_may_overlap() -> None:
    with pytest.raises(ConfigError, match="allowParallelInProgress"):
        dsh.policy.todo.Config.validate({})


async def test_in_a_turn_the_list_is_logged_between_call_and_result() -> None:
    script = [scripted_call("todo_write", {"todos": LIST}), say("ok")]
    async with run_plugin(dsh.policy.todo, PARALLEL, model=script) as run:
        turn = await run.prompt("go")
        order = [event.type for event in turn.events if event.type in ("tool/call", "todo/write", "tool/result")]
        assert order == ["tool/call", "todo/write", "tool/result"]
        assert turn.of_type("tool/result")[0]["message"]["content"][0]["isError"] is False
        session = run.agent.session
        todos: Any = None
        for event in session.events:
            todos = fold_todos(todos, event)
        assert len(todos) == 3
        session.append("turn/start", {"turn": 2})
        assert fold_todos(todos, session.events[-1]) is None
