"""The tool calls of a step: what overlaps, what waits, and in which order results reach the log."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from dsh.cordis import ConfigError
from dsh.core.agent_events import AgentPreStep
from dsh.core.session_store import SessionAppended
from dsh.core.tools import (
    Accept,
    Deny,
    ToolResult,
    ToolRun,
    ToolsExecute,
    ToolsPostExecute,
    ToolsPreExecute,
    ToolsResult,
)
from dsh.llm.message import create_user_message
from tests.core.kit import Spine, of_type, spine, text_reply, tool_reply, types
from tests.core.test_loop_errors_cancel import balanced, end, veto
from tests.core.test_loop_turns import say, texts_of

ABORTED = {"name": "AbortError", "code": "ABORTED"}
SKIPPED = {"name": "AbortError", "code": "ABORTED_BEFORE_DISPATCH"}


async def until(condition: Callable[[], Any]) -> None:
    """Let the loop run until `condition` holds; the limit only guards against a hang."""
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0)


class Workshop:
    """Two tools, `safe` (may overlap) and `alone`; each call starts, waits until it is let go, and ends."""

    def __init__(self, s: Spine) -> None:
        self.events: list[str] = []
        self.open: set[str] = set()
        self.deaf = False
        self.most = 0
        self._running = 0
        self._changed = asyncio.Event()

        async def work(run: ToolRun) -> str:
            call = run.call_id
            self.events.append(f"start {call}")
            self._running += 1
            self.most = max(self.most, self._running)
            while not (call in self.open or "*" in self.open or (run.signal.aborted and not self.deaf)):
                self._changed.clear()
                undo = None if self.deaf else run.signal.on_abort(self._changed.set)
                await self._changed.wait()
                if undo is not None:
                    undo()
            self._running -= 1
            self.events.append(f"end {call}")
            return f"{call} done"

        s.tools.tool(name="safe", description="May overlap.", is_concurrency_safe=True)(work)
        s.tools.tool(name="alone", description="Runs alone.")(work)

    def let(self, *calls: str) -> None:
        """Let these calls end, ``*`` for all."""
        self.open.update(calls)
        self._changed.set()

    @property
    def started(self) -> list[str]:
        return [event.removeprefix("start ") for event in self.events if event.startswith("start")]

    async def until_started(self, *calls: str) -> None:
        await until(lambda: set(calls) <= set(self.started))


def reply(*calls: str) -> Any:
    """A reply that calls `safe` for ``s1, s2, …`` and `alone` for ``x1, x2, …``."""
    return tool_reply(*(("safe" if call.startswith("s") else "alone", "{}", call) for call in calls))


def results(session: Any) -> list[tuple[str, str]]:
    """Call id and text of every result, in log order."""
    blocks = [data["message"]["content"][0] for data in of_type(session, "tool/result")]
    return [(block["toolCallId"], block["content"][0]["text"]) for block in blocks]


def errors(session: Any) -> list[Any]:
    return [data.get("error") for data in of_type(session, "tool/result")]


async def test_b44_safe_calls_all_start_before_any_ends() -> None:
    async with spine([reply("s1", "s2", "s3"), text_reply("ok")]) as s:
        shop, agent = Workshop(s), s.agent()
        agent.followup(say("go"))
        await shop.until_started("s1", "s2", "s3")
        assert shop.events == ["start s1", "start s2", "start s3"]
        shop.let("*")
        await agent.when_idle()
        assert results(agent.session) == [("s1", "s1 done"), ("s2", "s2 done"), ("s3", "s3 done")]
        assert end(agent.session) == {"kind": "completed"}


async def test_b44_the_pool_holds_at_most_its_cap_and_is_refilled() -> None:
    async with spine([reply("s1", "s2", "s3", "s4"), text_reply("ok")], maxParallelToolCalls=2) as s:
        shop, agent = Workshop(s), s.agent()
        agent.followup(say("go"))
        await shop.until_started("s1", "s2")
        shop.let("s2")
        await shop.until_started("s3")
        assert "end s1" not in shop.events and "s4" not in shop.started
        shop.let("*")
        await agent.when_idle()
        assert shop.most == 2 and shop.started == ["s1", "s2", "s3", "s4"]


async def test_b44_a_cap_of_one_runs_safe_calls_one_after_another() -> None:
    async with spine([reply("s1", "s2"), text_reply("ok")], maxParallelToolCalls=1) as s:
        shop, agent = Workshop(s), s.agent()
        shop.let("*")
        agent.followup(say("go"))
        await agent.when_idle()
        assert shop.events == ["start s1", "end s1", "start s2", "end s2"]


async def test_b45_an_exclusive_call_splits_the_pool_into_groups() -> None:
    async with spine([reply("s1", "s2", "x1", "s3"), text_reply("ok")]) as s:
        shop, agent = Workshop(s), s.agent()
        agent.followup(say("go"))
        await shop.until_started("s1", "s2")
        shop.let("s1")
        await until(lambda: results(agent.session))
        assert "x1" not in shop.started
        shop.let("s2")
        await shop.until_started("x1")
        assert len(results(agent.session)) == 2 and "s3" not in shop.started
        shop.let("*")
        await agent.when_idle()
        assert shop.events[-4:] == ["start x1", "end x1", "start s3", "end s3"]


async def test_b46_results_and_post_execute_keep_the_order_of_the_model() -> None:
    async with spine([reply("s1", "s2", "s3"), text_reply("ok")]) as s:
        shop, agent = Workshop(s), s.agent()
        judged: list[str] = []

        async def judge(event: ToolsPostExecute, proceed: Any) -> Any:
            judged.append(event.exec.call_id)
            await proceed()
            return Accept(additional_contexts=[create_user_message(f"about {event.exec.call_id}")])

        s.root.on(ToolsPostExecute, judge)
        agent.followup(say("go"))
        await shop.until_started("s1", "s2", "s3")
        shop.let("s3")
        await until(lambda: "end s3" in shop.events)
        shop.let("s2")
        await until(lambda: "end s2" in shop.events)
        assert judged == [] and results(agent.session) == []
        shop.let("s1")
        await agent.when_idle()
        assert judged == ["s1", "s2", "s3"]
        assert [call for call, _ in results(agent.session)] == ["s1", "s2", "s3"]
        expected = ["go", "s1 done", "s2 done", "s3 done", "about s1", "about s2", "about s3", "ok"]
        assert texts_of(agent.session) == expected


async def test_b46_a_result_cites_its_call_and_a_head_commits_while_others_run() -> None:
    async with spine([reply("s1", "s2"), text_reply("ok")]) as s:
        shop, agent = Workshop(s), s.agent()
        agent.followup(say("go"))
        await shop.until_started("s1", "s2")
        shop.let("s1")
        await until(lambda: results(agent.session) == [("s1", "s1 done")])
        assert "end s2" not in shop.events
        shop.let("*")
        await agent.when_idle()
        calls = [event.seq for event in agent.session.events if event.type == "tool/call"]
        cited = [event.source_event_seqs for event in agent.session.events if event.type == "tool/result"]
        assert cited == [(seq,) for seq in calls]


async def test_b47_a_result_observer_can_make_the_next_call_exclusive() -> None:
    async with spine([reply("s1", "s2", "s3"), text_reply("ok")], maxParallelToolCalls=2) as s:
        shop, agent = Workshop(s), s.agent()
        safe = s.tools.get("safe")
        assert safe is not None

        def replace_tool(event: ToolsResult) -> None:
            if event.exec.call_id == "s1":
                # in the agent's own scope, so that it shadows the deployment's tool
                agent.ctx["tools"].register(replace(safe, is_concurrency_safe=None))

        s.root.on(ToolsResult, replace_tool)
        agent.followup(say("go"))
        await shop.until_started("s1", "s2")
        shop.let("s1")
        await until(lambda: results(agent.session))
        for _ in range(20):
            await asyncio.sleep(0)
        assert shop.started == ["s1", "s2"]
        shop.let("*")
        await agent.when_idle()
        assert shop.events.index("end s2") < shop.events.index("start s3")


async def test_b47_a_tool_replaced_behind_a_barrier_is_classified_anew() -> None:
    async with spine([reply("x1", "s1", "s2"), text_reply("ok")]) as s:
        shop, agent = Workshop(s), s.agent()
        safe = s.tools.get("safe")
        assert safe is not None
        s.root.on(
            ToolsResult,
            lambda e: (
                e.exec.call_id == "x1" and agent.ctx["tools"].register(replace(safe, is_concurrency_safe=None)) and None
            ),
        )
        shop.let("*")
        agent.followup(say("go"))
        await agent.when_idle()
        assert shop.events[2:] == ["start s1", "end s1", "start s2", "end s2"]


async def test_b48_policies_never_overlap_and_hold_back_the_next_start() -> None:
    async with spine([reply("s1", "s2"), text_reply("ok")]) as s:
        shop, agent = Workshop(s), s.agent()
        asked: list[str] = []
        go = asyncio.Event()

        async def policy(event: ToolsPreExecute, proceed: Any) -> Any:
            asked.append(event.exec.call_id)
            if event.exec.call_id == "s1":
                await go.wait()
            return await proceed()

        s.root.on(ToolsPreExecute, policy)
        agent.followup(say("go"))
        await until(lambda: asked)
        assert asked == ["s1"] and len(of_type(agent.session, "tool/call")) == 1
        go.set()
        await shop.until_started("s1", "s2")
        assert asked == ["s1", "s2"]
        shop.let("*")
        await agent.when_idle()


async def test_b48_denials_and_errors_without_a_body_keep_the_order() -> None:
    async with spine([reply("s1", "s2", "s3", "s4"), text_reply("ok")]) as s:
        shop, agent = Workshop(s), s.agent()

        async def policy(event: ToolsPreExecute, proceed: Any) -> Any:
            if event.exec.call_id == "s2":
                return Deny("not this one")
            if event.exec.call_id == "s3":
                raise RuntimeError("policy broke")
            return await proceed()

        s.root.on(ToolsPreExecute, policy)
        agent.followup(say("go"))
        await shop.until_started("s1", "s4")
        assert results(agent.session) == []
        shop.let("*")
        await agent.when_idle()
        assert results(agent.session) == [
            ("s1", "s1 done"),
            ("s2", "Error: not this one"),
            ("s3", "Error: policy broke"),
            ("s4", "s4 done"),
        ]


async def test_b49_an_abort_during_a_policy_commits_what_started_and_skips_the_rest() -> None:
    async with spine([reply("s1", "s2", "s3"), text_reply("later")]) as s:
        shop, agent = Workshop(s), s.agent()
        shop.deaf = True
        deciding = asyncio.Event()
        announced: list[str] = []

        async def policy(event: ToolsPreExecute, proceed: Any) -> Any:
            if event.exec.call_id == "s2":
                deciding.set()
                await event.exec.signal.wait()
            return await proceed()

        async def note(event: ToolsExecute, proceed: Any) -> Any:
            event.exec.defer_context(create_user_message(f"context of {event.exec.call_id}"))
            return await proceed()

        s.root.on(ToolsPreExecute, policy)
        s.root.on(ToolsExecute, note)
        s.root.on(ToolsResult, lambda e: announced.append(e.exec.call_id))
        agent.followup(say("go"))
        await deciding.wait()
        await shop.until_started("s1")
        agent.cancel({"kind": "user"})
        for _ in range(20):
            await asyncio.sleep(0)
        assert agent.status == "running" and results(agent.session) == []
        shop.let("s1")
        await agent.when_idle()
        assert results(agent.session) == [
            ("s1", "Error: tool call aborted"),
            ("s2", "Error: tool call aborted before dispatch"),
            ("s3", "Error: tool call aborted before dispatch"),
        ]
        assert errors(agent.session) == [ABORTED, SKIPPED, SKIPPED]
        assert announced == ["s1", "s2"]  # a call that never started is not announced
        assert end(agent.session) == {"kind": "aborted", "reason": {"kind": "user"}} and balanced(agent.session)
        assert [m["content"][0]["text"] for m in agent.inbox.next_step] == ["context of s1"]
        assert [d["turn"] for d in of_type(agent.session, "turn/start")] == [1]
        agent.followup(say("again"))
        await agent.when_idle()
        assert texts_of(agent.session)[-3:] == ["context of s1", "again", "later"]


async def test_b50_a_call_behind_an_aborted_pool_does_not_run() -> None:
    async with spine([reply("s1", "x1")]) as s:
        shop, agent = Workshop(s), s.agent()
        agent.followup(say("go"))
        await shop.until_started("s1")
        agent.cancel({"kind": "user"})
        await agent.when_idle()
        assert shop.events == ["start s1", "end s1"]
        assert errors(agent.session) == [ABORTED, SKIPPED]
        kinds = [kind for kind in types(agent.session) if kind.startswith("tool/")]
        assert kinds == ["tool/call", "tool/result", "tool/call", "tool/result"]


async def test_b50_an_aborted_step_answers_its_calls_with_skipped_pairs_only() -> None:
    async with spine([reply("s1", "x1")]) as s:
        shop, agent = Workshop(s), s.agent()
        announced: list[Any] = []
        s.root.on(ToolsResult, announced.append)
        s.root.on(
            SessionAppended, lambda e: e.event.type == "assistant/message" and agent.cancel({"kind": "user"}) and None
        )
        agent.followup(say("go"))
        await agent.when_idle()
        assert shop.events == [] and announced == []
        assert [text for _, text in results(agent.session)] == ["Error: tool call aborted before dispatch"] * 2
        assert balanced(agent.session)


async def test_b50_a_body_that_ignores_the_abort_is_still_awaited() -> None:
    async with spine([reply("s1")]) as s:
        shop, agent = Workshop(s), s.agent()
        shop.deaf = True
        agent.followup(say("go"))
        await shop.until_started("s1")
        agent.cancel({"kind": "user"})
        for _ in range(50):
            await asyncio.sleep(0)
        assert agent.status == "running" and "step/end" not in types(agent.session)
        shop.let("s1")
        await agent.when_idle()
        assert shop.events[-1] == "end s1" and errors(agent.session) == [ABORTED]


async def test_b51_a_refused_result_drains_the_bodies_and_raises_the_first_failure() -> None:
    async with spine([reply("s1", "s2", "s3"), text_reply("ok")], maxParallelToolCalls=2) as s:
        shop, agent = Workshop(s), s.agent()
        veto(s, "tool/result")
        agent.followup(say("go"))
        await shop.until_started("s1", "s2")
        shop.let("s1")
        for _ in range(20):
            await asyncio.sleep(0)
        assert agent.status == "running"  # s2 is still awaited
        shop.let("*")
        await agent.when_idle()
        assert shop.events == ["start s1", "start s2", "end s1", "end s2"]
        # No body's result is invented; what the model is told is what it is told after a crash.
        assert [error["code"] for error in errors(agent.session)] == [
            "TOOL_OUTCOME_UNKNOWN",
            "TOOL_OUTCOME_UNKNOWN",
            "TOOL_NOT_STARTED",
        ]
        assert end(agent.session) == {"kind": "error", "error": {"message": "no tool/result", "code": "UNKNOWN"}}
        assert balanced(agent.session)


async def test_b51_a_refused_call_starts_nothing_more() -> None:
    async with spine([reply("s1", "s2")]) as s:
        shop, agent = Workshop(s), s.agent()
        shop.let("*")
        veto(s, "tool/call")
        agent.followup(say("go"))
        await agent.when_idle()
        assert shop.events == [] and end(agent.session)["error"]["message"] == "no tool/call"


@pytest.mark.parametrize("cap", [0, -1, 1.5, True, "3x"])
async def test_b52_a_cap_that_is_no_positive_integer_is_refused(cap: Any) -> None:
    with pytest.raises(ConfigError, match="maxParallelToolCalls"):
        async with spine(maxParallelToolCalls=cap):
            pass


async def test_b52_a_changed_cap_counts_from_the_next_group_on() -> None:
    async with spine([reply("s1", "s2", "x1", "s3", "s4"), text_reply("ok")], maxParallelToolCalls=1) as s:
        shop, agent = Workshop(s), s.agent()
        agent.followup(say("go"))
        await shop.until_started("s1")
        await s.loop.ctx.fiber.update({"maxParallelToolCalls": 2})
        assert s.root["agentLoop"] is not None and s.agents.get("a") is agent
        shop.let("s1")
        await shop.until_started("s2")
        assert shop.most == 1
        shop.let("s2", "x1")
        await shop.until_started("s3", "s4")
        shop.let("*")
        await agent.when_idle()
        assert shop.most == 2


async def test_b53_arguments_that_are_no_json_are_answered_and_the_turn_goes_on() -> None:
    async with spine([tool_reply(("echo", "{oops", "bad"), ("echo", "", "empty")), text_reply("ok")]) as s:
        seen: list[Any] = []

        @s.tools.tool
        async def echo(run: ToolRun, x: int = 7) -> str:
            """Echo."""
            seen.append(run.arguments)
            return str(x)

        agent = s.agent()
        agent.followup(say("go"))
        await agent.when_idle()
        assert errors(agent.session)[0]["code"] == "INVALID_ARGS"
        assert results(agent.session)[1] == ("empty", "7") and seen == [{}]
        assert [d["arguments"] for d in of_type(agent.session, "tool/call")] == ["{oops", ""]
        assert end(agent.session) == {"kind": "completed"}


async def test_a_tool_that_leaves_while_its_body_runs_finishes_and_the_next_call_is_unknown() -> None:
    async with spine([reply("x1", "x2"), text_reply("ok")]) as s:
        Workshop(s)
        release = asyncio.Event()
        started = asyncio.Event()

        async def late(run: ToolRun) -> str:
            started.set()
            await release.wait()
            return "old generation"

        def plugin(ctx: Any) -> None:
            ctx["tools"].tool(name="late", description="Comes and goes.")(late)

        plugin.inject = ["tools"]  # type: ignore[attr-defined]
        fiber = await s.root.plugin(plugin)
        s.model.script[0] = tool_reply(("late", "{}", "l1"), ("late", "{}", "l2"))
        agent = s.agent()
        agent.followup(say("go"))
        await started.wait()
        await fiber.dispose()
        release.set()
        await agent.when_idle()
        assert results(agent.session)[0] == ("l1", "old generation")
        assert errors(agent.session)[1]["code"] == "UNKNOWN_TOOL"


async def test_contexts_of_an_answer_without_a_body_are_delivered_too() -> None:
    async with spine([reply("s1"), text_reply("ok")]) as s:
        Workshop(s)

        async def answer(event: ToolsExecute, proceed: Any) -> Any:
            return ToolResult(False, (), "cached", additional_contexts=(create_user_message("from the cache"),))

        s.root.on(ToolsExecute, answer)
        agent = s.agent()
        agent.followup(say("go"))
        await agent.when_idle()
        assert texts_of(agent.session) == ["go", "cached", "from the cache", "ok"]


async def test_a_failure_without_words_shows_its_class_to_the_model_and_in_the_log() -> None:
    async with spine([tool_reply(("fails", "{}")), text_reply("ok")]) as s:

        @s.tools.tool
        async def fails() -> str:
            """Fails."""
            raise TimeoutError

        agent = s.agent()
        agent.followup(say("go"))
        await agent.when_idle()
        assert texts_of(agent.session) == ["go", "Error: TimeoutError", "ok"]

        async def wordless(event: AgentPreStep, proceed: Any) -> Any:
            raise ValueError

        s.root.on(AgentPreStep, wordless)
        agent.followup(say("again"))
        await agent.when_idle()
        assert end(agent.session) == {"kind": "error", "error": {"message": "ValueError", "code": "UNKNOWN"}}
