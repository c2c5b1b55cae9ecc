"""Approvals that the client decides: asked by a notification, answered by a request.

Only for clients that say in ``initialize`` that they answer; without one, other answerers and the policy decide.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from dsh.cordis import AbortError, HarnessError
from dsh.core.seams import ApprovalOutcome, ApprovalRequest
from dsh.llm.waiting import until_abort

from ..params import Params, invalid, text

if TYPE_CHECKING:
    from dsh.cordis import Context
    from dsh.interfaces.stdio_jsonrpc import JsonRpcPeer

OUTCOMES: Final[tuple[ApprovalOutcome, ...]] = ("allowed-once", "rejected", "cancelled")


class Permissions:
    """The open questions of this connection."""

    def __init__(self, ctx: Context, peer: JsonRpcPeer) -> None:
        self._peer = peer
        self._answers_wanted = False
        self._open: dict[str, asyncio.Future[ApprovalOutcome]] = {}
        ctx.on(ApprovalRequest, self._ask)

    def initialize(self, params: Params) -> None:
        """Learn from ``capabilities.permissions`` whether the client answers."""
        capabilities = params.get("capabilities")
        self._answers_wanted = isinstance(capabilities, Mapping) and capabilities.get("permissions") is True

    def respond(self, params: Params) -> dict[str, Any]:
        """Take the answer to one question. Raises ``HarnessError`` for one that is not open."""
        request_id = text(params, "permission/respond", "requestId")
        outcome: Any = params.get("outcome")
        if outcome not in OUTCOMES:
            raise invalid(f"permission/respond outcome must be one of {', '.join(OUTCOMES)}")
        answer = self._open.get(request_id)
        if answer is None or answer.done():
            raise HarnessError(f"no open permission request: {request_id}", code="NO_REQUEST")
        answer.set_result(outcome)
        return {}

    async def _ask(self, event: ApprovalRequest, proceed: Callable[[], Awaitable[ApprovalOutcome]]) -> ApprovalOutcome:
        if not self._answers_wanted:
            return await proceed()
        request_id = str(uuid.uuid4())
        answer = self._open[request_id] = asyncio.get_running_loop().create_future()
        asked = {"requestId": request_id, "sessionId": event.agent.id, "toolName": event.tool_name}
        more = {"callId": event.call_id, "reason": event.reason}
        try:
            self._peer.notify("permission.requested", asked | {k: v for k, v in more.items() if v is not None})
            return await until_abort(asyncio.wait_for(answer, None), event.signal)
        except AbortError:
            return "cancelled"
        finally:
            del self._open[request_id]
            self._peer.notify("permission.closed", {"requestId": request_id})
