"""A command that tests fork is the one that they would start."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from tests import warm
from tests.cli.kit import Place

pytestmark = pytest.mark.skipif(warm.FRESH, reason="nothing is forked")


@pytest.mark.parametrize(
    ("arguments", "given"),
    [
        (["config", "check"], None),
        (["run", "--help"], None),
        (["run", "--nonsense"], None),
        (["credentials", "set", "KEY"], b"value\n"),
    ],
    ids=["check", "help", "usage", "input"],
)
async def test_it_says_and_returns_the_same(place: Place, arguments: list[str], given: bytes | None) -> None:
    found = []
    for fresh in (True, False):
        process = await place.start(*arguments, stdin=asyncio.subprocess.PIPE, fresh=fresh)
        assert isinstance(process, warm.Forked) != fresh
        found.append((*await process.communicate(given), process.returncode))
    assert found[0] == found[1]


async def test_it_has_a_folder_files_and_an_end_of_its_own(place: Place) -> None:
    process = await place.start("run", "--no-watch", env={"MINE": "1"}, fresh=False)
    other = await place.start("config", "check", fresh=False)
    while b"ready" not in await process.stderr.readline():
        pass
    assert (await other.communicate(), other.returncode)[1] == 0 and process.returncode is None
    inside = Path(f"/proc/{process.pid}")
    assert os.readlink(inside / "cwd") == str(place.work)
    for number, kind in enumerate(("/dev/null", "pipe:", "pipe:")):
        assert os.readlink(inside / "fd" / str(number)).startswith(kind)
    process.send_signal(signal.SIGKILL)
    assert await process.wait() == process.returncode == -signal.SIGKILL


async def test_what_python_reads_while_it_starts_needs_a_start(place: Place) -> None:
    process = await place.start("--version", env={"LC_ALL": "POSIX"}, fresh=False)
    assert not isinstance(process, warm.Forked)
    assert (await process.communicate())[0].startswith(b"dsh ")
