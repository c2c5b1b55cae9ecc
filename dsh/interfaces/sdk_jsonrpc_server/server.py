"""The methods of the SDK runtime."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from dsh.cordis import HarnessError, describe_error
from dsh.core.message_shape import whole_user_message
from dsh.core.seams import SessionPersistence
from dsh.core.working_directory import enter_directory, working_directory
from dsh.llm.message import create_user_message
from dsh.loader.boot import when_started

from ..agent_requests import AgentRequests
from ..params import Params, content_blocks, text
from ..stdio_jsonrpc import INTERNAL_ERROR, RpcError
from .route import Route, check_route, default_cwd, read_route

if TYPE_CHECKING:
    from dsh.cordis import Context
    from dsh.core.agent import Agent
    from dsh.core.agents import Agents
    from dsh.core.session_header import SessionHeader
    from dsh.core.session_store import Sessions

    from .notifications import Notifications
    from .open_sessions import OpenSessions
    from .permissions import Permissions

SERVER_INFO: Final = {"name": "deepseek-harness-sdk-runtime", "version": "0.0.1"}

FLUSH_SECONDS: Final = 0.5
"""How long the answer to ``shutdown`` may wait for the disk; what is late is written while everything ends."""


class Server:
    """Answers requests. Every failure is an exception, whose text the client gets."""

    def __init__(
        self,
        ctx: Context,
        agents: Agents,
        sessions: Sessions,
        opened: OpenSessions,
        permissions: Permissions,
        notifications: Notifications,
    ) -> None:
        self._ctx = ctx
        self._agents = agents
        self._sessions = sessions
        self._opened = opened
        self._permissions = permissions
        self._notifications = notifications
        self._attached = False
        self._exit: Callable[[int], None] = ctx.get("appExit")
        self._route: Route | None = None
        self._routing = asyncio.Lock()
        self._flushing: set[asyncio.Future[bool]] = set()
        self._closing = False
        self._requests = AgentRequests(ctx, default_cwd(ctx))
        self._methods: dict[str, Callable[[Params], Awaitable[dict[str, Any]]]] = {
            "initialize": self._initialize,
            "session/prompt": self._prompt,
            "shutdown": self._shutdown,
            "session/resume": self._resume,
            "session/working-directory/get": self._get_directory,
            "session/working-directory/set": self._set_directory,
            "session/cancel": self._cancel,
            "session/list": self._list,
            "session/read": self._requests.read,
            "session/close": self._close,
            "permission/respond": self._respond,
            "dsh/attach": self._attach,
            **{f"dsh/{name}": partial(self._own, method) for name, method in self._requests.methods.items()},
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
        own = ["session/cancel", "session/close", "session/list", "session/read", "permission/respond", "dsh/attach"]
        return {"serverInfo": SERVER_INFO, "capabilities": {"methods": own}}

    async def _attach(self, params: Params) -> dict[str, Any]:
        """``{permissions?}``: what a client of ours begins with, in place of ``initialize``.

        It chooses no workspace and no model, and finds the agents of the composition.
        """
        await when_started(self._ctx)
        self._permissions.initialize({"capabilities": params})
        self._notifications.tell_more(self._requests.setting)
        self._attached = True
        return {}

    async def _own(self, method: Callable[[Params], Any], params: Params) -> dict[str, Any]:
        """A request that programs can make in process as well; its error carries its code."""
        if not self._attached:
            raise HarnessError("dsh/attach comes first", code="NOT_INITIALIZED")
        try:
            answer = method(params)
            result: dict[str, Any] = await answer if inspect.isawaitable(answer) else answer
        except HarnessError as error:
            raise RpcError(INTERNAL_ERROR, describe_error(error), {"code": error.code}) from error
        return result

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
