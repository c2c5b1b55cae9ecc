"""Stored sessions as files to carry away and to bring in: the JSON lines of the log."""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import replace

from dsh.core.session_header import SessionHeader
from dsh.sessions.errors import SessionCollisionError, SessionPersistenceCorruptionError
from dsh.sessions.frames import FrameCodec
from dsh.sessions.jsonl_codec import decode_raw, decode_zstd
from dsh.sessions.jsonl_store import JsonlStore
from dsh.sessions.lease import Leases
from dsh.sessions.loading import to_session
from dsh.sessions.log_file import LogWriter, StoredLog, read_text
from dsh.sessions.stored import StoredSession, find_artifact, read_entry

ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"


def export_jsonl(entry: StoredSession) -> bytes:
    """The log as JSON lines, byte for byte as it is stored, without what an interrupted write left at its end.

    Raises OSError, SessionPersistenceCorruptionError.
    """
    data = read_text(entry.path, entry.id)
    return data[: data.rfind(b"\n") + 1]


def import_jsonl(
    root: str,
    data: bytes,
    *,
    name: str = "the file",
    session_id: str | None = None,
    cwd: str | None = None,
    extra_types: Collection[str] = (),
) -> tuple[StoredSession, int]:
    """Store a log that was exported, as JSON lines or compressed, below `root`; its entry and number of events.

    Everything that a resume checks is checked first. session_id, cwd: instead of those in the log. Raises
    SessionCollisionError when there is such a session already, SessionPersistenceCorruptionError and
    SessionFormatUnsupportedError for a log that could not be opened, OSError.
    """
    if data.startswith(ZSTD_MAGIC):
        log = decode_zstd(data, FrameCodec(), name, name)
    else:
        log = decode_raw(data, name, name)
    header: SessionHeader = log.header
    to_session(StoredLog(header, log.events, log.keep, log.rewrite, len(data), name, ""), extra_types)
    if not log.events:
        raise SessionPersistenceCorruptionError(header.id, "it holds no event")
    header = replace(header, id=session_id or header.id, cwd=cwd if cwd is not None else header.cwd)
    store = JsonlStore(root, compression=None, writer=LogWriter(), leases=Leases(), logger=logging.getLogger("dsh"))
    if (there := find_artifact(root, header.id)) is not None:
        raise SessionCollisionError(header.id, f"already has a stored log ({there})")
    hold = store.hold(header.id, header.cwd)
    try:
        if hold.exists:
            raise SessionCollisionError(header.id, f"already has a stored log ({hold.path})")
        hold.append(header, 0, log.events)
        assert hold.path is not None
        entry = read_entry(hold.path, header.id)
    finally:
        hold.release()
    return entry, len(log.events)
