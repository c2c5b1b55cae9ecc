"""`bash-local`: command lines run by `bash -c`, unconfined."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from contextlib import suppress
from typing import Literal

from dsh.cordis import ConfigModel, Context, field
from dsh.core.seams import install_settings_section

from .service import (
    ChildProcess,
    Collect,
    ExitStatus,
    Shell,
    ShellJob,
    ShellRequest,
    ShellResult,
    ShellSpec,
    ShellStream,
    SpawnSpec,
    Subprocess,
)

name = "bash-local"

LINGER = 0.1
"""Seconds a process may outlive its shell before it counts as left behind (`> >(cat)` ends a moment later)."""

QUIET = {"NO_COLOR": "1", "TERM": "dumb", "PAGER": "cat", "GIT_PAGER": "cat"}
"""Variables that keep programs from painting and from waiting for a key."""


class Config(ConfigModel):
    """Config of a shell row and of the user's settings section `shell`."""

    cwd: str | None = field(None, live=True, description="Directory of commands that name none")
    timeout_ms: int = field(120_000, min=1, live=True, unit="ms", description="Time limit of a command that names none")
    max_timeout_ms: int = field(
        600_000, min=1, live=True, unit="ms", description="Longest time limit a command may ask for"
    )
    max_output_bytes: int = field(
        64_000, min=1, live=True, unit="bytes", description="How much of each output stream is kept"
    )
    max_spill_bytes: int = field(
        67_108_864, min=1, live=True, unit="bytes", description="How large the file with a stream's full output may get"
    )
    grace_ms: int = field(
        3_000, min=1, max=2_147_483_647, live=True, unit="ms", description="Time between SIGTERM and SIGKILL"
    )


class LocalBash(Shell):
    """Runs `bash -c COMMAND`; not a login shell, so no profile is read."""

    def __init__(self, ctx: Context, config: Config, subprocess: Subprocess) -> None:
        self._subprocess = subprocess
        section = self._section = install_settings_section(ctx, "shell", Config, config)
        ctx.defer(config.watch(lambda: section.rebase(config)))
        self._bash: str | None = None

    def resolve(self, request: ShellRequest) -> ShellSpec:
        limits = self._section.get()
        timeout = limits.timeout_ms if request.timeout_ms is None else request.timeout_ms
        output = limits.max_output_bytes
        return ShellSpec(
            command=request.command,
            cwd=os.path.join(os.getcwd(), limits.cwd or "", request.workdir or ""),
            timeout_ms=min(timeout, limits.max_timeout_ms),
            stdout_max_bytes=output if request.stdout_max_bytes is None else request.stdout_max_bytes,
            stderr_max_bytes=output,
            max_spill_bytes=limits.max_spill_bytes,
            grace_ms=limits.grace_ms,
            signal=request.signal,
            stdin=request.stdin,
            env={**QUIET, **(request.env or {}), **(request.dsh_env or {})},
            sandbox_policy=request.sandbox_policy,
        )

    async def run(self, spec: ShellSpec) -> ShellResult:
        if spec.signal is not None and spec.signal.aborted:
            nothing = ShellStream("", False)
            return ShellResult(None, None, False, True, spec.timeout_ms, nothing, nothing)
        child = self._spawn(spec)
        cause: Literal["timeout", "abort"] | None = None

        def stop(why: Literal["timeout", "abort"]) -> None:
            nonlocal cause
            if cause is None:
                cause = why
                child.terminate()

        timer = asyncio.get_running_loop().call_later(spec.timeout_ms / 1000, stop, "timeout")
        forget = spec.signal.on_abort(lambda: stop("abort")) if spec.signal is not None else None
        try:
            status = await child.done()
            if cause is None and child.left_processes:
                with suppress(TimeoutError):
                    await asyncio.wait_for(child.wait_for_exit(), LINGER)
            if cause is not None:
                await child.wait_for_exit()
        except BaseException:
            child.terminate()
            raise
        finally:
            timer.cancel()
            if forget is not None:
                forget()
        left = cause is None and child.left_processes
        return ShellResult(
            exit_code=status.exit_code,
            signal=status.signal,
            timed_out=cause == "timeout",
            aborted=cause == "abort",
            timeout_ms=spec.timeout_ms,
            stdout=_whole(child, "stdout"),
            stderr=_whole(child, "stderr"),
            left_process=child.pid if left else None,
            child=child if left else None,
        )

    def start(self, spec: ShellSpec) -> ShellJob:
        return _Job(self._spawn(spec))

    def argv(self, spec: ShellSpec) -> Sequence[str]:
        """What is executed; a confining executor wraps it."""
        if self._bash is None:
            self._bash = self._subprocess.resolve_executable("bash")
        return [self._bash, "-c", spec.command]

    def _spawn(self, spec: ShellSpec) -> ChildProcess:
        return self._subprocess.spawn(
            SpawnSpec(
                argv=self.argv(spec),
                cwd=spec.cwd,
                grace_ms=spec.grace_ms,
                stdin="ignore" if spec.stdin is None else spec.stdin,
                stdout=Collect(spec.stdout_max_bytes, spec.max_spill_bytes),
                stderr=Collect(spec.stderr_max_bytes, spec.max_spill_bytes),
                env=spec.env,
            )
        )


class _Job(ShellJob):
    """A command in the background. It belongs to the process service, so it outlives a reload of the executor."""

    def __init__(self, child: ChildProcess) -> None:
        self._child = child
        self._killed = False
        self._failure_told = False
        self._offsets = {"stdout": 0, "stderr": 0}

    @property
    def status(self) -> Literal["running", "completed", "killed"]:
        if self._child.failure is not None:
            return "killed"
        if self._child.exit_status is None:
            return "running"
        return "killed" if self._killed else "completed"

    @property
    def exit(self) -> ExitStatus | None:
        return self._child.exit_status

    def read_output(self) -> tuple[ShellStream, ShellStream]:
        failure = self._child.failure
        if failure is not None:
            told, self._failure_told = self._failure_told, True
            return ShellStream("", False), ShellStream("" if told else f"spawn failed: {failure}", False)
        return self._delta("stdout"), self._delta("stderr")

    def _delta(self, name: Literal["stdout", "stderr"]) -> ShellStream:
        read = self._child.collected[name].read_from(self._offsets[name])
        self._offsets[name] = read.next_offset
        return ShellStream(read.text, read.lossy, read.spill_path)

    def kill(self) -> None:
        if self.status == "running":
            self._killed = True
        self._child.terminate()

    async def wait(self) -> None:
        try:
            await self._child.done()
        except Exception:
            return  # told by read_output


def _whole(child: ChildProcess, name: Literal["stdout", "stderr"]) -> ShellStream:
    read = child.collected[name].read_from(0)
    return ShellStream(read.text, read.lossy, read.spill_path)
