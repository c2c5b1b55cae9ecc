"""The companions of tools, prompt and scopes: what they let pass and what they veto."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from dsh.cordis import Context, Emit, InvariantError
from dsh.core import invariants, prompt_invariant, scope_invariant, tools_invariant
from dsh.core.system_prompt import Assembly, PromptText, SystemPromptAssemble
from dsh.core.tool_run import ToolToken
from dsh.core.tools import (
    ToolInput,
    ToolResult,
    ToolRun,
    ToolsExecute,
    ToolsPostExecute,
    ToolsPreExecute,
    ToolsResult,
    text,
)

from .tool_helpers import Agent, Stage, code, make, stage, words


@pytest.fixture
async def checked() -> AsyncIterator[Stage]:
    async with stage() as s:
        for plugin in (invariants, tools_invariant, prompt_invariant, scope_invariant):
            s.root.plugin(plugin)
        await s.root.settle()
        yield s


def run_of(s: Stage, **more: Any) -> ToolRun:
    return s.tools.start(ToolInput(more.pop("call_id", "c1"), more.pop("name", "echo"), {}, **more)).run


async def vetoed(s: Stage, event: Any) -> str:
    with pytest.raises(InvariantError) as caught:
        await s.root.waterfall(event, lambda: None)
    return str(caught.value)


async def test_b58a_ordinary_calls_pass(checked: Stage, caplog: pytest.LogCaptureFixture) -> None:
    checked.tools.register(make())
    agent = Agent()
    assert words(await checked.call(agent=agent)) == "<echo>"
    assert (await checked.call("nope")).is_error
    checked.tools.guard(lambda exec: "no")
    assert words(await checked.call(agent=agent)) == "Error: no"
    await checked.prompt.assemble()
    assert "invariant" not in caplog.text


async def test_b58b_stages_come_once_and_in_order(checked: Stage) -> None:
    broken = 'invariant violated by "@deepseek-ai/dsh-tools": '
    run = run_of(checked)
    result = ToolResult.failure("x")
    assert await vetoed(checked, ToolsExecute(run)) == broken + "tools/execute must follow tools/pre-execute"
    assert await vetoed(checked, ToolsPostExecute(run, result)) == (
        broken + "tools/post-execute must follow tools/pre-execute"
    )
    await checked.root.waterfall(ToolsPreExecute(run), lambda: None)  # type: ignore[arg-type, return-value]
    assert await vetoed(checked, ToolsPreExecute(run)) == broken + "tools/pre-execute repeated for one execution"
    await checked.root.waterfall(ToolsPostExecute(run, result), lambda: None)  # type: ignore[arg-type, return-value]
    assert await vetoed(checked, ToolsExecute(run)) == broken + "tools/execute must come before tools/post-execute"


async def test_b58c_a_final_result_is_closed_and_frozen(checked: Stage) -> None:
    def refused(run: ToolRun, result: Any) -> str:
        with pytest.raises(InvariantError) as caught:
            checked.root.emit(ToolsResult(run, result))
        return caught.value.args[0].split(": ", 1)[1]

    open_run, closed = run_of(checked), run_of(checked)
    closed._closed = True
    assert refused(open_run, ToolResult.failure("x")) == "tools/result while the execution is still open"
    assert refused(closed, {"isError": False}) == "tools/result without a ToolResult"
    assert refused(closed, ToolResult(False, [text("x")])) == "the content of a final result is not frozen"
    loose: Any = {"id": "m"}
    assert refused(closed, ToolResult.failure("x", additional_contexts=[loose])) == (
        "a context of a final result is not frozen"
    )
    checked.root.emit(ToolsResult(closed, ToolResult.failure("x")))
    assert refused(closed, ToolResult.failure("x")) == "tools/result repeated for one execution"


async def test_b58d_identity_and_root_must_fit(checked: Stage) -> None:
    assert "needs a name, a call id" in await vetoed(checked, ToolsPreExecute(run_of(checked, name="")))
    assert "needs a name, a call id" in await vetoed(checked, ToolsPreExecute(run_of(checked, call_id="")))
    stray = run_of(checked, parent=ToolToken("outer", "root"), root_call_id="other")
    assert 'root call id "other" differs from that of the calling execution, "root"' in await vetoed(
        checked, ToolsPreExecute(stray)
    )


async def test_b58e_a_broken_stage_is_an_error_result_of_that_call(checked: Stage) -> None:
    checked.tools.register(make())
    execution = checked.tools.start(ToolInput("c1", "echo", {}))
    await checked.root.waterfall(ToolsPreExecute(execution.run), lambda: None)  # type: ignore[arg-type, return-value]
    assert not await execution.prepare()
    assert code(await execution.commit()) == ("InvariantError", "INVARIANT")


@pytest.mark.parametrize(
    ("spoil", "problem"),
    [
        (lambda a: a.sections.append(PromptText("", 0, "x")), "an assembled section has no name"),
        (lambda a: a.sections.append(PromptText("harness:identity", 0, "x")), '"harness:identity" stands in the'),
        (lambda a: a.contexts.append(PromptText("c", 0, None)), 'the text of context "c" is no string'),
        (lambda a: a.tools.append({"name": ""}), "an assembled tool has no name"),
        (lambda a: a.tools.extend([{"name": "t"}, {"name": "t"}]), 'tool "t" stands in the assembly twice'),
        (lambda a: a.variables.update({"Bad": "x"}), "invalid prompt variable name 'Bad'"),
        (lambda a: a.variables.update(n=5), 'prompt variable "n" is neither text nor None'),
    ],
)
async def test_b58f_a_malformed_assembly_is_refused(
    checked: Stage, spoil: Callable[[Any], object], problem: str
) -> None:
    async def listen(event: SystemPromptAssemble, next: Callable[[], Any]) -> Assembly:
        answer: Assembly = await next()
        spoil(answer)
        return answer

    checked.root.on(SystemPromptAssemble, listen)
    with pytest.raises(InvariantError, match="dsh-system-prompt") as caught:
        await checked.prompt.assemble()
    assert problem in str(caught.value)


class Subject(Emit, name="test/subject", scoped_by="agent"):
    """Names its own scope."""

    agent: Any


async def test_b58g_an_event_is_routed_by_its_subject(checked: Stage) -> None:
    one, two = Agent("one"), Agent("two")
    checked.root.emit(Subject(one))
    checked.root.emit(Subject(one), scope=one)
    with pytest.raises(InvariantError, match="test/subject was dispatched for two, but its payload is about one"):
        checked.root.emit(Subject(one), scope=two)


async def test_b58h_without_a_companion_nothing_is_checked() -> None:
    async with Context() as root:
        root.emit(Subject(Agent()), scope=Agent())
