"""The feed: what happens in the process, as frames for any number of subscriptions."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from dsh.cordis import Context, describe_error
from dsh.cordis.errors import error_chain
from dsh.core.agent import Agent
from dsh.core.agent_events import (
    AgentCreated,
    AgentDisposed,
    AgentError,
    AgentStatus,
    InboxClaimed,
    InboxDiscarded,
    InboxInserted,
)
from dsh.core.agents import Agents
from dsh.core.session_store import SessionAppended, SessionCreated, SessionDisposed, Sessions

from .frames import Position, event_frame, frame_of, queue_of

if TYPE_CHECKING:
    from dsh.core.session import Session

    from .subscription import Subscription

JOURNAL: Final = 20_000
"""Events whose order over all sessions is remembered, for clients of several that come back."""


class Feed:
    """Listens once for everybody. Made with the first request, so that a process nobody asks pays nothing."""

    def __init__(self, ctx: Context) -> None:
        self.ctx = ctx
        self.journal: deque[Position] = deque(maxlen=JOURNAL)
        self._subscriptions: list[Subscription] = []
        ctx.on(SessionAppended, self._event)
        ctx.on(SessionCreated, self._added)
        ctx.on(SessionDisposed, self._removed)
        ctx.on(AgentCreated, lambda event: self._status(event.agent, event.agent.status))
        ctx.on(AgentStatus, lambda event: self._status(event.agent, event.status))
        ctx.on(AgentDisposed, lambda event: self._status(event.agent, "closed"))
        ctx.on(AgentError, self._error)
        ctx.on(InboxInserted, lambda event: self._queue(event.agent))
        ctx.on(InboxClaimed, lambda event: self._queue(event.agent))
        ctx.on(InboxDiscarded, lambda event: self._queue(event.agent))
        ctx.on("loader/refreshed", lambda event: self._tell_host("host/config-applied", {"rows": list(event.rows)}))
        ctx.on("hmr/reload", lambda event: self._tell_host("host/code-reloaded", {"rows": list(event.rows)}))
        ctx.effect(self._follow_log)

    def join(self, subscription: Subscription) -> None:
        """Give it every frame from now on."""
        self._subscriptions.append(subscription)

    def leave(self, subscription: Subscription) -> None:
        """Give it nothing more."""
        if subscription in self._subscriptions:
            self._subscriptions.remove(subscription)

    # -- looking --------------------------------------------------------------------------------------------------

    def live(self, session_id: str) -> Session | None:
        """The live session of that id."""
        sessions = self.ctx.get(Sessions)
        return None if sessions is None else sessions.get(session_id)

    def live_ids(self) -> list[str]:
        """The ids of all live sessions."""
        sessions = self.ctx.get(Sessions)
        return [] if sessions is None else [session.id for session in sessions.list()]

    def status_of(self, session_id: str) -> str | None:
        """`idle` or `running`; None for a session without an agent."""
        agents = self.ctx.get(Agents)
        agent = None if agents is None else agents.get(session_id)
        return None if agent is None else agent.status

    def since(self, last: Position, wanted: Callable[[str], bool]) -> list[Position]:
        """The remembered events of wanted sessions after `last`, in the order they came."""
        after: list[Position] = []
        for position in reversed(self.journal):
            if position == last:
                break
            if wanted(position[0]):
                after.append(position)
        return after[::-1]

    # -- what happens ---------------------------------------------------------------------------------------------

    def _event(self, happened: SessionAppended) -> None:
        session, event = happened.session, happened.event
        self.journal.append((session.id, event.seq))
        frame: bytes | None = None
        for each in self._subscriptions:
            if each.wants(session.id):
                if frame is None:
                    frame = event_frame(session.id, event)
                each.take_event(session, event.seq, frame)

    def _added(self, event: SessionCreated) -> None:
        session = event.session
        self._tell("host/session-added", session.id, {})
        self._tell("session/subscribed", session.id, {"live": True, "lastSeq": session.seq - 1})
        for each in self._subscriptions:
            if each.wants(session.id):
                each.take_over(session)

    def _removed(self, event: SessionDisposed) -> None:
        self._tell("host/session-removed", event.session.id, {})

    def _status(self, agent: Agent, status: str) -> None:
        self._tell("host/session-status", agent.id, {"status": status})

    def _error(self, event: AgentError) -> None:
        where = {"turn": event.turn, "step": event.step, "message": describe_error(event.error)}
        self._tell("host/agent-error", event.agent.id, where)

    def _queue(self, agent: Agent) -> None:
        self._tell("session/queue", agent.id, queue_of(agent))

    def _follow_log(self) -> Callable[[], None]:
        handler = _Warnings(lambda message: self._tell_host("host/warning", {"message": message}))
        logger = logging.getLogger("dsh")
        logger.addHandler(handler)
        return lambda: logger.removeHandler(handler)

    def _tell_host(self, kind: str, data: Mapping[str, Any]) -> None:
        """Tell whoever asked for it what concerns the process as a whole."""
        interested = [each for each in self._subscriptions if each.host]
        if interested:
            frame = frame_of({"type": kind, **data})
            for each in interested:
                each.put(frame)

    def _tell(self, kind: str, session_id: str, data: Mapping[str, Any]) -> None:
        interested = [each for each in self._subscriptions if each.wants(session_id)]
        if interested:
            frame = frame_of({"type": kind, "sessionId": session_id, **data})
            for each in interested:
                each.put(frame)


class _Warnings(logging.Handler):
    """Hands on warnings and errors of the process's log, from any thread."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        super().__init__(logging.WARNING)
        self._tell = tell
        self._loop = asyncio.get_running_loop()

    def emit(self, record: logging.LogRecord) -> None:
        try:
            message = record.getMessage()
            error = record.exc_info[1] if record.exc_info else None
            why = error_chain(error) if error is not None else ""
            text = message if why in message else f"{message}: {why}"
            self._loop.call_soon_threadsafe(self._tell, text)
        except Exception:  # the message cannot be made, or nobody is there any more
            self.handleError(record)
