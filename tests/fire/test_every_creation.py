"""An agent's creation and resume given up at every moment: nothing of it is left, and the id is free again."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from dsh.cordis import AbortController
from dsh.core.agent import AgentHandle, CreateAgentOptions, ResumeAgentOptions
from dsh.core.seams import SessionPersistence
from dsh.sessions.lease import probe
from tests.fire.judge import entered_ids, judge_log, strict_rows
from tests.fire.stage import ROUTE, Actor, Stage, breathe, say, stage, within
from tests.fire.stepping import LONG, SteppingLoop, at_every_moment, run_stepping


async def make(agents: Any, how: str, session_id: str, signal: Any = None) -> AgentHandle:
    async def setup(ctx: Any) -> None:
        await breathe(2)
        ctx.on("some/event", lambda e: None)
        await breathe(2)

    if how == "create":
        options = CreateAgentOptions(
            session_id, {"cwd": "/tmp"}, agent_options=ROUTE, setup=setup, signal=signal, reserve=True
        )
        return await agents.create(options)
    return await agents.resume(ResumeAgentOptions(session_id, agent_options=ROUTE, setup=setup, signal=signal))


@pytest.mark.timeout(3600 if LONG else 180)
@pytest.mark.parametrize("how", ["create", "resume"])
@pytest.mark.parametrize("stop", ["signal", "task", "owner"])
def test_a_creation_given_up_at_any_moment_leaves_nothing(tmp_path: Path, how: str, stop: str) -> None:
    async def main(loop: SteppingLoop) -> None:
        async with stage(tmp_path) as on:
            on.model.script.clear()
            first = await make(on.s.agents, "create", "kept")
            first.agent.followup(say("first"))
            await first.agent.when_idle()
            await first.dispose()
            before = on.census()
            await at_every_moment(lambda k: trial(loop, on, k, before), at_least=10)

    async def trial(loop: SteppingLoop, on: Stage, k: int, before: Any) -> bool:
        session_id = "kept" if how == "resume" else f"new{k}"
        controller = AbortController()
        made: list[AgentHandle] = []

        async def plugin(ctx: Any, config: Any) -> None:
            made.append(await make(ctx["agents"], how, session_id, controller.signal))

        async def create() -> None:
            made.append(await make(on.s.agents, how, session_id, controller.signal))

        fiber = None
        if stop == "owner":
            fiber = on.s.root.plugin(plugin, inject=["agents"])
            work: Any = asyncio.ensure_future(_settled(fiber))
        else:
            work = asyncio.ensure_future(create())
        actions = {
            "signal": lambda: controller.abort(ValueError("given up")),
            "task": lambda: work.cancel(),
            "owner": lambda: asyncio.ensure_future(fiber.dispose()) if fiber is not None else None,
        }
        loop.arm({k: actions[stop]})
        async with within("creation"):
            await asyncio.wait({work})
        acted = loop.disarm()
        if made and stop != "owner":
            await made[0].dispose()
        if fiber is not None:
            await fiber.dispose()
        async with within("quiet"):
            while on.s.loop.abandoned or on.s.agents.list() or on.s.sessions.list() or held(tmp_path):
                await asyncio.sleep(0.001)
        # The id is free, at once, and the session whole.
        async with within("the next one"):
            again = Actor(on, await make(on.s.agents, how, session_id), calm=True)
            again.agent.followup(again.note(say("after")))
            await again.agent.when_idle()
            again.judge()
            await again.handle.dispose()
            await on.s.root[SessionPersistence].load(session_id)
        rows = strict_rows(next(tmp_path.glob(f"*/{session_id}/session.jsonl*")))
        judge_log(rows)
        assert entered_ids(rows)[-1] == again.sent[-1]
        await on.judge_left(before)
        return acted

    run_stepping(main)


def held(root: Path) -> list[Path]:
    """Sessions whose lease somebody holds."""
    return [folder for folder in root.glob("*/*") if probe(str(folder)).locked]


async def _settled(fiber: Any) -> None:
    try:
        await fiber
    except Exception:
        pass
