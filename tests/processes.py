"""A look at the process table: who lives, and what of a test is left."""

from __future__ import annotations

import asyncio
import os


def alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and waits to be reaped does not."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except OSError:
        return False


async def until_gone(pid: int, seconds: float = 15.0) -> None:
    """Wait until a process is gone."""
    async with asyncio.timeout(seconds):
        while alive(pid):
            await asyncio.sleep(0.01)


def processes_with(marker: str) -> list[int]:
    """Ids of other living processes with `marker` in their environment or arguments."""
    found = []
    for pid in (int(name) for name in os.listdir("/proc") if name.isdigit()):
        try:
            with open(f"/proc/{pid}/environ", "rb") as environment, open(f"/proc/{pid}/cmdline", "rb") as arguments:
                text = environment.read() + arguments.read()
        except OSError:
            continue
        if marker.encode() in text and pid != os.getpid() and alive(pid):
            found.append(pid)
    return found


async def until_none_with(marker: str, seconds: float = 15.0) -> None:
    """Wait until no process with `marker` lives."""
    async with asyncio.timeout(seconds):
        while processes_with(marker):
            await asyncio.sleep(0.02)
