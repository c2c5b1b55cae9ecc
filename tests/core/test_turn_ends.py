"""Rare ends of turns: cancelled by an observer of the end, a library's exit, a claim that goes back in part."""

from __future__ import annotations

from typing import Any

import pytest

from dsh.core.agent_events import AgentError, AgentPreStep, Enter
from dsh.core.session import Session
from dsh.core.session_event import SessionError
from dsh.core.session_store import SessionAppended
from dsh.llm.message import create_user_message
from tests.core.kit import of_type, spine, text_reply, types


async def test_a_cancel_from_the_observer_of_a_turns_end_parks_what_is_queued() -> None:
    async with spine([text_reply("one"), text_reply("two")]) as s:
        agent = s.agent()

        def stop(event: SessionAppended) -> None:
            if event.event.type == "turn/end" and event.event.data["turn"] == 1:
                agent.cancel({"kind": "user"}, keep_inbox=True)

        s.root.on(SessionAppended, stop, global_=True)
        agent.followup(create_user_message("first"))
        agent.followup(create_user_message("second"))
        await agent.when_idle()
        assert [end["turn"] for end in of_type(agent.session, "turn/end")] == [1]
        assert len(agent.inbox.next_turn) == 1
        agent.followup(create_user_message("third"))
        agent.inbox.remove(agent.inbox.next_turn[-1]["id"])
        await agent.when_idle()
        assert of_type(agent.session, "turn/end")[-1] == {"turn": 2, "reason": {"kind": "completed"}}


async def test_a_wake_after_a_cancel_from_the_observer_of_a_turns_end_is_not_lost() -> None:
    async with spine([text_reply("one"), text_reply("two")]) as s:
        agent = s.agent()

        def stop(event: SessionAppended) -> None:
            if event.event.type == "turn/end" and event.event.data["turn"] == 1:
                agent.cancel({"kind": "user"})

        def resend(event: Any) -> None:
            if event.status == "idle" and not of_type(agent.session, "turn/end")[1:]:
                agent.followup(create_user_message("again"))

        s.root.on(SessionAppended, stop, global_=True)
        s.root.on("agent/status", resend, global_=True)
        agent.followup(create_user_message("first"))
        await agent.when_idle()
        assert [end["reason"]["kind"] for end in of_type(agent.session, "turn/end")] == ["completed", "completed"]


async def test_an_exit_of_a_library_inside_a_listener_fails_the_turn_and_not_the_process() -> None:
    async with spine([text_reply("fine"), text_reply("fine")]) as s:
        agent = s.agent()
        errors: list[BaseException] = []
        s.root.on(AgentError, lambda event: errors.append(event.error), global_=True)

        async def parse(event: AgentPreStep, next: Any) -> Any:
            raise SystemExit(2)

        undo = s.root.on(AgentPreStep, parse, global_=True)
        agent.followup(create_user_message("hi"))
        await agent.when_idle()
        assert of_type(agent.session, "turn/end")[-1]["reason"]["kind"] == "error"
        assert [type(error) for error in errors] == [SystemExit]
        await undo()
        agent.followup(create_user_message("again"))
        await agent.when_idle()
        assert of_type(agent.session, "turn/end")[-1]["reason"] == {"kind": "completed"}


async def test_one_list_that_cannot_be_restored_does_not_keep_the_other_from_it() -> None:
    async with spine([]) as s:
        agent = s.agent()
        errors: list[BaseException] = []
        s.root.on(AgentError, lambda event: errors.append(event.error), global_=True)
        steering, prompt = create_user_message("steering"), create_user_message("prompt")

        async def fail(event: AgentPreStep, next: Any) -> Any:
            agent.inbox.append("next-step", steering)  # the claimed one is put back by hand
            raise RuntimeError("no")

        s.root.on(AgentPreStep, fail, global_=True)
        agent.inject(steering)
        agent.followup(prompt)
        await agent.when_idle()
        assert [message["id"] for message in agent.inbox.next_step] == [steering["id"]]
        assert [message["id"] for message in agent.inbox.next_turn] == [prompt["id"]]
        assert [str(error) for error in errors] == ["no", f'message "{steering["id"]}" is already pending']
        assert types(agent.session)[-1] == "turn/end"


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        ({"role": "user", "content": [], "source": {"kind": "user"}}, "agent/inbox lacks an identified message"),
        ({"id": "x", "content": [], "source": {"kind": "user"}}, 'agent/inbox message must have role "user"'),
        ({"id": "x", "role": "user", "content": "hi", "source": {"kind": "user"}}, "has invalid content"),
        ("hi", "agent/inbox lacks an identified message"),
    ],
)
async def test_what_would_make_the_log_unreadable_is_refused_at_the_inbox(message: Any, problem: str) -> None:
    async with spine([]) as s:
        agent = s.agent()
        with pytest.raises(SessionError, match=problem):
            agent.followup(message)
        assert (agent.status, agent.session.seq) == ("idle", 0)


async def test_a_listener_that_adds_half_a_message_fails_the_turn_and_the_log_can_be_read_back() -> None:
    async with spine([]) as s:
        agent = s.agent()

        async def add(event: AgentPreStep, next: Any) -> Any:
            return Enter((*event.messages, {"role": "user", "content": []}))  # type: ignore[typeddict-item]

        s.root.on(AgentPreStep, add, global_=True)
        agent.followup(create_user_message("hi"))
        await agent.when_idle()
        assert of_type(agent.session, "turn/end")[-1]["reason"]["error"]["message"] == (
            "agent/pre-step lacks an identified message"
        )
        assert "step/start" not in types(agent.session) and len(agent.inbox.next_turn) == 1
        assert Session("again", seed=agent.session.events).seq == agent.session.seq + 1
