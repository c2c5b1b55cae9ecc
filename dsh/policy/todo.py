"""`tool-todo`: the tool `todo_write`, by which an agent keeps a visible list of what it is about to do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dsh.cordis import ConfigModel, Context, field
from dsh.core.tools import Output, ToolRun, Tools, define_tool, text

if TYPE_CHECKING:
    from dsh.cordis.jsonio import JsonValue
    from dsh.core.session_event import SessionEvent
    from dsh.core.tool_presentation import CallCard

name = "tool-todo"

EVENT = "todo/write"

BLANK_CONTENT = "invalid todo: `content` must be a non-empty string"
NO_SESSION = "todo_write requires an owning agent session"

DESCRIPTION = """Write the list of tasks for the current request. It is shown to the user.

Each call replaces the whole list, so always send all tasks. Use it for work of several steps: note the tasks first, \
set a task to `in_progress` when you start it and to `completed` as soon as it is done."""

_ITEM = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "content": {"type": "string", "required": True},
        "status": {"type": "string", "enum": ["pending", "in_progress", "completed"], "required": True},
    },
}


class Config(ConfigModel):
    """Config of a row `tool-todo`."""

    allow_parallel_in_progress: bool = field(live=True, description="Whether several tasks may be in progress at once")


def apply(ctx: Context, config: Config, tools: Tools) -> None:
    """Register the tool."""

    def execute(args: Any, run: ToolRun) -> dict[str, Any]:
        todos = [{"content": item["content"].strip(), "status": item["status"]} for item in args["todos"]]
        _check(todos, config.allow_parallel_in_progress)
        if run.agent is None:
            raise ValueError(NO_SESSION)
        run.agent.session.append(EVENT, {"todos": todos})
        return {"todos": todos}

    tools.register(
        define_tool(
            "todo_write",
            DESCRIPTION,
            {"todos": {"type": "array", "items": _ITEM, "required": True, "description": "The whole list."}},
            Output(
                schema={
                    "type": "object",
                    "additionalProperties": False,
                    "properties": {"todos": {"type": "array", "items": _ITEM, "required": True}},
                },
                render=lambda _args, value: [text(summary(value["todos"]))],
            ),
            execute,
            present_call=_present_call,
        )
    )


def fold_todos(todos: JsonValue, event: SessionEvent) -> JsonValue:
    """The list after `event`: what was written last, None again when a turn starts."""
    if event.type == "turn/start":
        return None
    if event.type == EVENT:
        written: JsonValue = event.data["todos"]
        return written
    return todos


def summary(todos: Sequence[Mapping[str, str]]) -> str:
    """What the model reads."""
    count = Counter(item["status"] for item in todos)
    return (
        f"Updated todo list: {count['pending']} pending, {count['in_progress']} in progress, "
        f"{count['completed']} completed."
    )


def _check(todos: Sequence[Mapping[str, str]], parallel: bool) -> None:
    seen: set[str] = set()
    for item in todos:
        content = item["content"]
        if not content:
            raise ValueError(BLANK_CONTENT)
        if content in seen:
            raise ValueError(f'invalid todos: duplicate content "{content}"')
        seen.add(content)
    running = sum(item["status"] == "in_progress" for item in todos)
    if running > 1 and not parallel:
        raise ValueError(f"invalid todos: at most one task may be in_progress (got {running})")


def _present_call(args: Any) -> CallCard | None:
    return {"card": "generic", "title": summary(args["todos"]), "kind": "other"}
