"""Approvals that the client decides: asked by a notification, answered by a request.

Only for clients that say in ``initialize`` that they answer; without one, other answerers and the policy decide.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from dsh.cordis import HarnessError

from ..params import Params, invalid, text

if TYPE_CHECKING:
    from dsh.cordis import Context
    from dsh.interfaces.stdio_jsonrpc import JsonRpcPeer

OUTCOMES: Final = ("allowed-once", "rejected", "cancelled")


class Permissions:
    """The open questions of this connection."""

    def __init__(self, ctx: Context, peer: JsonRpcPeer) -> None:
        self._peer = peer
        self._answers_wanted = False
        self._open: dict[str, asyncio.Future[str]] = {}
        ctx.on("approval/request", self._ask)

    def initialize(self, params: Params) -> None:
        """Learn from ``capabilities.permissions`` whether the client answers."""
        capabilities = params.get("capabilities")
        self._answers_wanted = isinstance(capabilities, Mapping) and capabilities.get("permissions") is True

    def respond(self, params: Params) -> dict[str, Any]:
        """Take the answer to one question. Raises ``HarnessError`` for one that is not open."""
        request_id = text(params, "permission/respond", "requestId")
        outcome = params.get("outcome")
        if outcome not in OUTCOMES:
            raise invalid(f"permission/respond outcome must be one of {', '.join(OUTCOMES)}")
        answer = self._open.get(request_id)
        if answer is None or answer.done():
            raise HarnessError(f"no open permission request: {request_id}", code="NO_REQUEST")
        answer.set_result(outcome)
        return {}

    async def _ask(self, event: Any, next: Callable[[], Awaitable[str]]) -> str:
        if not self._answers_wanted:
            return await next()
        request_id = str(uuid.uuid4())
        answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._open[request_id] = answer
        asked = {"requestId": request_id, "sessionId": event.agent.id, "toolName": event.tool_name}
        more = {"callId": event.call_id, "reason": event.reason}
        undo = event.signal.on_abort(lambda: answer.done() or answer.cancel()) if event.signal is not None else None
        try:
            self._peer.notify("permission.requested", asked | {k: v for k, v in more.items() if v is not None})
            return await answer
        except asyncio.CancelledError:
            self._peer.notify("permission.closed", {"requestId": request_id})
            if event.signal is not None and event.signal.aborted:
                return "cancelled"
            raise
        finally:
            del self._open[request_id]
            if undo is not None:
                undo()
