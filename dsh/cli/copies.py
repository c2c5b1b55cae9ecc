"""Copies of stored sessions, and damaged ones, for the commands that continue a session."""

from __future__ import annotations

from dsh.cli.output import fail, tell
from dsh.cli.stored_sessions import session_root
from dsh.cordis.errors import HarnessError, describe_error
from dsh.core.fork import SessionForkError
from dsh.sessions.errors import SessionPersistenceCorruptionError
from dsh.sessions.forking import Copy, fork_stored
from dsh.sessions.log_file import read_log
from dsh.sessions.stored import StoredSession


def copy_of(entry: StoredSession, root: str | None, at: int | None = None) -> StoredSession:
    """A new session that begins as ``entry`` does, up to event ``at``; its id is said on standard error."""
    copy = make_copy(entry, root, at)
    left = f"; {copy.left_out} after them are left out" if copy.left_out else ""
    tell(f"continuing {entry.id} as {copy.entry.id}, a copy of {copy.events} events{left}")
    return copy.entry


def make_copy(entry: StoredSession, root: str | None, at: int | None = None) -> Copy:
    """The same without a word; what cannot be copied ends the command."""
    try:
        return fork_stored(session_root(root), entry, at)
    except SessionForkError as error:
        fail(str(error), 2, name=error.code)
    except (OSError, HarnessError) as error:
        fail(describe_error(error), name=error.code if isinstance(error, HarnessError) else None)


def after_damage(entry: StoredSession) -> None:
    """If the run that was to continue ``entry`` failed because its log is damaged, say what can be done."""
    try:
        read_log(entry.path, entry.id)
    except SessionPersistenceCorruptionError:
        show, fork = f"dsh sessions show {entry.id}", f"dsh resume {entry.id} --fork"
        tell(f"`{show}` prints what is readable of it, `{fork}` continues on a copy of that")
    except (OSError, HarnessError):
        pass  # told already, and no copy would help
