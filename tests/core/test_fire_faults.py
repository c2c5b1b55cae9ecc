"""Faults that trials by fire have found in the loop, each kept as a test."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dsh.core.session_store import SessionAppended
from dsh.core.tools import ToolRun, ToolsPostExecute, ToolsPreExecute, ToolsResult
from tests.core.kit import of_type, spine, text_reply, tool_reply, types
from tests.core.test_loop_turns import say
from tests.fire.judge import judge_log, judge_messages, wire

ENDS = [GeneratorExit, KeyboardInterrupt, SystemExit, asyncio.CancelledError]


def results(session: Any) -> list[str]:
    blocks = [data["message"]["content"][0] for data in of_type(session, "tool/result")]
    return [block["content"][0]["text"] for block in blocks]


async def settle(s: Any, agent: Any) -> None:
    """The turn ends, the log is closed, and the next request is one that a provider would take."""
    async with asyncio.timeout(10):
        await agent.when_idle()
        judge_log(wire(agent.session.events))
        s.model.script[:] = [text_reply("fine")] * 2
        agent.followup(say("next"))
        await agent.when_idle()
    judge_log(wire(agent.session.events))
    judge_messages(s.model.requests[-1].messages)
    assert of_type(agent.session, "turn/end")[-1]["reason"] == {"kind": "completed"}


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("late", [False, True])
async def test_whatever_a_tool_body_raises_is_its_result(end: type[BaseException], late: bool) -> None:
    async with spine([tool_reply(("ending", "{}", "e1"), ("fine", "{}", "f1")), text_reply("ok")]) as s:

        async def ending() -> str:
            if late:
                await asyncio.sleep(0)
            raise end

        async def fine() -> str:
            return "fine"

        for body in (ending, fine):
            s.tools.tool(name=body.__name__, description="A tool.", is_concurrency_safe=True)(body)
        agent = s.agent()
        agent.followup(say("go"))
        async with asyncio.timeout(10):
            await agent.when_idle()
        assert results(agent.session) == [f"Error: {end.__name__}", "fine"]
        assert of_type(agent.session, "turn/end") == [{"turn": 1, "reason": {"kind": "completed"}}]
        await settle(s, agent)


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("where", ["sync body", "policy", "post", "observer", "finalizer"])
async def test_an_exit_around_a_tool_takes_no_result_with_it(end: type[BaseException], where: str) -> None:
    async with spine([tool_reply(("work", "{}", "w1")), text_reply("ok")]) as s:

        def fail(*_: Any) -> Any:
            raise end

        def work(run: ToolRun) -> str:
            return fail() if where == "sync body" else "worked"

        extra: Any = {"finalize_content": fail} if where == "finalizer" else {}
        s.tools.tool(name="work", description="A tool.", **extra)(work)
        events: dict[str, Any] = {"policy": ToolsPreExecute, "post": ToolsPostExecute, "observer": ToolsResult}
        if where in events:
            s.root.on(events[where], fail)
        agent = s.agent()
        agent.followup(say("go"))
        async with asyncio.timeout(10):
            await agent.when_idle()
        assert results(agent.session) == ["worked" if where == "observer" else f"Error: {end.__name__}"]
        await settle(s, agent)


async def test_a_result_that_the_log_refused_once_does_not_spoil_the_session() -> None:
    async with spine([tool_reply(("work", "{}", "w1"), ("work", "{}", "w2")), text_reply("ok")]) as s:

        def work() -> str:
            return "worked"

        s.tools.tool(name="work", description="A tool.")(work)
        refused: list[str] = []

        def refuse(dispatch: Any) -> None:
            event = dispatch.payload
            if isinstance(event, SessionAppended) and event.event.type == "tool/result" and not refused:
                refused.append(event.event.type)
                raise RuntimeError("not now")

        s.root.on("internal/dispatch", refuse, global_=True)
        agent = s.agent()
        agent.followup(say("go"))
        await settle(s, agent)
        codes = [data["error"]["code"] for data in of_type(agent.session, "tool/result")]
        assert codes == ["TOOL_OUTCOME_UNKNOWN", "TOOL_NOT_STARTED"]


async def test_a_driver_cancelled_before_its_first_step_closes_its_turn() -> None:
    async with spine() as s:
        agent = s.agent()
        agent.followup(say("go"))
        (driver,) = [task for task in asyncio.all_tasks() if task.get_name() == "agent a"]
        driver.cancel()
        async with asyncio.timeout(10):
            await agent.when_idle()
        assert types(agent.session)[-1] == "turn/end" and agent.status == "idle"
        assert len(agent.inbox.next_turn) == 1  # the prompt waits for the next wake
        await settle(s, agent)


async def test_a_driver_cancelled_during_a_tool_stops_the_body_and_answers_the_call() -> None:
    async with spine([tool_reply(("long", "{}", "l1"))]) as s:
        started = asyncio.Event()

        async def long(run: ToolRun) -> str:
            started.set()
            await run.signal.wait()
            return "stopped"

        s.tools.tool(name="long", description="A tool.")(long)
        agent = s.agent()
        agent.followup(say("go"))
        async with asyncio.timeout(10):
            await started.wait()
            (driver,) = [task for task in asyncio.all_tasks() if task.get_name() == "agent a"]
            driver.cancel()
            await agent.when_idle()
        assert len(results(agent.session)) == 1
        await settle(s, agent)


async def test_a_driver_cancelled_again_while_a_body_stops_still_waits_for_it() -> None:
    async with spine([tool_reply(("long", "{}", "l1"))]) as s:
        started, stopping, may_stop = asyncio.Event(), asyncio.Event(), asyncio.Event()
        at_end: list[bool] = []

        async def long(run: ToolRun) -> str:
            started.set()
            await run.signal.wait()
            stopping.set()
            await may_stop.wait()
            return "stopped"

        def appended(happened: SessionAppended) -> None:
            if happened.event.type == "step/end":
                at_end.append(may_stop.is_set())

        s.tools.tool(name="long", description="A tool.")(long)
        s.root.on(SessionAppended, appended, global_=True)
        agent = s.agent()
        agent.followup(say("go"))
        async with asyncio.timeout(10):
            await started.wait()
            (driver,) = [task for task in asyncio.all_tasks() if task.get_name() == "agent a"]
            driver.cancel()
            await stopping.wait()
            driver.cancel()
            for _ in range(20):
                await asyncio.sleep(0)
            may_stop.set()
            await agent.when_idle()
        assert at_end == [True]
        await settle(s, agent)
