"""Giving a stored session another title, outside of any running composition."""

from __future__ import annotations

import logging

from dsh.cordis.jsonio import snapshot_json
from dsh.core.session import now_ms
from dsh.core.session_event import SessionEvent
from dsh.sessions.jsonl_store import JsonlStore
from dsh.sessions.lease import Leases
from dsh.sessions.log_file import LogWriter
from dsh.sessions.stored import StoredSession
from dsh.sessions.title import EVENT, title_data, user_title

MAX_BYTES = 80
"""Longest title, as in the compositions that ship."""


def rename_stored(root: str, entry: StoredSession, text: str) -> str:
    """Append a person's title to a session below `root` and return it as it was written.

    Raises SessionTitleInvalidError, SessionLockedError when the session is open somewhere, SessionPersistenceError.
    """
    title = user_title(text, MAX_BYTES)
    store = JsonlStore(root, compression=None, writer=LogWriter(), leases=Leases(), logger=logging.getLogger("dsh"))
    hold = store.hold(entry.id, entry.header.cwd, must_exist=True)
    try:
        hold.mend(hold.read(), ())  # what an interrupted write left; an open turn is closed by whoever resumes it
        event = SessionEvent(EVENT, hold.stored, now_ms(), snapshot_json(title_data(title)))
        hold.append(entry.header, event.seq, [event])
    finally:
        hold.release()
    return title.title
