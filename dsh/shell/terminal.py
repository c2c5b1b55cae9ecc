"""Row `terminal`, the service `terminals`: interactive programs that keep running between calls.

A backend knows how to start one kind of them. Each session belongs to one live agent and ends with it.
"""

from __future__ import annotations

import asyncio
import signal
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Literal

from dsh.cordis import Context, Disposer, HarnessError, Service, owned
from dsh.cordis.records import record
from dsh.core.agents import Agents

from .screen import Lines
from .service import ExitStatus

if TYPE_CHECKING:
    from dsh.cordis import AbortSignal
    from dsh.core.agent import Agent

WaitReason = Literal["stdin_read", "inferred_idle", "timeout", "session_exit"]


class TerminalError(HarnessError):
    """A terminal that cannot be had or used.

    Codes: DUPLICATE_BACKEND, DUPLICATE_NAME, FOREIGN_SESSION, NO_BACKEND, NO_SESSION, OWNER_NOT_LIVE, SEND_ACTIVE,
    SERVICE_DISPOSING, STARTUP_FAILED.
    """

    code = "TERMINAL"

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message, code)


@record
class Sent:
    """What came of typing something. output: what was shown since; lossy: its beginning is lost; reason: why the wait
    ended (`stdin_read`: the program waits for input again)."""

    output: str
    lossy: bool
    reason: WaitReason


class Terminal(ABC):
    """A running program on a terminal, as a backend makes it."""

    pid: int | None
    motd: str
    """What it showed until it was ready."""

    @property
    @abstractmethod
    def exit(self) -> ExitStatus | None:
        """How the program ended, None while it runs; without code and signal when it was closed first."""

    @abstractmethod
    async def send(
        self, text: str, *, submit: bool, signal: AbortSignal | None, timeout_ms: float | None, patient: bool
    ) -> Sent:
        """See `TerminalSession.send`."""

    @abstractmethod
    def read(self, offset: int | None, count: int) -> Lines:
        """Lines of what is kept of the output, from number `offset` on, else the last ones."""

    @abstractmethod
    def signal(self, number: signal.Signals) -> int:
        """Send a signal to the foreground group and return its id. Raises `ProcessLookupError`."""

    @abstractmethod
    async def close(self) -> None:
        """End the program with everything it started, and wait for that. The first part happens at once."""


class TerminalBackend(ABC):
    """Starts terminals of one type."""

    type: str

    @abstractmethod
    async def open(self, cwd: str, agent: Agent) -> Terminal:
        """Start a program for `agent` and wait until it is ready. Raises `SpawnError`, `TerminalError`."""


class TerminalSession:
    """One terminal of one agent; use it only on behalf of that agent."""

    def __init__(self, id: str, name: str | None, type: str, owner: Agent, terminal: Terminal) -> None:
        self.id = id
        self.name = name
        self.type = type
        self.owner = owner
        self.terminal = terminal
        self._sending = False
        self._close: Callable[[], Awaitable[None]] = terminal.close

    @property
    def exit(self) -> ExitStatus | None:
        """How its program ended, None while it runs."""
        return self.terminal.exit

    async def send(
        self,
        text: str,
        *,
        submit: bool = True,
        signal: AbortSignal | None = None,
        timeout_ms: float | None = None,
        patient: bool = False,
    ) -> Sent:
        """Type `text` (and Enter) and wait until the program wants input again, falls silent (unless `patient`), ends,
        or the time is over. What is typed ahead of a prompt that is still to come may return with that prompt; an empty
        send without Enter waits for it.

        Raises `TerminalError` (SEND_ACTIVE) while another send waits, `AbortError` when `signal` fires; what is in the
        foreground gets SIGINT then.
        """
        if self._sending:
            raise TerminalError("SEND_ACTIVE", f"PTY session {self.id} has a send in progress")
        self._sending = True
        try:
            return await self.terminal.send(text, submit=submit, signal=signal, timeout_ms=timeout_ms, patient=patient)
        finally:
            self._sending = False

    async def close(self) -> None:
        """End it and everything it started; returns when nothing is left. Idempotent."""
        await self._close()


class Terminals(Service, name="terminals"):
    """Backends, and the sessions of live agents."""

    def __init__(self, ctx: Context, config: object, agents: Agents) -> None:
        self._agents = agents
        self._backends: dict[str, TerminalBackend] = {}
        self._sessions: dict[str, TerminalSession] = {}
        self._opened = 0
        self._disposing = False

    async def stop(self) -> None:
        """Close every session."""
        self._disposing = True
        await asyncio.gather(*(session.close() for session in list(self._sessions.values())))

    @owned
    def register(self, caller: Context, backend: TerminalBackend) -> Disposer:
        """Offer a type of terminal while the calling plugin is there. Raises `TerminalError` for a type that is taken.

        Leaving does not close sessions; the backend does.
        """
        if backend.type in self._backends:
            raise TerminalError("DUPLICATE_BACKEND", f'terminal backend "{backend.type}" is already registered')

        def setup() -> Callable[[], None]:
            self._backends[backend.type] = backend

            def undo() -> None:
                del self._backends[backend.type]

            return undo

        return caller.effect(setup, f"terminal-backend({backend.type})")

    async def open(self, owner: Agent, type: str, *, cwd: str, name: str | None = None) -> TerminalSession:
        """Start a terminal for `owner`, which closes with it; it is known to others once it is ready.

        Raises `TerminalError` and what the backend raises.
        """
        backend = self._backends.get(type)
        if backend is None:
            known = ", ".join(sorted(self._backends)) or "none"
            raise TerminalError("NO_BACKEND", f'no terminal backend of type "{type}" (registered: {known})')
        self._check(owner, name)
        terminal = await backend.open(cwd, owner)
        try:
            self._check(owner, name)  # starting took a while
            self._opened += 1
            session = TerminalSession(f"pty-{self._opened}", name, type, owner, terminal)
            session._close = owner.ctx.defer(lambda: self._end(session), f"terminal({session.id})").dispose
        except BaseException:
            await terminal.close()
            raise
        self._sessions[session.id] = session
        return session

    def get(self, owner: Agent, id: str) -> TerminalSession:
        """A session of `owner`. Raises `TerminalError` (NO_SESSION, FOREIGN_SESSION)."""
        session = self._sessions.get(id)
        if session is None:
            raise TerminalError("NO_SESSION", f"unknown PTY session {id}")
        if session.owner is not owner:
            raise TerminalError("FOREIGN_SESSION", f"PTY session {id} belongs to another agent")
        return session

    def list(self, owner: Agent) -> list[TerminalSession]:
        """The sessions of `owner`, in the order they were opened."""
        return [session for session in self._sessions.values() if session.owner is owner]

    def _check(self, owner: Agent, name: str | None) -> None:
        if self._disposing:
            raise TerminalError("SERVICE_DISPOSING", "the terminal service is being unloaded")
        if self._agents.get(owner.id) is not owner:
            raise TerminalError("OWNER_NOT_LIVE", f'agent "{owner.id}" is not live')
        if name is not None and any(session.name == name for session in self.list(owner)):
            raise TerminalError("DUPLICATE_NAME", f'a terminal session named "{name}" is open already')

    async def _end(self, session: TerminalSession) -> None:
        self._sessions.pop(session.id, None)
        await session.terminal.close()
