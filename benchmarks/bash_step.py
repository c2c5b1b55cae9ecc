"""What a step costs whose tool call runs a command, and whether ten of them overlap, against bare asyncio subprocesses.

A scripted model answers every request with `bash` calls; the session's log is on disk, as durable as by default. The
clock is the wall's, from one model request to the next.

    python benchmarks/bash_step.py [--quick]
"""

from __future__ import annotations

import asyncio
import json
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

from _kit import Row, script

import dsh.shell.bash
import dsh.shell.subprocess
import dsh.shell.tool_bash
from dsh.cordis import Context
from dsh.core import agent_loop, agents, session_store, system_prompt, tools
from dsh.core.agent import AgentOptions
from dsh.core.agent_loop import AgentLoop
from dsh.llm import service
from dsh.llm.adapter import Adapter
from dsh.llm.message import create_user_message
from dsh.llm.service import Llm
from dsh.llm.types import LlmRequest, StreamChunk
from dsh.sessions import checkpoint_policy, jsonl

TEN = 10


class Scripted(Adapter):
    """Asks for the commands of each step in turn, then ends; notes when it was asked."""

    def __init__(self, steps: list[list[str]]) -> None:
        self._steps = steps
        self.asked: list[float] = []

    async def stream(self, request: LlmRequest) -> AsyncIterator[StreamChunk]:
        self.asked.append(time.perf_counter())
        number = len(self.asked)
        commands = self._steps[number - 1] if number <= len(self._steps) else []
        for index, command in enumerate(commands):
            arguments = json.dumps({"command": command, "description": "Measured"})
            call: Any = {"type": "tool-call", "id": f"c{number}-{index}", "name": "bash", "arguments": arguments}
            yield {"type": "block-start", "index": index, "blockType": "tool-call"}
            yield {"type": "block-end", "index": index, "block": call}
        yield {"type": "finish", "reason": {"kind": "tool-calls" if commands else "stop"}}


async def through_the_loop(steps: list[list[str]]) -> list[float]:
    """Seconds of each step."""
    model = Scripted(steps)
    with tempfile.TemporaryDirectory() as folder:
        async with Context() as root:
            for module in (service, session_store, system_prompt, tools, agents):
                await root.plugin(module)
            await root.plugin(jsonl, {"root": folder})
            await root.plugin(checkpoint_policy)
            await root.plugin(agent_loop, {"maxParallelToolCalls": TEN})
            await root.plugin(dsh.shell.subprocess, {})
            await root.plugin(dsh.shell.bash, {})
            await root.plugin(dsh.shell.tool_bash, {"allowParallel": True})
            root[Llm].register_adapter(["scripted"], model)
            agent = root[AgentLoop].create("bench", AgentOptions("scripted", "m"), {"cwd": folder})
            agent.followup(create_user_message("Go."))
            await agent.when_idle()
            results = [event for event in agent.session.events if event.type == "tool/result"]
            assert len(results) == sum(map(len, steps)) and not any("error" in event.data for event in results)
    return [after - before for before, after in zip(model.asked, model.asked[1:], strict=False)]


async def bare(command: str) -> None:
    """The shortest way the standard library offers."""
    pipe, nothing = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(
        "bash", "-c", command, stdin=nothing, stdout=pipe, stderr=pipe, start_new_session=True
    )
    await process.communicate()


async def bare_seconds(command: str, rounds: int, at_once: int = 1) -> list[float]:
    """Seconds of each round."""
    found = []
    for _ in range(rounds):
        began = time.perf_counter()
        await asyncio.gather(*(bare(command) for _ in range(at_once)))
        found.append(time.perf_counter() - began)
    return found


def rows(quick: bool) -> Iterator[Row]:
    """Measure."""
    rounds = 30 if quick else 100
    ours, least = [], []
    for _ in range(3):  # in turns, so that a busy moment hits both
        ours += asyncio.run(through_the_loop([["true"]] * (rounds // 3)))
        least += asyncio.run(bare_seconds("true", rounds // 3))
    mine, base = statistics.median(ours), statistics.median(least)
    measured = f"{mine * 1e3:.1f} : {base * 1e3:.1f} ms"
    yield Row("step with `bash -c true`, unconfined, median", measured, mine / base, "< 15 ms", mine < 0.015)
    mine = min(asyncio.run(through_the_loop([["sleep 0.2"] * TEN] * 3)))
    base = min(asyncio.run(bare_seconds("sleep 0.2", 3, TEN)))
    measured = f"{mine * 1e3:.0f} : {base * 1e3:.0f} ms"
    yield Row("step with ten overlapping `sleep 0.2`", measured, mine / base, "< 300 ms", mine < 0.3)


if __name__ == "__main__":
    script(rows)
