"""The methods of the SDK runtime."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from dsh.cordis import HarnessError
from dsh.core.message_shape import whole_user_message
from dsh.core.seams import SessionPersistence
from dsh.core.working_directory import enter_directory, working_directory
from dsh.llm.message import create_user_message
from dsh.loader.boot import when_started

from .params import Params, content_blocks, count, text
from .route import Route, check_route, default_cwd, read_route

if TYPE_CHECKING:
    from dsh.cordis import Context
    from dsh.core.agent import Agent
    from dsh.core.agents import Agents
    from dsh.core.session_header import SessionHeader
    from dsh.core.session_store import Sessions

    from .open_sessions import OpenSessions
    from .permissions import Permissions

SERVER_INFO: Final = {"name": "deepseek-harness-sdk-runtime", "version": "0.0.1"}

FLUSH_SECONDS: Final = 0.5
"""How long the answer to ``shutdown`` may wait for the disk; what is late is written while everything ends."""

READ_LIMIT: Final = 10_000
"""Most events in one answer of ``session/read``."""


class Server:
    """Answers requests. Every failure is an exception, whose text the client gets."""

    def __init__(
        self, ctx: Context, agents: Agents, sessions: Sessions, opened: OpenSessions, permissions: Permissions
    ) -> None:
        self._ctx = ctx
        self._agents = agents
        self._sessions = sessions
        self._opened = opened
        self._permissions = permissions
        self._exit: Callable[[int], None] = ctx.get("appExit")
        self._route: Route | None = None
        self._routing = asyncio.Lock()
        self._flushing: set[asyncio.Future[bool]] = set()
        self._closing = False
        self._methods: dict[str, Callable[[Params], Awaitable[dict[str, Any]]]] = {
            "initialize": self._initialize,
            "session/prompt": self._prompt,
            "shutdown": self._shutdown,
            "session/resume": self._resume,
            "session/working-directory/get": self._get_directory,
            "session/working-directory/set": self._set_directory,
            "session/cancel": self._cancel,
            "session/list": self._list,
            "session/read": self._read,
            "session/close": self._close,
            "permission/respond": self._respond,
        }

    async def handle(self, method: str, params: Any) -> dict[str, Any]:
        """The result of one request."""
        handler = self._methods.get(method)
        if handler is None:
            raise HarnessError(f"unknown DeepSeek Harness SDK runtime method: {method}", code="UNKNOWN_METHOD")
        self._admit()
        return await handler(params if isinstance(params, Mapping) else {})

    def leave(self) -> None:
        """The client is gone: end the run."""
        self._closing = True
        self._exit(0)

    # -- the connection -------------------------------------------------------------------------------------------

    async def _initialize(self, params: Params) -> dict[str, Any]:
        route = read_route(self._ctx, params)
        async with self._routing:
            await when_started(self._ctx)
            await check_route(self._ctx, route)
            self._route = route
        self._permissions.initialize(params)
        own = ["session/cancel", "session/close", "session/list", "session/read", "permission/respond"]
        return {"serverInfo": SERVER_INFO, "capabilities": {"methods": own}}

    async def _shutdown(self, params: Params) -> dict[str, Any]:
        self._closing = True
        flushing = [asyncio.ensure_future(self._sessions.flush(session)) for session in self._sessions.list()]
        if flushing:
            self._flushing.update(flushing)
            await asyncio.wait(flushing, timeout=FLUSH_SECONDS)
        for flush in flushing:
            # The disposal that follows writes again and reports what cannot be written.
            flush.add_done_callback(lambda done: done.cancelled() or done.exception())
        asyncio.get_running_loop().call_soon(self._exit, 0)  # after the answer, which is written in this very step
        return {}

    def _admit(self) -> None:
        if self._closing or not self._ctx.stack.is_open:
            raise HarnessError("SDK server is shutting down", code="SHUTTING_DOWN")

    async def _initialized(self, method: str) -> Route:
        """The values in force, after an ``initialize`` that came before and is still under way."""
        async with self._routing:
            if self._route is None:
                raise HarnessError(f"{method} before initialize", code="NOT_INITIALIZED")
            return self._route

    # -- work -----------------------------------------------------------------------------------------------------

    async def _prompt(self, params: Params) -> dict[str, Any]:
        method = "session/prompt"
        session_id = text(params, method, "sessionId")
        message = whole_user_message(create_user_message(content_blocks(params, method)), method)

        def admit(agent: Agent) -> None:
            self._admit()
            agent.followup(message)

        agent = await self._opened.open(session_id, await self._initialized(method), admit)
        await self._sessions.flush(agent.session)
        return {"messageId": message["id"]}

    async def _resume(self, params: Params) -> dict[str, Any]:
        method = "session/resume"
        await self._opened.resume(text(params, method, "sessionId"), await self._initialized(method))
        return {}

    async def _cancel(self, params: Params) -> dict[str, Any]:
        await self._opened.cancel(text(params, "session/cancel", "sessionId"))
        return {}

    async def _close(self, params: Params) -> dict[str, Any]:
        return {"closed": await self._opened.close(text(params, "session/close", "sessionId"))}

    async def _respond(self, params: Params) -> dict[str, Any]:
        return self._permissions.respond(params)

    # -- working directory ----------------------------------------------------------------------------------------

    async def _get_directory(self, params: Params) -> dict[str, Any]:
        method = "session/working-directory/get"
        agent = await self._opened.open(text(params, method, "sessionId"), await self._initialized(method))
        return {"cwd": working_directory(agent.session) or default_cwd(self._ctx)}

    async def _set_directory(self, params: Params) -> dict[str, Any]:
        method = "session/working-directory/set"
        session_id, path = text(params, method, "sessionId"), text(params, method, "path")
        entered: list[str] = []

        def enter(agent: Agent) -> None:
            self._admit()
            entered.append(enter_directory(agent.session, path))

        agent = await self._opened.open(session_id, await self._initialized(method), enter)
        await self._sessions.flush(agent.session)
        return {"cwd": entered[0]}

    # -- reading --------------------------------------------------------------------------------------------------

    async def _list(self, params: Params) -> dict[str, Any]:
        headers: dict[str, SessionHeader] = {}
        persistence = self._ctx.get(SessionPersistence)
        if persistence is not None:
            headers = {header.id: header for header in await persistence.list()}
        headers |= {session.id: session.header for session in self._sessions.list()}
        return {"sessions": [self._listed(header) for header in headers.values()]}

    def _listed(self, header: SessionHeader) -> dict[str, Any]:
        agent = self._agents.get(header.id)
        entry: dict[str, Any] = {
            "sessionId": header.id,
            "createdAt": header.created_at,
            "cwd": header.cwd,
            "parentSessionId": header.parent_session,
            "status": "stored" if agent is None else agent.status,
        }
        return {key: value for key, value in entry.items() if value is not None}

    async def _read(self, params: Params) -> dict[str, Any]:
        """Events from ``fromSeq`` on; ``nextSeq`` is where the next page starts, absent on the last one."""
        method = "session/read"
        session_id = text(params, method, "sessionId")
        start = count(params, method, "fromSeq", 0)
        limit = min(count(params, method, "limit", READ_LIMIT), READ_LIMIT)
        session = self._sessions.get(session_id)
        if session is not None:
            events = session.events[start : start + limit + 1]
        else:
            persistence = self._ctx.get(SessionPersistence)
            if persistence is None:
                raise HarnessError(f"no live session: {session_id}", code="NO_SESSION")
            events = (await persistence.read_from(session_id, start))[: limit + 1]
        page: dict[str, Any] = {"events": [event.to_wire() for event in events[:limit]]}
        if len(events) > limit:
            page["nextSeq"] = start + limit
        return page
