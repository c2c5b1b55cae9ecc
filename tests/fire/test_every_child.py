"""Cancel and dispose at every moment until commands run: no process of them is left when the agent is quiet."""

from __future__ import annotations

import asyncio
import json
import uuid
from typing import Any

import pytest

import dsh.shell.bash
import dsh.shell.subprocess
import dsh.shell.tool_bash
from tests.core.kit import text_reply, tool_reply
from tests.fire.judge import entered_ids
from tests.fire.stage import say, stage, within
from tests.fire.stepping import LONG, SteppingLoop, at_every_moment, run_stepping
from tests.processes import processes_with

LEAP = 1 if LONG else 2


def command(marker: str) -> str:
    line = f"export FIRE={marker}; (trap '' TERM; exec sleep 60) & sleep 60; wait"
    return json.dumps({"command": line, "description": "fire"})


@pytest.mark.timeout(3600 if LONG else 180)
@pytest.mark.parametrize("act", ["cancel", "dispose"])
def test_no_process_outlives_the_turn_that_started_it(act: str) -> None:
    async def main(loop: SteppingLoop) -> None:
        async with stage(maxParallelToolCalls=3) as on:
            await on.s.root.plugin(dsh.shell.subprocess, {})
            await on.s.root.plugin(dsh.shell.bash, {"graceMs": 50})
            await on.s.root.plugin(dsh.shell.tool_bash, {"allowParallel": True})
            await at_every_moment(lambda k: trial(loop, on, k), step=LEAP, at_least=25)

    async def trial(loop: SteppingLoop, on: Any, k: int) -> bool:
        marker = uuid.uuid4().hex
        calls = tool_reply(*(("bash", command(marker), f"c{n}") for n in range(3)))
        on.model.script = [calls, text_reply("done"), text_reply("second")]
        actor = await on.agent("a")
        disposals: list[asyncio.Future[None]] = []
        in_time: list[bool] = []

        def now(is_in_time: bool) -> None:
            in_time.append(is_in_time)
            if act == "cancel":
                actor.agent.cancel({"kind": "user"})
            else:
                disposals.append(asyncio.ensure_future(actor.handle.dispose()))

        def at_rest(steps: int) -> None:
            """When the commands run and nothing else happens any more, the moment will not come."""
            if in_time:
                return
            if loop.steps == steps:
                loop.disarm()
                now(False)
            else:
                loop.call_later(0.3, at_rest, loop.steps)

        loop.arm({k: lambda: now(True)})
        actor.start()
        loop.call_later(0.3, at_rest, 0)
        async with within("the turn"):
            await actor.agent.when_idle()
        loop.disarm()
        assert processes_with(f"FIRE={marker}") == []
        actor.judge()
        if act == "cancel":
            on.model.calm.add(actor.agent.id)
            actor.agent.followup(actor.note(say("after")))
            async with within("the next turn"):
                await actor.agent.when_idle()
            assert actor.sent[-1] in entered_ids(actor.rows)
        async with within("disposal"):
            await asyncio.gather(*disposals, actor.handle.dispose())
        assert processes_with(f"FIRE={marker}") == []
        assert asyncio.all_tasks() <= on.standing_tasks | mounted(on), asyncio.all_tasks()
        return in_time == [True]

    def mounted(on: Any) -> set[Any]:
        """Tasks of the shell's own rows."""
        return {owned.task for owned in on.s.root.runtime.tasks.values()}

    run_stepping(main)
