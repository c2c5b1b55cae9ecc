"""The frames of the event stream, as bytes, and the positions that they carry."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

from dsh.cordis.jsonio import encode

from .messages import ApiError

if TYPE_CHECKING:
    from dsh.core.agent import Agent
    from dsh.core.session_event import SessionEvent

Position = tuple[str, int]
"""A session and the seq of the last event somebody has of it; -1 for none."""

STILL_HERE = b": still here\n\n"
"""A comment: keeps the connection alive and is no frame."""


def frame_of(data: Mapping[str, Any]) -> bytes:
    """One frame without a position."""
    return b"data: " + encode(dict(data)) + b"\n\n"


def event_frame(session_id: str, event: SessionEvent) -> bytes:
    """One event of a log as a frame; its id says how far the client has come."""
    data = {"type": "session/event", "sessionId": session_id, "event": event.to_wire()}
    return b"id: %s:%d\ndata: %s\n\n" % (quote(session_id, safe="/: ").encode(), event.seq, encode(data))


def queue_of(agent: Agent) -> dict[str, Any]:
    """What waits in an agent's inbox."""
    return {"nextTurn": list(agent.inbox.next_turn), "nextStep": list(agent.inbox.next_step)}


def parse_position(text: str) -> Position:
    """A position as frame ids spell it: `<session id>:<seq>`. Raises ApiError."""
    session_id, colon, seq = text.strip().rpartition(":")
    if not colon or not session_id or not seq.removeprefix("-").isdecimal() or len(seq) > 16 or int(seq) < -1:
        raise ApiError(400, "BAD_POSITION", f"a position is <session id>:<seq>, not {text!r}")
    return unquote(session_id), int(seq)
