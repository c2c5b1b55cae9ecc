"""Copying a stored session up to some point, so that it can be continued beside the original."""

from __future__ import annotations

import logging
import re
import uuid

from dsh.cordis.records import record
from dsh.core.fork import fork_prefix
from dsh.core.repair import open_turn
from dsh.core.session import EventsView, now_ms
from dsh.core.session_event import SessionEvent
from dsh.core.session_header import SessionHeader
from dsh.sessions.errors import SessionPersistenceCorruptionError, SessionPersistenceError
from dsh.sessions.jsonl_codec import DecodedLog
from dsh.sessions.jsonl_store import JsonlStore
from dsh.sessions.lease import Leases
from dsh.sessions.loading import faults_named
from dsh.sessions.log_file import LogWriter, StoredLog
from dsh.sessions.salvage import readable_part
from dsh.sessions.stored import StoredSession, read_entry

_FRESH_ID = re.compile(r"(.*-)?session-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@record
class Copy:
    """A session made by `fork_stored`. events: how many it took over; left_out: how many of the original it did not."""

    entry: StoredSession
    events: int
    left_out: int


def fork_stored(root: str, source: StoredSession, at: int | None = None) -> Copy:
    """Write a copy of a session below `root` as a new one, whoever may be writing the original.

    at: number of the last event to copy; by default everything, without a turn that is open at the end. Of a damaged
    log there is what stands before the damage. Nothing of the original is touched, and only the copy's lease is taken.
    Raises SessionForkError for an `at` that does not exist or lies inside a turn that is open there, and
    SessionPersistenceError.
    """
    store = JsonlStore(root, compression=None, writer=LogWriter(), leases=Leases(), logger=logging.getLogger("dsh"))
    log = _read(store, source)
    with faults_named(source.id, source.path):
        events = log.events[: _end(log.events)] if at is None else fork_prefix(source.id, EventsView(log.events), at)
    if not events:
        raise SessionPersistenceError(f'session "{source.id}" has no finished turn that could be copied')
    header = SessionHeader(
        _new_id(source.id), now_ms(), cwd=log.header.cwd, parent_session=source.id, seed_length=len(events)
    )
    hold = store.hold(header.id, header.cwd)
    try:
        hold.append(header, 0, events)
        assert hold.path is not None
        entry = read_entry(hold.path, header.id)
    finally:
        hold.release()
    return Copy(entry, len(events), len(log.events) - len(events))


def _read(store: JsonlStore, source: StoredSession) -> StoredLog | DecodedLog:
    try:
        return store.read_path(source.path, source.id)
    except SessionPersistenceCorruptionError:
        return readable_part(source.path, source.id)


def _end(events: list[SessionEvent]) -> int:
    """How many events there are before a turn that is open at the end."""
    start = open_turn(events)
    end = len(events) if start is None else start.seq
    return end if any(event.type == "turn/end" for event in events[:end]) else 0


def _new_id(source_id: str) -> str:
    """A fresh id, with the label of the original's agent if it begins with one."""
    named = _FRESH_ID.fullmatch(source_id)
    return f"{named[1] or '' if named else ''}session-{uuid.uuid4()}"
