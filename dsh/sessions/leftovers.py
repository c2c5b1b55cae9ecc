"""What processes that were killed left in session folders: leases that nobody holds any more, and unfinished files."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterator
from typing import Final

from dsh.cordis.records import record
from dsh.sessions.errors import SessionPersistenceError
from dsh.sessions.lease import Leases, probe
from dsh.sessions.paths import decode_id, is_project_dir

_DRAFT: Final = re.compile(r"(session\.jsonl(\.zstd)?|lease\.json|lease\.clock)\.[0-9a-f]{12}\.tmp|lease\.\d+\.claim")
OLD_SECONDS: Final = 3600.0
"""Age at which a draft belongs to nobody: writing one takes a moment."""


@record
class Leftover:
    """A lease or a draft that nobody will finish. pid: whose it was, where that is known."""

    session_id: str
    directory: str
    file: str | None = None
    """The draft; None for a lease."""
    pid: int | None = None


@record
class OpenSession:
    """A session that somebody holds now."""

    session_id: str
    pid: int | None
    host: str | None


def look_through(root: str) -> tuple[list[OpenSession], list[Leftover]]:
    """The sessions below `root` that are open, and what was left behind. Reads no log, changes nothing."""
    held: list[OpenSession] = []
    left: list[Leftover] = []
    now = time.time()
    for directory in _session_dirs(root):
        session_id = decode_id(os.path.basename(directory))
        if session_id is None:
            continue
        state = probe(directory)
        if state.locked:
            held.append(OpenSession(session_id, state.record.pid, state.record.host))
        elif not state.record.released:
            left.append(Leftover(session_id, directory, None, state.record.pid))
        with contextlib.suppress(OSError), os.scandir(directory) as files:
            for file in files:
                if not state.locked and _DRAFT.fullmatch(file.name) and now - file.stat().st_mtime > OLD_SECONDS:
                    left.append(Leftover(session_id, directory, file.name))
    return held, left


def clear(leftover: Leftover) -> bool:
    """Give a lease back in the name of its dead holder, or remove a draft; False if somebody has the session now.

    The lease's fencing number stays, so that not even a holder that comes back from a long sleep could write.
    Raises OSError.
    """
    if leftover.file is not None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(leftover.directory, leftover.file))
        return True
    try:
        lease = Leases().acquire(leftover.session_id, leftover.directory)
    except SessionPersistenceError:
        return False
    lease.release()
    return True


def _session_dirs(root: str) -> Iterator[str]:
    with contextlib.suppress(OSError):
        projects = sorted(entry.path for entry in os.scandir(root) if is_project_dir(entry.name) and entry.is_dir())
        for project in projects:
            with contextlib.suppress(OSError):
                yield from sorted(entry.path for entry in os.scandir(project) if entry.is_dir())
