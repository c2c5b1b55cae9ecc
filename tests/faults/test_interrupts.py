"""Cancels, kills and waits in every state: cancelled means quiet, and every call has one result."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from dsh.models.mock_server import MockLlmServer
from tests.cli.kit import Place
from tests.faults.kit import PATIENCE, SPINE, fault, living, read_log, strict
from tests.faults.test_tools import calls, outputs
from tests.processes import alive, processes_with, until_gone, until_none_with

SHELL = """\
- {id: subprocess, name: dsh-subprocess-local}
- {id: bash, name: dsh-bash-local, config: {graceMs: 300}}
- {id: shell-env, name: dsh-shell-env}
- {id: tool-bash, name: dsh-tool-bash, config: {allowParallel: true}}
"""

THREADED = """\
import asyncio
from dsh.core.tools import ToolRun, Tools

def apply(ctx, config, tools: Tools):
    gate = ctx.root["gate"]

    @tools.tool
    async def threaded(run: ToolRun) -> str:
        "Work in a thread that cannot be stopped."
        await asyncio.to_thread(gate.work)
        return "the late answer"
"""


def bash(command: str) -> tuple[str, Any]:
    return "bash", {"command": command, "description": "x"}


async def appears(path: Path) -> str:
    """Wait for a file with content."""
    async with asyncio.timeout(PATIENCE):
        while not (path.exists() and path.read_text().strip()):
            await asyncio.sleep(0.005)
    return path.read_text().strip()


async def test_fault15_a_cancel_among_running_and_waiting_calls_leaves_one_result_each(tmp_path: Path) -> None:
    spine = SPINE.replace("config: {agents:", "config: {maxParallelToolCalls: 2, agents:")
    commands = [bash(f"echo $$ > {tmp_path}/{at}; sleep 300") for at in range(3)]
    async with fault(tmp_path, [calls(*commands)], SHELL, spine=spine) as life:
        life.say("go")
        pids = [int(await appears(tmp_path / str(at))) for at in range(2)]
        life.agent.cancel({"kind": "user"})
        assert (await life.quiet())["kind"] == "aborted"
        assert not any(alive(pid) for pid in pids) and not (tmp_path / "2").exists()
        codes = [found[0]["error"]["code"] for found in life.results().values()]
        assert codes == ["ABORTED", "ABORTED", "ABORTED_BEFORE_DISPATCH"]
        kinds = [event.type for event in life.agent.session.events if event.type != "assistant/chunk"]
        assert kinds[-2:] == ["step/end", "turn/end"] and kinds.count("tool/result") == 3


async def test_fault16_a_cancelled_tree_is_gone_before_the_turn_ends(tmp_path: Path) -> None:
    """The command leaves a child, and one that does not listen to TERM, in a pipe of their own."""
    marker = f"MARK=dsh-fault-16-{os.getpid()}"
    deaf = f"(trap '' TERM; echo x > {tmp_path}/up; sleep 300) >/dev/null 2>&1"
    command = f"export {marker}; sleep 300 & {deaf} & wait"
    async with fault(tmp_path, [calls(bash(command))], SHELL) as life:
        life.say("go")
        await appears(tmp_path / "up")
        assert len(processes_with(marker)) >= 2
        life.agent.cancel({"kind": "user"})
        assert (await life.quiet())["kind"] == "aborted"
        assert processes_with(marker) == []


class ThreadGate:
    def __init__(self) -> None:
        self.entered = threading.Event()
        self.open = threading.Event()
        self.finished = threading.Event()

    def work(self) -> None:
        self.entered.set()
        self.open.wait(PATIENCE)
        self.finished.set()


async def test_fault16_what_a_thread_still_answers_after_the_cancel_is_discarded_and_that_is_said(
    tmp_path: Path,
) -> None:
    gate = ThreadGate()
    async with MockLlmServer([strict(calls(("threaded", {}))), strict("success")]) as server:
        rows = "- {id: threaded, name: ./threaded.py}\n"
        async with living(tmp_path, server, rows, {"threaded.py": THREADED}, values={"gate": gate}) as life:
            life.say("go")
            await asyncio.to_thread(gate.entered.wait, PATIENCE)
            life.agent.cancel({"kind": "user"})
            await asyncio.sleep(0)
            gate.open.set()
            assert (await life.quiet())["kind"] == "aborted"
            assert gate.finished.is_set()
            ((result,),) = life.results().values()
            assert result["error"]["code"] == "ABORTED" and "late answer" not in str(result)
            assert await life.prompt("next") == {"kind": "completed"}
            assert "aborted" in outputs(life.messages)["c0"]


SLOW_PROMPT = """\
import asyncio
from dsh.core.system_prompt import SystemPrompt

def apply(ctx, config, prompt: SystemPrompt):
    gate = ctx.root["gate"]
    async def variable(scope):
        if not gate["hold"]:
            return "x"
        gate["entered"].set()
        await asyncio.Event().wait()
    prompt.variable("slow", variable)
    prompt.section("slow", 50, "{{slow}}")
"""

SLOW_HOOK = """\
import asyncio
from dsh.core.agent_events import AgentPreStep, AgentRequest, AgentTurnStopping
from dsh.core.tool_events import ToolsPreExecute, ToolsPostExecute
from dsh.core.tools import Tools
from dsh.llm.service import Llm

EVENTS = {"pre-step": AgentPreStep, "request": AgentRequest, "policy": ToolsPreExecute, "post": ToolsPostExecute}

def apply(ctx, config, tools: Tools):
    gate = ctx.root["gate"]

    async def held(event, next):
        if gate["hold"]:
            gate["entered"].set()
            # As a listener that waits for something outside and listens to its signal.
            signal = getattr(event, "signal", None) or event.exec.signal
            await signal.wait()
            signal.raise_if_aborted()
        return await next()
    ctx.on(EVENTS[config["where"]], held)

    @tools.tool
    async def echo() -> str:
        "Say."
        return "said"
"""


@pytest.mark.parametrize("where", ["prompt", "pre-step", "request", "policy", "post"])
async def test_fault17_a_cancel_reaches_every_place_where_a_turn_waits(tmp_path: Path, where: str) -> None:
    gate: dict[str, Any] = {"hold": True, "entered": asyncio.Event()}
    plugins = {"slow.py": SLOW_PROMPT if where == "prompt" else SLOW_HOOK}
    rows = f"- {{id: slow, name: ./slow.py, config: {{where: {where}}}}}\n"
    asked = where in ("policy", "post")
    script = [strict(calls(("echo", {})))] if asked else []
    async with MockLlmServer([*script, strict("success")]) as server:
        async with living(tmp_path, server, rows, plugins, values={"gate": gate}) as life:
            life.say("go")
            async with asyncio.timeout(PATIENCE):
                await gate["entered"].wait()
            life.agent.cancel({"kind": "user"})
            async with asyncio.timeout(5):
                await life.agent.when_idle()
            assert life.of_type("turn/end")[-1]["reason"]["kind"] == "aborted"
            assert all(len(found) == 1 for found in life.results().values())
            gate["hold"] = False
            assert await life.prompt("next") == {"kind": "completed"}


async def test_fault17_a_cancel_ends_the_wait_for_headers_and_that_for_a_retry(tmp_path: Path) -> None:
    spine = SPINE.replace("initialDelayMs: 1, maxDelayMs: 1,", "initialDelayMs: 60000, maxDelayMs: 60000,")
    async with MockLlmServer([strict("server_error"), strict("stall"), strict("success")]) as server:
        async with living(tmp_path, server, spine=spine) as life:
            life.say("retry")
            await life.until("llm/retry")
            life.agent.cancel({"kind": "user"})
            assert (await life.quiet())["kind"] == "aborted"
            life.say("stall")
            await asyncio.wait_for(server.wait_for_requests(2), PATIENCE)
            life.agent.cancel({"kind": "user"})
            assert (await life.quiet())["kind"] == "aborted"
            await asyncio.wait_for(server.requests[1].done.wait(), PATIENCE)
            assert server.requests[1].outcome == "client_closed"
            assert await life.prompt("next") == {"kind": "completed"}


# --- whole processes


COMPOSITION = SPINE.replace("./sessions", "!!js dshHomePath('sessions')") + SHELL


@pytest.fixture
def place(tmp_path: Path) -> Place:
    place = Place.make(tmp_path)
    place.write("cordis.yml", COMPOSITION)
    return place


def log_of(place: Place) -> list[Any]:
    (path,) = place.home.glob("sessions/*/s/session.jsonl")
    return read_log(path)


def of_type(rows: list[Any], kind: str) -> list[Any]:
    return [row["data"] for row in rows if row["type"] == kind]


async def test_fault15_a_kill_among_calls_is_repaired_by_the_next_start(place: Place) -> None:
    place.write("cordis.yml", COMPOSITION.replace("{agents:", "{maxParallelToolCalls: 2, agents:"))
    commands = [bash(f"echo $$ > {place.work}/{at}; sleep 300") for at in range(3)]
    async with MockLlmServer([strict(calls(*commands)), strict("success"), strict("success")]) as server:
        place.env |= {"MODEL_URL": server.url, "DEEPSEEK_API_KEY": "test-key"}
        async with place.daemon("--prompt", "go") as daemon:
            pids = [int(await appears(place.work / str(at))) for at in range(2)]
            daemon.signal(signal.SIGKILL)
            await daemon.finish()
        for pid in pids:
            await until_gone(pid)
        again = await place.dsh("run", "--prompt", "and now?", "--exit-when-idle")
        assert again.code == 0, again.err
        rows = log_of(place)
        results = {data["message"]["source"]["callId"]: data["error"]["code"] for data in of_type(rows, "tool/result")}
        assert results == {"c0": "TOOL_OUTCOME_UNKNOWN", "c1": "TOOL_OUTCOME_UNKNOWN", "c2": "TOOL_NOT_STARTED"}
        assert [data["reason"]["kind"] for data in of_type(rows, "turn/end")] == ["interrupted", "completed"]
        assert (await place.dsh("resume", "s", "once more")).code == 0
        log_of(place)


@pytest.mark.parametrize(
    ("signals", "codes"),
    [((signal.SIGTERM,), {0}), ((signal.SIGINT,), {130}), ((signal.SIGTERM, signal.SIGINT), {143, 130})],
    ids=["term", "int", "both"],
)
async def test_fault18_a_signal_closes_the_turn_ends_children_and_says_its_code(
    place: Place, signals: tuple[signal.Signals, ...], codes: set[int]
) -> None:
    """The command does not listen to TERM, so that a second signal finds the first one still at work.

    Two that come together are taken in any order; the code is that of the second.
    """
    twice = len(signals) == 2
    grace = 60_000 if twice else 300
    place.write("cordis.yml", COMPOSITION.replace("graceMs: 300", f"graceMs: {grace}"))
    marker = f"MARK=dsh-fault-18-{os.getpid()}"
    command = f"export {marker}; trap '' TERM; echo $$ > {place.work}/up; while :; do sleep 0.1; done"
    async with MockLlmServer([strict(calls(bash(command))), strict("success")]) as server:
        place.env |= {"MODEL_URL": server.url, "DEEPSEEK_API_KEY": "test-key"}
        async with place.daemon("--prompt", "go") as daemon:
            await appears(place.work / "up")
            for number in signals:
                daemon.signal(number)
            assert await daemon.finish() in codes, daemon.err
            assert not twice or "took longer than" not in daemon.err
        await until_none_with(marker)
        if not twice:
            (end,) = of_type(log_of(place), "turn/end")
            assert end["reason"] == {"kind": "aborted", "reason": {"kind": "disposed"}}
        again = await place.dsh("resume", "s", "and now?")
        assert again.code == 0, again.err
        reasons = [data["reason"]["kind"] for data in of_type(log_of(place), "turn/end")]
        assert reasons == ["interrupted" if twice else "aborted", "completed"]
        assert len(of_type(log_of(place), "tool/result")) == 1
