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
from tests.fire.stepping import LONG, SteppingLoop, run_stepping
from tests.processes import processes_with

LEAP = 1 if LONG else 2
FAR = 2_000


def command(marker: str) -> str:
    line = f"export FIRE={marker}; (trap '' TERM; exec sleep 60) & sleep 60; wait"
    return json.dumps({"command": line, "description": "fire"})


@pytest.mark.timeout(3600 if LONG else 180)
@pytest.mark.parametrize("act", ["cancel", "dispose"])
def test_no_process_outlives_the_turn_that_started_it(act: str) -> None:
    async def main(loop: SteppingLoop) -> int:
        async with stage(maxParallelToolCalls=3) as on:
            await on.s.root.plugin(dsh.shell.subprocess, {})
            await on.s.root.plugin(dsh.shell.bash, {"graceMs": 50})
            await on.s.root.plugin(dsh.shell.tool_bash, {"allowParallel": True})
            for k in range(1, FAR, LEAP):
                marker = uuid.uuid4().hex
                calls = tool_reply(*(("bash", command(marker), f"c{n}") for n in range(3)))
                on.model.script = [calls, text_reply("done"), text_reply("second")]
                try:
                    if not await trial(loop, on, k, marker):
                        return k
                except BaseException as error:
                    error.add_note(f"at moment {k}")
                    raise
        raise AssertionError("the commands never came to run")

    async def trial(loop: SteppingLoop, on: Any, k: int, marker: str) -> bool:
        actor = await on.agent("a")
        disposals: list[asyncio.Future[None]] = []

        fired: list[str] = []

        def now(how: str) -> None:
            if fired:
                return
            fired.append(how)
            if act == "cancel":
                actor.agent.cancel({"kind": "user"})
            else:
                disposals.append(asyncio.ensure_future(actor.handle.dispose()))

        loop.arm({k: lambda: now("at its moment")})
        actor.start()
        timer = loop.call_later(0.4, now, "the commands run, and nothing else happens any more")
        async with within("the turn"):
            await actor.agent.when_idle()
        timer.cancel()
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
        return fired == ["at its moment"]

    def mounted(on: Any) -> set[Any]:
        """Tasks of the shell's own rows."""
        return {owned.task for owned in on.s.root.runtime.tasks.values()}

    assert run_stepping(main) > 25, "hardly anything happened"
