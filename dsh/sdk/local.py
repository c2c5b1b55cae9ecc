"""Agents in this process: the composition runs in the event loop of the program."""

from __future__ import annotations

import asyncio
import inspect
import os
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dsh.cordis import Context, HarnessError
from dsh.cordis.errors import describe_error
from dsh.cordis.nearest import did_you_mean
from dsh.core.agent import AgentOptions, CreateAgentOptions, ResumeAgentOptions
from dsh.core.agent_events import AgentStatus
from dsh.core.agents import Agents
from dsh.core.seams import SessionPersistence, Settings
from dsh.core.session_store import SessionAppended, SessionDisposed, Sessions
from dsh.loader.boot import App, boot
from dsh.loader.environment import inherited_environment
from dsh.loader.home import resolve_home
from dsh.loader.sources import Source

from .backend import AgentInfo, Backend, Opening, PermissionCallback, PermissionRequest

if TYPE_CHECKING:
    from dsh.core.agent import Agent, AgentHandle
    from dsh.core.session_event import SessionEvent
    from dsh.llm.types import Message

    from .run import Run
    from .session import Session

USER = {"kind": "user"}


class LocalBackend(Backend):
    """Boots a composition and speaks to its services."""

    def __init__(
        self,
        source: Source,
        *,
        home: str | os.PathLike[str] | None,
        cwd: Path,
        env: Mapping[str, str],
        plugins: Sequence[Any],
        permission: PermissionCallback | None,
        follow: bool,
        configured_agents: bool,
    ) -> None:
        self.sessions: dict[str, Session] = {}
        self._source = source
        self._environment = inherited_environment({**os.environ, **env})
        self._home = resolve_home(home, self._environment.values)
        self._cwd = cwd
        self._plugins = plugins
        self._permission = permission
        self._follow = follow
        self._configured_agents = configured_agents
        self._handles: dict[str, AgentHandle] = {}
        self._open = AsyncExitStack()
        self._app: App | None = None

    @property
    def root(self) -> Context:
        """The root context. Raises ``HarnessError`` outside of the harness's life."""
        if self._app is None or self._app.root.fiber.is_retired:
            raise HarnessError("the harness is not running", code="NOT_RUNNING")
        return self._app.root

    # -- life -------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        booting = boot(
            self._source, environment=self._environment, home=self._home, cwd=self._cwd, prepare=self._prepare
        )
        app = await self._open.enter_async_context(booting)
        if app.is_over:
            await self._open.aclose()
            raise HarnessError("a row of the composition ended the run while it started", code="ENDED")
        self._app = app
        if self._follow:
            from dsh.loader.hmr import keep_following

            keep_following(app.root, app.loader)

    def _prepare(self, root: Context) -> None:
        root.provide("configuredAgentSessions", {})
        root.provide("startFolder", str(self._cwd))
        root.provide("followFiles", self._follow)
        if not self._configured_agents:
            root.provide("startConfiguredAgents", False)
        root.on(SessionAppended, self._appended)
        root.on(AgentStatus, self._status)
        root.on(SessionDisposed, self._disposed)
        if self._permission is not None:
            root.on("approval/request", self._ask)
        for plugin in self._plugins:
            root.plugin(*plugin) if isinstance(plugin, tuple) else root.plugin(plugin)

    async def stop(self) -> None:
        try:
            await self._open.aclose()
        finally:
            self._app = None
            for session in list(self.sessions.values()):
                session._gone()
            self.sessions.clear()

    # -- what happens -----------------------------------------------------------------------------------------------

    def _appended(self, event: SessionAppended) -> None:
        session = self.sessions.get(event.session.id)
        if session is not None:
            session._happened(event.event)

    def _status(self, event: AgentStatus) -> None:
        session = self.sessions.get(event.agent.id)
        if session is None or event.status != "idle" or not (left := session._queued()):
            return
        # A prompt that came while the turn was being cancelled wakes the agent again right after this.
        asyncio.get_running_loop().call_soon(self._at_rest, session, event.agent, left)

    def _at_rest(self, session: Session, agent: Agent, left: list[Run]) -> None:
        if agent.status == "idle":
            session._idle(left)

    def _disposed(self, event: SessionDisposed) -> None:
        session = self.sessions.get(event.session.id)
        if session is not None:
            session._gone()

    async def _ask(self, event: Any, next: Callable[[], Any]) -> Any:
        assert self._permission is not None
        request = PermissionRequest(event.agent.id, event.tool_name, event.call_id, event.reason)
        answer = self._permission(request)
        allowed = await answer if inspect.isawaitable(answer) else answer
        return "allowed-once" if allowed is True else "rejected"

    # -- agents -----------------------------------------------------------------------------------------------------

    async def agents(self) -> Sequence[AgentInfo]:
        labels: dict[str, str] = {}
        configured = self._configured()
        if configured is not None:
            await configured.settled()
            labels = {session_id: label for label, session_id in configured.sessions()}
        live = [AgentInfo(one.id, labels.get(one.id), one.status) for one in self.root[Agents].list()]
        order = list(labels)
        return sorted(live, key=lambda one: order.index(one.session_id) if one.label is not None else len(order))

    async def why_not(self, label: str) -> str | None:
        configured = self._configured()
        problems = [] if configured is None else [*configured.failures(), *configured.waiting()]
        return next((describe_error(error) for name, error in problems if name == label), None)

    def _configured(self) -> Any:
        loop = self.root.get("agentLoop")
        return None if loop is None else loop.configured

    async def create(self, opening: Opening) -> str:
        session_id = opening.session_id or f"session-{uuid.uuid4()}"
        options = CreateAgentOptions(
            session_id,
            {"cwd": os.path.abspath(self._cwd / (opening.cwd or "."))},
            agent_options=AgentOptions(opening.provider, opening.model),
            reserve=opening.session_id is not None,
        )
        self._handles[session_id] = await self.root[Agents].create(options)
        return session_id

    async def resume(self, session_id: str) -> str:
        session_id = await self._stored(session_id)
        options = ResumeAgentOptions(session_id, restore_route=True)
        self._handles[session_id] = await self.root[Agents].resume(options)
        return session_id

    async def _stored(self, reference: str) -> str:
        """The id that is meant; the reference itself where that cannot be told."""
        persistence = self.root.get(SessionPersistence)
        known = [] if persistence is None else [header.id for header in await persistence.list()]
        meant = [one for one in known if one.startswith(reference)]
        if reference in meant or not meant:
            return reference
        if len(meant) > 1:
            raise HarnessError(f'"{reference}" begins the ids of {", ".join(sorted(meant))}', code="AMBIGUOUS")
        return meant[0]

    # -- work -------------------------------------------------------------------------------------------------------

    def _agent(self, session_id: str) -> Agent:
        agent = self.root[Agents].get(session_id)
        if agent is None:
            raise HarnessError(f"no live session: {session_id}", code="NO_SESSION")
        return agent

    def prompt(self, run: Run, message: Message, steer: bool) -> None:
        self._agent(run.session.id).send(message, "next-step" if steer else "next-turn", True)

    def cancel(self, session: Session, run: Run | None) -> None:
        agent = self._agent(session.id)
        if run is None or run.status == "running":
            agent.cancel(USER)
        else:
            agent.inbox.remove(run.message_id)

    async def close_session(self, session: Session) -> None:
        handle = self._handles.pop(session.id, None)
        if handle is None:
            agent = self._agent(session.id)
            raise HarnessError(f"{agent.id} belongs to the composition and ends with its row", code="NOT_OURS")
        await handle.dispose()

    async def read(self, session_id: str, from_seq: int) -> Sequence[SessionEvent]:
        session = self.root[Sessions].get(session_id)
        if session is None:
            return await self.root[SessionPersistence].read_from(session_id, from_seq)
        return session.events[from_seq:]

    async def flush(self, session_id: str) -> None:
        sessions = None if self._app is None else self._app.root.get(Sessions)
        session = None if sessions is None else sessions.get(session_id)
        if sessions is not None and session is not None:
            await sessions.flush(session)

    # -- settings ---------------------------------------------------------------------------------------------------

    async def settings(self) -> Mapping[str, Mapping[str, Any]]:
        service = self.root.get(Settings)
        return {} if service is None else {ns: info["value"] for ns, info in service.describe().items()}

    async def change_setting(self, section: str, operation: Mapping[str, Any]) -> None:
        service = self.root.get(Settings)
        if service is None:
            raise HarnessError("the composition has no settings service (row settings)", code="NO_SETTINGS")
        known = service.describe()
        if section not in known:
            hint = did_you_mean(section, known)
            raise HarnessError(f'no settings section "{section}"{hint}', code="NO_SETTING")
        await service.mutate(section, [operation])

    def watch_settings(self, callback: Callable[[str, Mapping[str, Any]], Any]) -> Callable[[], object]:
        return self.root.on("settings/updated", lambda event: callback(event.ns, event.next.to_wire()), global_=True)
