"""The agents a composition names: started with the row, matched by label when the row is edited."""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dsh.cordis import ConfigModel, HarnessError, error_chain, field
from dsh.cordis.records import identity_struct

from .agent import MAX_SAFE_INTEGER, Agent, AgentOptions, CreateAgentOptions, ResumeAgentOptions
from .agent_events import AgentConfigStartFailed, notify
from .creation import Lifecycle, create_agent, create_now, resume_agent
from .driver import Driver
from .seams import SessionPersistence
from .session_store import SessionDisposed
from .texts import NO_PERSISTENCE

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from dsh.cordis import Context

    from .agent_loop import AgentLoop
    from .session import Session

DRAIN_SECONDS = 10.0


class AgentRow(ConfigModel):
    """One configured agent."""

    id: str = field(min=1, description="Label: names the agent in logs and prefixes fresh session ids")
    session_id: str | None = field(None, min=1, description="Stable identity: resumed if stored, else created")
    resume_session_id: str | None = field(None, description="Stored session that must be resumed")
    provider: str | None = field(None, description="Model provider; without one the default model answers")
    model: str | None = field(None, description="Model id at that provider")
    max_tokens: int | None = field(None, min=1, max=MAX_SAFE_INTEGER, description="Output cap of one reply, tokens")
    cwd: str | None = field(None, description="Workspace of a fresh session, absolute or relative to the config")

    def options(self) -> AgentOptions:
        """The route this row asks for."""
        return AgentOptions(self.provider, self.model, self.max_tokens)


def workspace(row: AgentRow, base_dir: Path, start_folder: str | None = None) -> str:
    """The workspace of a fresh session: the row's, relative to the config's folder, else the launcher's `startFolder`,
    else where the process runs."""
    return os.path.abspath(base_dir / row.cwd) if row.cwd else start_folder or os.getcwd()


def missing_workspace(row: AgentRow, base_dir: Path) -> str | None:
    """What is wrong with the workspace that the row names: there is no such folder."""
    if not row.cwd or row.resume_session_id or os.path.isdir(folder := workspace(row, base_dir)):
        return None
    return f'agent "{row.id}": cwd: there is no folder {folder}'


def check_rows(rows: Sequence[AgentRow]) -> None:
    """Refuse contradicting identities before anything starts."""
    labels: set[str] = set()
    identities: dict[str, str] = {}
    for row in rows:
        if row.id in labels:
            raise HarnessError(f'agents: label "{row.id}" is used twice', code="DUPLICATE_LABEL")
        labels.add(row.id)
        if (row.provider is None) != (row.model is None):
            given, missing = ("provider", "model") if row.model is None else ("model", "provider")
            text = f'agent "{row.id}": {given} without {missing}; name both, or neither for the default model'
            raise HarnessError(text, code="INVALID_CONFIG")
        if row.session_id and row.resume_session_id:
            text = f'agent "{row.id}": sessionId and resumeSessionId are mutually exclusive'
            raise HarnessError(text, code="INVALID_CONFIG")
        identity = row.session_id or row.resume_session_id
        if identity is None or identity == "":
            continue
        if identity in identities:
            text = f'agents "{identities[identity]}" and "{row.id}" use duplicate exact session identity "{identity}"'
            raise HarnessError(text, code="INVALID_CONFIG")
        identities[identity] = row.id


@identity_struct
class _Configured:
    """One started row: its session id, and what became of it."""

    row: AgentRow
    session_id: str
    lifecycle: Lifecycle | None = None
    error: BaseException | None = None
    waits_for: HarnessError | None = None
    """What it cannot start without, while a later edit may still bring it."""
    starting: asyncio.Task[None] | None = None

    @property
    def is_starting(self) -> bool:
        """A start is under way that can end without an edit: it does not wait for a missing persistence."""
        return self.starting is not None and not self.starting.done() and self.waits_for is None

    @property
    def agent(self) -> Agent | None:
        return None if self.lifecycle is None else self.lifecycle.agent


class ConfiguredAgents:
    """Starts, keeps and ends the agents of the row, one per label."""

    def __init__(self, loop: AgentLoop, rows: Sequence[AgentRow]) -> None:
        self._loop = loop
        self._rows = list(rows)
        self._started: dict[str, _Configured] = {}
        self._leaving: dict[str, asyncio.Task[None]] = {}
        self._closing = False
        self._parked = asyncio.Event()

    def start(self) -> None:
        """Start every row in order. Raises ``HarnessError`` for contradicting rows; nothing has started then."""
        for row in self._effective(self._rows):
            self._start_row(row)

    def update(self, rows: Sequence[AgentRow]) -> None:
        """Follow an edited list: new labels start, vanished ones end, changed ones restart, the rest stay."""
        wanted = {row.id: row for row in self._effective(rows)}
        for label, configured in list(self._started.items()):
            row = wanted.get(label)
            if row == configured.row:
                continue
            if row is None:
                self._minted().pop(label, None)
            del self._started[label]
            self._retire(configured)
        for label, row in wanted.items():
            if label not in self._started:
                self._start_row(row)

    def sessions(self) -> list[tuple[str, str]]:
        """``(label, session id)`` of every started row."""
        return [(label, configured.session_id) for label, configured in self._started.items()]

    def agent(self, label: str) -> Agent | None:
        """The live agent behind ``label``."""
        configured = self._started.get(label)
        return None if configured is None else configured.agent

    async def settled(self) -> None:
        """Return once every start has ended, or waits for a persistence that the composition does not have."""
        while starting := [one.starting for one in self._started.values() if one.starting and one.is_starting]:
            parked = self._loop.tasks.start(self._parked.wait(), name="agentLoop: a start waits for persistence")
            try:
                await asyncio.wait({*starting, parked}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                parked.cancel()
            self._parked.clear()

    def failures(self) -> list[tuple[str, BaseException]]:
        """``(label, error)`` of every row whose restore or resume failed."""
        return [(label, c.error) for label, c in self._started.items() if c.error is not None]

    def waiting(self) -> list[tuple[str, BaseException]]:
        """``(label, what is missing)`` of every row that starts as soon as an edit provides it."""
        return [(label, c.waits_for) for label, c in self._started.items() if c.waits_for is not None]

    def close(self) -> None:
        """The loop unloads: starts under way end silently, with their agents."""
        self._closing = True
        for configured in self._started.values():
            if configured.starting is not None:
                configured.starting.cancel()

    def _start_row(self, row: AgentRow) -> None:
        if row.resume_session_id:
            configured = _Configured(row, row.resume_session_id)
            self._start_later(configured, "resume", self._resume)
        elif known := row.session_id or self._minted().get(row.id):
            configured = _Configured(row, known)
            if row.session_id is None or self._may_be_stored(known):
                self._start_later(configured, "restore", self._restore)
            else:
                self._create(configured)
        else:
            configured = _Configured(row, f"{row.id}-session-{uuid.uuid4()}")
            self._minted()[row.id] = configured.session_id
            self._create(configured)
        self._started[row.id] = configured

    def _create(self, configured: _Configured) -> None:
        loop, row = self._loop, configured.row
        configured.lifecycle = create_now(loop, loop.ctx, configured.session_id, row.options(), self._meta(row))

    def _start_later(self, configured: _Configured, verb: str, start: Callable[[_Configured], Awaitable[None]]) -> None:
        async def run() -> None:
            try:
                await start(configured)
            except asyncio.CancelledError:
                raise
            except Exception as error:
                if not self._closing:
                    configured.error = error
                    self._report(configured, verb, error)

        name = f"agentLoop.{verb}({configured.row.id})"
        configured.starting = self._loop.tasks.start(run(), name=name)

    async def _restore(self, configured: _Configured) -> None:
        """Resume the session if it is stored, else create it under the same id."""
        loop, session_id = self._loop, configured.session_id
        persistence = await self._await_persistence()
        await self._until_gone(session_id)
        if persistence is None:
            self._create(configured)
            return
        try:
            await self._resume(configured)
        except Exception:
            if any(header.id == session_id for header in await persistence.list()):
                raise
            options = CreateAgentOptions(
                session_id, self._meta(configured.row), agent_options=configured.row.options(), reserve=True
            )
            configured.lifecycle = await create_agent(loop, loop.ctx, options)

    async def _resume(self, configured: _Configured) -> None:
        loop = self._loop
        await self._await_persistence(configured)
        await self._until_gone(configured.session_id)
        restore = bool(self._launcher_identity(configured.row).get("restoreRoute"))
        options = ResumeAgentOptions(configured.session_id, configured.row.options(), restore_route=restore)
        configured.lifecycle = await resume_agent(loop, loop.ctx, options)

    def _retire(self, configured: _Configured) -> None:
        """End an agent whose row left or changed: at its next step boundary, after ten seconds at the latest."""

        async def end() -> None:
            if configured.starting is not None:
                configured.starting.cancel()
                await asyncio.wait({configured.starting})
            if configured.lifecycle is not None:
                await configured.lifecycle.drain(DRAIN_SECONDS)
            if self._leaving.get(configured.session_id) is leaving:
                del self._leaving[configured.session_id]

        leaving = self._loop.tasks.start(end(), name=f"agentLoop.retire({configured.row.id})")
        self._leaving[configured.session_id] = leaving

    def _persistence(self) -> SessionPersistence | None:
        return self._loop.ctx.get(SessionPersistence)

    def _may_be_stored(self, session_id: str) -> bool:
        """Whether a session of this id may exist: stored, or live under an agent that is on its way out."""
        ctx = self._loop.ctx
        return (
            self._persistence() is not None
            or ctx.get("loader") is not None  # the row that provides persistence may still come
            or self._loop.sessions.get(session_id) is not None
            or session_id in self._leaving
        )

    async def _await_persistence(self, needs_it: _Configured | None = None) -> SessionPersistence | None:
        """Persistence, once the rest of the composition had its chance to provide it.

        A start that cannot do without (``needs_it``) waits for a later edit to bring one.
        """
        if (persistence := self._persistence()) is not None:
            return persistence
        loop, arrived = self._loop, asyncio.Event()

        def arrive(_ctx: Context) -> None:
            arrived.set()
            if needs_it is not None:
                needs_it.waits_for = None

        provider = loop.ctx.inject([SessionPersistence], arrive)
        settled = loop.tasks.start(loop.ctx.root.settle(), name="agentLoop: the composition settles")
        there = loop.tasks.start(arrived.wait(), name="agentLoop: persistence arrives")
        try:
            await asyncio.wait({settled, there}, return_when=asyncio.FIRST_COMPLETED)
            if needs_it is not None and not there.done():
                loop.ctx.logger.warning("%s; waiting for one", NO_PERSISTENCE)
                needs_it.waits_for = HarnessError(NO_PERSISTENCE, code="NO_PERSISTENCE")
                self._parked.set()
                await there
            return self._persistence()
        finally:
            settled.cancel()
            there.cancel()
            await provider.dispose()

    async def _until_gone(self, session_id: str) -> None:
        """Wait until an older agent of this id that is on its way out has left both registries."""
        if (leaving := self._leaving.get(session_id)) is not None:
            await asyncio.wait({leaving})
        if abandoned := [work for work, its_id in self._loop.abandoned.items() if its_id == session_id]:
            await asyncio.wait(abandoned, timeout=DRAIN_SECONDS)
        while isinstance(agent := self._loop.agents.get(session_id), Driver) and agent.retired:
            session, gone = agent.session, asyncio.Event()

            def left(event: SessionDisposed, session: Session = session, gone: asyncio.Event = gone) -> None:
                if event.session is session:
                    gone.set()

            undo = self._loop.ctx.on(SessionDisposed, left, global_=True)
            try:
                await gone.wait()
            finally:
                undo()

    def _meta(self, row: AgentRow) -> dict[str, Any]:
        ctx = self._loop.ctx
        return {"cwd": workspace(row, ctx.base_dir, ctx.get("startFolder"))}

    def _minted(self) -> dict[str, str]:
        """Label to session id, kept by the process so that a remounted row finds its sessions again."""
        shared: dict[str, str] | None = self._loop.ctx.get("configuredAgentSessions")
        return shared if shared is not None else {}

    def _effective(self, rows: Sequence[AgentRow]) -> list[AgentRow]:
        """The rows to run: as the launcher wants them, and none if it brings an agent of its own."""
        if self._loop.ctx.get("startConfiguredAgents") is False:
            return []
        rows = [self._with_launcher_identity(row) for row in rows]
        check_rows(rows)
        for row in rows:
            if problem := missing_workspace(row, self._loop.ctx.base_dir):
                raise HarnessError(problem, code="INVALID_CONFIG")
        return rows

    def _with_launcher_identity(self, row: AgentRow) -> AgentRow:
        identity = self._launcher_identity(row)
        if not identity:
            return row
        key = "resumeSessionId" if identity.get("resume") else "sessionId"
        wire = {k: v for k, v in row.to_wire().items() if k not in ("sessionId", "resumeSessionId")}
        return AgentRow.validate({**wire, key: identity["id"]})

    def _launcher_identity(self, row: AgentRow) -> Mapping[str, Any]:
        """What the launcher says about this label: ``{id, resume, restoreRoute?}``, or nothing."""
        identities: Mapping[str, Mapping[str, Any]] | None = self._loop.ctx.get("configuredAgentIdentities")
        return (identities or {}).get(row.id, {})

    def _report(self, configured: _Configured, verb: str, error: Exception) -> None:
        ctx: Context = self._loop.ctx
        ctx.logger.warning(
            'agent "%s": config-driven %s of "%s" failed: %s',
            configured.row.id,
            verb,
            configured.session_id,
            error_chain(error),
        )
        notify(ctx, AgentConfigStartFailed(session_id=configured.session_id, error=error))
