"""What failures and cancels leave behind: balanced logs, parked input, the first cause."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dsh.cordis import AbortSignal, HarnessError
from dsh.core.agent_events import AgentError, AgentPreStep, AgentRequestError, AgentStatus, AgentTurnStopping
from dsh.core.session_store import SessionAppended
from dsh.core.system_prompt import SystemPromptAssemble
from dsh.llm.message import create_user_message
from dsh.llm.service import LlmStream
from tests.core.kit import error_reply, of_type, reasoning_reply, spine, text_reply, tool_reply, types
from tests.core.test_loop_turns import add_tool, say, texts_of


def veto(s: Any, kind: str, *, times: int = 1) -> None:
    """Refuse the next ``times`` appends of one event type."""
    left = times

    def check(event: Any) -> None:
        nonlocal left
        payload = event.payload
        if left and isinstance(payload, SessionAppended) and payload.event.type == kind:
            left -= 1
            raise RuntimeError(f"no {kind}")

    s.root.on("internal/dispatch", check)


def on_event(s: Any, kind: str, action: Any) -> None:
    s.root.on(SessionAppended, lambda e: action(e) if e.event.type == kind else None)


def balanced(session: Any) -> bool:
    kinds = types(session)
    return kinds.count("turn/start") == kinds.count("turn/end") and kinds.count("step/start") == kinds.count("step/end")


def end(session: Any, index: int = -1) -> Any:
    return of_type(session, "turn/end")[index]["reason"]


# -- errors -------------------------------------------------------------------------------------------------------


async def test_b18_a_provider_failure_ends_the_turn_with_its_fields() -> None:
    failure = {"status": 503, "providerRetryAfterMs": 5, "requestId": "r1"}
    async with spine([error_reply("down", "SERVER", **failure), error_reply("stop", "ABORTED", "aborted")]) as s:
        agent = s.agent()
        errors: list[AgentError] = []
        s.root.on(AgentError, errors.append)
        agent.followup(say("a"))
        await agent.when_idle()
        assert end(agent.session) == {"kind": "error", "error": {"message": "down", "code": "SERVER", **failure}}
        assert len(errors) == 1
        agent.followup(say("b"))
        await agent.when_idle()
        assert end(agent.session)["error"] == {"message": "stop", "code": "ABORTED"}


async def test_b19_two_retries_stay_in_one_step_and_only_the_last_attempt_is_cited() -> None:
    partial = [
        {"type": "block-start", "index": 0, "blockType": "text"},
        {"type": "text-delta", "index": 0, "text": "x"},
    ]
    async with spine([partial + error_reply(), partial + error_reply(), text_reply("ok")]) as s:
        agent = s.agent()
        seen: list[str] = []

        async def retry(event: AgentRequestError, proceed: Any) -> Any:
            seen.append(event.failure.code)
            return "retry"

        s.root.on(AgentRequestError, retry)
        agent.followup(say("a"))
        await agent.when_idle()
        assert seen == ["SERVER", "SERVER"]
        assert len(of_type(agent.session, "step/start")) == 1
        assert len(s.model.requests) == 3
        reply = next(e for e in agent.session.events if e.type == "assistant/message")
        chunks = [e.seq for e in agent.session.events if e.type == "assistant/chunk"]
        assert list(reply.source_event_seqs) == chunks[-len(text_reply("ok")) :]
        assert texts_of(agent.session) == ["a", "ok"]


async def test_b20_a_retry_sees_history_that_was_replaced_meanwhile() -> None:
    async with spine([error_reply("too long", "CONTEXT_WINDOW_EXCEEDED"), text_reply("ok")]) as s:
        agent = s.agent()

        async def compact(event: AgentRequestError, proceed: Any) -> Any:
            session = event.agent.session
            node = session.surface.nodes[0]
            short = create_user_message("short", {"kind": "plugin", "plugin": "compact"})
            session.append("user/message", short, {"op": "replace", "start": node, "end": node}, [node])
            return "retry"

        s.root.on(AgentRequestError, compact)
        agent.followup(say("a very long prompt"))
        await agent.when_idle()
        assert [m["content"][0]["text"] for m in s.model.requests[1].messages] == ["short"]


async def test_b21_raising_middleware_is_not_offered_to_recovery() -> None:
    async with spine([text_reply("x")]) as s:
        agent = s.agent()
        offered: list[Any] = []

        async def recover(event: AgentRequestError, proceed: Any) -> Any:
            offered.append(event)
            return "retry"

        def broken(event: LlmStream, proceed: Any) -> Any:
            raise RuntimeError("middleware")

        s.root.on(AgentRequestError, recover)
        s.root.on(LlmStream, broken)
        agent.followup(say("a"))
        await agent.when_idle()
        assert offered == []
        assert end(agent.session)["error"] == {"message": "middleware", "code": "UNKNOWN"}


async def test_b21_a_raising_recovery_listener_means_no_retry() -> None:
    async with spine([error_reply(), text_reply("x")]) as s:
        agent = s.agent()

        async def recover(event: AgentRequestError, proceed: Any) -> Any:
            raise RuntimeError("cannot recover")

        s.root.on(AgentRequestError, recover)
        agent.followup(say("a"))
        await agent.when_idle()
        assert len(s.model.requests) == 1
        assert end(agent.session)["error"]["message"] == "cannot recover"


async def test_b21_cancel_during_recovery_leaves_no_anchor() -> None:
    partial = [
        {"type": "block-start", "index": 0, "blockType": "text"},
        {"type": "text-delta", "index": 0, "text": "x"},
    ]
    async with spine([partial + error_reply(), text_reply("x")]) as s:
        agent = s.agent()

        async def recover(event: AgentRequestError, proceed: Any) -> Any:
            event.agent.cancel({"kind": "user"})
            return "retry"

        s.root.on(AgentRequestError, recover)
        agent.followup(say("a"))
        await agent.when_idle()
        assert end(agent.session) == {"kind": "aborted", "reason": {"kind": "user"}}
        assert of_type(agent.session, "assistant/message") == []
        assert balanced(agent.session)


@pytest.mark.parametrize("kind", ["turn/start", "step/start", "step/end", "turn/end"])
async def test_b22_raising_observers_change_nothing(kind: str) -> None:
    async with spine([text_reply("ok")]) as s:
        agent = s.agent()
        on_event(s, kind, lambda e: 1 / 0)
        s.root.on(AgentStatus, lambda e: 1 / 0)
        s.root.on(AgentError, lambda e: 1 / 0)
        agent.followup(say("a"))
        await agent.when_idle()
        assert end(agent.session) == {"kind": "completed"}
        assert balanced(agent.session)


async def test_b23_a_refused_turn_start_leaves_the_message_pending() -> None:
    async with spine([text_reply("ok")]) as s:
        agent = s.agent()
        veto(s, "turn/start")
        errors: list[AgentError] = []
        s.root.on(AgentError, errors.append)
        agent.followup(say("a"))
        assert agent.status == "idle"
        assert "turn/start" not in types(agent.session)
        assert len(agent.inbox.next_turn) == 1 and len(errors) == 1
        agent.steer(say("wake"))
        await agent.when_idle()
        assert texts_of(agent.session) == ["wake", "a", "ok"]


async def test_b23_a_refused_chunk_is_an_error_turn() -> None:
    async with spine([text_reply("ok")]) as s:
        agent = s.agent()
        veto(s, "assistant/chunk")
        agent.followup(say("a"))
        await agent.when_idle()
        assert end(agent.session)["kind"] == "error"
        assert balanced(agent.session)


async def test_b24_without_a_route_the_turn_fails_and_a_listener_can_supply_one() -> None:
    from dataclasses import replace

    from dsh.core.agent_events import AgentRequest

    async with spine([text_reply("ok")]) as s:
        agent = s.agent(provider=None, model=None)
        agent.followup(say("a"))
        await agent.when_idle()
        assert end(agent.session)["error"]["message"] == (
            'agent "a" has no provider/model: set AgentOptions.provider and AgentOptions.model '
            "or supply both via the agent/request waterfall"
        )

        async def route(event: AgentRequest, proceed: Any) -> Any:
            return replace(await proceed(), provider="test", model="m")

        s.root.on(AgentRequest, route)
        agent.followup(say("b"))
        await agent.when_idle()
        assert end(agent.session) == {"kind": "completed"}


# -- cancel -------------------------------------------------------------------------------------------------------


async def test_b25_cancelling_an_idle_agent_does_nothing() -> None:
    async with spine([text_reply("ok")]) as s:
        agent = s.agent()
        agent.inject(say("parked"))
        before = len(agent.session.events)
        agent.cancel({"kind": "user"})
        assert len(agent.session.events) == before
        agent.followup(say("a"))
        await agent.when_idle()
        assert texts_of(agent.session) == ["parked", "a", "ok"]


async def test_b26_send_then_cancel_in_one_tick_ends_without_a_step() -> None:
    async with spine([text_reply("ok")]) as s:
        agent = s.agent()
        agent.followup(say("a"))
        agent.cancel({"kind": "user"})
        await agent.when_idle()
        assert end(agent.session) == {"kind": "aborted", "reason": {"kind": "user"}}
        assert "step/start" not in types(agent.session) and balanced(agent.session)
        assert not agent.inbox.has_pending
        agent.followup(say("b"))
        agent.cancel({"kind": "user"}, keep_inbox=True)
        await agent.when_idle()
        assert [m["content"][0]["text"] for m in agent.inbox.next_turn] == ["b"]
        assert s.model.requests == []
        agent.steer(say("wake"))
        await agent.when_idle()
        assert texts_of(agent.session) == ["wake", "b", "ok"]


async def test_b27_cancel_mid_stream_commits_what_arrived() -> None:
    async with spine(["hang"]) as s:
        agent = s.agent()
        agent.followup(say("a"))
        await s.model.hanging.wait()
        agent.cancel({"kind": "user"})
        await agent.when_idle()
        reply = next(e for e in agent.session.events if e.type == "assistant/message")
        assert reply.data["interrupted"] is True
        assert reply.data["message"]["content"] == [{"type": "text", "text": "partial"}]
        chunks = [e.seq for e in agent.session.events if e.type == "assistant/chunk"]
        assert list(reply.source_event_seqs) == chunks
        assert end(agent.session) == {"kind": "aborted", "reason": {"kind": "user"}}
        assert balanced(agent.session)


@pytest.mark.parametrize(
    ("chunks", "kept"),
    [
        (reasoning_reply("thought", "x")[:2], [{"type": "reasoning", "text": "thought"}]),
        (tool_reply(("work", '{"x": '))[:2], None),
        (
            [
                {"type": "block-start", "index": 0, "blockType": "text"},
                {"type": "text-delta", "index": 0, "text": "  \n"},
            ],
            None,
        ),
    ],
    ids=["reasoning", "half-tool-call", "blank"],
)
async def test_b27_what_an_interrupted_reply_keeps(chunks: Any, kept: Any) -> None:
    async with spine([(chunks, "hang")]) as s:
        agent = s.agent()
        agent.followup(say("a"))
        await s.model.hanging.wait()
        agent.cancel({"kind": "user"})
        await agent.when_idle()
        replies = of_type(agent.session, "assistant/message")
        assert (replies[0]["message"]["content"] if replies else None) == kept
        assert of_type(agent.session, "tool/call") == []


async def test_b28_queued_prompts_survive_a_cancel_only_with_keep_inbox() -> None:
    async with spine(["hang", "hang"]) as s:
        agent = s.agent()
        agent.followup(say("a"))
        agent.followup(say("b"))
        await s.model.hanging.wait()
        agent.cancel({"kind": "user"}, keep_inbox=True)
        await agent.when_idle()
        assert [m["content"][0]["text"] for m in agent.inbox.next_turn] == ["b"]
        s.model.hanging.clear()
        agent.followup(say("c"))
        await s.model.hanging.wait()
        agent.cancel({"kind": "user"})
        await agent.when_idle()
        assert not agent.inbox.has_pending
        assert of_type(agent.session, "agent/inbox/spliced")[-1]["outcome"] == "canceled"


async def test_b29_a_waking_send_between_abort_and_idle_runs_after_convergence() -> None:
    async with spine(["hang-slow", text_reply("ok"), "hang-slow", "hang-slow"]) as s:
        agent = s.agent()
        agent.followup(say("a"))
        await s.model.hanging.wait()
        agent.cancel({"kind": "user"})
        agent.steer(say("late"))
        assert [m["content"][0]["text"] for m in agent.inbox.next_turn] == ["late"]
        await agent.when_idle()
        assert texts_of(agent.session)[-2:] == ["late", "ok"]
        # a plain cancel clears the latch, and so does removing the message
        s.model.hanging.clear()
        agent.followup(say("b"))
        await s.model.hanging.wait()
        agent.cancel({"kind": "user"})
        agent.steer(say("late 2"))
        agent.cancel({"kind": "user"})
        await agent.when_idle()
        assert not agent.inbox.has_pending
        s.model.hanging.clear()
        agent.followup(say("c"))
        await s.model.hanging.wait()
        agent.cancel({"kind": "user"})
        late = say("late 3")
        agent.steer(late)
        assert agent.inbox.remove(late["id"])
        await agent.when_idle()
        assert agent.status == "idle" and len(s.model.requests) == 4


async def test_b30_the_first_cause_wins() -> None:
    async with spine(["hang-slow"]) as s:
        agent = s.agent()
        agent.followup(say("a"))
        await s.model.hanging.wait()
        agent.cancel({"kind": "user"})
        agent.cancel({"kind": "disposed"})
        await agent.when_idle()
        assert end(agent.session) == {"kind": "aborted", "reason": {"kind": "user"}}


async def test_b31_cancel_from_the_running_status_listener_means_no_turn_at_all() -> None:
    async with spine() as s:
        agent = s.agent()
        s.root.on(AgentStatus, lambda e: e.status == "running" and e.agent.cancel({"kind": "user"}))
        agent.followup(say("a"))
        await agent.when_idle()
        assert "turn/start" not in types(agent.session)
        assert agent.status == "idle"


async def test_b31_cancel_from_a_reply_observer_gives_tools_their_skipped_pairs() -> None:
    async with spine([tool_reply(("work", "{}"), ("work", "{}"))]) as s:
        add_tool(s, "work")
        agent = s.agent()
        on_event(s, "assistant/message", lambda e: agent.cancel({"kind": "user"}))
        agent.followup(say("a"))
        await agent.when_idle()
        results = of_type(agent.session, "tool/result")
        assert [r["error"] for r in results] == [{"name": "AbortError", "code": "ABORTED_BEFORE_DISPATCH"}] * 2
        assert end(agent.session)["kind"] == "aborted" and balanced(agent.session)


async def test_b31_cancel_from_a_step_start_observer_sends_no_request() -> None:
    async with spine([text_reply("x")]) as s:
        agent = s.agent()
        on_event(s, "step/start", lambda e: agent.cancel({"kind": "user"}))
        agent.followup(say("a"))
        await agent.when_idle()
        assert s.model.requests == []
        assert end(agent.session)["kind"] == "aborted" and balanced(agent.session)


async def test_b31_cancel_during_turn_stopping_aborts() -> None:
    async with spine([text_reply("x")]) as s:
        agent = s.agent()
        s.root.on(AgentTurnStopping, lambda e: e.agent.cancel({"kind": "user"}))
        agent.followup(say("a"))
        await agent.when_idle()
        assert end(agent.session)["kind"] == "aborted" and balanced(agent.session)


@pytest.mark.parametrize("event_class", [SystemPromptAssemble, AgentPreStep])
async def test_b32_b33_cancel_during_assembly_or_pre_step_aborts_without_a_step(event_class: Any) -> None:
    async with spine([text_reply("x")]) as s:
        agent = s.agent()
        waiting = asyncio.Event()

        async def slow(event: Any, proceed: Any) -> Any:
            waiting.set()
            await asyncio.sleep(0.01)
            return await proceed()

        s.root.on(event_class, slow)
        agent.followup(say("a"))
        idle = asyncio.create_task(agent.when_idle())
        await waiting.wait()
        agent.cancel({"kind": "user"})
        await asyncio.wait_for(idle, 5)
        assert end(agent.session) == {"kind": "aborted", "reason": {"kind": "user"}}
        assert "step/start" not in types(agent.session)
        assert s.model.requests == []


async def test_b34_maintenance_is_exclusive_and_latches_a_wake() -> None:
    async with spine([text_reply("ok")]) as s:
        agent = s.agent()
        go = asyncio.Event()

        async def job(signal: AbortSignal) -> str:
            await go.wait()
            return "done"

        running = agent.run_maintenance(job)
        assert agent.status == "idle"
        with pytest.raises(HarnessError, match='agent "a" already has active work'):
            agent.run_maintenance(job)
        agent.followup(say("a"))
        assert "turn/start" not in types(agent.session)
        go.set()
        assert await running == "done"
        await agent.when_idle()
        assert texts_of(agent.session) == ["a", "ok"]


async def test_b34b_a_prompt_sent_to_a_stopping_turn_runs_after_the_maintenance_that_its_end_brings() -> None:
    async with spine(["hang", text_reply("ok")]) as s:
        agent = s.agent()
        jobs: list[Any] = []

        def maintain(event: AgentStatus) -> None:
            if event.status == "idle" and not jobs:
                jobs.append(agent.run_maintenance(lambda _: asyncio.sleep(0, "done")))

        s.root.on(AgentStatus, maintain)
        agent.followup(say("a"))
        await s.model.hanging.wait()
        agent.cancel({"kind": "user"}, keep_inbox=True)
        agent.followup(say("b"))
        await agent.when_idle()
        assert await jobs[0] == "done"
        await agent.when_idle()
        assert texts_of(agent.session)[-2:] == ["b", "ok"]


async def test_b34_cancelling_maintenance_clears_latch_and_inbox() -> None:
    async with spine() as s:
        agent = s.agent()

        async def job(signal: AbortSignal) -> None:
            await signal.wait()

        running = agent.run_maintenance(job)
        agent.followup(say("a"))
        agent.cancel({"kind": "user"})
        await running
        await agent.when_idle()
        assert not agent.inbox.has_pending and "turn/start" not in types(agent.session)
