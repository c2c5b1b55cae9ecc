"""The table of what the control API answers, and what its handlers share.

One table for both sockets; a plugin adds rows of its own by ``control.serve(Route(…))``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

from dsh.cordis import Context, HarnessError
from dsh.cordis.errors import describe_error
from dsh.cordis.records import record
from dsh.core.agent_loop import AgentLoop
from dsh.core.agents import Agents
from dsh.core.seams import SessionPersistence
from dsh.core.session_store import Sessions
from dsh.loader.boot import when_started

from . import command_api, host_api, live_api, session_api
from .feed import Feed
from .messages import Answer, ApiError, Request

if TYPE_CHECKING:
    from dsh.core.agent import Agent

    from .server import Control

WRITES: Final = ("POST", "PATCH", "PUT")

STATUS_OF_CODE: Final = {
    "SESSION_NOT_FOUND": 404,
    "INVALID_BOUNDARY": 400,
    "INVALID_OPTIONS": 400,
    "OPEN_TURN": 409,
    "SESSION_BUSY": 409,
    "SESSION_LOCKED": 409,
    "SESSION_ALREADY_EXISTS": 409,
    "DUPLICATE_AGENT": 409,
    "DUPLICATE_MESSAGE": 409,
    "AGENT_DISPOSED": 409,
    "SESSION_TITLE_INVALID": 400,
    "NO_PERSISTENCE": 503,
    "NO_FACTORY": 503,
    "LOOP_INACTIVE": 503,
}
"""HTTP statuses of failures that are no fault of this server."""


@record
class Route:
    """One thing that can be asked. path: `{name}` stands for one segment, given to the handler in order.

    query: the names that may stand behind the path.
    """

    method: str
    path: str
    handler: Callable[..., Awaitable[Answer]]
    query: tuple[str, ...] = ()

    def match(self, segments: tuple[str, ...]) -> tuple[str, ...] | None:
        """What stands for the names of the path; None when the path is another."""
        pattern = self.path[1:].split("/")
        if len(pattern) != len(segments):
            return None
        pairs = list(zip(pattern, segments, strict=True))
        if any(name != segment for name, segment in pairs if not name.startswith("{")):
            return None
        return tuple(segment for name, segment in pairs if name.startswith("{"))


ROUTES: Final = (
    Route("GET", "/api/status", host_api.status),
    Route("POST", "/api/stop", host_api.stop),
    Route("GET", "/api/models", host_api.models),
    Route("GET", "/api/plugins", host_api.plugins),
    Route("GET", "/api/config", host_api.config),
    Route("GET", "/api/config/keys", host_api.config_keys),
    Route("PATCH", "/api/config", host_api.change_config),
    Route("POST", "/api/respond", host_api.respond),
    Route("GET", "/api/commands", command_api.listing),
    Route("POST", "/api/commands/{name}", command_api.run),
    Route("GET", "/api/sessions", session_api.listing, ("limit", "cwd", "q", "cursor")),
    Route("POST", "/api/sessions", session_api.create),
    Route("GET", "/api/sessions/{id}", session_api.show),
    Route("PATCH", "/api/sessions/{id}", session_api.change),
    Route("DELETE", "/api/sessions/{id}", session_api.delete),
    Route("GET", "/api/sessions/{id}/events", session_api.events, ("from", "limit", "view")),
    Route("GET", "/api/sessions/{id}/usage", session_api.usage, ("before",)),
    Route("POST", "/api/sessions/{id}/fork", session_api.fork),
    Route("POST", "/api/sessions/{id}/prompt", live_api.prompt),
    Route("POST", "/api/sessions/{id}/cancel", live_api.cancel),
    Route("GET", "/api/sessions/{id}/queue", live_api.queue),
    Route("DELETE", "/api/sessions/{id}/queue/{message}", live_api.take_back),
    Route("GET", "/api/stream", live_api.stream, ("sessions", "after", "host")),
)


class Api:
    """What handlers work on: the services of the moment, looked up at each use, so that every row may come and go."""

    def __init__(self, ctx: Context, control: Control) -> None:
        self.ctx = ctx
        self.control = control
        self.feed = Feed(ctx)
        self.draining = False

    async def handle(self, request: Request) -> Answer:
        """Answer one request. Raises ApiError."""
        handler, given = self._route(request)
        if request.method in WRITES:
            kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
            if kind != "application/json":
                raise ApiError(415, "NOT_JSON", "send Content-Type: application/json")
        try:
            return await handler(self, request, *given)
        except ApiError:
            raise
        except HarnessError as error:
            raise ApiError(STATUS_OF_CODE.get(error.code, 500), error.code, describe_error(error)) from error
        except Exception as error:
            self.ctx.logger.exception("%s %s failed", request.method, request.target)
            raise ApiError(500, "INTERNAL", describe_error(error)) from error

    def _route(self, request: Request) -> tuple[Callable[..., Awaitable[Answer]], tuple[str, ...]]:
        allowed = []
        for route in (*ROUTES, *self.control.extra):
            given = route.match(request.segments)
            if given is None:
                continue
            if route.method == request.method:
                request.only_query(*route.query)
                return route.handler, given
            allowed.append(route.method)
        path = request.target.partition("?")[0]
        if allowed:
            text = f"{path} takes {', '.join(allowed)}, not {request.method}"
            raise ApiError(405, "METHOD_NOT_ALLOWED", text, Allow=", ".join(allowed))
        raise ApiError(404, "NOT_FOUND", f"there is nothing at {path}")

    # -- services -------------------------------------------------------------------------------------------------

    def service(self, key: Any) -> Any:
        """A service of the composition. Raises ApiError when no row provides it now."""
        found = self.ctx.get(key)
        if found is None:
            name = key if isinstance(key, str) else key.service_name
            raise ApiError(503, "NO_SERVICE", f'no row provides the service "{name}" now')
        return found

    @property
    def agents(self) -> Agents:
        found: Agents = self.service(Agents)
        return found

    @property
    def sessions(self) -> Sessions:
        found: Sessions = self.service(Sessions)
        return found

    @property
    def loop(self) -> AgentLoop:
        found: AgentLoop = self.service(AgentLoop)
        return found

    @property
    def persistence(self) -> SessionPersistence:
        found: SessionPersistence = self.service(SessionPersistence)
        return found

    async def agent(self, session_id: str) -> Agent:
        """The live agent of a session, once the composition stands. Raises ApiError."""
        await when_started(self.ctx)
        await self.loop.configured.settled()
        agent = self.agents.get(session_id)
        if agent is None:
            raise ApiError(409, "NOT_OPEN", f'session "{session_id}" is not open in this daemon')
        return agent

    def refuse_while_draining(self) -> None:
        """Raise ApiError once the daemon was told to stop."""
        if self.draining:
            raise ApiError(409, "STOPPING", "the daemon is stopping and takes no new work")
