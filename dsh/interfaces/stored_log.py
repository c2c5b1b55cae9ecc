"""What the log of a session that is not open tells a listing: when it was last written, and what it is called."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from dsh.sessions.errors import SessionPersistenceError

if TYPE_CHECKING:
    from dsh.core.seams import SessionLocation
    from dsh.core.session_header import SessionHeader
    from dsh.sessions.stored import StoredSession


def stored_log(header: SessionHeader, place: SessionLocation | None) -> StoredSession | None:
    """The log of a session; None when it is no file here, or none that can be read. Blocking."""
    from dsh.sessions.stored import read_entry

    if place is None or place.kind != "jsonl":
        return None
    # A log keeps the name it was given: a new one could be compressed and this one not, or the other way round.
    path = next(iter(sorted(Path(place.path).parent.glob("session.jsonl*"))), None)
    try:
        return None if path is None else read_entry(str(path), header.id)
    except SessionPersistenceError:
        return None


def stored_title(log: StoredSession) -> str | None:
    """The title in a log; None when it has none, or cannot be read. Blocking."""
    from dsh.sessions.stored import title_of

    try:
        return title_of(log)
    except (OSError, SessionPersistenceError):
        return None
