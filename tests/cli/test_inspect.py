"""`dsh inspect`: what waits for what, services, listeners, tasks, what went wrong last, agents."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from tests.cli.compositions import SPINE
from tests.cli.kit import TIMEOUT, Place

WAITING = 'inject = ["nowhere", "greeter"]\n\ndef apply(ctx, config): ...\n'
GREETER = 'inject = ["later"]\nprovides = ["greeter"]\n\ndef apply(ctx, config):\n    ctx.provide("greeter", 1)\n'
SHAKY = """\
import asyncio
from dsh.core.tool_events import ToolsResult
from dsh.core.agents import Agents

async def breaks():
    raise ValueError("the pipe is broken")

async def lives():
    await asyncio.Event().wait()

def apply(ctx, config, agents: Agents):
    ctx.on(ToolsResult, lambda event: None)
    ctx.on(ToolsResult, lambda event: None)
    ctx.spawn(breaks, name="breaking")
    ctx.spawn(lives, name="living")
"""


@pytest.fixture
def place(tmp_path: Path) -> Place:
    place = Place.make(tmp_path)
    place.write("waiting.py", WAITING)
    place.write("greeter.py", GREETER)
    place.write("shaky.py", SHAKY)
    place.write("cordis.yml", SPINE + "- {id: shaky, name: ./shaky.py}\n")
    return place


async def told(place: Place, until: Any = lambda picture: True) -> Any:
    async with asyncio.timeout(TIMEOUT):
        while not until(picture := (await place.dsh("inspect", "--json")).json()):
            pass
    return picture


def row(picture: Any, name: str) -> Any:
    return next(each for each in picture["rows"] if each["id"] == name)


async def test_a_running_daemon_tells_services_listeners_tasks_errors_and_agents(place: Place) -> None:
    begin = time.time_ns() // 1_000_000
    async with place.daemon() as daemon:
        await daemon.ready()
        picture = await told(place, lambda picture: "lastError" in row(picture, "shaky"))
        shaky = row(picture, "shaky")
        assert shaky["tasks"] == ["living"] and shaky["faults"] == 1 and shaky["needs"] == ["agents"]
        assert "the pipe is broken" in shaky["lastError"]["text"] and "breaking" in shaky["lastError"]["text"]
        assert begin <= shaky["lastError"]["at"] <= time.time_ns() // 1_000_000
        (agents,) = [each for each in picture["services"] if each["name"] == "agents"]
        assert agents["row"] == "agent" and {"agent-loop", "shaky"} <= set(agents["usedBy"])
        (event,) = [each for each in picture["events"] if each["name"] == "tools/result"]
        assert event["heardBy"] == ["shaky", "shaky"] and event["mode"] == "emit"
        assert [(each["label"], each["status"]) for each in picture["agents"]] == [("main", "idle")]
        shown = (await place.dsh("inspect", "main")).out
        assert f"cordis.yml: daemon {daemon.process.pid}\n" in shown
        assert "! shaky, " in shown and "the pipe is broken (1 broken task so far)" in " ".join(shown.split())
        assert "tools/result (emit): shaky (2x)" in shown
        assert "\n  agents: agent -> agent-loop, " in shown, shown
        assert "shaky: living" in shown and "main   idle" in shown
        lines = [line for line in shown.splitlines() if "session-" not in line]
        assert max(map(len, lines)) <= 80


async def test_what_waits_for_what_and_who_would_provide_it(place: Place) -> None:
    async with place.daemon() as daemon:
        await daemon.ready()
        more = "- {id: waiting, name: ./waiting.py}\n- {id: greeter, name: ./greeter.py}\n"
        place.write("cordis.yml", SPINE + more)
        await daemon.config("applied")
        picture = await told(place)
        assert row(picture, "waiting")["waitsFor"] == ["nowhere", "greeter"]
        assert row(picture, "greeter")["offers"] == ["greeter"] and row(picture, "greeter")["provides"] == []
        words = " ".join((await place.dsh("inspect")).out.split())
        assert "! waiting waits for nowhere, greeter (greeter would provide greeter, but is pending)" in words
        assert "! greeter waits for later, which no row provides" in words


async def test_rows_count_how_often_their_code_was_reloaded(place: Place) -> None:
    place.write("cordis.yml", SPINE + "- {id: shaky, name: ./shaky.py}\n- {id: hmr, name: dsh-hmr}\n")
    async with place.daemon() as daemon:
        await daemon.ready()
        place.write("shaky.py", SHAKY.replace("living", "thriving"))
        picture = await told(place, lambda picture: "thriving" in row(picture, "shaky").get("tasks", ()))
        assert row(picture, "shaky")["generation"] == 1
        assert "reloaded 1x" in (await place.dsh("inspect")).out


async def test_a_file_that_nobody_runs_is_looked_at_without_its_agents(place: Place) -> None:
    done = await place.dsh("inspect", "cordis.yml")
    assert done.code == 0 and "not running; started for this look and stopped again" in done.out
    assert "AGENT" not in done.out and "agents: agent" in done.out
    assert not (place.home / "sessions").exists()


@pytest.mark.parametrize("command", ["inspect", "models", "doctor", "plugins graph", "plugins info loud"])
async def test_what_plugins_print_is_not_among_the_data(place: Place, command: str) -> None:
    place.write("loud.py", 'print("imported")\n\ndef apply(ctx, config):\n    print("started")\n')
    place.write("cordis.yml", SPINE + "- {id: loud, name: ./loud.py}\n")
    done = await place.dsh(*command.split(), "--json")
    assert done.json() and "imported" in done.err
