"""Turns and steps: what is appended when, and what keeps a turn going."""

from __future__ import annotations

from typing import Any

import pytest

from dsh.cordis import HarnessError
from dsh.core.agent_events import (
    AgentError,
    AgentPreStep,
    AgentStatus,
    AgentTurnStopping,
    Enter,
    InboxDiscarded,
    Reject,
)
from dsh.core.session_store import SessionAppended
from dsh.core.system_prompt import SystemPromptAssemble
from dsh.core.tools import ToolRun
from dsh.llm.message import create_user_message
from tests.core.kit import Spine, of_type, spine, text_reply, tool_reply, types


def say(text: str) -> Any:
    return create_user_message(text)


def texts_of(session: Any) -> list[str]:
    """The text of every message in the model's view, results as their text."""
    found = []
    for message in session.derive_messages():
        for block in message["content"]:
            inner = block["content"] if block["type"] == "tool-result" else [block]
            found += [one["text"] for one in inner if one["type"] == "text"]
    return found


def add_tool(s: Spine, name: str, body: Any = None) -> None:
    async def run(x: int = 0) -> str:
        if body is not None:
            await body()
        return f"{name} done"

    run.__name__ = name
    run.__doc__ = f"Run {name}."
    s.tools.tool(run)


async def test_b01_a_followup_runs_one_turn_in_the_normative_order() -> None:
    async with spine([text_reply("hello")]) as s:
        agent = s.agent()
        seen: list[str] = []
        s.root.on(AgentStatus, lambda e: seen.append(e.status))
        agent.followup(say("hi"))
        await agent.when_idle()
        assert types(agent.session) == [
            "agent/inbox/spliced",
            "turn/start",
            "agent/inbox/spliced",
            "step/start",
            "user/message",
            "request/header",
            "request/context",
            "assistant/message",
            "step/end",
            "turn/end",
        ]
        assert seen == ["running", "idle"]
        assert of_type(agent.session, "turn/end") == [{"turn": 1, "reason": {"kind": "completed"}}]
        chunks = [e.seq for e in agent.session.events if e.type == "assistant/chunk"]
        reply = next(e for e in agent.session.events if e.type == "assistant/message")
        assert list(reply.source_event_seqs or ()) == chunks


async def test_b02_steering_an_idle_agent_opens_the_turn_before_it_returns() -> None:
    async with spine([text_reply("ok")]) as s:
        agent = s.agent()
        agent.steer(say("go"))
        assert agent.status == "running"
        assert types(agent.session) == ["agent/inbox/spliced", "turn/start", "agent/inbox/spliced"]
        await agent.when_idle()
        assert texts_of(agent.session) == ["go", "ok"]


async def test_b03_a_burst_of_prompts_runs_as_turns_without_going_idle() -> None:
    async with spine([text_reply("1"), text_reply("2"), text_reply("3")]) as s:
        agent = s.agent()
        seen: list[str] = []
        s.root.on(AgentStatus, lambda e: seen.append(e.status))
        for text in ("a", "b", "c"):
            agent.followup(say(text))
        await agent.when_idle()
        assert [d["turn"] for d in of_type(agent.session, "turn/start")] == [1, 2, 3]
        assert texts_of(agent.session) == ["a", "1", "b", "2", "c", "3"]
        assert seen == ["running", "idle"]


async def test_b04_steering_during_a_tool_step_joins_the_next_step_of_the_turn() -> None:
    async with spine([tool_reply(("work", "{}")), text_reply("done")]) as s:
        agent = s.agent()

        async def body() -> None:
            agent.steer(say("also this"))

        add_tool(s, "work", body)
        agent.followup(say("start"))
        await agent.when_idle()
        assert texts_of(agent.session) == ["start", "work done", "also this", "done"]
        assert [d["turn"] for d in of_type(agent.session, "turn/start")] == [1]


async def test_b05_injected_input_waits_and_comes_before_the_prompt_that_wakes() -> None:
    async with spine([text_reply("ok")]) as s:
        agent = s.agent()
        agent.inject(say("context"))
        assert agent.status == "idle"
        assert types(agent.session) == ["agent/inbox/spliced"]
        agent.followup(say("prompt"))
        await agent.when_idle()
        assert texts_of(agent.session) == ["context", "prompt", "ok"]


async def test_b06_injected_input_during_a_tool_lands_after_its_result() -> None:
    async with spine([tool_reply(("work", "{}")), text_reply("done")]) as s:
        agent = s.agent()

        async def body() -> None:
            agent.inject(say("note"))

        add_tool(s, "work", body)
        agent.followup(say("start"))
        await agent.when_idle()
        assert texts_of(agent.session) == ["start", "work done", "note", "done"]


async def test_b07_turn_stopping_can_keep_the_turn_going() -> None:
    async with spine([text_reply("one"), text_reply("two")]) as s:
        agent = s.agent()
        asked = 0

        @s.root.on(AgentTurnStopping)
        async def keep(event: AgentTurnStopping) -> None:
            nonlocal asked
            asked += 1
            if asked == 1:
                event.agent.steer(say("more"))

        agent.followup(say("start"))
        await agent.when_idle()
        assert texts_of(agent.session) == ["start", "one", "more", "two"]
        assert [d["step"] for d in of_type(agent.session, "step/start")] == [1, 2]
        assert asked == 2


async def test_b07_a_raising_turn_stopping_listener_ends_the_turn_as_error() -> None:
    async with spine([text_reply("one"), text_reply("two")]) as s:
        agent = s.agent()
        undo = s.root.on(AgentTurnStopping, lambda e: 1 / 0)
        agent.followup(say("start"))
        await agent.when_idle()
        assert of_type(agent.session, "turn/end")[0]["reason"]["kind"] == "error"
        undo()
        agent.followup(say("again"))
        await agent.when_idle()
        assert of_type(agent.session, "turn/end")[1]["reason"] == {"kind": "completed"}


async def test_b08_a_concluding_tool_ends_the_turn_unless_input_is_pending() -> None:
    async with spine([tool_reply(("finish", "{}")), tool_reply(("finish", "{}")), text_reply("after")]) as s:
        agent = s.agent()
        steer = False

        @s.tools.tool
        async def finish(run: ToolRun) -> str:
            """Finish the turn."""
            run.conclude_turn()
            if steer:
                agent.steer(say("wait"))
            return "finished"

        agent.followup(say("a"))
        await agent.when_idle()
        assert len(s.model.requests) == 1
        assert of_type(agent.session, "turn/end")[0]["reason"] == {"kind": "completed"}
        steer = True
        agent.followup(say("b"))
        await agent.when_idle()
        assert texts_of(agent.session)[-2:] == ["wait", "after"]


async def test_b09_a_rejected_step_blocks_the_turn_and_parks_what_is_queued() -> None:
    async with spine([text_reply("later")]) as s:
        agent = s.agent()

        async def refuse(event: AgentPreStep, proceed: Any) -> Any:
            return Reject()

        undo = s.root.on(AgentPreStep, refuse)
        agent.followup(say("a"))
        agent.followup(say("b"))
        await agent.when_idle()
        assert of_type(agent.session, "turn/end") == [{"turn": 1, "reason": {"kind": "blocked"}}]
        assert "step/start" not in types(agent.session)
        assert s.model.requests == []
        assert [m["content"][0]["text"] for m in agent.inbox.next_turn] == ["b"]
        undo()
        agent.followup(say("c"))
        await agent.when_idle()
        assert texts_of(agent.session)[0] == "b"


async def test_b10_pre_step_rewrites_adds_and_empties_messages() -> None:
    async with spine([text_reply("ok")]) as s:
        agent = s.agent()
        plan: list[Any] = [lambda m: (say("rewritten"), say("added")), lambda m: ()]

        async def edit(event: AgentPreStep, proceed: Any) -> Any:
            decision = await proceed()
            return Enter(plan.pop(0)(decision.messages)) if plan else decision

        s.root.on(AgentPreStep, edit)
        agent.followup(say("original"))
        await agent.when_idle()
        assert texts_of(agent.session) == ["rewritten", "added", "ok"]
        agent.followup(say("gone"))
        await agent.when_idle()
        assert of_type(agent.session, "turn/end")[1]["reason"] == {"kind": "completed"}
        assert len(of_type(agent.session, "step/start")) == 1


async def test_b10_an_emptied_continuation_of_an_ended_turn_adds_no_step() -> None:
    async with spine([text_reply("one")]) as s:
        agent = s.agent()

        async def empty_second(event: AgentPreStep, proceed: Any) -> Any:
            return await proceed() if event.step == 1 else Enter(())

        s.root.on(AgentPreStep, empty_second)
        s.root.on(AgentTurnStopping, lambda e: e.agent.inject(say("late")))
        agent.followup(say("start"))
        await agent.when_idle()
        assert len(of_type(agent.session, "step/start")) == 1
        assert of_type(agent.session, "turn/end")[0]["reason"] == {"kind": "completed"}


@pytest.mark.parametrize("place", ["assembly", "pre-step", "step/start"])
async def test_b11_input_of_a_step_that_never_started_goes_back_to_its_place(place: str) -> None:
    async with spine([text_reply("ok"), text_reply("ok")]) as s:
        agent = s.agent()
        armed = True

        async def broken(event: Any, proceed: Any) -> Any:
            if armed:
                raise RuntimeError("no step today")
            return await proceed()

        if place == "assembly":
            s.root.on(SystemPromptAssemble, broken)
        elif place == "pre-step":
            s.root.on(AgentPreStep, broken)
        else:

            def veto(event: Any) -> None:
                payload = event.payload
                if armed and isinstance(payload, SessionAppended) and payload.event.type == "step/start":
                    raise RuntimeError("no step today")

            s.root.on("internal/dispatch", veto)
        errors: list[Any] = []
        s.root.on(AgentError, errors.append)
        agent.inject(say("context"))
        agent.followup(say("first"))
        agent.followup(say("second"))
        await agent.when_idle()
        assert of_type(agent.session, "turn/end")[0]["reason"]["kind"] == "error"
        assert "step/start" not in types(agent.session)
        assert [m["content"][0]["text"] for m in agent.inbox.next_step] == ["context"]
        assert [m["content"][0]["text"] for m in agent.inbox.next_turn] == ["first", "second"]
        assert len(errors) == 1
        armed = False
        agent.steer(say("wake"))
        await agent.when_idle()
        assert texts_of(agent.session) == ["context", "wake", "first", "ok", "second", "ok"]


async def test_b11_a_message_that_breaks_its_step_twice_is_discarded_and_named() -> None:
    async with spine([text_reply("ok")]) as s:
        agent = s.agent()

        async def allergic(event: AgentPreStep, proceed: Any) -> Any:
            if any(m["content"][0]["text"] == "poison" for m in event.messages):
                raise RuntimeError("cannot digest")
            return await proceed()

        s.root.on(AgentPreStep, allergic)
        discarded: list[Any] = []
        errors: list[Any] = []
        s.root.on(InboxDiscarded, discarded.append)
        s.root.on(AgentError, errors.append)
        poison = say("poison")
        agent.followup(poison)
        await agent.when_idle()
        assert [m["id"] for m in agent.inbox.next_turn] == [poison["id"]]
        agent.followup(say("fine"))
        await agent.when_idle()
        assert [e.message["id"] for e in discarded] == [poison["id"]]
        assert any(poison["id"] in str(e.error) for e in errors)
        agent.followup(say("really"))
        await agent.when_idle()
        assert "fine" in texts_of(agent.session)


async def test_b12_input_during_pre_step_joins_the_next_step_of_that_turn() -> None:
    async with spine([text_reply("one"), text_reply("two")]) as s:
        agent = s.agent()

        async def chat(event: AgentPreStep, proceed: Any) -> Any:
            if event.step == 1:
                event.agent.inject(say("injected"))
                event.agent.steer(say("steered"))
            return await proceed()

        s.root.on(AgentPreStep, chat)
        agent.followup(say("start"))
        await agent.when_idle()
        assert texts_of(agent.session) == ["start", "one", "injected", "steered", "two"]
        assert [d["turn"] for d in of_type(agent.session, "turn/start")] == [1]


async def test_b13_a_prompt_sent_after_the_claim_gets_the_following_turn() -> None:
    async with spine([text_reply("one"), text_reply("two")]) as s:
        agent = s.agent()

        def react(event: SessionAppended) -> None:
            if event.event.type == "step/start" and event.event.data["turn"] == 1:
                s.root.runtime.loop.call_soon(agent.followup, say("next"))

        s.root.on(SessionAppended, react)
        agent.followup(say("start"))
        await agent.when_idle()
        assert texts_of(agent.session) == ["start", "one", "next", "two"]
        assert [d["turn"] for d in of_type(agent.session, "turn/start")] == [1, 2]


async def test_b14_a_capped_reply_ends_as_max_tokens_and_loses_its_tool_calls() -> None:
    async with spine([tool_reply(("work", '{"x"'), finish="max-tokens"), text_reply("fine")]) as s:
        add_tool(s, "work")
        agent = s.agent()
        agent.followup(say("a"))
        await agent.when_idle()
        assert of_type(agent.session, "turn/end")[0]["reason"] == {"kind": "max-tokens"}
        assert of_type(agent.session, "tool/call") == []
        assert of_type(agent.session, "assistant/message")[0]["message"]["content"] == []
        agent.followup(say("b"))
        await agent.when_idle()
        assert of_type(agent.session, "turn/end")[1]["reason"] == {"kind": "completed"}


async def test_b14_a_later_step_with_tools_still_gets_its_request_and_the_turn_stays_max_tokens() -> None:
    async with spine([text_reply("cut", finish="max-tokens"), tool_reply(("work", "{}")), text_reply("end")]) as s:
        add_tool(s, "work")
        agent = s.agent()
        asked = 0

        @s.root.on(AgentTurnStopping)
        async def keep(event: AgentTurnStopping) -> None:
            nonlocal asked
            asked += 1
            if asked == 1:
                event.agent.steer(say("go on"))

        agent.followup(say("a"))
        await agent.when_idle()
        assert texts_of(agent.session) == ["a", "cut", "go on", "work done", "end"]
        assert of_type(agent.session, "turn/end") == [{"turn": 1, "reason": {"kind": "max-tokens"}}]


async def test_b15_a_stop_without_content_leaves_an_empty_anchor() -> None:
    async with spine([[{"type": "finish", "reason": {"kind": "stop"}}]]) as s:
        agent = s.agent()
        agent.followup(say("a"))
        await agent.when_idle()
        reply = of_type(agent.session, "assistant/message")[0]
        assert reply["message"]["content"] == []
        assert of_type(agent.session, "turn/end")[0]["reason"] == {"kind": "completed"}


async def test_b16_a_listener_that_removes_the_waking_message_leaves_a_turn_without_step() -> None:
    async with spine() as s:
        agent = s.agent()
        s.root.on(AgentStatus, lambda e: e.status == "running" and e.agent.inbox.clear())
        agent.followup(say("a"))
        await agent.when_idle()
        assert types(agent.session)[-2:] == ["turn/start", "turn/end"]
        assert of_type(agent.session, "turn/end")[0]["reason"] == {"kind": "completed"}


async def test_b16_clearing_after_send_is_too_late_for_the_claimed_prompt() -> None:
    async with spine([text_reply("ok")]) as s:
        agent = s.agent()
        agent.followup(say("a"))
        agent.inbox.clear()
        await agent.when_idle()
        assert texts_of(agent.session) == ["a", "ok"]


async def test_b17_a_missing_prompt_variable_is_an_error_turn_and_the_loop_lives() -> None:
    async with spine([text_reply("ok")]) as s:
        agent = s.agent()
        section = s.prompt.section("broken", 10, "{{nothing}}")
        agent.followup(say("a"))
        await agent.when_idle()
        reason = of_type(agent.session, "turn/end")[0]["reason"]
        assert reason["kind"] == "error" and 'unknown prompt variable "{{nothing}}"' in reason["error"]["message"]
        section()
        agent.followup(say("b"))
        await agent.when_idle()
        assert of_type(agent.session, "turn/end")[1]["reason"] == {"kind": "completed"}


async def test_a_disposed_agent_refuses_input() -> None:
    async with spine() as s:
        from dsh.core.agent import CreateAgentOptions

        handle = await s.agents.create(CreateAgentOptions("a"))
        await handle.dispose()
        with pytest.raises(HarnessError, match="is disposed"):
            handle.agent.followup(say("x"))
