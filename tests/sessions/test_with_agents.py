"""Persistence under real agents: resumed, refused, taken over."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from dsh.core.agent import AgentOptions, CreateAgentOptions, ResumeAgentOptions
from dsh.llm.message import create_user_message
from dsh.sessions import checkpoint_policy, jsonl
from dsh.sessions.errors import SessionLockedError, SessionNotFoundError
from tests.core.kit import Entry, Spine, of_type, spine, text_reply, types
from tests.sessions.helpers import Child, store_at
from tests.sessions.test_checkpoint_policy import ask

ROUTE = AgentOptions(provider="test", model="m")


@asynccontextmanager
async def spine_at(root: Path, script: list[Entry], **config: Any) -> AsyncIterator[Spine]:
    async with spine(script) as s:
        await s.root.plugin(jsonl, {"root": str(root), "durability": "os", "writeBatchMaxDelayMs": 20, **config})
        await s.root.plugin(checkpoint_policy)
        yield s


async def test_an_agent_is_resumed_with_history_and_turn_numbers(tmp_path: Path) -> None:
    async with spine_at(tmp_path, [text_reply("one")]) as s:
        handle = await s.agents.create(CreateAgentOptions("a", {"cwd": "/w"}, agent_options=ROUTE))
        await ask(handle.agent, "first")
        said = handle.agent.session.derive_messages()
        await handle.dispose()
        assert s.sessions.get("a") is None
    async with spine_at(tmp_path, [text_reply("two")]) as s:
        handle = await s.agents.resume(ResumeAgentOptions("a", agent_options=ROUTE))
        assert handle.agent.session.derive_messages() == said
        await ask(handle.agent, "second")
        assert [data["turn"] for data in of_type(handle.agent.session, "turn/start")] == [1, 2]
        assert [data["reason"] for data in of_type(handle.agent.session, "request/header")] == ["initial", "resume"]
        events = list(handle.agent.session.events)
        await handle.dispose()
    assert store_at(tmp_path).read("a").events == events


async def test_f25b_a_message_is_safe_once_its_sender_has_flushed(tmp_path: Path) -> None:
    async with spine_at(tmp_path, ["hang"], writeBatchMaxDelayMs=600_000) as s:
        handle = await s.agents.create(CreateAgentOptions("a", {"cwd": "/w"}, agent_options=ROUTE))
        message = create_user_message("remember me")
        handle.agent.followup(message)
        await s.sessions.flush(handle.agent.session)
        inserted = [
            entry["id"]
            for event in store_at(tmp_path).read("a").events
            if event.type == "agent/inbox/spliced"
            for entry in event.data["inserted"]
        ]
        assert inserted[0] == message["id"]
        handle.agent.cancel({"kind": "user"})
        await handle.agent.when_idle()


async def test_an_agent_whose_session_is_open_elsewhere_cannot_be_resumed(tmp_path: Path) -> None:
    async with spine_at(tmp_path, [text_reply("one")]) as s:
        handle = await s.agents.create(CreateAgentOptions("a", {"cwd": "/w"}, agent_options=ROUTE))
        await ask(handle.agent)
        async with spine_at(tmp_path, []) as other:
            with pytest.raises(SessionLockedError):
                await other.agents.resume(ResumeAgentOptions("a", agent_options=ROUTE))
            with pytest.raises(SessionNotFoundError):
                await other.agents.resume(ResumeAgentOptions("b", agent_options=ROUTE))
            assert other.sessions.list() == []


async def test_d24_a_named_agent_holds_its_session_before_anybody_sees_it(tmp_path: Path) -> None:
    async with spine_at(tmp_path, []) as s:
        options = CreateAgentOptions("main", {"cwd": "/w"}, agent_options=ROUTE, reserve=True)
        await s.agents.create(options)
        async with spine_at(tmp_path, []) as other:
            with pytest.raises(SessionLockedError):
                await other.agents.create(options)
            assert other.agents.list() == []


async def test_b12i_an_overtaken_agent_stops_and_leaves_the_log_to_its_successor(tmp_path: Path) -> None:
    take_over = """
        from tests.sessions.helpers import store_at
        store = store_at(sys.argv[1])
        hold = store.hold("a", None)
        hold.mend(hold.read(), ())
        say(str(hold.lease.token))
        hear()
    """
    async with spine_at(tmp_path, ["hang"], writeBatchMaxDelayMs=1) as s:
        handle = await s.agents.create(CreateAgentOptions("a", {"cwd": "/w"}, agent_options=ROUTE))
        agent = handle.agent
        agent.followup(create_user_message("go"))
        await s.model.hanging.wait()
        await s.sessions.flush(agent.session)
        (tmp_path / "--w--" / "a" / "lease.lock").unlink()
        with Child(take_over, str(tmp_path)) as child:
            assert child.hear() == "2"
            before = store_at(tmp_path).read("a").events
            agent.session.append("note", {}, ignorable=True)
            await agent.when_idle()
            (end,) = of_type(agent.session, "turn/end")
            assert end["reason"] == {"kind": "aborted", "reason": {"kind": "hook", "reason": "lease-lost"}}
            assert types(agent.session)[-1] == "turn/end"
            agent.followup(create_user_message("once more"))
            await agent.when_idle()
            assert len(s.model.requests) == 1  # the barrier before the request refuses
            await handle.dispose()
            assert store_at(tmp_path).read("a").events == before
