"""A process service and a shell on a running root, and a look at the process table."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import dsh.shell.bash
import dsh.shell.subprocess
from dsh.cordis import Context
from dsh.shell.service import ChildProcess, Collect, Shell, ShellResult, SpawnSpec, Subprocess
from dsh.shell.service import ShellRequest as Request

_numbers = itertools.count(100_000 + os.getpid() * 1000)

KEEP = Collect(64_000, 1_000_000)


def unique_seconds() -> str:
    """A number of seconds for `sleep` that no other process of this machine sleeps."""
    return str(next(_numbers))


def running(text: str) -> list[int]:
    """Ids of living processes with `text` among their arguments."""
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/cmdline", "rb") as file:
                arguments = file.read().split(b"\0")
            with open(f"/proc/{name}/stat", "rb") as file:
                state = file.read().rpartition(b")")[2].split()[0]
        except OSError:
            continue
        if text.encode() in arguments and state not in (b"Z", b"X"):
            found.append(int(name))
    return found


async def until_running(text: str, count: int = 1) -> None:
    """Wait until that many processes with `text` among their arguments live."""
    async with asyncio.timeout(20):
        while len(running(text)) < count:
            await asyncio.sleep(0.005)


async def until_gone(text: str) -> None:
    """Wait until no process with `text` among its arguments lives."""
    async with asyncio.timeout(20):
        while running(text):
            await asyncio.sleep(0.005)


@asynccontextmanager
async def root_with_shell(
    shell: Mapping[str, Any] | None = None, subprocess: Mapping[str, Any] | None = None
) -> AsyncIterator[Context]:
    """A root with `subprocess-local` and `bash-local`; a short grace time unless said otherwise."""
    async with Context() as root:
        await root.plugin(dsh.shell.subprocess, dict(subprocess or {}))
        await root.plugin(dsh.shell.bash, {"graceMs": 400, **(shell or {})})
        yield root


def spawn(root: Context, command: str, **options: Any) -> ChildProcess:
    """Start `bash -c command` with collected output."""
    given = {"cwd": "/", "grace_ms": 400, "stdout": KEEP, "stderr": KEEP, **options}
    return root[Subprocess].spawn(SpawnSpec(argv=["bash", "-c", command], **given))


def output(child: ChildProcess, stream: str = "stdout") -> str:
    """All that is kept of a collected stream."""
    return child.collected[stream].read_from(0).text  # type: ignore[index]


async def run(root: Context, command: str, **options: Any) -> ShellResult:
    """Run a command line through the shell service."""
    shell = root[Shell]
    return await shell.run(shell.resolve(Request(command=command, **options)))
