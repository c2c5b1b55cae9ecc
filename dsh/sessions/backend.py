"""What a storage backend must be able to do; the coordinator does the rest.

Every method blocks. A `Hold` and whatever changes files runs on the backend's writer thread, one call after another;
reading methods may run on any thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from dsh.core.seams import SessionLocation
from dsh.core.session_event import SessionEvent
from dsh.core.session_header import SessionHeader
from dsh.sessions.lease import Lease
from dsh.sessions.log_file import StoredLog
from dsh.sessions.stored import Listing


class Log(Protocol):
    """What is told to a person: a context's logger, or one of the standard library."""

    def warning(self, msg: str, /, *args: Any) -> Any: ...

    def error(self, msg: str, /, *args: Any) -> Any: ...


class Hold(Protocol):
    """The right to write one session, from the acquisition of its lease to its release.

    stored: number of events in the log, valid once the log was read, mended or created. exists: it has a log.
    """

    session_id: str
    stored: int
    lease: Lease

    @property
    def exists(self) -> bool:
        """Whether the session has a log."""

    def read(self) -> StoredLog:
        """The log as it is stored."""

    def resume(self, stored: int) -> None:
        """Go on after an earlier hold that left the log sound with `stored` events."""

    def mend(self, log: StoredLog, closers: Sequence[SessionEvent]) -> None:
        """Cut the torn end of `log`, then append what was recovered of it and `closers` in one write."""

    def append(self, header: SessionHeader, base: int, events: Sequence[SessionEvent]) -> None:
        """Store `events` as those from number `base` on; creates the log if there is none. Durable when it returns.

        Raises SessionFencedError without writing if the lease is lost. Repeating an append that did succeed changes
        nothing. On any other failure the log is as before.
        """

    def delete(self) -> None:
        """Remove the log and everything else of the session, the lease with it."""

    def release(self) -> None:
        """Give the lease back."""


class Backend(Protocol):
    """One store of sessions."""

    raw_artifacts: bool

    def locate(self, header: SessionHeader) -> SessionLocation | None:
        """Where the session's artifact is or would be, without I/O."""

    def hold(self, session_id: str, cwd: str | None, *, must_exist: bool = False) -> Hold:
        """Acquire the lease of a session.

        cwd: workspace of a session that has no log yet. Raises SessionLockedError, and SessionNotFoundError if
        `must_exist` and there is no log.
        """

    def find(self, session_id: str) -> str | None:
        """Opaque place of a stored session, None if there is none."""

    def read(self, session_id: str) -> StoredLog:
        """The log without any right to write it. Raises SessionNotFoundError."""

    def revision(self, session_id: str) -> str | None:
        """The log's revision; None if there is none."""

    def listing(self) -> Listing:
        """All stored sessions."""

    def read_text(self, session_id: str) -> tuple[SessionHeader, bytes] | None:
        """The log's header and its bytes as JSONL; None if there is none."""
