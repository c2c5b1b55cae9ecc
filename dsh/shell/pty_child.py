"""A program on a pseudo terminal, started by the process service like every other child."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import termios
from collections.abc import Callable, Mapping, Sequence

from .foreground import foreground_group, unread, waits_for_input
from .pipes import PipeReader, PipeWriter
from .service import ChildProcess, Collect, ExitStatus, SpawnError, SpawnSpec, Subprocess

_TAKE_TERMINAL = 'exec "$@" <>"$0" >&0 2>&1'
"""The leader of a fresh session that opens a terminal gets it as its controlling terminal."""


class PtyChild:
    """One running program. `feed` gets what it prints.

    Raises `ValueError` and `OSError` when made for a spec that makes no sense or where no terminal is free.
    """

    def __init__(
        self,
        subprocess: Subprocess,
        argv: Sequence[str],
        *,
        cwd: str,
        env: Mapping[str, str | None],
        size: tuple[int, int],
        grace_ms: int,
        feed: Callable[[bytes], None],
    ) -> None:
        loop = asyncio.get_running_loop()
        self._master, self._slave = os.openpty()
        self._closed = False
        opened = [self._master, self._slave]
        try:
            # Two descriptors of our end, because reader and writer each close their own.
            write_end = os.dup(self._master)
            opened.append(write_end)
            self.name = os.ttyname(self._slave)
            termios.tcsetwinsize(self._master, size)
            self._child: ChildProcess = subprocess.spawn(
                SpawnSpec(
                    argv=["/bin/sh", "-c", _TAKE_TERMINAL, self.name, *argv],
                    cwd=cwd,
                    grace_ms=grace_ms,
                    stdout=Collect(4096),
                    stderr=Collect(4096),
                    env=env,
                )
            )
        except BaseException:
            for fd in opened:
                os.close(fd)
            raise
        self._writer = PipeWriter(loop, write_end)
        self._reader = PipeReader(loop, self._master, feed, lambda: None)

    @property
    def pid(self) -> int | None:
        """Process id of the program; None when it did not start."""
        return self._child.pid

    async def ended(self) -> ExitStatus:
        """Wait for the program; everything it printed has been fed then. Raises `SpawnError`."""
        status = await self._child.done()
        self._reader.drain()
        return status

    async def write(self, data: bytes) -> None:
        """Type `data`, waiting while the terminal takes no more. Raises `BrokenPipeError` when it is closed."""
        await self._writer.write(data)

    def at_rest(self) -> bool:
        """Whether the program itself gets what is typed, has read all of it and (where that can be known) waits."""
        if self._closed or foreground_group(self._master) != self.pid or unread(self._slave):
            return False
        return waits_for_input(self._master, self._slave, self.name, self.pid) is not False

    def waits_for_input(self) -> bool:
        """Whether a program in the foreground is known to wait for somebody to type."""
        return not self._closed and bool(waits_for_input(self._master, self._slave, self.name))

    def signal(self, number: signal.Signals) -> int:
        """Send a signal to the foreground group and return its id. Raises `ProcessLookupError` when there is none."""
        group = None if self._closed else foreground_group(self._master)
        if group is None:
            raise ProcessLookupError("the terminal has no foreground process group")
        os.killpg(group, number)
        return group

    def hang_up(self) -> None:
        """Take the terminal away (the program and its jobs get SIGHUP) and end all that is left of the tree: SIGTERM,
        after the grace time SIGKILL. Idempotent."""
        if not self._closed:
            self._closed = True
            self._writer.close()
            self._reader.close()
            os.close(self._slave)
        self._child.terminate()

    async def gone(self) -> None:
        """Wait until nothing of the tree is left."""
        with contextlib.suppress(SpawnError):
            await self._child.done()
        await self._child.wait_for_exit()
