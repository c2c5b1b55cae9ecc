"""The same scripted scenario by the command line, in a process, and by a program: equal logs, equal requests."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dsh.models.mock_server import MockLlmServer
from dsh.sdk import Harness, TextDelta, ToolStart
from tests.cli.kit import Place
from tests.conformance.normalise import Normaliser

from .kit import WAYS, assert_equal_logs, call, harness, log_of, made, until

WAIT = 'until [ -e "$PWD/go" ]; do sleep 0.02; done; echo gone'


def bash(command: str) -> dict[str, Any]:
    return call("bash", json.dumps({"command": command, "description": "try"}))


SCENARIOS: dict[str, list[Any]] = {
    "text": ["success"],
    "reasoning": ["reasoning_success"],
    "tool round trip": [
        call("read", '{"file_path": "greeting.txt"}'),
        call("edit", '{"file_path": "greeting.txt", "old_string": "world", "new_string": "dsh"}'),
        bash("cat greeting.txt"),
        {"text": "The greeting now names dsh."},
    ],
    "failing tool": [call("read", '{"file_path": "absent.txt"}'), bash("exit 3"), {"text": "Both failed."}],
    "unknown tool and broken arguments": [call("nothing", "{}"), call("read", "{not json"), {"text": "Well."}],
    "failing model": ["auth_error"],
    "model that recovers": ["server_error", "partial_disconnect", "success"],
    "model that does not recover": ["server_error"] * 3,
    "output cap": ["max_tokens"],
    "odd spaces": ["u2028"],
    "split bytes": ["split_bytes"],
    "parallel tools": [
        {
            "toolCalls": [
                {"name": "bash", "arguments": json.dumps({"command": f"echo {n}", "description": "say"})}
                for n in range(4)
            ]
        },
        {"text": "Four lines."},
    ],
}
CODES = {"failing model": 1, "model that does not recover": 1, "output cap": 1}

Program = tuple[Callable[..., Harness], Place]
"""A way to run a composition in a program, and where it works."""


@pytest.fixture
def there(tmp_path: Path) -> Place:
    """Where the command line works."""
    return furnished(tmp_path / "command-line")


@pytest.fixture
def here(tmp_path: Path) -> Place:
    """Where a program works."""
    return furnished(tmp_path / "program")


@pytest.fixture
def programs(tmp_path: Path) -> list[Program]:
    """In this process, and in one of its own."""
    return [(start, furnished(tmp_path / name)) for name, start in WAYS.items()]


def furnished(root: Path) -> Place:
    place = made(root)
    place.write("greeting.txt", "hello world\n")
    return place


@pytest.mark.parametrize("name", SCENARIOS)
async def test_one_task(there: Place, here: Place, name: str) -> None:
    script = SCENARIOS[name]
    async with MockLlmServer([*script, *script]) as server:
        there.model(server.url)
        done = await there.dsh("exec", "Do it.", "--config", "cordis.yml", "--output", "json")
        told = done.json()
        async with harness(here, server) as running:
            session = await running.new_session()
            result = await session.prompt("Do it.").result()
    assert done.code == CODES.get(name, 0), done.err
    asked = [Normaliser([told["sessionId"]], cwd=str(there.work)).value(body) for body in server.bodies[: len(script)]]
    assert asked == [Normaliser([session.id], cwd=str(here.work)).value(body) for body in server.bodies[len(script) :]]
    assert_equal_logs(log_of(there, told["sessionId"]), log_of(here, session.id))
    assert {"output": result.output, "status": result.status, "usage": result.usage, "turns": result.turns} == {
        key: told[key] for key in ("output", "status", "usage", "turns")
    }
    assert result.error == told.get("error")


async def test_each_task_in_a_process_of_its_own(programs: list[Program]) -> None:
    script = [answer for each in SCENARIOS.values() for answer in each]
    found: list[tuple[Any, ...]] = []
    async with MockLlmServer([*script, *script]) as server:
        for start, place in programs:
            results = {}
            async with start(place, server) as running:
                for name in SCENARIOS:
                    (place.work / name).mkdir()
                    (place.work / name / "greeting.txt").write_text("hello world\n")
                    session = await running.new_session(cwd=name)
                    results[session.id] = await session.prompt("Do it.").result()
            words, begin = Normaliser(list(results), cwd=str(place.work)), len(script) * len(found)
            found.append(
                (
                    [replace(result, session_id="", message_id="") for result in results.values()],
                    [words.value(body) for body in server.bodies[begin : begin + len(script)]],
                    [log_of(place, each) for each in results],
                )
            )
    (results, asked, logs), (their_results, their_asked, their_logs) = found
    assert their_results == results and their_asked == asked and len(asked) == len(script)
    for log, theirs in zip(logs, their_logs, strict=True):
        assert_equal_logs(log, theirs)


async def test_a_resumed_session(there: Place, programs: list[Program]) -> None:
    script = ["success", bash("echo again"), {"text": "Again."}]
    async with MockLlmServer([*script, *script, *script]) as server:
        there.model(server.url)
        first = (await there.dsh("exec", "one", "--config", "cordis.yml", "--output", "json")).json()["sessionId"]
        again = await there.dsh("exec", "two", "--config", "cordis.yml", "--session", first)
        assert again.code == 0, again.err
        for start, here in programs:
            async with start(here, server) as running:
                session = await running.new_session()
                assert (await session.prompt("one").result()).ok
            async with start(here, server) as running:
                resumed = await running.resume(session.id)
                assert (await resumed.prompt("two").result()).output == "Again."
            assert_equal_logs(log_of(there, first), log_of(here, session.id))


async def test_a_cancel_in_a_stream_and_one_in_a_tool(there: Place, programs: list[Program]) -> None:
    stall = {"chunks": [{"choices": [{"index": 0, "delta": {"content": "It"}}]}], "ending": "stall"}
    script = [stall, bash("touch began; sleep 60"), {"text": "Done."}]
    async with MockLlmServer([*script, *script, *script]) as server:
        there.model(server.url)
        async with there.daemon("cordis.yml") as daemon:
            session_id = (await daemon.ready())["agents"][0]["sessionId"]
            await there.dsh("send", "main", "go")
            await daemon.event("assistant/chunk", lambda event: event["data"]["chunk"]["type"] == "text-delta")
            assert (await there.dsh("cancel", "main")).code == 0
            await daemon.event("turn/end")
            await there.dsh("send", "main", "go")
            await until((there.work / "began").exists)
            assert (await there.dsh("cancel", "main")).code == 0
            await daemon.event("turn/end")
            assert (await there.dsh("send", "main", "go", "--wait")).out == "Done.\n"
            assert (await there.dsh("stop")).code == 0
            assert await daemon.finish() == 0
        for start, here in programs:
            async with start(here, server) as running:
                session = await running.session("main")
                run = session.prompt("go")
                async for event in run:
                    if isinstance(event, TextDelta):
                        run.cancel()
                assert (await run.result()).status == "aborted"
                async with session.prompt("go") as run:
                    await until((here.work / "began").exists)
                assert (await run.result()).status == "aborted"
                assert (await session.prompt("go").result()).output == "Done."
            assert_equal_logs(log_of(there, session_id), log_of(here, session.id))


async def test_prompts_that_queue_and_one_that_steers(there: Place, programs: list[Program]) -> None:
    script = [bash(WAIT), {"text": "First."}, {"text": "Second."}]
    async with MockLlmServer([*script, *script, *script]) as server:
        there.model(server.url)
        async with there.daemon("cordis.yml") as daemon:
            session_id = (await daemon.ready())["agents"][0]["sessionId"]
            await there.dsh("send", "main", "one")
            await daemon.event("tool/call")
            await there.dsh("send", "main", "two")
            await there.dsh("send", "main", "by the way", "--steer")
            there.write("go", "")
            for _ in range(2):
                await daemon.event("turn/end")
            await there.dsh("stop")
            await daemon.finish()
        for start, here in programs:
            async with start(here, server) as running:
                session = await running.session("main")
                one = session.prompt("one")
                async for event in one:
                    if isinstance(event, ToolStart):
                        break
                two, steer = session.prompt("two"), session.steer("by the way")
                async for event in steer:
                    break  # it is in the queue
                here.write("go", "")
                assert [(await run.result()).output for run in (one, two, steer)] == ["First.", "Second.", "First."]
            assert_equal_logs(log_of(there, session_id), log_of(here, session.id))
