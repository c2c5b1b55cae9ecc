"""Exit codes that a script can trust, also where nobody listens or nobody asked."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from dsh.models.mock_server import MockLlmServer
from tests.cli.kit import Place
from tests.cli.test_run import CORDIS, HELLO

DEAF = """\
import asyncio
from dsh.cordis import Context
from dsh.core.tools import Tools
from dsh.interfaces import headless

headless.CANCEL_SECONDS = 0.5

def apply(ctx: Context, config, tools: Tools):
    @tools.tool
    async def hello() -> str:
        "Never listen."
        while True:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                pass
"""


@pytest.fixture
def place(tmp_path: Path) -> Place:
    place = Place.make(tmp_path)
    place.write("hello.py", HELLO)
    place.write("cordis.yml", CORDIS)
    return place


async def test_a_tool_that_does_not_listen_cannot_hold_a_timed_out_run(place: Place) -> None:
    place.write("hello.py", DEAF)
    async with MockLlmServer([{"toolCalls": [{"name": "hello", "arguments": {}}]}], repeat_last=True) as server:
        place.model(server.url)
        begin = time.monotonic()
        done = await place.dsh("exec", "Hi", "--timeout", "1", "--output", "json")
    assert done.code == 1 and done.json()["status"] == "aborted"
    assert "the turn ended as aborted: timeout after 1 s; the tool hello did not stop" in done.err
    assert time.monotonic() - begin < 30


async def test_leaving_when_idle_fails_when_a_turn_failed(place: Place) -> None:
    place.write("cordis.yml", CORDIS + "- {id: first, name: ./first.py}\n")
    place.write("first.py", FIRST)
    async with MockLlmServer(["success", "auth_error"]) as server:
        place.model(server.url)
        good = await place.dsh("run", "--exit-when-idle")
        bad = await place.dsh("run", "--exit-when-idle")
    assert good.code == 0
    assert bad.code == 1 and "the turn ended as error" in bad.err


FIRST = """\
from dsh.core.agent_events import AgentSessionStart
from dsh.llm.message import create_user_message

def apply(ctx, config):
    ctx.on(AgentSessionStart, lambda event: event.agent.followup(create_user_message("Hi")))
"""


async def test_a_malformed_set_is_a_usage_error(place: Place) -> None:
    for command in (["exec", "Hi"], ["run"]):
        done = await place.dsh(*command, "--set", "foo")
        assert done.code == 2 and "expected ROW.KEY=VALUE" in done.err and "Traceback" not in done.err


@pytest.mark.parametrize("command", [["list"], ["verify"], ["show", "x"]], ids=" ".join)
async def test_a_session_folder_that_cannot_be_read_is_one_sentence(
    place: Place, command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from typer.testing import CliRunner

    from dsh.cli import sessions

    def denied(path: object) -> None:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr("os.scandir", denied)
    done = CliRunner().invoke(sessions.app, [*command, "--root", str(place.work)])
    assert done.exit_code == 1
    assert done.stderr == f"dsh: the session folder {place.work} cannot be read: Permission denied\n"


STRAY = """\
import asyncio

async def never():
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            pass

kept = []

def apply(ctx, config):
    kept.append(asyncio.get_running_loop().create_task(never(), name="stray of a plugin"))
"""


async def test_a_task_that_a_plugin_started_behind_our_back_cannot_hold_the_exit(place: Place) -> None:
    place.write("hello.py", STRAY + "    raise ValueError('no start')\n")
    failed = await place.dsh("exec", "Hi")
    assert failed.code == 1 and "no start" in failed.err and "left behind: stray of a plugin" in failed.err
    place.write("hello.py", STRAY)
    async with MockLlmServer(["success"]) as server:
        place.model(server.url)
        done = await place.dsh("exec", "Hi", "--output", "json")
    assert done.code == 0 and done.json()["status"] == "completed"
    assert "left behind: stray of a plugin" in done.err
