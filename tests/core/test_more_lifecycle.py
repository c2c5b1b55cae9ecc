"""Corners of an agent's coming and going: what is given back when it comes to nothing, and what it leaves behind."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from dsh.cordis import AbortController, Context, HarnessError
from dsh.core.agent import AgentOptions, ResumeAgentOptions
from dsh.core.agent_events import AgentCreated, AgentDisposed
from dsh.core.agents import Agents
from dsh.core.seams import SessionPersistence
from dsh.core.session_store import SessionCreated
from dsh.llm.message import create_user_message
from tests.core.kit import of_type, spine, text_reply
from tests.core.test_loop_errors_cancel import balanced, end
from tests.core.test_loop_lifecycle import ROUTE, SlowPersistence, nothing_there, options, owner_of
from tests.core.test_loop_turns import say


async def test_b24_half_a_route_is_none() -> None:
    for half in ({"provider": None}, {"model": None}):
        async with spine() as s:
            agent = s.agent(**half)
            agent.followup(say("a"))
            await agent.when_idle()
            assert "has no provider/model" in end(agent.session)["error"]["message"]
            assert s.model.requests == [] and balanced(agent.session)


@pytest.mark.parametrize("event", [SessionCreated, AgentCreated])
async def test_b56_a_refused_creation_without_waiting_leaves_nothing_either(event: Any) -> None:
    async with spine([text_reply("ok")]) as s:

        def refuse(_: Any) -> None:
            raise RuntimeError("not this one")

        undo = s.root.on(event, refuse)
        with pytest.raises(RuntimeError, match="not this one"):
            s.agent("a")
        await s.root.settle()
        async with asyncio.timeout(5):
            while s.loop.lifecycles:
                await asyncio.sleep(0)
        assert nothing_there(s)
        undo()
        agent = s.agent("a")
        agent.followup(say("hi"))
        await agent.when_idle()
        assert end(agent.session) == {"kind": "completed"}


async def test_b55_a_resume_whose_setup_fails_gives_the_stored_session_back() -> None:
    async with spine() as s:
        await s.root.plugin(SlowPersistence)
        persistence: Any = s.root[SessionPersistence]
        persistence.go.set()

        def setup(ctx: Context) -> None:
            raise RuntimeError("no")

        with pytest.raises(RuntimeError, match="no"):
            await s.agents.resume(ResumeAgentOptions("a", ROUTE, setup=setup))
        assert persistence.released == ["a"] and nothing_there(s)
        handle = await s.agents.resume(ResumeAgentOptions("a", ROUTE))
        assert persistence.released == ["a"]
        await handle.dispose()
        assert persistence.released == ["a", "a"]


async def test_b57_a_detach_during_the_announcement_waits_for_its_end() -> None:
    class Fake:
        id = "f"

        @property
        def session(self) -> Fake:
            return self

    async with spine() as s:
        fake: Any = Fake()
        detach = s.agents.enter(fake, None)
        trail: list[str] = []

        def leave(_: AgentCreated) -> None:
            detach()
            trail.append("live" if s.agents.get("f") is fake else "gone")

        s.root.on(AgentCreated, leave)
        s.root.on(AgentCreated, lambda _: trail.append("later listener"))
        s.root.on(AgentDisposed, lambda _: trail.append("disposed"))
        s.agents.announce(fake)
        assert trail == ["live", "later listener", "disposed"] and s.agents.get("f") is None
        detach()
        assert trail[3:] == []


async def test_b58_a_disposed_agent_is_no_effect_of_its_owner_any_more() -> None:
    async with spine() as s:
        owner = await owner_of(s)
        before = owner.fiber.effects()
        handle = await owner["agents"].create(options())
        assert "agentLoop.lifecycle(a)" in owner.fiber.effects()
        await handle.dispose()
        assert owner.fiber.effects() == before and s.loop.lifecycles == set()


async def test_b63_a_load_that_fails_after_it_was_given_up_troubles_nobody(caplog: pytest.LogCaptureFixture) -> None:
    class Failing(SlowPersistence):
        async def prepare(self, session_id: str, signal: Any = None) -> Any:
            self.loading.set()
            while not self.go.is_set():
                try:
                    await self.go.wait()
                except asyncio.CancelledError:
                    continue
            self.released.append("failed")
            raise OSError("the disk went away")

    Failing.__abstractmethods__ = frozenset()  # type: ignore[attr-defined]
    async with spine() as s:
        await s.root.plugin(Failing)
        persistence: Any = s.root[SessionPersistence]
        abort = AbortController()
        resuming = asyncio.create_task(s.agents.resume(ResumeAgentOptions("a", ROUTE, signal=abort.signal)))
        await persistence.loading.wait()
        abort.abort(ValueError("changed my mind"))
        with pytest.raises(ValueError, match="changed my mind"):
            await resuming
        with caplog.at_level(logging.ERROR):
            persistence.go.set()
            async with asyncio.timeout(5):
                while not persistence.released:
                    await asyncio.sleep(0)
            for _ in range(5):
                await asyncio.sleep(0)
        assert nothing_there(s) and "the disk went away" not in caplog.text


async def test_b43_another_plugins_message_is_no_snapshot() -> None:
    async with spine([text_reply("a"), text_reply("b"), text_reply("c")]) as s:
        agent = s.agent()
        s.prompt.context("state", 1, "v1")
        agent.followup(say("one"))
        await agent.when_idle()
        agent.inject(create_user_message("a note", {"kind": "plugin", "plugin": "@x/other", "form": "notice"}))
        for text in ("two", "three"):
            agent.followup(say(text))
            await agent.when_idle()
        sent = [m for m in of_type(agent.session, "user/message") if m["source"].get("form") == "snapshot"]
        assert len(sent) == 1


async def test_b62_ids_stay_taken_until_the_old_agent_has_gone() -> None:
    async with spine(["hang-slow"]) as s:
        handle = await s.agents.create(options())
        handle.agent.followup(say("a"))
        await s.model.hanging.wait()
        leaving = asyncio.ensure_future(handle.dispose())
        for _ in range(5):
            await asyncio.sleep(0)
        with pytest.raises(HarnessError, match='session "a" already exists'):
            s.loop.create("a", AgentOptions("test", "m"))
        assert s.root[Agents].get("a") is handle.agent
        await leaving
        assert s.loop.create("a", AgentOptions("test", "m")).id == "a"
