"""Commands of dsh in processes that need not import it first.

A start of dsh is mostly imports. One process does them once for all tests of this one, and each command is a fork of it
with streams, folder, environment, signals and an end of its own: what runs is what `python -m dsh.cli.main` runs. Tests
of a start itself want `fresh` ones, and where a fork could not be the same (other locale, no Linux) there is no other.
"""

from __future__ import annotations

import asyncio
import atexit
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

PYTHON = sys.executable
DSH = (PYTHON, "-m", "dsh.cli.main")
LIMIT = 2**24
FRESH = sys.platform != "linux" or bool(os.environ.get("DSH_TEST_FRESH"))
"""Never fork."""
_LARGEST = 2**17
_AT_START = ("PYTHON", "LC_", "LANG", "LD_", "MALLOC", "TZ")
"""How variables begin that are read while Python starts."""


async def start(
    *arguments: str,
    command: Sequence[str] = DSH,
    folder: Path,
    environment: Mapping[str, str],
    stdin: int = asyncio.subprocess.DEVNULL,
    session: bool = False,
    fresh: bool = False,
) -> asyncio.subprocess.Process | Forked:
    """Start one command, its output in pipes; ``session`` in one of its own. The caller ends it."""
    known, first = tuple(command[: len(DSH)]) == DSH, command[len(DSH) :]
    if known and not fresh and not FRESH and _read_at_start(environment) == _read_at_start(os.environ):
        asked = {
            "arguments": [*first, *arguments],
            "environment": dict(environment),
            "folder": str(folder),
            "session": session,
        }
        request = json.dumps(asked).encode()
        if len(request) < _LARGEST:
            return await _fork(request, stdin)
    return await asyncio.create_subprocess_exec(
        *command,
        *arguments,
        cwd=folder,
        env=environment,
        stdin=stdin,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        limit=LIMIT,
        start_new_session=session,
    )


def _read_at_start(environment: Mapping[str, str]) -> dict[str, str]:
    found = {name: value for name, value in environment.items() if name.startswith(_AT_START)}
    return {**found, "PYTHONUNBUFFERED": "1"}


@cache
def _server() -> tuple[socket.socket, subprocess.Popen[bytes]]:
    """The forking process and where it is told what to start; it ends when this one does."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        process = subprocess.Popen(
            [PYTHON, str(Path(__file__).with_name("warm_server.py")), str(theirs.fileno())],
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
        )
    atexit.register(_stop, ours, process)
    return ours, process


def _stop(ours: socket.socket, process: subprocess.Popen[bytes]) -> None:
    ours.shutdown(socket.SHUT_RDWR)  # a fork of this process may hold it open
    process.wait(10)


async def _fork(request: bytes, stdin: int) -> Forked:
    given = None
    if stdin == asyncio.subprocess.PIPE:
        their_in, given = os.pipe()
    else:
        their_in = os.open(os.devnull, os.O_RDONLY)
    out, their_out = os.pipe()
    err, their_err = os.pipe()
    reply, their_reply = socket.socketpair()
    theirs = [their_in, their_out, their_err, their_reply.detach()]
    try:
        socket.send_fds(_server()[0], [request], theirs)
    finally:
        for each in theirs:
            os.close(each)
    process = Forked(await _reader(out), await _reader(err), None if given is None else await _writer(given))
    await asyncio.get_running_loop().create_connection(lambda: process.told, sock=reply)
    process.pid = await process.told.pid
    return process


class _Told(asyncio.Protocol):
    """What the forking process says of one that it started: its id, and how it ended."""

    def __init__(self) -> None:
        self.pid: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._heard = b""

    def data_received(self, data: bytes) -> None:
        self._heard += data
        pid, *rest = self._heard.split(b"\n")[:-1]
        if not self.pid.done():
            self.pid.set_result(int(pid))
        if rest:
            self.ended.set_result(os.waitstatus_to_exitcode(int(rest[0])))

    def connection_lost(self, _: Exception | None) -> None:
        for each in (self.pid, self.ended):
            if not each.done():
                each.set_exception(RuntimeError("the process that commands are forked from is gone"))
                each.exception()


class Forked:
    """One command, with the names of `asyncio.subprocess.Process`."""

    pid: int

    def __init__(
        self, stdout: asyncio.StreamReader, stderr: asyncio.StreamReader, stdin: asyncio.StreamWriter | None
    ) -> None:
        self.stdout, self.stderr, self.stdin = stdout, stderr, stdin
        self.told = _Told()

    @property
    def returncode(self) -> int | None:
        """How it ended; `None` while it runs."""
        return self.told.ended.result() if self.told.ended.done() else None

    async def wait(self) -> int:
        """How it ended, when it has."""
        return await asyncio.shield(self.told.ended)

    async def communicate(self, given: bytes | None = None) -> tuple[bytes, bytes]:
        """Write to its standard input, and read what it prints to the end."""
        out, err, _, _ = await asyncio.gather(self.stdout.read(), self.stderr.read(), self._give(given), self.wait())
        return out, err

    async def _give(self, given: bytes | None) -> None:
        if self.stdin is not None:
            with suppress(BrokenPipeError, ConnectionResetError):
                self.stdin.write(given or b"")
                await self.stdin.drain()
            self.stdin.close()

    def send_signal(self, number: int) -> None:
        """Send it a signal, if it runs."""
        if self.returncode is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it."""
        self.send_signal(signal.SIGKILL)


async def _reader(number: int) -> asyncio.StreamReader:
    reader = asyncio.StreamReader(LIMIT)
    protocol = asyncio.StreamReaderProtocol(reader)
    await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, open(number, "rb", 0))
    return reader


async def _writer(number: int) -> asyncio.StreamWriter:
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.connect_write_pipe(
        lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader()), open(number, "wb", 0)
    )
    return asyncio.StreamWriter(transport, protocol, None, loop)
