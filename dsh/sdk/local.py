"""Agents in this process: the composition runs in the event loop of the program."""

from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dsh.cordis import AbortError, Context, Fiber, FiberState, HarnessError, error_chain
from dsh.core.agent_events import AgentStatus
from dsh.core.session_store import SessionAppended, SessionDisposed
from dsh.interfaces.agent_requests import AgentRequests
from dsh.llm.waiting import until_abort
from dsh.loader.boot import BootError, boot
from dsh.loader.environment import inherited_environment
from dsh.loader.home import resolve_home
from dsh.loader.sources import Source

from .backend import Backend, PermissionCallback, PermissionRequest, decide

if TYPE_CHECKING:
    from .run import Run
    from .session import Session


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
        super().__init__()
        self._source = source
        self._environment = inherited_environment({**os.environ, **env})
        self._home = resolve_home(home, self._environment.values)
        self._cwd = str(cwd)
        self._plugins = plugins
        self._permission = permission
        self._follow = follow
        self._configured_agents = configured_agents
        self._open = AsyncExitStack()
        self._mounted: list[Fiber] = []
        self._root: Context | None = None
        self._requests: AgentRequests | None = None

    @property
    def root(self) -> Context:
        """The root context. Raises ``HarnessError`` outside of the harness's life."""
        if self._root is None or self._root.fiber.is_retired:
            raise HarnessError("the harness is not running", code="NOT_RUNNING")
        return self._root

    async def start(self) -> None:
        if self._root is not None:
            raise HarnessError("the harness runs already", code="RUNNING")
        booting = boot(
            self._source, environment=self._environment, home=self._home, cwd=self._cwd, prepare=self._prepare
        )
        app = await self._open.enter_async_context(booting)
        problems = [problem for fiber in self._mounted if (problem := _why_not(fiber)) is not None]
        if app.is_over:
            problems.append("a row of the composition ended the run while it started")
        if problems:
            await self._open.aclose()
            raise BootError("\n".join(problems))
        self._root = app.root
        self._requests = AgentRequests(app.root, self._cwd)
        if self._follow:
            from dsh.loader.hmr import keep_following

            keep_following(app.root, app.loader)

    def _prepare(self, root: Context) -> None:
        root.provide("configuredAgentSessions", {})
        root.provide("startFolder", self._cwd)
        root.provide("followFiles", self._follow)
        if not self._configured_agents:
            root.provide("startConfiguredAgents", False)
        root.on(SessionAppended, lambda event: self.happened(event.session.id, event.event))
        root.on(AgentStatus, self._status)
        root.on(SessionDisposed, lambda event: self.disposed(event.session.id))
        root.on("settings/updated", self._setting, global_=True)
        if self._permission is not None:
            root.on("approval/request", self._approve)
        self._mounted = [root.plugin(*each) if isinstance(each, tuple) else root.plugin(each) for each in self._plugins]

    async def stop(self) -> None:
        try:
            await self._open.aclose()
        finally:
            self._root = self._requests = None
            self.all_gone()

    async def ask(self, name: str, **params: Any) -> Mapping[str, Any]:
        answer = self._method(name)(params)
        told: Mapping[str, Any] = await answer if inspect.isawaitable(answer) else answer
        return told

    def tell(self, name: str, run: Run | None, **params: Any) -> None:
        self._method(name)(params)

    def _method(self, name: str) -> Callable[[Mapping[str, Any]], Any]:
        requests = self._requests if self.root else None
        assert requests is not None
        return requests.methods[name]

    # -- what happens -------------------------------------------------------------------------------------------------

    def _status(self, event: AgentStatus) -> None:
        session = self.sessions.get(event.agent.id)
        if session is not None and event.status == "idle" and (left := session._unfinished()):
            # A prompt that came while the turn was being cancelled wakes the agent again right after this.
            asyncio.get_running_loop().call_soon(self._at_rest, session, left)

    def _at_rest(self, session: Session, left: list[Run]) -> None:
        if self._requests is not None and self._requests.status({"sessionId": session.id})["status"] == "idle":
            session._idle(left)

    def _setting(self, event: Any) -> None:
        if self._requests is not None:
            self.settings_changed(event.ns, self._requests.setting(event.ns))

    async def _approve(self, event: Any, next: Callable[[], Awaitable[str]]) -> str:
        assert self._permission is not None
        request = PermissionRequest(event.agent.id, event.tool_name, event.call_id, event.reason)
        try:
            allowed = await until_abort(decide(self._permission, request), event.signal)
        except AbortError:
            return "cancelled"
        return "allowed-once" if allowed else "rejected"


def _why_not(fiber: Fiber) -> str | None:
    """Why a plugin that the program brought does not run."""
    if fiber.state is FiberState.ACTIVE:
        return None
    if fiber.error is not None:
        return f"plugin {fiber.display_name}: {error_chain(fiber.error)}"
    return f"plugin {fiber.display_name}: waiting for services: {', '.join(fiber.missing()) or '(none)'}"
