"""What the tests of tools and the system prompt share."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from dsh.cordis import Context, Disposer, HarnessError
from dsh.core.seams import Approval
from dsh.core.system_prompt import SystemPrompt
from dsh.core.tools import (
    Output,
    ToolDefinition,
    ToolInput,
    ToolResult,
    ToolRun,
    Tools,
    ToolsExecute,
    ToolsPostExecute,
    ToolsPreExecute,
    ToolsResult,
    text,
)
from dsh.llm.message import create_user_message
from dsh.llm.types import Message
from dsh.testing import result_text

Next = Callable[[], Awaitable[Any]]

words = result_text
"""The text a model reads."""


class Broken(HarnessError):
    """A failure with a stable code."""

    code = "BROKEN"


class Agent:
    """A scope key with nothing else to it."""

    def __init__(self, name: str = "agent") -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name


class Desk(Approval):
    """Answers every question alike and remembers them."""

    def __init__(self, ctx: Context, config: Any) -> None:
        self.answer: Any = config["answer"]
        self.asked: list[dict[str, Any]] = []

    async def request(self, **question: Any) -> Any:
        self.asked.append(question)
        if callable(self.answer):
            return self.answer()
        return self.answer


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
        given = {} if arguments is None else arguments
        result = await self.tools.execute(ToolInput(more.pop("call_id", "c1"), name, given, **more))
        announced = [exec.token for exec, known in self.results if known is result]
        assert len(announced) == 1 and [exec.token for exec, _ in self.results].count(announced[0]) == 1
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


def decide(stage: Stage, decision: Any) -> None:
    """Make policy answer this, or raise it."""

    async def listen(event: ToolsPreExecute, next: Next) -> Any:
        if isinstance(decision, BaseException):
            raise decision
        return decision

    stage.root.on(ToolsPreExecute, listen)


def wrap(stage: Stage, wrapper: Callable[[ToolRun, Next], Awaitable[Any]]) -> Disposer:
    """Put a wrapper around the body."""

    async def listen(event: ToolsExecute, next: Next) -> Any:
        return await wrapper(event.exec, next)

    return stage.root.on(ToolsExecute, listen)


def judge(stage: Stage, verdict: Callable[[ToolRun, ToolResult], Any]) -> None:
    """Make the post stage answer this."""

    async def listen(event: ToolsPostExecute, next: Next) -> Any:
        return verdict(event.exec, event.result)

    stage.root.on(ToolsPostExecute, listen)


def raising(error: BaseException) -> Callable[..., Any]:
    """A body that raises."""

    async def body(args: Any, exec: ToolRun) -> Any:
        raise error

    return body


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
