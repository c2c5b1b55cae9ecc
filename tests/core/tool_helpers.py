"""What the tests of tools and the system prompt share."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from dsh.cordis import Context
from dsh.core.system_prompt import SystemPrompt
from dsh.core.tools import Output, ToolDefinition, ToolInput, ToolResult, ToolRun, Tools, ToolsResult, text
from dsh.llm.message import create_user_message
from dsh.llm.types import Message


class Agent:
    """A scope key with nothing else to it."""

    def __init__(self, name: str = "agent") -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name


class Stage:
    """A root with both registries, and every result it announced."""

    def __init__(self, root: Context) -> None:
        self.root = root
        self.results: list[tuple[ToolRun, ToolResult]] = []

        def keep(event: ToolsResult) -> None:
            self.results.append((event.exec, event.result))

        root.on(ToolsResult, keep, global_=True)

    @property
    def tools(self) -> Tools:
        return self.root[Tools]

    @property
    def prompt(self) -> SystemPrompt:
        return self.root[SystemPrompt]

    async def call(self, name: str = "echo", arguments: Any = None, **more: Any) -> ToolResult:
        """Run one call through all stages; checks that it announced exactly one result."""
        before = len(self.results)
        given = {} if arguments is None else arguments
        result = await self.tools.execute(ToolInput(more.pop("call_id", "c1"), name, given, **more))
        assert len(self.results) == before + 1
        assert self.results[-1][1] is result
        return result


@asynccontextmanager
async def stage(**prompt_config: Any) -> AsyncIterator[Stage]:
    async with Context() as root:
        root.plugin(SystemPrompt, prompt_config)
        root.plugin(Tools)
        await root.settle()
        yield Stage(root)


def make(
    name: str = "echo",
    body: Callable[..., Any] | None = None,
    *,
    schema: dict[str, Any] | None = None,
    render: Callable[[Any, Any], Sequence[Any]] | None = None,
    meta: Callable[[Any, Any], Any] | None = None,
    **more: Any,
) -> ToolDefinition:
    """A raw tool; without a body it answers its own name, and it shows whatever it returns as text."""
    return ToolDefinition(
        name,
        more.pop("description", f"The {name} tool"),
        more.pop("parameters", {"type": "object", "properties": {}}),
        Output(schema or {}, render or (lambda args, value: [text(f"<{value}>")]), meta),
        body or (lambda args, exec: name),
        **more,
    )


def words(result: ToolResult) -> str:
    """The text a model reads."""
    return "\n".join(block.get("text", f"[{block['type']}]") for block in result.content)


def code(result: ToolResult) -> tuple[str, str] | None:
    """Name and code of a failure."""
    if result.error is None or result.error.info is None:
        return None
    return result.error.info["name"], result.error.info["code"]


def note(content: str) -> Message:
    return create_user_message(content, {"kind": "plugin", "plugin": "test"})


def notes(result: ToolResult) -> list[str]:
    """Texts of the contexts a result carries."""
    return [message["content"][0]["text"] for message in result.additional_contexts]
