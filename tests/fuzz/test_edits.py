"""Edits of every kind at any step of a turn: no call without its result, no turn without its end, and once the file is
good again the session goes on, now and resumed."""

from __future__ import annotations

import asyncio
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from dsh.core.agent_loop import AgentLoop
from dsh.loader.problems import LoadError
from dsh.models.mock_server import MockLlmServer
from tests.faults.kit import PATIENCE, SPINE, Life, living, strict
from tests.fuzz.kit import fuzz

TOOL = """\
from dsh.core.tools import Tools

def apply(ctx, config, tools: Tools):
    steps = ctx.root["steps"]

    @tools.tool
    async def step() -> str:
        "Wait until the test has done something."
        entered, go = steps
        entered.set()
        await go.wait()
        go.clear()
        return (config or {}).get("word", "none")
"""
ROW = "- {id: mine, name: ./mine.py, config: {word: one}}\n"
AGENT = "{id: main, sessionId: s, provider: deepseek-official, model: deepseek-v4-flash}"
BASE = SPINE + ROW
MODEL = SPINE[SPINE.index("- id: llm-deepseek") : SPINE.index("- {id: llm-retry")]

EDITS: dict[str, str] = {
    "same": BASE,
    "tool config": BASE.replace("word: one", "word: two"),
    "no tool": SPINE,
    "no model": BASE.replace(MODEL, ""),
    "retries": BASE.replace("maxRetries: 1", "maxRetries: 2"),
    "no retry": BASE.replace("- {id: llm-retry, name: dsh-llm-retry}\n", ""),
    "agent changed": BASE.replace(AGENT, AGENT.replace("}", ", maxTokens: 99}")),
    "no agent": BASE.replace(AGENT, ""),
    "persona": BASE.replace("name: dsh-system-prompt}", "name: dsh-system-prompt, config: {persona: Be kind.}}"),
    "no checkpoints": BASE.replace("- {id: checkpoints, name: dsh-session-checkpoint-policy}\n", ""),
    "limits": BASE + "- {id: limits, name: dsh-turn-limits, config: {maxStepsPerTurn: 3}}\n",
    "prompt restarts": BASE.replace("name: dsh-system-prompt}", "name: dsh-system-prompt, label: x, inject: [llm]}"),
    "tools restart": BASE.replace("name: dsh-tools}", "name: dsh-tools, inject: [llm]}"),
    "broken": "- {id: [",
    "wrong": BASE.replace("maxRetries: 1", "maxRetries: many"),
    "unknown": BASE + "- {id: x, name: dsh-no-such-plugin}\n",
    "fails": BASE + "- {id: mine2, name: ./mine.py}\n",
}
CALL = {"toolCalls": [{"name": "step", "arguments": {}}]}


@fuzz(80)
@given(st.lists(st.lists(st.sampled_from(list(EDITS)), min_size=1, max_size=2), min_size=1, max_size=4))
def test_any_edits_in_the_middle_of_a_turn_leave_a_session_that_goes_on(edits: list[list[str]]) -> None:
    async def run(folder: Path) -> None:
        number = 0

        def reply(body: Any) -> Any:
            nonlocal number
            number += 1
            called = sum(len(message.get("tool_calls", ())) for message in body["messages"])
            if body["messages"][-1]["content"] in ("and now?", "once more") or "tools" not in body or called > 8:
                return strict("success")
            call = {**CALL["toolCalls"][0], "id": f"c{number}"}
            return strict({"toolCalls": [call]})

        steps = asyncio.Event(), asyncio.Event()
        async with MockLlmServer([reply], repeat_last=True) as server:
            async with living(folder, server, ROW, {"mine.py": TOOL}, values={"steps": steps}) as life:
                life.say("go")
                for kinds in edits:
                    with suppress(TimeoutError):
                        async with asyncio.timeout(0.5):
                            await steps[0].wait()
                    steps[0].clear()
                    for kind in kinds:
                        with suppress(LoadError):
                            await life.edit(EDITS[kind])
                    steps[1].set()
                    await asyncio.sleep(0)
                await life.edit(BASE)
                await settled(life, steps[1])
                assert await life.prompt("and now?") == {"kind": "completed"}
                balanced(life)
                life.log()
            async with living(folder, server, ROW, values={"steps": steps}) as life:
                assert await life.prompt("once more") == {"kind": "completed"}
                balanced(life)

    with tempfile.TemporaryDirectory(prefix="dsh-fuzz-") as folder:
        asyncio.run(asyncio.wait_for(run(Path(folder)), 50))


async def settled(life: Life, go: asyncio.Event) -> None:
    """Let every waiting call go on until the configured agent is there and idle."""

    async def open_the_gate() -> None:
        while True:
            go.set()
            await asyncio.sleep(0.002)

    gate = asyncio.create_task(open_the_gate())
    try:
        async with asyncio.timeout(PATIENCE):
            await life.root[AgentLoop].configured.settled()
            while (agent := life.root[AgentLoop].configured.agent("main")) is None:
                await asyncio.sleep(0.01)
            await agent.when_idle()
    finally:
        gate.cancel()


def balanced(life: Life) -> None:
    kinds = [event.type for event in life.agent.session.events]
    assert kinds.count("turn/start") == kinds.count("turn/end") and kinds.count("step/start") == kinds.count("step/end")
    assert all(len(found) == 1 for found in life.results().values())
