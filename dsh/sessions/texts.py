"""The sentences that clients of stored sessions see; other builds print the same ones, so they are exact."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any


def corrupted(session_id: str, why: object) -> str:
    """A stored log that breaks a rule of the format."""
    return f'stored session "{session_id}" failed validation: {why}'


def newer_format(session_id: str, version: object) -> str:
    """A log whose format number is above ours."""
    return (
        f'session "{session_id}" uses log format v{version}, but this harness reads only v0: '
        "the log was written by a newer harness — upgrade the harness to open it"
    )


def older_format(session_id: str, version: object) -> str:
    """A log whose format number is below ours."""
    return (
        f'session "{session_id}" uses log format v{version}, older than the supported v0, '
        "and this build ships no upgrade path for it"
    )


def raw_log(path: str | None) -> str:
    """The suffix that names the file behind a refused log."""
    return "" if path is None else f" (raw log: {path})"


def locked(session_id: str, pid: object, host: object, since: object) -> str:
    """Another process holds the session."""
    return (
        f'session "{session_id}" is open in pid {pid} on {host} since {since}; '
        "close it there, or continue on a copy with --fork"
    )


def fenced(session_id: str, pid: object, host: object) -> str:
    """Another process took the session over."""
    return f'session "{session_id}": write refused, the session was taken over by pid {pid} on {host}'


def lease_file_gone(session_id: str) -> str:
    """The lease can no longer be proved, though nobody else is known to hold it."""
    return f'session "{session_id}": write refused, its lease files were removed or replaced'


def lease_expired(session_id: str) -> str:
    """The lease could not be renewed in time."""
    return f'session "{session_id}": write refused, its lease could not be renewed and has run out'


def log_changed(session_id: str) -> str:
    """Somebody without the lease wrote to the log."""
    return f'session "{session_id}": write refused, its log changed while it was read'


def tail_moved(session_id: str, stored: int, base: int) -> str:
    """The log does not end where the events to be written begin."""
    return f'session "{session_id}": write refused, its log holds {stored} events and the next was to be number {base}'


def collision(session_id: str, why: str) -> str:
    """The id is taken by another log or another live session."""
    return f'session id collision: "{session_id}" {why}'


def not_found(session_id: str) -> str:
    """No artifact of that id."""
    return f'session "{session_id}" not found'


def unparsable_line(number: int) -> str:
    """A committed line that is not a JSON object."""
    return f"unparsable committed event at line {number}"


def seq_gap(number: int, expected: int, got: Any) -> str:
    """A committed line whose number does not follow the one before."""
    return f"seq gap in committed region at line {number} (expected {expected}, got {got})"


def since_text(started_ms: object) -> str:
    """A holder's start time (ms since the epoch) as UTC text; `unknown` for anything else."""
    if not isinstance(started_ms, (int, float)) or isinstance(started_ms, bool):
        return "an unknown time"
    try:
        return datetime.fromtimestamp(started_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (OverflowError, OSError, ValueError):
        return "an unknown time"
