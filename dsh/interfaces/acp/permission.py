"""Asking the client whether one tool call may run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dsh.cordis import AbortError
from dsh.core.seams import ApprovalOutcome, ApprovalRequest
from dsh.interfaces.stdio_jsonrpc import JsonRpcPeer, RpcError
from dsh.llm.waiting import until_abort

from .session import AcpSession


async def ask_client(peer: JsonRpcPeer, session: AcpSession, event: ApprovalRequest, call_id: str) -> ApprovalOutcome:
    """The client's decision about the call ``call_id``; a client that cannot be asked leaves it undecided."""
    kept = session.view.remembered(event.tool_name, call_id)
    if kept is not None:
        return _outcome(kept)
    call, options = session.view.permission(call_id)
    await session.outbox.drained()
    asked = peer.request("session/request_permission", {"sessionId": session.id, "toolCall": call, "options": options})
    try:
        answer = await until_abort(asked, event.signal)
    except (AbortError, ConnectionError):
        return "cancelled"
    except RpcError:
        return "unavailable"
    choice = _choice(answer)
    if choice == "cancelled":
        return "cancelled"
    if choice not in {option["optionId"] for option in options}:
        return "unavailable"
    decision, _, how_long = choice.partition("-")
    if how_long == "always":
        session.view.remember(event.tool_name, call_id, decision)
    return _outcome(decision)


def _outcome(decision: str) -> ApprovalOutcome:
    return "allowed-once" if decision == "allow" else "rejected"


def _choice(answer: Any) -> str:
    """The chosen option's id, or ``cancelled``; empty when the answer is neither."""
    outcome = answer.get("outcome") if isinstance(answer, Mapping) else None
    if not isinstance(outcome, Mapping):
        return ""
    if outcome.get("outcome") == "cancelled":
        return "cancelled"
    chosen = outcome.get("optionId") if outcome.get("outcome") == "selected" else None
    return chosen if isinstance(chosen, str) else ""
