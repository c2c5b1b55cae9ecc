"""Forking: where a log may be cut, and what the child starts from."""

from __future__ import annotations

from dsh.cordis.errors import HarnessError, describe_error
from dsh.cordis.jsonio import NotJsonError, encode_str
from dsh.core.repair import open_turn
from dsh.core.session import EventsView
from dsh.core.session_event import SessionEvent, is_count


class SessionForkError(HarnessError):
    """A fork that cannot be made.

    code: SESSION_ALREADY_EXISTS, SESSION_NOT_FOUND, SESSION_NOT_LIVE, INVALID_BOUNDARY or OPEN_TURN.
    """

    code = "SESSION_FORK"


def fork_prefix(session_id: str, events: EventsView, boundary: object = None) -> list[SessionEvent]:
    """The events up to and including seq `boundary` (default: all of them).

    Any point outside an open turn will do, whatever the turns before it ended with. Raises SessionForkError.
    """
    if boundary is None:
        if not events:
            return []
        boundary = len(events) - 1
    if not is_count(boundary) or not isinstance(boundary, int):
        raise SessionForkError(
            f'fork boundary for session "{session_id}" must be a non-negative safe integer, got {_shown(boundary)}',
            "INVALID_BOUNDARY",
        )
    if boundary >= len(events):
        last = len(events) - 1 if events else "none"
        raise SessionForkError(
            f'fork boundary {boundary} does not exist in session "{session_id}" (last seq: {last})', "INVALID_BOUNDARY"
        )
    prefix = events[: boundary + 1]
    if prefix[boundary].seq != boundary:
        raise SessionForkError(
            f'fork boundary {boundary} does not match a contiguous event seq in session "{session_id}"',
            "INVALID_BOUNDARY",
        )
    if (opened := open_turn(prefix)) is not None:
        raise SessionForkError(
            f'fork boundary {boundary} in session "{session_id}" ends inside open turn {opened.data["turn"]}',
            "OPEN_TURN",
        )
    return prefix


def closed_prefix(session_id: str, events: EventsView) -> tuple[list[SessionEvent], bool]:
    """All events, or while a turn runs those up to the end of the turn before it; whether a turn was left out.

    Raises SessionForkError in the first turn of a session.
    """
    if open_turn(events) is None:
        return fork_prefix(session_id, events), False
    for event in reversed(events):
        if event.type == "turn/end":
            return fork_prefix(session_id, events, event.seq), True
    text = f'session "{session_id}" is in its first turn, and no turn before it could be copied; wait for its end'
    raise SessionForkError(text, "OPEN_TURN")


def _shown(value: object) -> str:
    try:
        return encode_str(value)
    except NotJsonError:
        return describe_error(value)
