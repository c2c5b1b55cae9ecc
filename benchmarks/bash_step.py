"""What one `bash -c true` costs through the shell service, against a bare asyncio subprocess.

    python benchmarks/bash_step.py [rounds]

Prints the median of each and their ratio, for a command without output and for one with 1 MB of it.
"""

from __future__ import annotations

import asyncio
import functools
import statistics
import sys
import time
from collections.abc import Awaitable, Callable

import dsh.shell.bash
import dsh.shell.subprocess
from dsh.cordis import Context
from dsh.shell.service import Shell, ShellRequest


async def bare(command: str) -> None:
    """The shortest way the standard library offers."""
    process = await asyncio.create_subprocess_exec(
        "bash",
        "-c",
        command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    await process.communicate()


async def medians(rounds: int, *contenders: Callable[[], Awaitable[object]]) -> list[float]:
    """Milliseconds of one call of each, taken in turns so that a busy moment hits all alike."""
    times: list[list[float]] = [[] for _ in contenders]
    for _ in range(rounds):
        for taken, once in zip(times, contenders, strict=True):
            started = time.perf_counter()
            await once()
            taken.append((time.perf_counter() - started) * 1000)
    return [statistics.median(taken) for taken in times]


async def main(rounds: int) -> None:
    """Measure and print."""
    async with Context() as root:
        await root.plugin(dsh.shell.subprocess, {})
        await root.plugin(dsh.shell.bash, {})
        shell = root[Shell]

        async def through_the_seam(command: str) -> None:
            await shell.run(shell.resolve(ShellRequest(command)))

        for label, command in (("true", "true"), ("1 MB of output", "head -c 1000000 /dev/zero")):
            ours, theirs = await medians(
                rounds, functools.partial(through_the_seam, command), functools.partial(bare, command)
            )
            print(f"{label:>16}: shell service {ours:.2f} ms, bare asyncio {theirs:.2f} ms, ratio {ours / theirs:.2f}")


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 200))
