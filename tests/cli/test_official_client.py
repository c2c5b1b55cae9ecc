"""The official Python client, unmodified, drives our runtime: launched by profile, and the older way by variables.

``scripts/environment`` installs it for the tests; without it this file is skipped as a whole.
"""

from __future__ import annotations

import asyncio
import os
import signal
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dsh.models.mock_server import MockLlmServer
from tests.cli.jsonrpc_kit import ROWS, STALL, written_pid
from tests.cli.kit import PYTHON, Place
from tests.cli.test_jsonrpc import CHILD
from tests.processes import alive, until_gone

client = pytest.importorskip(
    "deepseek_harness", reason="the official client (deepseek-harness-sdk) is not installed: scripts/environment does"
)
errors = pytest.importorskip("deepseek_harness.errors")


class Client:
    """Makes harnesses for one place and keeps them from outliving their test."""

    def __init__(self, place: Place, url: str, made: list[Any]) -> None:
        self.place = place
        place.model(url)
        self.made = made
        self.bin = self._command("dsh", "main")
        self.agent = self._command("dsh-jsonrpc-agent", "jsonrpc_agent")

    def _command(self, name: str, entry: str) -> str:
        path = self.place.home.parent / name
        path.write_text(f"#!{PYTHON}\nfrom dsh.cli.start import {entry}\n{entry}()\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return str(path)

    def harness(self, **more: Any) -> Any:
        """A harness that launches the profile ``sdk``."""
        given = {"dsh_bin": self.bin, "dsh_home": str(self.place.home), "cwd": str(self.place.work), "env": self._env()}
        made = client.DeepSeekHarness(**{**given, **more})
        self.made.append(made)
        return made

    def older(self, composition: str, sessions: Path) -> Any:
        """A harness that launches the way older clients did: one program, everything else in variables."""
        env = {
            **self._env(),
            "DSH_CORDIS_CONFIG": composition,
            "DSH_SESSION_ROOT": str(sessions),
            "DSH_CWD": str(self.place.work),
        }
        made = client.DeepSeekHarness(cwd=str(self.place.work), env=env, _launch_args=(self.agent,))
        self.made.append(made)
        return made

    def _env(self) -> dict[str, str]:
        return {**self.place.env, "NO_PROXY": "127.0.0.1"}


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place.make(tmp_path)


@pytest.fixture
def made() -> Iterator[list[Any]]:
    """The harnesses of a test, closed at its end."""
    made: list[Any] = []
    yield made
    for harness in made:
        harness.close()


def process_of(harness: Any) -> Any:
    return harness.client._proc


def close(harness: Any) -> tuple[int, float]:
    """Close it; the exit code and how long that took."""
    process = process_of(harness)
    begun = time.monotonic()
    harness.close()
    return process.returncode, time.monotonic() - begun


async def in_thread(function: Any, *arguments: Any, **more: Any) -> Any:
    return await asyncio.wait_for(asyncio.to_thread(function, *arguments, **more), 50)


async def test_b11a_it_runs_turns_and_several_of_them_on_one_session(place: Place, made: list[Any]) -> None:
    script = [{"text": "one"}, {"text": "two", "reasoning": "hm"}, {"text": "cut", "finish": "length"}]
    async with MockLlmServer(script) as server:
        harness = Client(place, server.url, made).harness(
            model="deepseek-flash", max_tokens=500, reasoning_effort="high"
        )

        def drive() -> list[Any]:
            with harness:
                session = harness.start_session("talk")
                return [session.run(text) for text in ("first", "second", "third")]

        results = await in_thread(drive)
        assert [r.final_response for r in results] == ["one", "two", "cut"]
        assert [r.finish_reason for r in results] == ["completed", "completed", "max-tokens"]
        for result in results:
            assert result.session_id == "talk"
            kinds = [event["type"] for event in result.events]
            assert kinds[0] == "agent/inbox/spliced" and kinds[-1] == "turn/end"
        seqs = [event["seq"] for result in results for event in result.events]
        assert seqs == list(range(len(seqs)))  # nothing dropped between the runs
        last = str(server.requests[-1].body["messages"])
        assert all(text in last for text in ("first", "one", "second", "two", "third"))
        assert server.requests[0].body["max_tokens"] == 500
    assert len(list((place.home / "sessions").glob("*/talk/session.jsonl*"))) == 1


async def test_b11b_two_sessions_in_threads_do_not_mix(place: Place, made: list[Any]) -> None:
    def reply(body: Any) -> Any:
        word = next(w for w in ("apple", "pear", "plum") if w in str(body["messages"]))
        return {"text": f"you said {word}"}

    async with MockLlmServer([reply], repeat_last=True, delay_ms=2) as server:
        harness = Client(place, server.url, made).harness()

        def talk(word: str) -> list[str]:
            session = harness.start_session(word)
            return [session.run(f"{word} {number}").final_response for number in range(4)]

        await in_thread(harness.start)
        words = ("apple", "pear", "plum")
        answers = await asyncio.gather(*(in_thread(talk, word) for word in words))
        assert answers == [[f"you said {word}"] * 4 for word in words]
        assert (await in_thread(close, harness))[0] == 0


@pytest.mark.parametrize("ended", ["close", "kill"])
async def test_b11c_a_session_is_resumed_after_a_restart_of_the_runtime(
    place: Place, made: list[Any], ended: str
) -> None:
    async with MockLlmServer([{"text": "noted"}, {"text": "you said 42"}]) as server:
        clients = Client(place, server.url, made)
        first = clients.harness()
        result = await in_thread(first.run, "remember 42", session_id="kept")
        assert result.final_response == "noted"
        if ended == "kill":
            process_of(first).kill()
        await in_thread(first.close)
        second = clients.harness()

        def go_on() -> Any:
            session = second.resume_session("kept")
            assert len(server.requests) == 1
            return session.run("what did I say?")

        result = await in_thread(go_on)
        assert result.final_response == "you said 42"
        assert "remember 42" in str(server.requests[1].body["messages"])

        def refuse(harness: Any, session_id: str) -> str:
            with pytest.raises(errors.JsonRpcError) as caught:
                harness.resume_session(session_id)
            return str(caught.value)

        assert "unknown" in await in_thread(refuse, second, "unknown")
        third = clients.harness()
        assert "is open in pid" in await in_thread(refuse, third, "kept")
        for harness in (second, third):
            assert (await in_thread(close, harness))[0] == 0


async def test_b11d_the_working_directory_of_a_session_is_read_and_changed(place: Place, made: list[Any]) -> None:
    (place.work / "a" / "b").mkdir(parents=True)
    async with MockLlmServer(["success"]) as server:
        clients = Client(place, server.url, made)
        harness = clients.harness()

        def drive() -> None:
            session = harness.start_session("where")
            assert session.get_working_directory() == str(place.work)
            assert session.set_working_directory("a") == str(place.work / "a")
            assert session.set_working_directory("b") == str(place.work / "a" / "b")
            with pytest.raises(errors.JsonRpcError, match="not a directory"):
                session.set_working_directory("/nowhere/at/all")
            harness.close()

        await in_thread(drive)
        again = clients.harness()

        def check() -> None:
            session = again.resume_session("where")
            assert session.get_working_directory() == str(place.work / "a" / "b")
            (place.work / "a" / "b").rmdir()
            assert session.get_working_directory() == str(place.work)
            again.close()

        await in_thread(check)
        assert not server.requests


@pytest.mark.parametrize("during", ["nothing", "stream", "tool"])
async def test_b11e_close_ends_the_runtime_in_time_whatever_it_does(place: Place, made: list[Any], during: str) -> None:
    call = '{"command":"echo $$ > pid; sleep 1000 & wait","description":"wait"}'
    script: dict[str, Any] = {
        "nothing": {"text": "done"}, "stream": STALL, "tool": {"toolCalls": [{"name": "bash", "arguments": call}]}
    }  # fmt: skip
    async with MockLlmServer([script[during]]) as server:
        harness = Client(place, server.url, made).harness()
        running = asyncio.ensure_future(asyncio.to_thread(harness.run, "go", session_id="s"))
        if during == "nothing":
            assert (await running).final_response == "done"
        else:
            await server.wait_for_requests(1)
        pid = None
        if during == "tool":
            pid = await written_pid(place.work / "pid")
        runtime = process_of(harness).pid
        code, seconds = await in_thread(close, harness)
        assert code == 0 and not any("shutdown request failed" in line for line in harness.client._stderr_lines)
        assert seconds < 10 and not alive(runtime)
        if during != "nothing":
            # The run may have been told how its turn ended, or that the runtime is gone; it does not hang.
            try:
                assert (await asyncio.wait_for(running, 10)).finish_reason == "aborted"
            except errors.TransportClosedError:
                pass
        if pid is not None:
            await until_gone(pid)
    verified = await place.dsh("sessions", "verify")
    assert verified.code == 0, verified.err


async def test_b11f_a_runtime_that_is_killed_fails_every_waiter_with_its_exit_code(
    place: Place, made: list[Any]
) -> None:
    async with MockLlmServer([STALL, {"text": "back again"}]) as server:
        clients = Client(place, server.url, made)
        harness = clients.harness()
        running = asyncio.ensure_future(asyncio.to_thread(harness.run, "go", session_id="s"))
        await server.wait_for_requests(1)
        os.kill(process_of(harness).pid, signal.SIGKILL)
        with pytest.raises(errors.TransportClosedError, match="closed"):
            await asyncio.wait_for(running, 10)
        await in_thread(harness.close)
        again = clients.harness()
        result = await in_thread(lambda: again.resume_session("s").run("go on"))
        assert (result.final_response, result.finish_reason) == ("back again", "completed")
        assert (await in_thread(close, again))[0] == 0


async def test_b11g_a_start_that_fails_reaches_the_caller_with_what_was_said(place: Place, made: list[Any]) -> None:
    place.write("broken.yml", "- insert: [{id: broken, name: ./broken.py}]\n")
    place.write("broken.py", "def apply(ctx):\n    raise RuntimeError('not today')\n")
    async with MockLlmServer([]) as server:
        clients = Client(place, server.url, made)
        harness = clients.harness(patches=(str(place.work / "broken.yml"),))
        with pytest.raises(errors.TransportClosedError) as caught:
            await in_thread(harness.start)
        assert "broken" in str(caught.value) and "no plugin at ./broken.py" in str(caught.value)
        odd = clients.harness(provider="nobody")
        with pytest.raises(errors.JsonRpcError, match='no adapter registered for provider "nobody"'):
            await in_thread(odd.start)


async def test_b11h_sessions_that_sessions_start_belong_to_the_run(place: Place, made: list[Any]) -> None:
    place.write("child.py", CHILD)
    place.write("child.yml", f"- insert: [{{id: child, name: {place.work}/child.py, config: {{}}}}]\n")
    script = [
        {"toolCalls": [{"name": "delegate", "arguments": '{"task":"look"}'}]},
        {"text": "child says hi"},
        {"text": "all done"},
    ]
    async with MockLlmServer(script) as server:
        harness = Client(place, server.url, made).harness(patches=(str(place.work / "child.yml"),))
        seen: list[Any] = []
        result = await in_thread(harness.run, "go", session_id="parent", on_notification=seen.append)
        assert result.final_response == "all done"  # not the child's words
        methods = [n.method for n in result.notifications]
        assert methods == [n.method for n in seen]
        assert methods.count("subagent.started") == methods.count("subagent.finished") == 1
        of_child = [n for n in result.notifications if n.payload.get("sessionId") == "child"]
        assert of_child[-1].payload["status"] == "idle" and len(of_child) > 5
        assert all(event["type"] != "test/noted" or event["seq"] == 0 for event in result.events)
        await in_thread(harness.close)


async def test_b11i_the_older_launch_by_variables_works_too(place: Place, made: list[Any]) -> None:
    composition = place.write("older.yml", ROWS)
    sessions = place.work / "kept"
    async with MockLlmServer([{"text": "hello"}, {"text": "again"}]) as server:
        clients = Client(place, server.url, made)
        harness = clients.older(str(composition), sessions)

        def drive() -> list[str]:
            with harness:
                return [harness.run(text, session_id="old").final_response for text in ("hi", "and?")]

        assert await in_thread(drive) == ["hello", "again"]
        assert len(list(sessions.glob("*/old/session.jsonl"))) == 1
        packaged = clients.older("", sessions)
        assert (await in_thread(packaged.resume_session, "old")).id == "old"
        assert (await in_thread(close, packaged))[0] == 0


async def test_b11j_nothing_is_left_running(place: Place, made: list[Any]) -> None:
    async with MockLlmServer(["success"], repeat_last=True) as server:
        clients = Client(place, server.url, made)
        pids = []
        for _ in range(3):
            harness = clients.harness()
            await in_thread(harness.run, "hi")
            pids.append(process_of(harness).pid)
            assert (await in_thread(close, harness))[0] == 0
        assert not [pid for pid in pids if alive(pid)]
