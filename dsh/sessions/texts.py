"""The sentences that clients of stored sessions see; other builds print the same ones, so they are exact."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final


def corrupted(session_id: str, why: object) -> str:
    return f'stored session "{session_id}" failed validation: {why}'


def newer_format(session_id: str, version: object) -> str:
    return (
        f'session "{session_id}" uses log format v{version}, but this harness reads only v0: '
        "the log was written by a newer harness — upgrade the harness to open it"
    )


def older_format(session_id: str, version: object) -> str:
    return (
        f'session "{session_id}" uses log format v{version}, older than the supported v0, '
        "and this build ships no upgrade path for it"
    )


def raw_log(path: str | None) -> str:
    """The suffix that names the file behind a refused log."""
    return "" if path is None else f" (raw log: {path})"


def locked(session_id: str, pid: object, host: object, since: object) -> str:
    return (
        f'session "{session_id}" is open in pid {pid} on {host} since {since}; '
        "close it there, or continue on a copy with --fork"
    )


def write_refused(session_id: str, why: str) -> str:
    return f'session "{session_id}": write refused, {why}'


LEASE_FILES_GONE: Final = "its lease files were removed or replaced"
LEASE_EXPIRED: Final = "its lease could not be renewed and has run out"
LOG_CHANGED: Final = "its log changed while it was read"


def taken_over(pid: object, host: object) -> str:
    return f"the session was taken over by pid {pid} on {host}"


def tail_moved(stored: int, base: int) -> str:
    return f"its log holds {stored} events and the next was to be number {base}"


def collision(session_id: str, why: str) -> str:
    return f'session id collision: "{session_id}" {why}'


def not_found(session_id: str) -> str:
    return f'session "{session_id}" not found'


def unparsable_line(number: int) -> str:
    return f"unparsable committed event at line {number}"


def seq_gap(number: int, expected: int, got: object) -> str:
    return f"seq gap in committed region at line {number} (expected {expected}, got {got})"


def since_text(started_ms: object) -> str:
    """A holder's start time (ms since the epoch) as UTC text."""
    if not isinstance(started_ms, (int, float)) or isinstance(started_ms, bool):
        return "an unknown time"
    try:
        return datetime.fromtimestamp(started_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (OverflowError, OSError, ValueError):
        return "an unknown time"
