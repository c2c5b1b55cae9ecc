"""What the client is told without asking: events, states, and sessions that sessions started."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from dsh.core.agent_events import AgentStatus
from dsh.core.session_store import SessionAppended, SessionCreated, SessionDisposed

if TYPE_CHECKING:
    from dsh.cordis import Context
    from dsh.core.session import Session
    from dsh.core.session_event import SessionEvent
    from dsh.interfaces.stdio_jsonrpc import JsonRpcPeer

    from . import Config

SUCCESS = ("completed",)
CAPPED = ("completed", "max-tokens")


class Notifications:
    """Forwards what happens, in the order it happens.

    Everything goes into the peer's one queue at the moment it is heard, so the wire has the order of the logs; events
    are written when the client has room for them.
    """

    def __init__(self, ctx: Context, peer: JsonRpcPeer, config: Config) -> None:
        self._ctx = ctx
        self._peer = peer
        self._config = config
        self._tells_more = False
        self._parents: dict[str, str] = {}
        ctx.on(SessionCreated, lambda event: self._started(event.session))
        ctx.on(SessionAppended, self._appended)
        ctx.on(AgentStatus, self._status)
        ctx.on(SessionDisposed, self._disposed)
        ctx.on("subagent/end", self._finished, global_=True)

    def tell_more(self, setting: Callable[[str], Any]) -> None:
        """Tell a client of ours also which sessions end, and which settings change (``setting`` reads a section)."""
        if self._tells_more:
            return
        self._tells_more = True

        def changed(event: Any) -> None:
            self._peer.notify("settings.updated", {"section": event.ns, "value": setting(event.ns)})

        ctx, notify = self._ctx, self._peer.notify
        ctx.on(SessionDisposed, lambda event: notify("session.disposed", {"sessionId": event.session.id}))
        ctx.on("settings/updated", changed, global_=True)

    def _started(self, session: Session) -> None:
        parent = session.header.parent_session
        if parent is not None and session.id not in self._parents:
            self._parents[session.id] = parent
            self._peer.notify("subagent.started", {"parentSessionId": parent, "childSessionId": session.id})

    def _appended(self, event: SessionAppended) -> None:
        if event.session.header.parent_session is not None:
            self._started(event.session)  # another listener of its creation may have appended before we heard of it
        self._peer.notify_later("session.event", partial(_event_params, event.session.id, event.event))

    def _status(self, event: AgentStatus) -> None:
        self._peer.notify("session.status", {"sessionId": event.agent.id, "status": event.status})

    def _disposed(self, event: SessionDisposed) -> None:
        gone = event.session.id  # a child may end before its run is reported, not so its parent
        for child in [child for child, parent in self._parents.items() if parent == gone]:
            del self._parents[child]

    def _finished(self, event: Any) -> None:
        """A run of a subagent ended; runs in other processes have no session here and are not told."""
        if not event.local:
            return
        parent = self._parents.get(event.id)
        if parent is None:
            return
        ok = event.stop_reason in (CAPPED if self._config.max_tokens_as_success else SUCCESS)
        params: dict[str, Any] = {
            "provider": event.provider,
            "agentId": event.id,
            "parentSessionId": parent,
            "childSessionId": event.id,
            "status": "ok" if ok else "error",
            "stopReason": event.stop_reason,
        }
        message = getattr(event, "last_assistant_message", None)
        if message is not None:
            params["lastAssistantMessage"] = message["content"] if isinstance(message, Mapping) else message
        self._peer.notify("subagent.finished", params)


def _event_params(session_id: str, event: SessionEvent) -> dict[str, Any]:
    return {"sessionId": session_id, "event": event.to_wire()}
