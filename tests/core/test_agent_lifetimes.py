"""What agents leave behind: nothing, whether they end well, are cancelled, or are given up half way."""

from __future__ import annotations

import asyncio
import gc
import weakref
from typing import Any

from dsh.cordis import AbortSignal
from dsh.core.agent import AgentOptions, CreateAgentOptions
from dsh.core.configured_agents import AgentRow
from dsh.core.seams import SessionPersistence
from dsh.llm.message import create_user_message
from dsh.llm.types import LlmRequest
from tests.core.kit import of_type, spine, text_reply, tool_reply
from tests.core.test_loop_lifecycle import SlowPersistence

CYCLES = 200


async def test_disposed_agents_are_collectable_and_leave_no_task_or_effect() -> None:
    script: list[Any] = []
    for _ in range(CYCLES):
        script += [tool_reply(("add", '{"a": 1, "b": 2}')), text_reply("three")]
    async with spine(script, companions=False) as s:
        s.model.requests = _Forgetful()

        @s.tools.tool
        def add(a: int, b: int) -> int:
            """Add two numbers."""
            return a + b

        async def cycle(n: int) -> weakref.ref[Any]:
            handle = await s.agents.create(
                CreateAgentOptions(f"a{n}", agent_options=AgentOptions("test", "m"), setup=_register_things)
            )
            handle.agent.followup(create_user_message("what is one and two?"))
            await handle.agent.when_idle()
            assert of_type(handle.agent.session, "turn/end")[-1]["reason"] == {"kind": "completed"}
            await handle.dispose()
            return weakref.ref(handle.agent)

        await cycle(0)
        before = _footprint(s)
        agents = [await cycle(n) for n in range(1, CYCLES)]
        await asyncio.sleep(0)
        assert _footprint(s) == before
        gc.collect()
        assert [agent() for agent in agents if agent() is not None] == []


async def test_a_connection_opened_in_a_turn_does_not_keep_its_agent() -> None:
    """A transport made while an agent runs lives on with that agent's context variables."""
    gate = asyncio.Event()
    pool: list[asyncio.Task[bool]] = []

    def reply(_: LlmRequest) -> Any:
        pool.append(asyncio.get_running_loop().create_task(gate.wait()))
        return text_reply("hello")

    async with spine([reply], companions=False) as s:
        s.model.requests = _Forgetful()

        async def cycle() -> weakref.ref[Any]:
            handle = await s.agents.create(CreateAgentOptions("a", agent_options=AgentOptions("test", "m")))
            handle.agent.followup(create_user_message("hi"))
            await handle.agent.when_idle()
            await handle.dispose()
            return weakref.ref(handle.agent)

        agent = await cycle()
        await asyncio.sleep(0)
        gc.collect()
        assert agent() is None
        gate.set()
        await asyncio.gather(*pool)


async def test_maintenance_cancelled_before_it_ran_frees_the_agent() -> None:
    async with spine() as s:
        agent = s.agent()

        never = asyncio.get_running_loop().create_future()

        def job(_: AbortSignal) -> asyncio.Future[None]:
            return never

        work = asyncio.ensure_future(agent.run_maintenance(job))
        work.cancel()
        await asyncio.wait({work})
        async with asyncio.timeout(5):
            await agent.when_idle()
        assert await agent.run_maintenance(lambda _: asyncio.sleep(0, "done")) == "done"


async def test_cancelled_waiting_for_configured_agents_does_not_hold_the_loop_up() -> None:
    async with spine() as s:
        await s.root.plugin(SlowPersistence)
        persistence: Any = s.root[SessionPersistence]
        s.loop.configured.update([AgentRow.validate({"id": "a", "resumeSessionId": "stored"})])
        await persistence.loading.wait()
        waiter = asyncio.ensure_future(s.loop.configured.settled())
        await asyncio.sleep(0)
        waiter.cancel()
        await asyncio.wait({waiter})
        persistence.go.set()
        async with asyncio.timeout(5):
            await s.loop.configured.settled()
            await s.loop.ctx.fiber.dispose()
        assert len(s.loop.tasks) == 0


class _Forgetful(list[LlmRequest]):
    def append(self, _: LlmRequest) -> None:
        """Requests hold the conversation; remembering them would be the leak this file looks for."""


def _register_things(ctx: Any) -> None:
    ctx.on("agent/status", lambda event: None)


def _footprint(s: Any) -> tuple[int, int, int, int]:
    return len(asyncio.all_tasks()), len(s.loop.tasks), len(s.loop.lifecycles), _effects(s.root.inspect())


def _effects(node: Any) -> int:
    if isinstance(node, dict):
        return 1 + sum(_effects(child) for child in node.values())
    if isinstance(node, (list, tuple)):
        return 1 + sum(_effects(child) for child in node)
    return 1
