"""The sessions a client opened, each with an agent that lives as long as the runtime or until it is closed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from dsh.cordis import HarnessError
from dsh.core.agent import CreateAgentOptions, ResumeAgentOptions
from dsh.core.agent_events import AgentRequest
from dsh.core.seams import SessionPersistence

if TYPE_CHECKING:
    from dsh.cordis import Context
    from dsh.core.agent import Agent, AgentHandle
    from dsh.core.agents import Agents
    from dsh.llm.call_config import CallConfig

    from .route import Route

NOT_FOUND = "SESSION_NOT_FOUND"


class _Place:
    """One session id: requests for it take turns in the order they came."""

    __slots__ = ("arrived", "error", "failed_until", "inside", "turns")

    def __init__(self) -> None:
        self.turns = asyncio.Lock()
        self.inside = 0
        self.arrived = 0
        self.failed_until = 0
        self.error: Exception | None = None


class OpenSessions:
    """Agents by session id. Requests that wait for an opening share its failure; later ones try again."""

    def __init__(self, ctx: Context, agents: Agents) -> None:
        self._ctx = ctx
        self._agents = agents
        self._handles: dict[str, AgentHandle] = {}
        self._places: dict[str, _Place] = {}

    async def open(self, session_id: str, route: Route, then: Callable[[Agent], Any] | None = None) -> Agent:
        """The agent of a session: live, else resumed from its log, else fresh. ``then`` is called with it in turn.

        Raises what opening raised, and ``HarnessError`` for one that somebody else disposed.
        """
        async with self._turn(session_id) as place:
            agent = self._live(session_id)
            if agent is None:
                try:
                    handle = await self._resume_or_create(session_id, route)
                except Exception as error:
                    place.failed_until, place.error = place.arrived, error
                    raise
                self._handles[session_id] = handle
                agent = handle.agent
            if then is not None:
                then(agent)
            return agent

    async def resume(self, session_id: str, route: Route) -> None:
        """Bring a stored session to life unless it is; never a new one."""
        async with self._turn(session_id):
            if self._is_lost(session_id):
                del self._handles[session_id]
            if self._live(session_id) is None:
                self._handles[session_id] = await self._resume(session_id, route)

    async def close(self, session_id: str) -> bool:
        """End the agent of a session; its log stays. False when the client has not opened it."""
        async with self._turn(session_id):
            handle = self._handles.pop(session_id, None)
            if handle is None:
                return False
            await handle.dispose()
            return True

    async def cancel(self, session_id: str) -> None:
        """Stop what a live session does, opened by the client or not. Raises ``HarnessError`` when it is not live."""
        async with self._turn(session_id):
            agent = self._agents.get(session_id)
            if agent is None:
                raise HarnessError(f"no live session: {session_id}", code="NO_SESSION")
            agent.cancel({"kind": "user"})

    @asynccontextmanager
    async def _turn(self, session_id: str) -> AsyncIterator[_Place]:
        place = self._places.setdefault(session_id, _Place())
        place.inside += 1
        place.arrived += 1
        number = place.arrived
        try:
            async with place.turns:
                if place.error is not None and number <= place.failed_until:
                    raise place.error
                yield place
        finally:
            place.inside -= 1
            if not place.inside:
                del self._places[session_id]

    def _live(self, session_id: str) -> Agent | None:
        agent = self._agents.get(session_id)
        if self._is_lost(session_id) or getattr(agent, "retired", False):
            text = f"session agent was disposed outside the server: {session_id}"
            raise HarnessError(text, code="AGENT_DISPOSED")
        return agent

    def _is_lost(self, session_id: str) -> bool:
        handle = self._handles.get(session_id)
        return handle is not None and self._agents.get(session_id) is not handle.agent

    async def _resume_or_create(self, session_id: str, route: Route) -> AgentHandle:
        stored = self._ctx.get(SessionPersistence) is not None
        if stored:
            try:
                return await self._resume(session_id, route)
            except HarnessError as error:
                if error.code != NOT_FOUND:
                    raise
        options = CreateAgentOptions(
            session_id, {"cwd": route.cwd}, agent_options=route.options(), setup=_asking(route), reserve=stored
        )
        return await self._agents.create(options)

    async def _resume(self, session_id: str, route: Route) -> AgentHandle:
        return await self._agents.resume(ResumeAgentOptions(session_id, route.options(), setup=_asking(route)))


def _asking(route: Route) -> Callable[[Context], None]:
    """Agents made for this route ask with its reasoning effort."""

    def setup(ctx: Context) -> None:
        async def request(event: AgentRequest, next: Callable[[], Any]) -> CallConfig:
            return route.with_effort(await next())

        if route.reasoning_effort is not None:
            ctx.on(AgentRequest, request)

    return setup
