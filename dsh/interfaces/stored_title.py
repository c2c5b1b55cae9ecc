"""What a session that is not open is called."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from dsh.sessions.errors import SessionPersistenceError

if TYPE_CHECKING:
    from dsh.core.seams import SessionLocation
    from dsh.core.session_header import SessionHeader


def stored_title(header: SessionHeader, place: SessionLocation | None) -> str | None:
    """The title in a session's log; None when it has none, or the log is no file here. Blocking."""
    from dsh.sessions.stored import read_entry, title_of

    if place is None or place.kind != "jsonl":
        return None
    try:
        # A log keeps the name it was given: a new one could be compressed and this one not, or the other way round.
        path = next(iter(sorted(Path(place.path).parent.glob("session.jsonl*"))), None)
        return None if path is None else title_of(read_entry(str(path), header.id))
    except (OSError, SessionPersistenceError):
        return None
