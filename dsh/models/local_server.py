"""A local model's server process: started on first use, stopped when idle, never outliving its plugin."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import sys
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from dsh.cordis import Context
from dsh.cordis.records import record
from dsh.llm.failure import LlmError

_INHERITED = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "LD_LIBRARY_PATH", "PYTHONPATH", "VIRTUAL_ENV", "SYSTEMROOT")
_QUIET_THREADS = {"OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "0"}
"""Without these, idle worker threads spin: on two busy cores that costs nine tenths of the speed."""


_LOG_PIECE = 1 << 14
"""Bytes of the log read at a time; of a longer line the end is kept."""


@record
class Endpoint:
    """Where a running server listens, and the key that keeps other local users out."""

    url: str
    api_key: str


class LocalServer:
    """The server of one model file. `use` starts it if need be; `close` ends it."""

    def __init__(
        self,
        ctx: Context,
        model_path: Path,
        *,
        context_window: int,
        threads: int,
        idle_seconds: float,
        command: tuple[str, ...] = (sys.executable, "-m", "dsh.models.local_child"),
    ) -> None:
        self._ctx = ctx
        self._settings = {"modelPath": str(model_path), "contextWindow": context_window, "threads": threads}
        self._idle_seconds = idle_seconds
        self._command = command
        self._process: asyncio.subprocess.Process | None = None
        self._endpoint: Endpoint | None = None
        self._errors: deque[str] = deque(maxlen=20)
        self._starting = asyncio.Lock()
        self._users = 0
        self._idle_timer: asyncio.TimerHandle | None = None

    @property
    def running(self) -> bool:
        """Whether the process is there."""
        return self._process is not None and self._process.returncode is None

    @property
    def pid(self) -> int | None:
        """The process id while it runs."""
        return self._process.pid if self._process is not None and self.running else None

    @asynccontextmanager
    async def use(self) -> AsyncIterator[Endpoint]:
        """The endpoint, running for the length of the block. Raises `LlmError` ``LOCAL_MODEL`` when the model cannot
        be loaded.
        """
        self._users += 1
        self._stop_timer()
        try:
            async with self._starting:
                if not self.running or self._endpoint is None:
                    self._endpoint = await self._start()
            yield self._endpoint
        finally:
            self._users -= 1
            if not self._users and self.running:
                loop = asyncio.get_running_loop()
                self._idle_timer = loop.call_later(self._idle_seconds, self._stop_idle)

    async def close(self) -> None:
        """End the process and wait for it."""
        self._stop_timer()
        process, self._process, self._endpoint = self._process, None, None
        if process is None:
            return
        if process.stdin is not None:
            process.stdin.close()
        try:
            async with asyncio.timeout(2):
                await process.wait()
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    async def _start(self) -> Endpoint:
        await self.close()
        self._errors.clear()
        process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=_child_environment(),
            start_new_session=True,  # a Ctrl-C in the terminal is the parent's business
        )
        self._process = process
        logged = asyncio.Event()
        self._ctx.spawn(self._drain, process, logged, name=f"log of local model server {process.pid}")
        key = secrets.token_urlsafe(24)
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(json.dumps({**self._settings, "apiKey": key}).encode() + b"\n")
            await process.stdin.drain()
            line = await process.stdout.readline()
        except (ConnectionError, ValueError, asyncio.CancelledError) as error:
            if isinstance(error, ValueError):  # no line, but a flood: it ends only when somebody takes it
                process.kill()
                await process.stdout.read()
            await self.close()
            if isinstance(error, asyncio.CancelledError):
                raise
            line = b""
        try:
            return Endpoint(json.loads(line)["url"], key)
        except (ValueError, KeyError):
            await self.close()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1):
                    await logged.wait()
            said = self._errors[-1] if self._errors else "it said nothing"
            raise LlmError.of("LOCAL_MODEL", f"the local model server did not start: {said}") from None

    async def _drain(self, process: asyncio.subprocess.Process, logged: asyncio.Event) -> None:
        """Read the log, so that a full pipe never blocks the server; the last lines explain a failed start."""
        assert process.stderr is not None
        rest = b""
        while piece := await process.stderr.read(_LOG_PIECE):
            *lines, rest = (rest[-_LOG_PIECE:] + piece).split(b"\n")
            self._errors += (text for line in lines if (text := line.decode("utf-8", "replace").strip()))
        if text := rest.decode("utf-8", "replace").strip():
            self._errors.append(text)
        logged.set()

    def _stop_timer(self) -> None:
        if self._idle_timer is not None:
            self._idle_timer.cancel()
            self._idle_timer = None

    def _stop_idle(self) -> None:
        if not self._users:
            self._ctx.spawn(self.close, name="stop the idle local model server")


def _child_environment() -> Mapping[str, str]:
    """What the child needs and no more: keys of the parent's environment are none of its business."""
    kept = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    return {**kept, **_QUIET_THREADS, "PYTHONUTF8": "1"}
