"""Running the real command line in real processes, against a real scripted model server."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dsh.cli.starter import starter_files
from tests import warm

PYTHON = sys.executable
TIMEOUT = 40.0


def clean_environment() -> dict[str, str]:
    """This process's environment without keys, proxies, and settings of dsh and of the test runner."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("DEEPSEEK_", "DSH_", "PYTEST_")) and "proxy" not in name.lower()
    }


@dataclass
class Finished:
    """What a finished command left."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        """Standard output as one JSON value."""
        return json.loads(self.out)

    def lines(self) -> list[Any]:
        """Standard output as JSON lines."""
        return [json.loads(line) for line in self.out.split("\n") if line]


@dataclass
class Place:
    """A home folder, a workspace, and the environment commands run in."""

    home: Path
    work: Path
    env: dict[str, str]

    @classmethod
    def make(cls, root: Path, **env: str) -> Place:
        """A fresh place below ``root``; no key and no proxy is inherited."""
        home, work = root / "home", root / "work"
        work.mkdir()
        return cls(home, work, {**clean_environment(), "DSH_HOME": str(home), "PYTHONUNBUFFERED": "1", **env})

    def init(self) -> None:
        """Put the starter composition into the workspace, as ``dsh init`` does."""
        for name, content in starter_files().items():
            path = self.work / name
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(content)

    def model(self, url: str) -> None:
        """Send model requests to ``url``."""
        self.env |= {"DEEPSEEK_BASE_URL": url, "DEEPSEEK_API_KEY": "test-key"}

    def write(self, name: str, text: str) -> Path:
        """Write a file of the workspace."""
        path = self.work / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
        return path

    async def start(
        self,
        *arguments: str,
        stdin: int = asyncio.subprocess.DEVNULL,
        env: Mapping[str, str] | None = None,
        fresh: bool = True,
    ) -> Any:
        """Start one command, its output in pipes; not ``fresh``: forked, see `tests.warm`. The caller ends it."""
        whole = {**self.env, **(env or {})}
        return await warm.start(*arguments, folder=self.work, environment=whole, stdin=stdin, fresh=fresh)

    async def dsh(self, *arguments: str, stdin: str | None = None, env: Mapping[str, str] | None = None) -> Finished:
        """Run one command to its end."""
        pipe = asyncio.subprocess.DEVNULL if stdin is None else asyncio.subprocess.PIPE
        process = await self.start(*arguments, stdin=pipe, env=env, fresh=False)
        try:
            given = None if stdin is None else stdin.encode()
            out, err = await asyncio.wait_for(process.communicate(given), TIMEOUT)
        except BaseException:
            process.kill()
            await process.wait()
            raise
        assert process.returncode is not None
        return Finished(process.returncode, out.decode(), err.decode())

    @asynccontextmanager
    async def daemon(self, *arguments: str, command: str = "run") -> AsyncIterator[Daemon]:
        """``dsh run … --output stream-json`` while the block runs; killed at its end if still there."""
        process = await self.start(command, *arguments, "--output", "stream-json", fresh=False)
        daemon = Daemon(process)
        try:
            yield daemon
        finally:
            if process.returncode is None:
                process.kill()
            await daemon.finish()


class Daemon:
    """A running ``dsh run`` and the lines it printed."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.lines: list[Any] = []
        self.err = ""
        self._seen = 0
        self._news = asyncio.Event()
        self._readers = [asyncio.create_task(self._read_out()), asyncio.create_task(self._read_err())]

    async def _read_out(self) -> None:
        assert self.process.stdout is not None
        while line := await self.process.stdout.readline():
            if not line.endswith(b"\n"):
                break  # killed in the middle of a line
            self.lines.append(json.loads(line))
            self._news.set()
        self._news.set()

    async def _read_err(self) -> None:
        assert self.process.stderr is not None
        while line := await self.process.stderr.readline():
            self.err += line.decode()
            self._news.set()

    async def wait_for(self, wanted: Callable[[Any], bool], what: str, *, again: bool = False) -> Any:
        """The next line that ``wanted`` accepts, from where the last wait stopped (``again``: from the start)."""
        if again:
            self._seen = 0
        async with asyncio.timeout(TIMEOUT):
            while True:
                while self._seen < len(self.lines):
                    line = self.lines[self._seen]
                    self._seen += 1
                    if wanted(line):
                        return line
                if self._readers[0].done():
                    raise AssertionError(f"the daemon ended before {what}:\n{self.err}")
                self._news.clear()
                await self._news.wait()

    async def ready(self) -> Any:
        """The ``ready`` line."""
        return await self.wait_for(lambda line: line["type"] == "ready", "ready")

    async def event(self, kind: str, test: Callable[[Any], bool] = lambda event: True) -> Any:
        """The next session event of one type."""
        found = await self.wait_for(
            lambda line: line["type"] == "session_event" and line["event"]["type"] == kind and test(line["event"]),
            kind,
        )
        return found["event"]

    async def config(self, status: str) -> Any:
        """The next ``config`` line with this status."""
        return await self.wait_for(
            lambda line: line["type"] == "config" and line["status"] == status, f"config {status}"
        )

    async def said(self, text: str) -> None:
        """Wait until standard error holds ``text``."""
        async with asyncio.timeout(TIMEOUT):
            while text not in self.err:
                self._news.clear()
                await self._news.wait()

    def events(self, kind: str) -> list[Any]:
        """The data of all session events of one type seen so far."""
        return [
            line["event"]["data"]
            for line in self.lines
            if line["type"] == "session_event" and line["event"]["type"] == kind
        ]

    def signal(self, number: signal.Signals) -> None:
        """Send a signal."""
        self.process.send_signal(number)

    async def finish(self) -> int:
        """Wait for the end; the exit code."""
        code = await asyncio.wait_for(self.process.wait(), TIMEOUT)
        await asyncio.gather(*self._readers)
        return code
