"""How a run ends: everything is undone, within bounds, whatever the plugins and the person at the keyboard do."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path

import pytest

from dsh.models.mock_server import MockLlmServer
from tests.cli.kit import PYTHON, Place

LAST = """\
import asyncio
from pathlib import Path

def apply(ctx):
    def write(text):
        with open("trail", "a") as file:
            file.write(text + "\\n")

    ctx.defer(lambda: write("first out"))

    async def last():
        write("leaving")
        {body}
        write("last out")

    ctx.defer(last)
"""

RUN = ("cordis.yml", "--patch", "last.patch.yml")

BOUND = 4.0
"""Seconds within which a forced exit must have happened; a graceful one that hangs takes five."""


@pytest.fixture
def place(tmp_path: Path) -> Place:
    place = Place.make(tmp_path)
    place.init()
    place.write("last.patch.yml", "- insert: [{id: last, name: ./last.py}]\n")
    return place


def leave(place: Place, body: str) -> None:
    place.write("last.py", LAST.replace("{body}", body))


def trail(place: Place) -> list[str]:
    path = place.work / "trail"
    return path.read_text().splitlines() if path.exists() else []


async def until_leaving(place: Place) -> None:
    async with asyncio.timeout(20):
        while "leaving" not in trail(place):
            await asyncio.sleep(0.01)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGHUP, 0), (signal.SIGINT, 130)])
async def test_b20_a_signal_undoes_everything_and_decides_the_exit_code(
    place: Place, number: signal.Signals, code: int
) -> None:
    leave(place, "await asyncio.sleep(0)")
    async with place.daemon(*RUN) as daemon:
        await daemon.ready()
        daemon.signal(number)
        assert await daemon.finish() == code
    assert trail(place) == ["leaving", "last out", "first out"]


async def test_b20_an_undo_that_fails_is_reported_and_stops_nothing(place: Place) -> None:
    leave(place, "raise RuntimeError('cannot let go')")
    async with place.daemon(*RUN) as daemon:
        await daemon.ready()
        daemon.signal(signal.SIGTERM)
        assert await daemon.finish() == 0
    assert trail(place) == ["leaving", "first out"]
    assert "cannot let go" in daemon.err


async def test_b20_an_undo_that_hangs_is_left_behind_after_five_seconds(place: Place) -> None:
    leave(place, "await asyncio.Event().wait()")
    async with place.daemon(*RUN) as daemon:
        await daemon.ready()
        before = time.monotonic()
        daemon.signal(signal.SIGTERM)
        assert await daemon.finish() == 0
    assert 4 < time.monotonic() - before < 15
    assert "shutdown took longer than 5 s" in daemon.err and "last" in daemon.err.splitlines()[-1]
    assert "Traceback" not in daemon.err


async def test_b20_a_second_signal_leaves_at_once(place: Place) -> None:
    leave(place, "await asyncio.Event().wait()")
    async with place.daemon(*RUN) as daemon:
        await daemon.ready()
        daemon.signal(signal.SIGTERM)
        await until_leaving(place)
        before = time.monotonic()
        daemon.signal(signal.SIGTERM)
        assert await daemon.finish() != 0
    assert time.monotonic() - before < BOUND


async def test_b20_a_signal_after_the_work_is_done_does_not_wait_for_the_undos(place: Place) -> None:
    leave(place, "await asyncio.Event().wait()")
    async with MockLlmServer(["success"]) as server:
        place.model(server.url)
        process = await asyncio.create_subprocess_exec(
            PYTHON, "-m", "dsh.cli.main", "exec", "Hi", "--patch", "last.patch.yml",
            cwd=place.work, env=place.env, stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        try:
            await until_leaving(place)
            before = time.monotonic()
            process.send_signal(signal.SIGTERM)
            await asyncio.wait_for(process.communicate(), 20)
        finally:
            if process.returncode is None:
                process.kill()
    assert time.monotonic() - before < BOUND


async def test_b20_the_end_of_the_work_undoes_everything_and_keeps_its_exit_code(place: Place) -> None:
    leave(place, "await asyncio.sleep(0)")
    for script, code in (["success"], 0), (["max_tokens"], 1):
        async with MockLlmServer(script) as server:
            place.model(server.url)
            done = await place.dsh("exec", "Hi", "--patch", "last.patch.yml")
        assert done.code == code, done.err
        assert trail(place) == ["leaving", "last out", "first out"]
        os.unlink(place.work / "trail")


async def test_b20_a_signal_during_the_start_ends_it_and_undoes_what_already_ran(place: Place) -> None:
    leave(place, "await asyncio.sleep(0)")
    place.write(
        "slow.py",
        "import asyncio\nasync def apply(ctx):\n    open('starting', 'w').close()\n    await asyncio.Event().wait()\n",
    )
    place.write("last.patch.yml", "- insert: [{id: last, name: ./last.py}, {id: slow, name: ./slow.py}]\n")
    async with place.daemon(*RUN) as daemon:
        async with asyncio.timeout(20):
            while not (place.work / "starting").exists():
                await asyncio.sleep(0.01)
        daemon.signal(signal.SIGINT)
        assert await daemon.finish() == 130
    assert trail(place) == ["leaving", "last out", "first out"] and "Traceback" not in daemon.err


@pytest.mark.parametrize("seconds", [0, 0.05, 0.2, 0.4, 0.6, 1.0])
async def test_b20_a_signal_at_any_moment_of_the_start_ends_the_process_quietly(place: Place, seconds: float) -> None:
    """Before the handlers are there the signal's default counts, afterwards a graceful end."""
    leave(place, "await asyncio.sleep(0)")
    async with place.daemon(*RUN) as daemon:
        await asyncio.sleep(seconds)
        daemon.signal(signal.SIGTERM)
        assert await daemon.finish() in (0, -signal.SIGTERM)
    assert "Traceback" not in daemon.err
    assert trail(place) in ([], ["leaving", "last out", "first out"])
