"""What can go wrong with a stored session, each kind with a stable code."""

from __future__ import annotations

from dsh.cordis.errors import HarnessError
from dsh.sessions import texts


class SessionPersistenceError(HarnessError):
    """A stored session could not be read or written; the message is a sentence for the person who must act."""

    code = "SESSION_PERSISTENCE"


class SessionNotFoundError(SessionPersistenceError):
    """No stored session has that id."""

    code = "SESSION_NOT_FOUND"

    def __init__(self, session_id: str) -> None:
        super().__init__(texts.not_found(session_id))
        self.session_id = session_id


class AmbiguousSessionError(SessionPersistenceError):
    """A beginning of ids, or a part of titles, that several sessions share; `candidates` are their ids."""

    code = "SESSION_AMBIGUOUS"

    def __init__(self, reference: str, candidates: list[str], *, in_titles: bool = False) -> None:
        shown = ", ".join(candidates[:10]) + (", …" if len(candidates) > 10 else "")
        count = len(candidates)
        what = f"is in the titles of {count} sessions" if in_titles else f"is the beginning of {count} session ids"
        super().__init__(f'"{reference}" {what}: {shown}')
        self.in_titles = in_titles
        self.candidates = candidates


class SessionPersistenceCorruptionError(SessionPersistenceError):
    """A stored log breaks a rule of the format beyond what a crash can explain. `why` is the rule."""

    code = "SESSION_CORRUPT"

    def __init__(self, session_id: str, why: object) -> None:
        super().__init__(texts.corrupted(session_id, why))
        self.session_id = session_id
        self.why = str(why)


class SessionFormatUnsupportedError(SessionPersistenceError):
    """A log of another format version or with events this build cannot interpret. `location`: the file, if any."""

    code = "SESSION_FORMAT_UNSUPPORTED"

    def __init__(self, message: str, location: str | None = None) -> None:
        super().__init__(message + texts.raw_log(location))
        self.location = location


class SessionCollisionError(SessionPersistenceError):
    """The id already belongs to another log or to another live session."""

    code = "SESSION_COLLISION"

    def __init__(self, session_id: str, why: str) -> None:
        super().__init__(texts.collision(session_id, why))
        self.session_id = session_id


class SessionLockedError(SessionPersistenceError):
    """Another process holds the session. Nothing was changed; `pid`, `host`, `since` name the holder."""

    code = "SESSION_LOCKED"

    def __init__(self, session_id: str, pid: object, host: object, since: object) -> None:
        super().__init__(texts.locked(session_id, pid, host, since))
        self.session_id = session_id
        self.pid = pid
        self.host = host
        self.since = since


class SessionFencedError(SessionPersistenceError):
    """A write was refused because this process no longer holds the session. Nothing was written."""

    code = "SESSION_FENCED"

    def __init__(self, session_id: str, why: str) -> None:
        super().__init__(texts.write_refused(session_id, why))
        self.session_id = session_id


class SessionBusyError(SessionPersistenceError):
    """The session is live or reserved in this process, so the operation would race its owner."""

    code = "SESSION_BUSY"
