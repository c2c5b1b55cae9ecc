"""What one tool step costs the process itself, near step 50 and near step 1,000 of one turn.

    python benchmarks/step.py [--quick]

A scripted model answers every request with one tool call, the tool does next to nothing, and the session's log is
written behind with its barriers before requests and tool bodies: once waiting for the operating system (durability
``os``), which has the target, and once for the disk (``fsync``). The clock is the CPU time of the whole process, the
log's writer thread included. The yardstick is a bare asyncio loop that awaits the same chunks and the same body.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

from _kit import Row, script

from dsh.cordis import Context
from dsh.core import agent_loop, agents, session_store, system_prompt, tools
from dsh.core.agent import AgentOptions
from dsh.core.agent_loop import AgentLoop
from dsh.core.system_prompt import SystemPrompt
from dsh.core.tools import Tools
from dsh.llm import service
from dsh.llm.adapter import Adapter
from dsh.llm.message import create_user_message
from dsh.llm.service import Llm
from dsh.llm.types import LlmRequest, StreamChunk
from dsh.sessions import checkpoint_policy, jsonl

WINDOWS = {50: 1.0, 1000: 1.5}
"""Step to measure around, and the most it may cost in milliseconds."""
HALF = 20
STEPS = max(WINDOWS) + HALF


def reply(step: int) -> list[StreamChunk]:
    """A short remark in four deltas, then one tool call."""
    call = f"call-{step}"
    return [
        {"type": "block-start", "index": 0, "blockType": "text"},
        *({"type": "text-delta", "index": 0, "text": f"piece {n} of the remark "} for n in range(4)),  # type: ignore[list-item]
        {"type": "block-start", "index": 1, "blockType": "tool-call"},
        {
            "type": "tool-call-delta",
            "index": 1,
            "id": call,
            "name": "touch",
            "argumentsDelta": '{"path": "src/main.py"}',
        },
        {
            "type": "finish",
            "reason": {"kind": "tool-calls"},
            "replayState": {"response": {"id": f"r-{step}"}},
        },
    ]


FINAL: list[StreamChunk] = [
    {"type": "block-start", "index": 0, "blockType": "text"},
    {"type": "text-delta", "index": 0, "text": "done"},
    {"type": "finish", "reason": {"kind": "stop"}},
]


class Clock:
    """CPU time of the process at the start of each step."""

    def __init__(self) -> None:
        self.at: list[float] = []

    def around(self, step: int) -> float:
        """Milliseconds of one step, averaged over those around `step`."""
        first, last = step - HALF, step + HALF
        return (self.at[last - 1] - self.at[first - 1]) / (last - first) * 1e3


class Scripted(Adapter):
    """Calls the tool in every step and notes when each request arrived."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    async def stream(self, request: LlmRequest) -> AsyncIterator[StreamChunk]:
        self._clock.at.append(time.process_time())
        step = len(self._clock.at)
        for chunk in reply(step) if step < STEPS + 1 else FINAL:
            await asyncio.sleep(0)
            yield chunk


async def touch(path: str) -> str:
    """Do next to nothing."""
    await asyncio.sleep(0)
    return path


async def ours(folder: str, durability: str) -> Clock:
    """One turn of `STEPS` tool steps through the whole spine."""
    clock = Clock()
    async with Context() as root:
        for module in (service, session_store, system_prompt, tools, agents):
            await root.plugin(module)
        await root.plugin(jsonl, {"root": folder, "durability": durability})
        await root.plugin(checkpoint_policy)
        await root.plugin(agent_loop)
        root[Llm].register_adapter(["scripted"], Scripted(clock))
        root[Tools].tool(touch)
        root[SystemPrompt].section("persona", 10, "You are a careful engineer. " * 40)
        agent = root[AgentLoop].create("bench", AgentOptions("scripted", "m"), {"cwd": folder})
        agent.followup(create_user_message("Go."))
        await agent.when_idle()
        reason: Any = agent.session.events[-1].data["reason"]
        assert reason["kind"] == "completed", reason
    return clock


async def bare() -> Clock:
    """The same awaits and nothing else."""
    clock = Clock()
    model = Scripted(clock)
    for _ in range(STEPS + 1):
        async for _chunk in model.stream(None):  # type: ignore[arg-type]
            pass
        await asyncio.get_running_loop().create_task(touch("src/main.py"))
    return clock


def rows(quick: bool) -> Iterator[Row]:
    """Measure."""
    measured: dict[str, list[Clock]] = {"os": [], "fsync": [], "bare": []}
    for _ in range(1 if quick else 3):
        for durability in ("os", "fsync"):
            with tempfile.TemporaryDirectory() as folder:
                measured[durability].append(asyncio.run(ours(folder, durability)))
        measured["bare"].append(asyncio.run(bare()))
    for durability in ("os", "fsync"):
        for step, budget in WINDOWS.items():
            mine, base = (min(clock.around(step) for clock in measured[kind]) for kind in (durability, "bare"))
            target, held = (f"<= {budget} ms", mine <= budget) if durability == "os" else ("", True)
            work = f"own cpu of step {step:,}, scripted model, log on, {durability}"
            yield Row(work, f"{mine:.2f} : {base:.2f} ms", mine / base, target, held)


if __name__ == "__main__":
    script(rows)
