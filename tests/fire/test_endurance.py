"""Long runs leave nothing behind: reloads, agents, turns, sessions; then quiet."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from dsh.core.agent import AgentOptions, CreateAgentOptions
from dsh.llm.adapter import Adapter
from dsh.models.mock_server import MockLlmServer
from dsh.sessions import checkpoint_policy, jsonl
from tests.cli.kit import Place
from tests.core.kit import Spine, spine, text_reply, tool_reply
from tests.fire.census import census, judge_level
from tests.fire.home import composition
from tests.fire.judge import fault_of_body
from tests.fire.stage import say
from tests.fire.stepping import LONG, count
from tests.loader.hmr_helpers import Project, forget_local_modules, running

ROUTE = AgentOptions("fire", "m")


def told(what: str, line: str) -> None:
    """Show the figures of a long run (`pytest -s`)."""
    if LONG:
        print(f"\n{what}: {line}")


class Endless(Adapter):
    """A step with a tool for each prompt, then a text."""

    async def stream(self, request: Any) -> Any:
        last = request.messages[-1]["content"][-1]
        reply = text_reply("done") if last["type"] == "tool-result" else tool_reply(("work", "{}"))
        for chunk in reply:
            await asyncio.sleep(0)
            yield chunk


@asynccontextmanager
async def working_spine(disk: Path, *, companions: bool = True) -> AsyncIterator[Spine]:
    """A spine that persists in `disk`, with a model that calls a tool for each prompt."""
    async with spine(companions=companions) as s:
        s.llm.register_adapter(["fire"], Endless())
        await s.root.plugin(jsonl, {"root": str(disk), "durability": "os", "writeBatchMaxDelayMs": 1})
        await s.root.plugin(checkpoint_policy)

        def work() -> str:
            return "worked"

        s.tools.tool(name="work", description="Work.")(work)
        yield s


@pytest.mark.timeout(3600 if LONG else 180)
async def test_reloads_of_config_and_code(tmp_path: Path) -> None:
    project = Project(tmp_path)
    forget_local_modules()
    body = """\
    ctx.on("some/event", lambda e: None)
    ctx.provide("thing", object())
    ctx.spawn(wait)
    del log[:]
    log.append("v{number}")
    log.append(f"c{config['number']}")
    """
    head = "import asyncio\n\n\nasync def wait():\n    await asyncio.Event().wait()\n"
    hmr = "- {id: hmr, name: hmr, config: {debounce: 4}}\n"
    rows = "- {id: one, name: ./plugins/one.py, config: {number: %d}}\n- {id: user, name: ./plugins/user.py}\n"
    project.plugin("one", body.replace("{number}", "0"), head=head)
    project.plugin("user", head="inject = ['thing']")
    project.rows(rows % 0, hmr=hmr)
    reloads, samples = count(50), []
    async with running(project) as run:
        for number in range(1, reloads + 1):
            if number % 2:
                project.plugin("one", body.replace("{number}", str(number)), head=head)
                await run.until(lambda number=number: f"v{number}" in run.log)
            else:
                project.rows(rows % number, hmr=hmr)
                await run.until(lambda number=number: f"c{number}" in run.log)
            run.reloads.clear()
            run.changes.clear()
            if number % max(1, reloads // 8) == 0:
                await run.quiet_census()
                samples.append(census(run.root))
        told(f"{reloads} reloads", judge_level(samples))


@pytest.mark.timeout(3600 if LONG else 180)
async def test_agents_created_and_disposed(tmp_path: Path) -> None:
    cycles, samples = count(200), []
    async with working_spine(tmp_path) as s:
        for number in range(1, cycles + 1):
            options = CreateAgentOptions(f"a{number}", {"cwd": "/tmp"}, agent_options=ROUTE, reserve=bool(number % 2))
            handle = await s.agents.create(options)
            if number % 3 == 0:
                handle.agent.followup(say("go"))
                await handle.agent.when_idle()
            await handle.dispose()
            if number % max(1, cycles // 8) == 0:
                samples.append(census(s.root))
        told(f"{cycles} agents", judge_level(samples))


@pytest.mark.timeout(3600 if LONG else 180)
async def test_turns_of_one_agent(tmp_path: Path) -> None:
    """The history grows and nothing else; it grows by the same for each turn."""
    turns, samples = count(200), []
    async with working_spine(tmp_path, companions=False) as s:
        handle = await s.agents.create(CreateAgentOptions("a", {"cwd": "/tmp"}, agent_options=ROUTE))
        for number in range(1, turns + 1):
            handle.agent.followup(say("go"))
            await handle.agent.when_idle()
            if number % max(1, turns // 8) == 0:
                await s.sessions.flush(handle.agent.session)
                samples.append(census(s.root))
        first = samples[len(samples) // 2]["objects"] - samples[0]["objects"]
        second = samples[-1]["objects"] - samples[-1 - len(samples) // 2]["objects"]
        assert second < first * 1.1, f"the second half of the turns costs more: {first}, then {second} objects"
        told(f"{turns} turns", judge_level(samples, objects=2, resident=2))
        await handle.dispose()


SOAK = """\
import asyncio, json, os, sys, uuid
sys.path.insert(0, os.environ["FIRE_REPO"])
from dsh.core.agent import CreateAgentOptions
from dsh.core.agents import Agents
from dsh.llm.message import create_user_message
from dsh.loader.boot import when_started
from tests.fire.census import census


def apply(ctx, config, agents: Agents):
    async def soak():
        await when_started(ctx)
        for number in range(int(os.environ["FIRE_SESSIONS"])):
            options = CreateAgentOptions(f"s-{uuid.uuid4()}", {"cwd": os.getcwd()})
            async with await agents.create(options) as agent:
                agent.followup(create_user_message("go"))
                await agent.when_idle()
                del agent
            if number % int(os.environ["FIRE_EVERY"]) == 0:
                report(census(ctx.root))
        for _ in range(4):
            await asyncio.sleep(0.25)  # idle
            report(census(ctx.root))
        ctx.get("appExit")(0)

    def report(counts):
        with open("samples", "a") as file:
            file.write(json.dumps(counts) + "\\n")

    ctx.spawn(soak)
"""


@pytest.mark.timeout(3600 if LONG else 180)
async def test_f61_sessions_one_after_another_in_one_daemon_then_idle(tmp_path: Path) -> None:
    sessions, steps = (count(10), 200) if LONG else (24, 40)
    place = Place.make(tmp_path)
    place.write("soak.py", SOAK)
    place.write("notes.txt", "a line of text\n" * 40)
    composition(
        place,
        persistence=", durability: os",
        rows="- {id: fs, name: dsh-fs-local}\n- {id: observation, name: dsh-fs-observation-policy}\n"
        "- {id: tool-fs, name: dsh-tool-fs}\n- {id: soak, name: ./soak.py}\n",
    )
    place.env |= {
        "FIRE_REPO": str(Path(__file__).parents[2]),
        "FIRE_SESSIONS": str(sessions),
        "FIRE_EVERY": str(max(1, sessions // 12)),
    }
    done = 0
    read = {"toolCalls": [{"name": "read", "arguments": json.dumps({"path": "notes.txt"})}]}

    def reply(body: Any) -> Any:
        nonlocal done
        server.requests.clear()
        fault = fault_of_body(body) if len(body["messages"]) % 20 == 0 else None
        assert fault is None, fault
        done += 1
        return "success" if done % (steps + 1) == 0 else read

    async with MockLlmServer([reply], repeat_last=True) as server:
        place.model(server.url)
        process = await place.start("run", "cordis.yml", "--no-watch")
        _, said = await process.communicate()
        assert process.returncode == 0, said.decode()
    assert done == sessions * (steps + 1), said.decode()
    samples = [json.loads(line) for line in (place.work / "samples").read_text().splitlines()]
    told(f"{sessions} sessions of {steps} steps", judge_level(samples, objects=0.005))
