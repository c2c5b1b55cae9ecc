"""What a killed process leaves behind: no running command, no stuck session."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from dsh.models.mock_server import MockLlmServer
from tests.cli.kit import Place

LINUX = pytest.mark.skipif(not Path("/proc/self").exists(), reason="trees are found through /proc")


def running(mark: str) -> list[str]:
    """Command lines of living processes that hold ``mark``."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and (entry / "stat").read_bytes().rpartition(b")")[2].split()[0] != b"Z":
                found.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace"))
        except OSError:
            continue
    return [line for line in found if mark in line]


async def until(condition, seconds: float = 20.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.02)


@LINUX
@pytest.mark.parametrize(
    "command",
    ["sleep {s}", "trap '' TERM HUP; sleep {s} & sleep {s}; true", "setsid sleep {s} & sleep {s}; true"],
    ids=["plain", "stubborn", "own session"],
)
async def test_a_killed_process_leaves_no_command_running(tmp_path: Path, command: str) -> None:
    place = Place.make(tmp_path)
    place.init()
    seconds = f"3000.{os.getpid()}{len(command)}"
    call = {"name": "bash", "arguments": {"command": command.format(s=seconds), "description": "wait"}}
    async with MockLlmServer([{"toolCalls": [call]}, {"text": "and on"}]) as server:
        place.model(server.url)
        async with place.daemon("cordis.yml", "--prompt", "go") as daemon:
            wanted = command.count("sleep")
            await until(lambda: len([line for line in running(seconds) if line.startswith("sleep")]) == wanted)
            daemon.signal(signal.SIGKILL)
            await daemon.finish()
        await until(lambda: not running(seconds))
        resumed = await place.dsh("resume", "--last", "go on")
        assert (resumed.code, resumed.out) == (0, "and on\n")
