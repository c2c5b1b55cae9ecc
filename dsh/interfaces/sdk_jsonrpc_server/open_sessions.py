"""The sessions a client opened, each with an agent that lives as long as the runtime or until it is closed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
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


class OpenSessions:
    """Agents by session id. Requests for one session share one opening; one that failed can be tried again."""

    def __init__(self, ctx: Context, agents: Agents) -> None:
        self._ctx = ctx
        self._agents = agents
        self._handles: dict[str, AgentHandle] = {}
        self._changes: dict[str, asyncio.Future[None]] = {}

    async def open(self, session_id: str, route: Route) -> Agent:
        """The agent of a session: live, else resumed from its log, else fresh.

        Raises what opening raised, and ``HarnessError`` for one that somebody else disposed.
        """
        return await self._shared(session_id, lambda: self._resume_or_create(session_id, route))

    async def resume(self, session_id: str, route: Route) -> Agent:
        """The agent of a session that is live or stored; never a new one."""
        if self._is_lost(session_id):
            del self._handles[session_id]
        return await self._shared(session_id, lambda: self._resume(session_id, route))

    def live(self, session_id: str) -> Agent:
        """The live agent of a session, opened by the client or not. Raises ``HarnessError`` when there is none."""
        agent = self._agents.get(session_id)
        if agent is None:
            raise HarnessError(f"no live session: {session_id}", code="NO_SESSION")
        return agent

    async def close(self, session_id: str) -> bool:
        """End the agent of a session; its log stays. False when the client has not opened it."""
        await self._settled(session_id)
        handle = self._handles.pop(session_id, None)
        if handle is None:
            return False
        async with self._changing(session_id):
            await handle.dispose()
        return True

    async def _shared(self, session_id: str, make: Callable[[], Awaitable[AgentHandle]]) -> Agent:
        await self._settled(session_id)
        agent = self._agents.get(session_id)
        if self._is_lost(session_id) or getattr(agent, "retired", False):
            text = f"session agent was disposed outside the server: {session_id}"
            raise HarnessError(text, code="AGENT_DISPOSED")
        if agent is not None:
            return agent
        async with self._changing(session_id):
            handle = self._handles[session_id] = await make()
        return handle.agent

    @asynccontextmanager
    async def _changing(self, session_id: str) -> AsyncIterator[None]:
        """Let whoever asks for the session meanwhile wait; an exception is theirs too."""
        change = self._changes[session_id] = asyncio.get_running_loop().create_future()
        try:
            yield
        except Exception as error:
            change.set_exception(error)
            change.exception()  # told to those who wait, if anybody does
            raise
        finally:
            del self._changes[session_id]
            if not change.done():
                change.set_result(None)

    async def _settled(self, session_id: str) -> None:
        """Wait for what is under way with a session. Raises what that raises."""
        while (change := self._changes.get(session_id)) is not None:
            await asyncio.shield(change)

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
