"""Corners of the loop: who may interfere with a turn that is about to begin, and with one that is about to end."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dsh.core.agent import AgentOptions, CreateAgentOptions
from dsh.core.agent_events import AgentError, AgentStatus, AgentTurnStopping, InboxDiscarded
from dsh.core.session_store import SessionAppended
from tests.core.kit import USAGE, ScriptedAdapter, error_reply, of_type, spine, text_reply, types
from tests.core.test_loop_errors_cancel import balanced, end, on_event
from tests.core.test_loop_turns import say, texts_of

ROUTE = AgentOptions("test", "m")


async def test_b01_a_reply_holds_the_usage_it_came_with_and_none_when_it_came_without() -> None:
    bare = [chunk for chunk in text_reply("b") if chunk["type"] != "usage"]
    async with spine(
        [text_reply("a"), bare, ([*text_reply("part")[:2], {"type": "usage", "usage": USAGE}], "hang")]
    ) as s:
        agent = s.agent()
        for text in ("one", "two"):
            agent.followup(say(text))
            await agent.when_idle()
        agent.followup(say("three"))
        await s.model.hanging.wait()
        agent.cancel({"kind": "user"})
        await agent.when_idle()
        first, second, third = of_type(agent.session, "assistant/message")
        assert first["usage"] == USAGE and "usage" not in second and "interrupted" not in first
        assert third["interrupted"] is True and third["usage"] == USAGE


async def test_b16_an_observer_of_turn_start_cannot_take_the_waking_message_away() -> None:
    """The append that it hears about is still being published, so its own splice is refused."""
    async with spine([text_reply("ok")]) as s:
        agent = s.agent()
        refused: list[str] = []

        def clear(event: SessionAppended) -> None:
            if event.event.type == "turn/start":
                try:
                    agent.inbox.clear()
                except Exception as error:
                    refused.append(str(error))
                    raise

        s.root.on(SessionAppended, clear)
        agent.followup(say("a"))
        await agent.when_idle()
        assert refused == ["session append cannot reenter while another append is being published"]
        assert texts_of(agent.session) == ["a", "ok"] and end(agent.session) == {"kind": "completed"}


async def test_b18_a_failure_without_code_or_details_has_no_empty_fields() -> None:
    bare: Any = [{"type": "finish", "reason": {"kind": "error", "failure": {"message": "down"}}}]
    async with spine([bare]) as s:
        agent = s.agent()
        agent.followup(say("a"))
        await agent.when_idle()
        assert end(agent.session) == {"kind": "error", "error": {"message": "down", "code": "UNKNOWN"}}


@pytest.mark.parametrize("kind", ["turn/start", "step/start", "step/end", "turn/end"])
async def test_b22_observers_that_raise_do_not_change_how_an_error_turn_ends(kind: str) -> None:
    async with spine([error_reply(), text_reply("ok")]) as s:
        agent = s.agent()
        raised: list[str] = []

        def broken(label: str) -> Any:
            def listener(_: Any) -> None:
                raised.append(label)
                raise ZeroDivisionError

            return listener

        on_event(s, kind, broken(kind))
        s.root.on(AgentStatus, broken("status"))
        s.root.on(AgentError, broken("error"))
        heard: list[Any] = []
        s.root.on(AgentError, heard.append)
        agent.followup(say("a"))
        await agent.when_idle()
        assert end(agent.session) == {"kind": "error", "error": {"message": "boom", "code": "SERVER"}}
        assert balanced(agent.session) and agent.status == "idle"
        assert set(raised) == {kind, "status", "error"} and len(heard) == 1
        agent.followup(say("b"))
        await agent.when_idle()
        assert end(agent.session) == {"kind": "completed"} and balanced(agent.session)


async def test_b26_what_a_cancel_in_the_same_tick_drops_is_told_once() -> None:
    async with spine() as s:
        agent = s.agent()
        discarded: list[str] = []
        s.root.on(InboxDiscarded, lambda e: discarded.append(e.message["id"]))
        message = say("a")
        agent.followup(message)
        agent.cancel({"kind": "user"})
        await agent.when_idle()
        assert discarded == [message["id"]] and not agent.inbox.has_pending


async def test_b29_a_waking_send_while_the_agent_is_being_disposed_is_kept_and_starts_nothing() -> None:
    async with spine(["hang-slow", text_reply("never")]) as s:
        handle = await s.agents.create(CreateAgentOptions("a", {"cwd": "/tmp"}, agent_options=ROUTE))
        agent = handle.agent
        agent.followup(say("a"))
        await s.model.hanging.wait()
        leaving = asyncio.ensure_future(handle.dispose())
        for _ in range(5):
            await asyncio.sleep(0)
        assert agent.status == "running"
        agent.steer(say("late"))
        await leaving
        assert [m["content"][0]["text"] for m in agent.inbox.next_turn] == ["late"]
        assert [d["turn"] for d in of_type(agent.session, "turn/start")] == [1] and len(s.model.requests) == 1


async def test_b29_a_second_cancel_takes_back_a_wake_even_if_something_is_parked_after_it() -> None:
    async with spine(["hang-slow"]) as s:
        agent = s.agent()
        agent.followup(say("a"))
        await s.model.hanging.wait()
        agent.cancel({"kind": "user"})
        agent.steer(say("late"))
        agent.cancel({"kind": "user"})
        agent.inject(say("parked"))
        await agent.when_idle()
        assert [m["content"][0]["text"] for m in agent.inbox.next_step] == ["parked"]
        assert types(agent.session).count("turn/start") == 1


async def test_b30_a_user_who_cancelled_before_the_disposal_is_the_logged_cause() -> None:
    async with spine(["hang-slow"]) as s:
        handle = await s.agents.create(CreateAgentOptions("a", {"cwd": "/tmp"}, agent_options=ROUTE))
        agent = handle.agent
        agent.followup(say("a"))
        await s.model.hanging.wait()
        agent.cancel({"kind": "user"})
        await handle.dispose()
        assert end(agent.session) == {"kind": "aborted", "reason": {"kind": "user"}} and balanced(agent.session)


async def test_b31_a_cancel_during_turn_stopping_does_not_ask_again() -> None:
    async with spine([text_reply("x")]) as s:
        agent = s.agent()
        asked: list[int] = []

        def stop(event: AgentTurnStopping) -> None:
            asked.append(event.turn)
            event.agent.steer(say("more"))
            event.agent.cancel({"kind": "user"})

        s.root.on(AgentTurnStopping, stop)
        agent.followup(say("a"))
        await agent.when_idle()
        assert asked == [1] and len(s.model.requests) == 1 and not agent.inbox.has_pending
        assert end(agent.session) == {"kind": "aborted", "reason": {"kind": "user"}}


async def test_b36_a_session_that_goes_on_under_another_driver_says_resume_first_and_change_later() -> None:
    async with spine([text_reply("a"), text_reply("b"), text_reply("c")]) as s:
        agent = s.agent()
        agent.followup(say("one"))
        await agent.when_idle()
        seed = list(agent.session.events)
        again = (await s.agents.create(CreateAgentOptions("b", seed=seed, agent_options=ROUTE))).agent
        again.followup(say("two"))
        await again.when_idle()
        s.prompt.section("extra", 10, "More.")
        again.followup(say("three"))
        await again.when_idle()
        reasons = [data["reason"] for data in of_type(again.session, "request/header")]
        assert reasons == ["initial", "resume", "change"]


class Slow(ScriptedAdapter):
    """A model whose efforts take for ever to look up."""

    def __init__(self) -> None:
        super().__init__([])
        self.asked = asyncio.Event()

    async def resolve_model(self, provider: str, model: str, signal: Any = None) -> Any:
        self.asked.set()
        await asyncio.Event().wait()


async def test_b41_a_lookup_that_never_ends_is_left_when_the_agent_is_disposed() -> None:
    async with spine() as s:
        model = Slow()
        s.llm.register_adapter(["slow"], model)
        options = CreateAgentOptions("a", {"cwd": "/tmp"}, agent_options=AgentOptions("slow", "m"))
        handle = await s.agents.create(options)
        handle.agent.followup(say("a"))
        await model.asked.wait()
        async with asyncio.timeout(5):
            await handle.dispose()
        assert end(handle.agent.session) == {"kind": "aborted", "reason": {"kind": "disposed"}}
        assert balanced(handle.agent.session) and model.requests == []
