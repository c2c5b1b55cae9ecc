"""kill -9 at random moments of real runs, each followed by a resume through the product and one more turn.

Every trial is named by its seed: `FIRE_SEED=<seed> FIRE_COUNT=1 pytest tests/fire/test_kill.py` plays that one again
(the moment of the kill is the same, what the machine did until then is not quite).
"""

from __future__ import annotations

import asyncio
import json
import random
from pathlib import Path
from typing import Any

import pytest

from dsh.core.repair import interrupted_turn_closers
from dsh.models.mock_server import MockLlmServer
from dsh.sessions.log_file import read_log
from tests.cli.kit import Place
from tests.fire.home import composition, stored
from tests.fire.judge import Rows, entered_ids, fault_of_body, judge_log, pending_ids
from tests.fire.stepping import LONG, SEED, count
from tests.processes import until_none_with

TRIALS = count(8)

PLUGIN = """\
import asyncio, os, traceback
from dsh.core.agent_events import AgentError, AgentSessionStart
from dsh.core.session_store import Sessions
from dsh.core.tools import Tools, ToolRun
from dsh.llm.message import create_user_message

PROMPTS = [text for text in os.environ.get("FIRE_PROMPTS", "").split("|") if text]


def note(name, line):
    fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(fd, (line + "\\n").encode())
    os.close(fd)


def apply(ctx, config, tools: Tools, sessions: Sessions):
    async def work(run: ToolRun, name: str = "w") -> str:
        note("effects", run.call_id)
        await asyncio.sleep(0.01)
        note(name, run.call_id)
        return "wrote " + name

    async def alone(run: ToolRun) -> str:
        note("effects", run.call_id)
        await asyncio.sleep(0.005)
        return "done"

    tools.tool(name="work", description="Write a file.", is_concurrency_safe=True)(work)
    tools.tool(name="alone", description="Work alone.")(alone)

    async def ask(agent):
        for text in PROMPTS:
            message = create_user_message(text)
            (agent.steer if text.startswith("steer") else agent.followup)(message)
            await sessions.flush(agent.session)
            note("acks", message["id"])
            await asyncio.sleep(0.01)

    ctx.on(AgentError, lambda event: note("errors", "".join(traceback.format_exception(event.error))))
    ctx.on(AgentSessionStart, lambda event: ctx.spawn(ask, event.agent) and None)
"""


class Script:
    """A model that answers at random, but the same for the same seed; refuses requests that a provider would."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.calm = False
        self.faults: list[str] = []
        self._steps = 0
        self._calls = 0

    def __call__(self, body: Any) -> Any:
        fault = fault_of_body(body)
        if fault is not None:
            self.faults.append(fault)
            return {"status": 400, "error": {"message": fault}}
        if self.calm:
            return "success"
        kind = self.chance.choices(
            ["tools", "text", "slow", "error", "cut"],
            [5, 2 if self._steps < 4 else 20, 1, 1, 1],
        )[0]
        self._steps += 1
        match kind:
            case "tools":
                return self._tools()
            case "text":
                self._steps = 0
                return "reasoning_success"
            case "slow":
                return {"behavior": "slow_success", "slowDelayMs": 15}
            case "error":
                return self.chance.choice(["server_error", {"behavior": "rate_limit", "retryAfterMs": 5}])
        return self.chance.choice(["partial_disconnect", "connection_reset", "stream_eof"])

    def _tools(self) -> Any:
        calls: list[Any] = []
        for _ in range(self.chance.randint(1, 4)):
            self._calls += 1
            name = self.chance.choice(["work", "work", "bash", "alone"])
            arguments = {
                "work": {"name": f"file-{self._calls}"},
                "alone": {},
                "bash": {"command": f"echo {self._calls} >> shell; sleep 0.02", "description": "fire"},
            }[name]
            calls.append({"name": name, "arguments": json.dumps(arguments), "id": f"c{self._calls}"})
        return {"toolCalls": calls}


class Trial:
    """One home, killed once or more."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.chance = random.Random(seed)
        self.place = Place.make(folder)
        self.marker = f"FIRE_RUN={seed}-{folder.name}"
        self.place.env |= {"FIRE_RUN": self.marker.partition("=")[2]}
        self.place.write("fire.py", PLUGIN)
        durability = self.chance.choice(["os", "fsync"])
        layout = self.chance.choice(["", ", compression: none", ", packChunks: false", ", writeBatchMaxDelayMs: 5"])
        composition(
            self.place,
            agents="[{id: main, sessionId: steady}]",
            persistence=f", durability: {durability}{layout}",
            rows="- {id: fire, name: ./fire.py}\n",
        )
        path = self.place.work / "cordis.yml"
        retry = "config: {retryPolicy: {maxRetries: 3, backoff: {initialDelayMs: 5, maxDelayMs: 20}}}"
        path.write_text(path.read_text().replace("name: dsh-llm-deepseek\n", f"name: dsh-llm-deepseek\n  {retry}\n"))
        self.script = Script(self.chance)

    def lines(self, name: str) -> list[str]:
        """What the plugin noted, each line whole."""
        path = self.place.work / name
        return path.read_text().split("\n")[:-1] if path.exists() else []

    async def kill_a_run(self, prompts: str) -> None:
        """Start the daemon and kill it somewhere between its first import and well inside its turns."""
        process = await self.place.start("run", "cordis.yml", env={"FIRE_PROMPTS": prompts})
        acks = len(self.lines("acks"))
        if self.chance.random() < 0.85:  # most kills come when there is something to lose
            async with asyncio.timeout(30):
                while len(self.lines("acks")) == acks and process.returncode is None:
                    await asyncio.sleep(0.002)
        await asyncio.sleep(self.chance.random() * 0.4)
        if process.returncode is None:
            process.kill()
        await process.communicate()
        await until_none_with(self.marker)

    def found(self) -> str:
        """What the kill left, for the figures of a long run."""
        paths = list(self.place.home.glob("sessions/*/steady/session.jsonl*"))
        if not paths:
            return "no log yet"
        log = read_log(str(paths[0]), "steady")
        closers = [event.type for event in interrupted_turn_closers(log.events)]
        state = "a call in flight" if "tool/result" in closers else "a turn open" if closers else "between turns"
        return f"{state}{', torn' if log.torn else ''}, {len(self.lines('acks'))} acknowledged"

    def judge(self, rows: Rows) -> None:
        """Everything acknowledged is there once, every effect has its call, nothing is left to do."""
        judge_log(rows)
        entered = entered_ids(rows)
        pending = [each for ids in pending_ids(rows).values() for each in ids]
        for message in self.lines("acks"):
            there = entered.count(message)
            assert there == 1, f"the acknowledged message {message} entered {there} times, pending: {pending}"
        called = {row["data"]["callId"] for row in rows if row["type"] == "tool/call"}
        assert set(self.lines("effects")) <= called, "a body ran whose call is not in the log"


@pytest.mark.timeout(120)
@pytest.mark.parametrize("seed", range(SEED, SEED + TRIALS))
async def test_a_run_killed_at_a_random_moment_goes_on_where_it_stopped(tmp_path: Path, seed: int) -> None:
    trial = Trial(tmp_path, seed)
    place, script, chance = trial.place, trial.script, trial.chance
    try:
        async with MockLlmServer([script], repeat_last=True) as server:
            place.model(server.url)
            await trial.kill_a_run("first|steer second|third|fourth")
            if chance.random() < 0.3:
                await trial.kill_a_run("fifth|steer sixth")
            logged = list(place.home.glob("sessions/*/steady/session.jsonl*"))
            assert logged or not trial.lines("acks"), "acknowledged, and there is no log"
            if logged:
                shown = await place.dsh("sessions", "verify", "steady")
                assert shown.code == 0, shown.out + shown.err
            if LONG:
                print(f"\nseed {seed}: {trial.found()}", end=" ")
            script.calm = True
            if logged and chance.random() < 0.6:
                done = await place.dsh("resume", "steady", "after", "--output", "json")
            else:
                done = await place.dsh("run", "cordis.yml", "--prompt", "after", "--exit-when-idle")
            assert done.code == 0, "\n".join([done.err, *trial.lines("errors")])
        await until_none_with(trial.marker)
        assert not script.faults
        rows = stored(place, "steady")
        trial.judge(rows)
        assert rows[-1]["type"] == "turn/end" and rows[-1]["data"]["reason"] == {"kind": "completed"}
        said = [m["content"] for m in server.bodies[-1]["messages"] if m["role"] == "user"]
        assert said[-1] == "after" and len(set(said)) == len(said), said
    except BaseException as error:
        error.add_note(f"play it again with FIRE_SEED={seed} FIRE_COUNT=1 pytest tests/fire/test_kill.py")
        raise
