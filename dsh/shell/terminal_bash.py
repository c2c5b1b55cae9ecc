"""Row `terminal-bash`: interactive bash for the service `terminals`."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from dsh.cordis import AbortError, ConfigModel, Context, field

from .bash import QUIET
from .pty_child import PtyChild
from .screen import Lines, Sanitizer, Scrollback
from .service import ExitStatus, ShellEnv, SpawnError, Subprocess
from .terminal import Sent, Terminal, TerminalBackend, TerminalError, Terminals, WaitReason

if TYPE_CHECKING:
    from dsh.cordis import AbortSignal
    from dsh.core.agent import Agent

name = "terminal-bash"

PROMPT = "dsh> "
_READY = "133;D;"
"""The operating system command by which shells tell the end of a command; its exit status follows."""

_SHELL_ENV = {
    **QUIET,
    "PS1": PROMPT,
    # Set anew before each prompt, whatever a command did to it. CAN calls off a sequence that was left unfinished.
    "PROMPT_COMMAND": f"printf '\\030\\033]{_READY}%s\\007' \"$?\" >/dev/tty; PS1='{PROMPT}'",
    "HISTFILE": "/dev/null",
}
_PROMPT_POLL = 0.002
_LONGEST_POLL = 1.0


class Config(ConfigModel):
    """Config of a row `terminal-bash`."""

    backend_type: str = field("shell", min=1, description="What this kind of terminal is called")
    shell_path: str = field("/bin/bash", min=1, description="The bash to start")
    shell_args: list[str] = field(
        default_factory=lambda: ["--noprofile", "--norc", "-i"], description="Arguments that make it interactive"
    )
    rows: int = field(40, min=1, description="Height of the terminal")
    cols: int = field(160, min=1, description="Width of the terminal")
    scrollback_lines: int = field(10_000, min=1, description="Lines of output that are kept")
    scrollback_max_bytes: int = field(4_194_304, min=1, unit="bytes", description="Output that is kept")
    max_read_bytes: int = field(
        262_144, min=1, live=True, unit="bytes", description="Most output that one send returns"
    )
    poll_interval_ms: int = field(
        50, min=1, live=True, unit="ms", description="How often a silent program is looked at, at first"
    )
    exact_probe_after_ms: int = field(
        150, min=0, live=True, unit="ms", description="Silence after which it is looked whether a program wants input"
    )
    idle_silence_ms: int = field(
        3_000, min=1, live=True, unit="ms", description="Silence after which a program counts as waiting"
    )
    handoff_grace_ms: int = field(
        500, min=0, live=True, unit="ms", description="How long after a send nothing counts as silence"
    )
    timeout_ms: int = field(30_000, min=1, live=True, unit="ms", description="Longest wait of a start and of a send")
    dispose_grace_ms: int = field(
        3_000, min=1, max=2_147_483_647, unit="ms", description="Time between hanging up and SIGKILL"
    )


class BashTerminals(TerminalBackend):
    """Starts bash on a pseudo terminal."""

    def __init__(self, ctx: Context, config: Config, subprocess: Subprocess) -> None:
        self.type = config.backend_type
        self._ctx = ctx
        self._config = config
        self._subprocess = subprocess
        self._open: set[BashTerminal] = set()

    async def open(self, cwd: str, agent: Agent) -> Terminal:
        environment = self._ctx.get(ShellEnv)
        variables = {} if environment is None else environment.variables(agent)
        env = {**_SHELL_ENV, **variables}
        terminal = BashTerminal(self._ctx, self._config, self._subprocess, cwd, env, self._open.discard)
        self._open.add(terminal)
        try:
            await terminal.ready()
        except BaseException:
            await terminal.close()
            raise
        return terminal

    async def close_all(self) -> None:
        """Close what is open; for the end of the row."""
        await asyncio.gather(*(terminal.close() for terminal in list(self._open)))


def apply(ctx: Context, config: Config, terminals: Terminals, subprocess: Subprocess) -> None:
    """Offer the backend."""
    backend = BashTerminals(ctx, config, subprocess)
    ctx.defer(backend.close_all)
    terminals.register(backend)


class BashTerminal(Terminal):
    """One bash. It is ready when its prompt stands behind the marker of a finished command.

    `on_closed` is called when nothing of it is left.
    """

    def __init__(
        self,
        ctx: Context,
        config: Config,
        subprocess: Subprocess,
        cwd: str,
        env: dict[str, str],
        on_closed: Callable[[BashTerminal], None],
    ) -> None:
        self._config = config
        self._loop = asyncio.get_running_loop()
        self._screen = Scrollback(config.scrollback_lines, config.scrollback_max_bytes)
        self._sanitizer = Sanitizer()
        self._behind_marker: str | None = None
        self._changed = asyncio.Event()
        self._heard = self._loop.time()
        self._exit: ExitStatus | None = None
        self._failure: SpawnError | None = None
        self._closed = False
        self._on_closed = on_closed
        self.motd = ""
        self._pty = PtyChild(
            subprocess,
            [config.shell_path, *config.shell_args],
            cwd=cwd,
            env=env,
            size=(config.rows, config.cols),
            grace_ms=config.dispose_grace_ms,
            feed=self._feed,
        )
        self.pid = self._pty.pid
        ctx.spawn(self._watch, name=f"terminal {self.pid}")

    @property
    def exit(self) -> ExitStatus | None:
        return ExitStatus(None, None) if self._exit is None and self._closed else self._exit

    async def ready(self) -> None:
        """Wait for the first prompt. Raises `SpawnError`, `TerminalError`."""
        try:
            async with asyncio.timeout(self._config.timeout_ms / 1000):
                reason = await self._settled(patient=True)
        except TimeoutError:
            raise TerminalError("STARTUP_FAILED", "the shell showed no prompt in time") from None
        if self._failure is not None:
            raise self._failure
        if reason == "session_exit":
            raise TerminalError("STARTUP_FAILED", f"the shell ended at once: {self._screen.since(0, 1000)[0].strip()}")
        self.motd = self._screen.since(0, self._config.max_read_bytes)[0]

    async def send(
        self, text: str, *, submit: bool, signal: AbortSignal | None, timeout_ms: float | None, patient: bool
    ) -> Sent:
        if signal is not None:
            signal.raise_if_aborted()
        start = self._screen.end
        data = (text + ("\r" if submit else "")).encode("utf-8", "replace")
        if data:
            self._behind_marker = None
        limit = self._config.timeout_ms if timeout_ms is None else timeout_ms
        reason: WaitReason
        try:
            async with asyncio.timeout(limit / 1000) as clock:
                with _ended_by(signal, clock):
                    if data:
                        await self._pty.write(data)
                    self._heard = self._loop.time() + self._config.handoff_grace_ms / 1000
                    reason = await self._settled(patient)
        except TimeoutError:
            if signal is not None and signal.aborted:
                self._interrupt()
                raise AbortError(reason=signal.reason) from None
            reason = "timeout"
        except BrokenPipeError:
            reason = "session_exit"
        output, lossy = self._screen.since(start, self._config.max_read_bytes)
        return Sent(output, lossy, reason)

    def read(self, offset: int | None, count: int) -> Lines:
        return self._screen.lines(offset, count)

    def signal(self, number: signal.Signals) -> int:
        return self._pty.signal(number)

    async def close(self) -> None:
        self._closed = True
        self._changed.set()
        self._pty.hang_up()
        await self._pty.gone()
        self._on_closed(self)

    async def _watch(self) -> None:
        try:
            self._exit = await self._pty.ended()
        except SpawnError as error:
            self._failure, self._exit = error, ExitStatus(None, None)
        self._changed.set()

    def _feed(self, data: bytes) -> None:
        for kind, content in self._sanitizer.feed(data):
            if kind == "osc":
                if content.startswith(_READY):
                    self._behind_marker = ""
                continue
            self._screen.append(content)
            if self._behind_marker is not None and len(self._behind_marker) <= len(PROMPT):
                self._behind_marker += content
        self._heard = max(self._heard, self._loop.time())
        if self._behind_marker is not None:  # a sender wakes up by itself for everything else
            self._changed.set()

    async def _settled(self, patient: bool) -> WaitReason:
        """Wait until nothing more is to be expected without input. Nobody tells when a program begins to wait, so a
        silent one is looked at, less and less often."""
        first_poll = poll = self._config.poll_interval_ms / 1000
        while True:
            self._changed.clear()
            if self.exit is not None:
                return "session_exit"
            silent = self._loop.time() - self._heard
            pause = self._config.exact_probe_after_ms / 1000 - silent
            if self._behind_marker == PROMPT:
                if self._pty.at_rest():
                    return "stdin_read"
                pause = min(pause, _PROMPT_POLL)  # the shell is about to read, or has read more than it showed
            elif pause > 0:
                poll = first_poll
            if pause <= 0:
                if self._pty.waits_for_input():
                    return "stdin_read"
                if not patient and silent >= self._config.idle_silence_ms / 1000:
                    return "inferred_idle"
                pause, poll = poll, min(poll * 2, _LONGEST_POLL)
            try:
                async with asyncio.timeout(pause):
                    await self._changed.wait()
            except TimeoutError:
                continue

    def _interrupt(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            self._pty.signal(signal.SIGINT)


@contextlib.contextmanager
def _ended_by(signal: AbortSignal | None, clock: asyncio.Timeout) -> Iterator[None]:
    """Let `clock` run out when `signal` fires."""

    def stop() -> None:
        if not clock.expired():
            clock.reschedule(0)

    forget = None if signal is None else signal.on_abort(stop)
    try:
        yield
    finally:
        if forget is not None:
            forget()
