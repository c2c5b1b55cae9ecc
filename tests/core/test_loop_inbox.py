"""Pending input: two lists in the log, edited, restored and refused as one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dsh.cordis import HarnessError
from dsh.core.agent import AgentOptions, CreateAgentOptions, ResumeAgentOptions
from dsh.core.agent_events import AgentError, AgentPreStep, InboxClaimed, InboxDiscarded, InboxInserted
from dsh.core.session_event import SessionEvent
from dsh.core.session_store import SessionAppended
from dsh.llm.message import create_user_message
from dsh.sessions import jsonl
from tests.core.kit import of_type, spine, text_reply, types
from tests.core.test_loop_errors_cancel import veto
from tests.core.test_loop_turns import say, texts_of

ROUTE = AgentOptions("test", "m")


def words(messages: Any) -> list[str]:
    return [message["content"][0]["text"] for message in messages]


def splices(session: Any) -> list[Any]:
    return of_type(session, "agent/inbox/spliced")


async def test_b70_a_fork_does_not_inherit_pending_input() -> None:
    async with spine([text_reply("ok")]) as s:
        agent = s.agent()
        agent.followup(say("run"))
        await agent.when_idle()
        agent.inject(say("pending"))
        events = list(agent.session.events)
        meta = {"cwd": "/tmp", "parentSession": "a", "seedLength": len(events)}
        child = (await s.agents.create(CreateAgentOptions("child", meta, seed=events, agent_options=ROUTE))).agent
        assert words(agent.inbox.next_step) == ["pending"]
        assert not child.inbox.has_pending and texts_of(child.session) == ["run", "ok"]


async def test_b70_a_resume_restores_both_lists_in_order(tmp_path: Path) -> None:
    async with spine([text_reply("ok")] * 3) as s:
        await s.root.plugin(jsonl, {"root": str(tmp_path), "durability": "os"})
        handle = await s.agents.create(CreateAgentOptions("a", {"cwd": "/tmp"}, agent_options=ROUTE))
        first = handle.agent
        for text in ("one", "two", "three"):
            first.send(say(text), "next-turn", False)
        first.inject(say("note"))
        assert first.inbox.remove(first.inbox.next_turn[1]["id"])
        await handle.dispose()
        second = (await s.agents.resume(ResumeAgentOptions("a", ROUTE))).agent
        assert second is not first
        assert words(second.inbox.next_turn) == ["one", "three"] and words(second.inbox.next_step) == ["note"]
        second.steer(say("wake"))
        await second.when_idle()
        assert texts_of(second.session) == ["note", "wake", "one", "ok", "three", "ok"]


@pytest.mark.parametrize(
    "bad",
    [
        {"target": "nowhere", "start": 0, "inserted": []},
        {"target": "next-turn", "start": 0, "removedCount": 1, "inserted": []},
        {"target": "next-turn", "start": -1, "inserted": []},
        {"target": "next-turn", "start": 0, "inserted": [{"no": "id"}]},
        {"target": "next-turn", "inserted": []},
    ],
)
async def test_b70_a_splice_that_cannot_be_replayed_names_its_place(bad: Any) -> None:
    async with spine() as s:
        seed = [SessionEvent("agent/inbox/spliced", 0, 1, bad)]
        with pytest.raises(HarnessError, match="invalid persisted inbox splice at session seq 0"):
            await s.agents.create(CreateAgentOptions("a", seed=seed, agent_options=ROUTE))
        assert s.agents.list() == [] and s.sessions.list() == []


async def test_b71_a_replacement_keeps_its_place_and_is_logged_as_canceled_and_inserted() -> None:
    async with spine() as s:
        agent = s.agent()
        seen: list[tuple[str, str]] = []
        s.root.on(InboxDiscarded, lambda e: seen.append(("discarded", words([e.message])[0])))
        s.root.on(InboxInserted, lambda e: seen.append(("inserted", words([e.message])[0])))
        messages = [say(text) for text in ("one", "two", "three")]
        for message in messages:
            agent.send(message, "next-turn", False)
        seen.clear()
        assert agent.inbox.replace(messages[1]["id"], say("zwei"))
        assert words(agent.inbox.next_turn) == ["one", "zwei", "three"]
        last = splices(agent.session)[-1]
        assert {key: last[key] for key in ("target", "start", "removedCount", "outcome")} == {
            "target": "next-turn",
            "start": 1,
            "removedCount": 1,
            "outcome": "canceled",
        }
        assert words(last["inserted"]) == ["zwei"]
        assert seen == [("discarded", "two"), ("inserted", "zwei")]
        before = agent.session.seq
        assert not agent.inbox.replace("nobody", say("x")) and not agent.inbox.remove("nobody")
        assert agent.session.seq == before


async def test_b71_a_message_may_be_replaced_by_another_version_of_itself() -> None:
    async with spine() as s:
        agent = s.agent()
        message = say("draft")
        agent.inject(message)
        assert agent.inbox.replace(message["id"], {**message, "content": [{"type": "text", "text": "final"}]})
        assert words(agent.inbox.next_step) == ["final"]


async def test_b71_splice_counts_like_a_list_and_is_silent_when_nothing_changes() -> None:
    async with spine() as s:
        agent = s.agent()
        inbox = agent.inbox
        for text in ("a", "b", "c"):
            inbox.append("next-step", say(text))
        inbox.prepend("next-step", say("z"))
        assert words(inbox.next_step) == ["z", "a", "b", "c"]
        assert words(inbox.splice("next-step", -1, 99, [])) == ["c"]
        assert words(inbox.splice("next-step", -99, 1, [say("y")])) == ["z"]
        assert words(inbox.next_step) == ["y", "a", "b"]
        before = agent.session.seq
        assert inbox.splice("next-step", 99, 5, []) == [] and inbox.splice("next-turn", 0, 1, []) == []
        assert agent.session.seq == before
        inbox.append("next-turn", say("t"))
        inbox.clear()
        assert [data["target"] for data in splices(agent.session)[-2:]] == ["next-step", "next-turn"]
        assert not inbox.has_pending


async def test_b71_a_claim_has_no_outcome_and_one_splice_per_list_it_touches() -> None:
    async with spine([text_reply("ok")]) as s:
        agent = s.agent()
        claimed: list[tuple[str, int]] = []
        discarded: list[Any] = []
        s.root.on(InboxClaimed, lambda e: claimed.append((words([e.message])[0], e.turn)))
        s.root.on(InboxDiscarded, discarded.append)
        agent.inject(say("note"))
        agent.inject(say("more"))
        agent.followup(say("prompt"))
        await agent.when_idle()
        claims = [data for data in splices(agent.session) if data.get("removedCount")]
        assert claims == [
            {"target": "next-step", "start": 0, "removedCount": 2, "inserted": []},
            {"target": "next-turn", "start": 0, "removedCount": 1, "inserted": []},
        ]
        assert claimed == [("note", 1), ("more", 1), ("prompt", 1)] and discarded == []


async def test_b72_a_pending_id_is_refused_in_both_lists_and_nothing_is_logged() -> None:
    async with spine() as s:
        agent = s.agent()
        message = say("once")
        agent.inject(message)
        before = agent.session.seq
        for target in ("next-step", "next-turn"):
            with pytest.raises(HarnessError, match=f'message "{message["id"]}" is already pending'):
                agent.inbox.append(target, message)  # type: ignore[arg-type]
        with pytest.raises(HarnessError, match="already pending"):
            agent.followup(message)
        twin = say("twice")
        with pytest.raises(HarnessError, match="already pending"):
            agent.inbox.splice("next-turn", 0, 0, [twin, twin])
        assert agent.session.seq == before and agent.status == "idle" and words(agent.inbox.next_step) == ["once"]


async def test_b72_content_that_is_no_json_is_refused_and_nothing_is_logged() -> None:
    async with spine() as s:
        agent = s.agent()
        before = agent.session.seq
        with pytest.raises(HarnessError, match="non-JSON-serializable"):
            agent.followup({**create_user_message("x"), "content": [{"type": "text", "text": object()}]})
        assert agent.session.seq == before and agent.status == "idle" and not agent.inbox.has_pending


async def test_b72_a_refused_splice_changes_nothing() -> None:
    async with spine() as s:
        agent = s.agent()
        veto(s, "agent/inbox/spliced")
        with pytest.raises(RuntimeError, match="no agent/inbox/spliced"):
            agent.inject(say("x"))
        assert not agent.inbox.has_pending and types(agent.session) == []


async def test_b73_a_send_inside_the_splices_own_publication_fails_in_that_observer_only() -> None:
    async with spine([text_reply("ok")]) as s:
        agent = s.agent()
        refused: list[str] = []

        def echo(event: SessionAppended) -> None:
            if event.event.type == "agent/inbox/spliced" and not refused:
                try:
                    agent.inject(say("echo"))
                except HarnessError as error:
                    refused.append(str(error))
                    raise

        s.root.on(SessionAppended, echo)
        agent.followup(say("prompt"))
        assert refused == ["session append cannot reenter while another append is being published"]
        await agent.when_idle()
        assert texts_of(agent.session) == ["prompt", "ok"] and not agent.inbox.has_pending


async def test_b73_a_send_from_an_inbox_listener_is_fine() -> None:
    async with spine([text_reply("ok")]) as s:
        agent = s.agent()
        once = [True]
        s.root.on(InboxInserted, lambda e: once and once.pop() and agent.inject(say("echo")))
        agent.followup(say("prompt"))
        await agent.when_idle()
        assert texts_of(agent.session) == ["echo", "prompt", "ok"]


async def test_input_of_a_step_that_was_only_cancelled_is_kept_however_often() -> None:
    async with spine([text_reply("ok")]) as s:
        agent = s.agent()
        agent.followup(say("patient"))
        for _ in range(3):
            agent.cancel({"kind": "user"}, keep_inbox=True)
            await agent.when_idle()
            assert words(agent.inbox.next_turn) == ["patient"]
            agent.send(say("wake"), "next-step", True)
        await agent.when_idle()
        assert texts_of(agent.session) == ["wake", "wake", "wake", "patient", "ok"]


async def test_input_that_fails_to_start_twice_is_discarded_and_does_not_block_the_queue() -> None:
    async with spine([text_reply("ok")]) as s:
        agent = s.agent()
        discarded: list[str] = []
        errors: list[AgentError] = []
        s.root.on(InboxDiscarded, lambda e: discarded.append(words([e.message])[0]))
        s.root.on(AgentError, errors.append)

        async def picky(event: AgentPreStep, proceed: Any) -> Any:
            if "poison" in words(event.messages):
                raise RuntimeError("cannot digest")
            return await proceed()

        s.root.on(AgentPreStep, picky)
        poison = say("poison")
        agent.followup(poison)
        agent.followup(say("food"))
        await agent.when_idle()
        assert words(agent.inbox.next_turn) == ["poison", "food"] and discarded == []
        agent.steer(say("wake"))
        await agent.when_idle()
        assert discarded == ["poison"]
        assert words(agent.inbox.next_turn) == ["food"] and words(agent.inbox.next_step) == ["wake"]
        assert any(poison["id"] in str(error.error) for error in errors)
        agent.steer(say("again"))
        await agent.when_idle()
        assert texts_of(agent.session) == ["wake", "again", "food", "ok"]
