"""Programs that are not asynchronous, and what is left behind when a harness ends: nothing."""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

import dsh.sdk
from dsh.models.mock_server import MockLlmServer
from dsh.sdk import BootError, HarnessError, TextDelta, TurnEnd
from dsh.sdk.sync import Harness
from tests.cli.kit import Place
from tests.processes import alive

from .kit import call, log_of, made


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return made(tmp_path / "place")


@contextmanager
def serving(script: list[Any]) -> Iterator[MockLlmServer]:
    """A scripted model server in a thread."""
    server = MockLlmServer(script)
    ready, over = threading.Event(), asyncio.Event()
    loops: list[asyncio.AbstractEventLoop] = []

    async def serve() -> None:
        loops.append(asyncio.get_running_loop())
        async with server:
            ready.set()
            await over.wait()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    ready.wait(10)
    try:
        yield server
    finally:
        loops[0].call_soon_threadsafe(over.set)
        thread.join()


def options(place: Place, server: MockLlmServer) -> Any:
    env = {"DEEPSEEK_BASE_URL": server.url, "DEEPSEEK_API_KEY": "test-key"}
    return {"home": place.home, "cwd": place.work, "env": env}


@pytest.fixture(params=["in process", "spawned"])
def kind(request: pytest.FixtureRequest) -> Any:
    return Harness if request.param == "in process" else Harness.spawn


def test_a_program_without_a_loop_prompts_iterates_and_waits(kind: Any, place: Place) -> None:
    sleeping = call("bash", json.dumps({"command": "sleep 60", "description": "try"}))
    with serving(["success", "success", sleeping, sleeping]) as server:
        with kind(place.work / "cordis.yml", **options(place, server)) as h:
            session = h.session("main")
            run = session.prompt("one")
            events = list(run)
            assert "".join(event.text for event in events if isinstance(event, TextDelta)) == run.result().output
            assert isinstance(events[-1], TurnEnd) and list(run) == events == session.history()
            assert session.steer("two").result().ok and run.status == "completed"
            with pytest.raises(TimeoutError):
                session.prompt("three").result(timeout=0.05)
            session.cancel()
            with h.new_session().prompt("four") as left:
                pass
            assert left.result().status in ("aborted", "discarded")
            heard: list[Any] = []
            h.settings.watch("agent-loop", heard.append)
            h.settings.set("agent-loop.maxParallelToolCalls", 2)
            assert h.settings.get("agent-loop.maxParallelToolCalls") == 2
            assert [one.label for one in h.agents()] == ["main", None]
            with pytest.raises(HarnessError, match="no agent"):
                h.session("nobody")
        assert heard == [{"maxParallelToolCalls": 2}]
        assert run.result().ok
        with pytest.raises(HarnessError, match="not running"):
            session.prompt("five")
    with pytest.raises(BootError, match="does not exist"), kind(place.work / "absent.yml", home=place.home):
        pass
    assert not [thread for thread in threading.enumerate() if thread.name == "dsh-sdk"]


def test_threads_share_a_harness(kind: Any, place: Place) -> None:
    def echo(body: Any) -> Any:
        return {"text": next(m["content"] for m in reversed(body["messages"]) if m["content"].startswith("say "))}

    with serving([echo] * 12) as server, kind(place.work / "cordis.yml", **options(place, server)) as h:

        def talk(name: str) -> list[str]:
            session = h.new_session()
            return [session.prompt(f"say {name}{n}").result().check().output for n in range(3)]

        with ThreadPoolExecutor(4) as threads:
            assert list(threads.map(talk, "abcd")) == [[f"say {name}{n}" for n in range(3)] for name in "abcd"]
        closed = h.new_session()
        closed.close()
        with pytest.raises(HarnessError, match="no live session"):
            late = closed.prompt("late")
            with suppress(HarnessError):
                late.result()
            list(late)  # tells the failure, too, when it is known already


def test_the_options_are_those_of_the_asynchronous_harness() -> None:
    for make, same in ((Harness, dsh.sdk.Harness), (Harness.spawn, dsh.sdk.Harness.spawn)):
        assert inspect.signature(make).parameters == inspect.signature(same).parameters
    wrong: Any = {"folow": True}
    with pytest.raises(TypeError, match="folow"):
        Harness("cordis.yml", **wrong)


def test_a_callback_that_would_wait_for_its_own_thread_is_refused(kind: Any, place: Place) -> None:
    said: list[Any] = []
    with serving([]) as server, kind(place.work / "cordis.yml", **options(place, server)) as h:

        def heard(value: Any) -> None:
            try:
                said.append(h.settings.get())
            except HarnessError as error:
                said.append(error.code)

        h.settings.watch("agent-loop", heard)
        setting = threading.Thread(target=h.settings.set, args=("agent-loop.maxParallelToolCalls", 2), daemon=True)
        setting.start()
        setting.join(20)
        assert not setting.is_alive()
    assert said == ["OWN_THREAD"]


def test_a_harness_can_be_entered_again_but_not_twice_at_once(place: Place) -> None:
    with serving([]) as server:
        h = Harness(place.work / "cordis.yml", **options(place, server))
        for _ in range(2):
            with h:
                with pytest.raises(HarnessError, match="runs already"):
                    h.__enter__()
                assert [one.label for one in h.agents()] == ["main"]
    assert not [thread for thread in threading.enumerate() if thread.name == "dsh-sdk"]


LEFT = """
import asyncio, gc, os, sys, threading, time, warnings
warnings.simplefilter("error")
url, kind, home, work = sys.argv[1:]
from dsh.sdk import Harness
from dsh.sdk import sync

options = dict(home=home, cwd=work, env={"DEEPSEEK_BASE_URL": url, "DEEPSEEK_API_KEY": "k"})
make = {"in process": Harness, "spawned": Harness.spawn, "sync": sync.Harness}[kind]

def fds():
    return {(fd, os.readlink(f"/proc/self/fd/{fd}")) for fd in os.listdir("/proc/self/fd")
            if os.path.exists(f"/proc/self/fd/{fd}")}

def left(before, threads):
    now = fds()
    return (sorted(now - before), [t.name for t in threading.enumerate() if t not in threads])

async def work_async():
    tasks, before, threads = asyncio.all_tasks(), fds(), threading.enumerate()
    async with make("cordis.yml", **options) as h:
        session = await h.session("main")
        await session.prompt("one").result()
        unread, running = session.follow(), session.prompt("two")
        async for event in running:
            if event.type == "tool/call":
                break
    found = left(before, threads)
    return found, [t.get_name() for t in asyncio.all_tasks() - tasks]

def work_sync():
    before, threads = fds(), threading.enumerate()
    with make("cordis.yml", **options) as h:
        session = h.session("main")
        session.prompt("one").result()
        for event in session.prompt("two"):
            if event.type == "tool/call":
                break
    return left(before, threads), []

def once():
    if kind == "sync":
        return work_sync()
    return asyncio.run(work_async())

before, threads = fds(), threading.enumerate()
first = once()
again = once()
gc.collect()
for _ in range(100):  # a file watcher's native thread closes its files a moment later
    if left(before, threads) == ([], []):
        break
    time.sleep(0.05)
print(repr((again, left(before, threads))))
"""


@pytest.mark.parametrize("kind", ["in process", "spawned", "sync"])
def test_nothing_is_left_behind(place: Place, kind: str) -> None:
    sleeping = call("bash", json.dumps({"command": "sleep 60", "description": "try"}))
    with serving(["success", sleeping, "success", sleeping]) as server:
        done = subprocess.run(
            [sys.executable, "-c", LEFT, server.url, kind, str(place.home), str(place.work)],
            capture_output=True,
            text=True,
            timeout=60,
            cwd=place.work,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        )
    assert done.returncode == 0 and done.stderr == "", done.stderr
    (files_and_threads, tasks), after = eval(done.stdout)
    files, threads = files_and_threads
    assert tasks == [] and [name for _, name in files if not name.startswith("anon_inode")] == []
    assert [name for name in threads if not name.startswith(("asyncio_", "AnyIO worker"))] == []  # the loop's own
    assert after == ([], [])


def test_the_public_names_are_typed(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "from dsh.sdk import Harness, Result, Session, TextDelta, ToolStart\n"
        "from dsh.sdk import sync\n\n"
        "async def main() -> str:\n"
        '    async with Harness("cordis.yml", set={"a.b": 1}) as harness:\n'
        "        session: Session = await harness.session()\n"
        '        async for event in session.prompt("Hi"):\n'
        "            match event:\n"
        "                case TextDelta(text=text):\n"
        "                    return text\n"
        "                case ToolStart():\n"
        "                    return event.name\n"
        '        result: Result = await session.prompt("Hi").result()\n'
        "        return result.check().output\n\n"
        "def plain() -> str:\n"
        '    with sync.Harness("cordis.yml", follow=True) as harness:\n'
        '        return harness.session("main").prompt("Hi").result(timeout=3).output\n'
    )
    mypy = Path(sys.executable).with_name("mypy")
    done = subprocess.run([mypy, "--strict", program], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout


INTERRUPTED = """
import asyncio, sys
url, kind, home, work = sys.argv[1:]
from dsh.sdk import Harness
from dsh.sdk import sync

options = dict(home=home, cwd=work, env={"DEEPSEEK_BASE_URL": url, "DEEPSEEK_API_KEY": "k"})
make = {"in process": Harness, "spawned": Harness.spawn, "sync": sync.Harness}[kind]

async def main():
    async with make("cordis.yml", **options) as h:
        await (await h.new_session(session_id="mine")).prompt("one").result()

def plain():
    with make("cordis.yml", **options) as h:
        h.new_session(session_id="mine").prompt("one").result()

plain() if kind == "sync" else asyncio.run(main())
"""


@pytest.mark.parametrize("kind", ["in process", "spawned", "sync"])
def test_ctrl_c_ends_the_turn_in_the_log_and_what_it_started(place: Place, kind: str) -> None:
    waiting = call("bash", json.dumps({"command": "echo $$ > began; sleep 60", "description": "try"}))
    with serving([waiting]) as server:
        process = subprocess.Popen(
            [sys.executable, "-c", INTERRUPTED, server.url, kind, str(place.home), str(place.work)],
            stderr=subprocess.PIPE,
            text=True,
            cwd=place.work,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
            start_new_session=True,
        )
        until_there(place.work / "began")
        os.killpg(process.pid, signal.SIGINT)
        assert "KeyboardInterrupt" in process.communicate(timeout=40)[1]
    assert not alive(int((place.work / "began").read_text()))
    log = log_of(place, "mine")
    end = next(event for event in reversed(log) if event["type"] == "turn/end")
    assert end["data"]["reason"] == {"kind": "aborted", "reason": {"kind": "disposed"}}


def until_there(path: Path) -> None:
    deadline = time.monotonic() + 40
    while not (path.exists() and path.read_text().strip()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
