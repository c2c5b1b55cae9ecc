"""How a run ended: the exit code and the last line of output for programs say the same, whatever happened."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path
from typing import Any

import pytest

from dsh.models.mock_server import MockLlmServer
from tests.cli.kit import TIMEOUT, Finished, Place

FAST = "llm-deepseek.retryPolicy={mode: normal, maxRetries: 0}"
LOOP = {"toolCalls": [{"name": "clock", "arguments": {}}]}


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place.make(tmp_path)


def last(done: Finished, form: str) -> tuple[Any, Any]:
    """How the last line says the run ended, and its error; every line before it is a session event."""
    *before, line = done.lines()
    assert all(each["type"] in ("session_event", "ready", "config") for each in before)
    assert form == "stream-json" or before == []
    assert ("type" in line) == (form == "stream-json") and set(line) >= {"sessionId", "output", "usage"}
    return line["status" if form == "json" else "reason"], line.get("error")


EXEC, RUN = ["exec", "Hi"], ["run", "--prompt", "Hi", "--exit-when-idle"]
RUNS = pytest.mark.parametrize(
    ("command", "form"), [(EXEC, "json"), (EXEC, "stream-json"), (RUN, "json"), (RUN, "stream-json")], ids=str
)
SOME_RUNS = pytest.mark.parametrize(("command", "form"), [(EXEC, "json"), (RUN, "stream-json")], ids=str)
"""Enough where the two do not differ."""


@RUNS
async def test_fault62_completed_and_provider_error(place: Place, command: list[str], form: str) -> None:
    async with MockLlmServer(["success", "auth_error"]) as server:
        place.model(server.url)
        good = await place.dsh(*command, "--output", form)
        bad = await place.dsh(*command, "--output", form)
    assert (good.code, *last(good, form)) == (0, "completed", None)
    reason, error = last(bad, form)
    assert (bad.code, reason, error["code"]) == (1, "error", "AUTH")


@SOME_RUNS
async def test_fault62_a_step_limit(place: Place, command: list[str], form: str) -> None:
    place.write("calls.patch.yml", "- {id: turn-limits, config: {maxStepsPerTurn: 2}}\n")
    async with MockLlmServer([LOOP], repeat_last=True) as server:
        place.model(server.url)
        done = await place.dsh(*command, "--patch", "calls.patch.yml", "--output", form)
    assert (done.code, last(done, form)[0]) == (1, "aborted") and "turn limit: 2 steps" in done.err


@SOME_RUNS
@pytest.mark.parametrize("moment", ["start", "turn"])
async def test_fault62_aborted_by_a_signal(place: Place, command: list[str], form: str, moment: str) -> None:
    place.write(
        "slow.py",
        "import asyncio\nasync def apply(ctx):\n    open('up', 'w').close()\n    await asyncio.Event().wait()\n",
    )
    place.write("slow.patch.yml", "- insert: [{id: slow, name: ./slow.py}]\n" if moment == "start" else "[]\n")
    assert (await place.dsh("init", ".")).code == 0
    async with MockLlmServer(["stall"]) as server:
        place.model(server.url)
        process = await place.start(*command, "--patch", "slow.patch.yml", "--output", form)
        async with asyncio.timeout(TIMEOUT):
            if moment == "start":
                while not (place.work / "up").exists():
                    await asyncio.sleep(0.01)
            else:
                await server.wait_for_requests(1)
            process.send_signal(signal.SIGINT)
            out, err = await process.communicate()
    done = Finished(process.returncode or 0, out.decode(), err.decode())
    reason, _ = last(done, form)
    assert done.code == 130 and reason == ("aborted" if moment == "start" else "disposed"), done.err
    assert "Traceback" not in done.err


BROKEN = {
    "no yaml": ("- {id: llm", "cordis.yml:"),
    "no such plugin": ("- {id: x, name: dsh-llm-deepsek}\n", "dsh-llm-deepseek"),
    "wrong type": ("- {id: llm, name: dsh-turn-limits, config: {maxStepsPerTurn: many}}\n", "cordis.yml:1"),
    "no start": ("- {id: boom, name: ./boom.py}\n", "boom"),
}


@SOME_RUNS
@pytest.mark.parametrize("what", BROKEN)
async def test_fault62_a_bad_composition(place: Place, command: list[str], form: str, what: str) -> None:
    text, said = BROKEN[what]
    place.write("cordis.yml", text)
    place.write("boom.py", "def apply(ctx, config):\n    raise RuntimeError('boom')\n")
    done = await place.dsh(*command, "--output", form)
    reason, error = last(done, form)
    assert (done.code, reason) == (1, "error")
    assert said in error["message"] and said in done.err


@pytest.mark.parametrize(
    ("arguments", "code", "name"),
    [
        (["exec", "Hi", "--session", "nobody"], 1, "SESSION_NOT_FOUND"),
        (["resume", "nobody", "Hi"], 1, "SESSION_NOT_FOUND"),
        (["resume", "nobody"], 1, "SESSION_NOT_FOUND"),
        (["resume"], 2, "USAGE"),
        (["exec", " "], 2, "USAGE"),
        (["exec", "Hi", "--model", "nothing"], 2, "USAGE"),
        (["exec", "Hi", "--cwd", "nowhere"], 2, "USAGE"),
        (["run", "--prompt", " "], 2, "USAGE"),
        (["exec", "Hi", "--set", "nonsense"], 2, "USAGE"),
        (["exec", "Hi", "--set", "no-such-row.key=1"], 2, "USAGE"),
        (["exec", "Hi", "--set", "agent-loop.maxParallelToolCalls=zero"], 2, "USAGE"),
        (["run", "--exit-when-idle", "--agent", "nobody", "--prompt", "Hi"], 1, "NO_AGENT"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
async def test_fault62_what_cannot_begin(place: Place, arguments: list[str], code: int, name: str) -> None:
    form = "json" if len(name) % 2 else "stream-json"
    done = await place.dsh(*arguments, "--output", form)
    reason, error = last(done, form)
    assert (done.code, reason, error["code"]) == (code, "error", name)
    assert error["message"] and error["message"].splitlines()[0] in done.err and "Traceback" not in done.err


async def test_fault62_people_read_on_standard_error_why_nothing_began(place: Place) -> None:
    for arguments, code in ((["resume", "nobody", "Hi"], 1), (["exec", "Hi", "--set", "nonsense"], 2)):
        done = await place.dsh(*arguments)
        assert (done.code, done.out, done.err.count("\n")) == (code, "", 1)


@pytest.mark.parametrize("flag", [["--no-such-flag"], ["--output", "xml"], ["--timeout", "soon"]], ids=" ".join)
async def test_fault62_a_bad_flag_is_a_usage_error(place: Place, flag: list[str]) -> None:
    done = await place.dsh("exec", "Hi", *flag)
    assert (done.code, done.out) == (2, "") and "Traceback" not in done.err


RAISES = """\
from dsh.core.agent_events import AgentStatus
from dsh.core.session_store import SessionFlush

def apply(ctx, config):
    async def refuse(event):
        raise OSError(28, "no room left")
    ctx.on(SessionFlush, refuse)
"""


@SOME_RUNS
async def test_fault62_a_run_that_raises_before_its_end_still_says_so(
    place: Place, command: list[str], form: str
) -> None:
    place.write("raises.py", RAISES)
    place.write("raises.patch.yml", "- insert: [{id: raises, name: ./raises.py}]\n")
    assert (await place.dsh("init", ".")).code == 0
    async with MockLlmServer(["success"], repeat_last=True) as server:
        place.model(server.url)
        done = await place.dsh(*command, "--patch", "raises.patch.yml", "--output", form)
    reason, error = last(done, form)
    assert (done.code, reason) == (1, "error") and "no room left" in error["message"] and "no room left" in done.err


async def test_fault62_a_refused_session_names_its_holder(place: Place) -> None:
    async with MockLlmServer(["success"], repeat_last=True) as server:
        place.model(server.url)
        async with place.daemon("--prompt", "Hi") as daemon:
            await daemon.event("turn/end")
            session = next(line["agents"][0]["sessionId"] for line in daemon.lines if line["type"] == "ready")
            done = await place.dsh("resume", session, "Hi", "--output", "json")
            reason, error = last(done, "json")
            assert (done.code, reason, error["code"]) == (1, "error", "SESSION_LOCKED")
            assert f"pid {daemon.process.pid}" in error["message"]
            assert json.loads(done.out)["sessionId"] is None


DEAF = """\
import asyncio
from dsh.core.tools import Tools

def apply(ctx, config, tools: Tools):
    @tools.tool
    async def clock() -> str:
        "Never listen."
        open("up", "w").close()
        while True:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                pass
"""


@pytest.mark.parametrize("signals", [[signal.SIGINT], [signal.SIGINT, signal.SIGTERM]], ids=["one", "two"])
async def test_fault62_a_run_that_has_to_be_left_behind_says_so_too(
    place: Place, signals: list[signal.Signals]
) -> None:
    """A tool that listens to nothing keeps the run from ending: it is left behind, at once by a second signal."""
    assert (await place.dsh("init", ".")).code == 0
    place.write("plugins/clock.py", DEAF)
    async with MockLlmServer([LOOP], repeat_last=True) as server:
        place.model(server.url)
        process = await place.start("exec", "Hi", "--output", "json")
        async with asyncio.timeout(TIMEOUT):
            while not (place.work / "up").exists():
                await asyncio.sleep(0.01)
            for number in signals:
                process.send_signal(number)
            out, err = await process.communicate()
    done = Finished(process.returncode or 0, out.decode(), err.decode())
    reason, error = last(done, "json")
    assert (reason, error["code"]) == ("aborted", "SIGNAL"), done.err
    assert done.code - 128 in signals, "two that come together are taken in any order"
    assert ("took longer than" in done.err) == (len(signals) == 1), "the second signal waits for nothing"
