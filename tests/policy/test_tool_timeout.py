"""Calls that take longer than their tool allows."""

from __future__ import annotations

import asyncio
from typing import Any

import dsh.policy.tool_timeout
from dsh.cordis import AbortController, AbortError, Context
from dsh.core.tools import Output, ToolRun, Tools, ToolsExecute, define_tool, text
from dsh.llm.message import create_user_message
from dsh.testing import FakeClock, run_plugin
from tests.files.helpers import call, code, root_with_tools, told

ROW = (dsh.policy.tool_timeout, {})


def add(ctx: Context, body: Any, timeout_ms: float | None = 50) -> None:
    tools = ctx.get(Tools)
    assert tools is not None
    tools.register(
        define_tool(
            "slow",
            "Wait.",
            {},
            Output(schema={"type": "string"}, render=lambda _args, value: [text(value)]),
            body,
            timeout_ms=timeout_ms,
        )
    )


async def until_told(_args: Any, run: ToolRun) -> str:
    await run.signal.wait()
    raise AbortError("stopped")


async def test_b12a_a_body_that_stops_when_told_timed_out() -> None:
    async with root_with_tools(ROW) as root:
        add(root, until_told)
        result = await call(root, "slow", {})
        assert told(result) == "Error: tool call timed out after 50ms"
        assert code(result) == ("ToolTimeoutError", "TOOL_TIMEOUT")


async def test_b12b_a_body_that_goes_on_is_waited_for_and_timed_out() -> None:
    finished = []

    async def deaf(_args: Any, run: ToolRun) -> str:
        run.defer_context(create_user_message("kept"))
        await run.signal.wait()
        await asyncio.sleep(0.02)
        finished.append(True)
        return "late"

    async with root_with_tools(ROW) as root:
        add(root, deaf)
        result = await call(root, "slow", {})
        assert told(result) == "Error: tool call timed out after 50ms"
        assert finished == [True]
        assert len(result.additional_contexts) == 1


async def test_b12c_a_caller_that_aborts_first_stays_the_cause() -> None:
    controller = AbortController()
    started = asyncio.Event()

    async def body(_args: Any, run: ToolRun) -> str:
        started.set()
        await run.signal.wait()
        await asyncio.sleep(1)  # the time limit passes meanwhile
        return "done"

    clock = FakeClock()
    async with run_plugin(dsh.policy.tool_timeout, clock=clock, parts=[Tools]) as run:
        add(run.ctx, body)
        task = asyncio.ensure_future(run.call("slow", signal=controller.signal))
        await started.wait()
        controller.abort()
        await clock.advance(1)
        result = await task
        assert (told(result), code(result)) == ("Error: tool call aborted", ("AbortError", "ABORTED"))


async def test_b12d_in_time_nothing_changes_and_the_signal_is_restored() -> None:
    seen: list[Any] = []

    async def body(_args: Any, run: ToolRun) -> str:
        seen.append(run.signal)
        return "quick"

    async with root_with_tools() as root:

        @root.on(ToolsExecute)
        async def outside(event: ToolsExecute, next: Any) -> Any:
            before = event.exec.signal
            result = await next()
            assert event.exec.signal is before
            seen.append(before)
            return result

        await root.plugin(dsh.policy.tool_timeout, {})
        add(root, body, 60_000)
        result = await call(root, "slow", {})
        assert told(result) == "quick"
        assert seen[0] is not seen[1] and not seen[0].aborted


async def test_b12e_a_tool_without_a_limit_and_an_unknown_one_are_left_alone() -> None:
    async with root_with_tools(ROW) as root:
        add(root, lambda _args, run: "any time", None)
        assert told(await call(root, "slow", {})) == "any time"
        assert code(await call(root, "nothing", {})) == ("ToolNotFoundError", "UNKNOWN_TOOL")


async def test_b12f_a_failure_in_time_keeps_its_own_text() -> None:
    def fail(_args: Any, _run: ToolRun) -> str:
        raise ValueError("own failure")

    async with root_with_tools(ROW) as root:
        add(root, fail)
        assert told(await call(root, "slow", {})) == "Error: own failure"
