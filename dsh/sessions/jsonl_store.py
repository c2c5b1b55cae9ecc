"""The JSONL backend: a directory per session, the log in it, appended to under the lease that stands beside it."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Sequence
from typing import Final, Literal

from dsh.core.seams import SessionLocation
from dsh.core.session_event import SessionEvent
from dsh.core.session_header import SessionHeader
from dsh.sessions import texts
from dsh.sessions.backend import Log
from dsh.sessions.errors import (
    SessionFencedError,
    SessionNotFoundError,
    SessionPersistenceCorruptionError,
    SessionPersistenceError,
)
from dsh.sessions.lease import Lease, Leases
from dsh.sessions.log_file import (
    LogWriter,
    StoredLog,
    TornWriteError,
    is_compressed,
    open_for_append,
    read_header,
    read_log,
    read_text,
    revision_of,
)
from dsh.sessions.paths import RAW_NAME, ZSTD_NAME, session_dir
from dsh.sessions.stored import HeaderCache, Listing, check_place, find_artifact, first_artifact, list_stored

Compression = Literal["zstd", "none"]

_LEFTOVER: Final = re.compile(r"(session\.jsonl(\.zstd)?|lease\.json|lease\.clock)\.[0-9a-f]{12}\.tmp")


class JsonlStore:
    """Session logs below one root directory.

    root: absolute path, created when the first session is written. compression: of new logs; None follows what the
    root already holds, zstd if it holds nothing. writer, leases: how logs are written and who may. logger: for what a
    person should know, each thing once.
    """

    raw_artifacts = True

    def __init__(
        self,
        root: str,
        *,
        compression: Compression | None,
        writer: LogWriter,
        leases: Leases,
        logger: Log,
    ) -> None:
        self.root = root
        self.writer = writer
        self.leases = leases
        self.logger = logger
        self._asked = compression
        self._compression: Compression | None = None
        self._headers: HeaderCache = {}
        self._reported: dict[str, str] = {}
        self._lockless = False

    def locate(self, header: SessionHeader) -> SessionLocation:
        """Where the session's log would be created now; no I/O."""
        name = RAW_NAME if (self._compression or self._asked) == "none" else ZSTD_NAME
        return SessionLocation("jsonl", os.path.join(session_dir(self.root, header.cwd, header.id), name))

    def hold(self, session_id: str, cwd: str | None, *, must_exist: bool = False) -> JsonlHold:
        """Acquire the lease of a session; of a new one in the place that its workspace gives it."""
        for attempt in range(3):
            path = find_artifact(self.root, session_id)
            if path is None and must_exist:
                raise SessionNotFoundError(session_id)
            directory = os.path.dirname(path) if path else session_dir(self.root, cwd, session_id)
            made = [] if path else _make_dirs(directory)
            try:
                lease = self.leases.acquire(session_id, directory)
                break
            except FileNotFoundError:  # the directory went with a session that was never written
                if attempt == 2:
                    raise
        hold = JsonlHold(self, lease, made)
        if lease.expires and self.leases.mode == "auto" and not self._lockless:
            self._lockless = True
            self.logger.warning("%s has no file locks; sessions are held by leases that run out instead", self.root)
        try:
            # Only under the lease is it certain what there is.
            hold.path = find_artifact(self.root, session_id)
            if hold.path is None:
                hold.blank = True
                if must_exist:
                    raise SessionNotFoundError(session_id)
            elif os.path.dirname(hold.path) != directory:
                raise SessionPersistenceCorruptionError(session_id, f"its log turned up in {hold.path}")
            elif lease.took_over:
                self.writer.republish(hold.path)
            self._sweep(directory)
        except BaseException:
            hold.release()
            raise
        return hold

    def find(self, session_id: str) -> str | None:
        """The path of a stored session's log."""
        return find_artifact(self.root, session_id)

    def read(self, session_id: str) -> StoredLog:
        """The log, whoever may be writing it."""
        path = find_artifact(self.root, session_id)
        if path is None:
            raise SessionNotFoundError(session_id)
        return self.read_path(path, session_id)

    def read_path(self, path: str, session_id: str) -> StoredLog:
        """The log at `path`, checked to be where its header belongs."""
        try:
            log = read_log(path, session_id)
        except FileNotFoundError:
            raise SessionNotFoundError(session_id) from None
        except OSError as error:
            raise SessionPersistenceError(
                f'stored session "{session_id}" cannot be read: {path}: {error.strerror or error}'
            ) from error
        check_place(path, log.header)
        return log

    def revision(self, session_id: str) -> str | None:
        """The log's revision."""
        path = find_artifact(self.root, session_id)
        try:
            return None if path is None else revision_of(os.stat(path))
        except FileNotFoundError:
            return None

    def listing(self) -> Listing:
        """All sessions; each artifact that cannot be read is named in one warning, until it changes."""
        cache = dict(self._headers)
        listing = list_stored(self.root, cache=cache)
        self._headers = cache
        reported = {}
        for bad in listing.unreadable:
            reported[bad.path] = bad.reason
            if self._reported.get(bad.path) != bad.reason:
                self.logger.warning("stored session skipped: %s: %s", bad.path, bad.reason)
        self._reported = reported
        return listing

    def read_text(self, session_id: str) -> tuple[SessionHeader, bytes] | None:
        """The header and the uncompressed bytes of a log."""
        path = find_artifact(self.root, session_id)
        if path is None:
            return None
        header, _ = read_header(path, session_id)
        return header, read_text(path, session_id)

    def new_name(self) -> str:
        """The file name of a new log."""
        if self._compression is None:
            first = first_artifact(self.root)
            found: Compression | None = None if first is None else "zstd" if is_compressed(first) else "none"
            self._compression = self._asked or found or "zstd"
            if found is not None and found != self._compression:
                self.logger.warning(
                    "%s holds %s session logs and new ones are written %s; other builds refuse such a root",
                    self.root,
                    "compressed" if found == "zstd" else "plain",
                    "compressed" if self._compression == "zstd" else "plain",
                )
        return RAW_NAME if self._compression == "none" else ZSTD_NAME

    def _sweep(self, directory: str) -> None:
        """Remove what a writer that died before it could publish has left; only the lease's holder may."""
        for name in os.listdir(directory):
            if _LEFTOVER.fullmatch(name):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(os.path.join(directory, name))


class JsonlHold:
    """The right to write one JSONL log. blank: there is no log, so a release may leave nothing."""

    __slots__ = ("_fd", "_made", "_size", "_store", "blank", "lease", "path", "session_id", "stored")

    def __init__(self, store: JsonlStore, lease: Lease, made: list[str]) -> None:
        self.session_id = lease.session_id
        self.lease = lease
        self.path: str | None = None
        self.blank = False
        self.stored = 0
        self._store = store
        self._made = made
        self._size = -1
        self._fd = -1

    @property
    def exists(self) -> bool:
        """Whether the session has a log."""
        return self.path is not None

    def read(self) -> StoredLog:
        """The log as it is stored."""
        assert self.path is not None
        return self._store.read_path(self.path, self.session_id)

    def resume(self, stored: int) -> None:
        """Go on after an earlier hold that left the log sound with `stored` events."""
        assert self.path is not None
        self._size, self.stored = os.stat(self.path).st_size, stored

    def mend(self, log: StoredLog, closers: Sequence[SessionEvent]) -> None:
        """Cut the torn end of `log`, then append what was recovered of it and `closers` in one write."""
        assert self.path is not None
        self.lease.renew(only_if_due=True)
        self.lease.check()
        tail = [*log.events[log.rewrite :], *closers]
        self._size, self.stored = log.keep, log.rewrite
        if not (log.torn or tail):
            return
        fd, st = self._open(self.path)
        try:
            if st.st_size != log.size:
                raise SessionFencedError(self.session_id, texts.LOG_CHANGED)
            if log.torn:
                self._store.logger.warning(
                    'session "%s": cut %d bytes of an interrupted write from the end of its log',
                    self.session_id,
                    log.size - log.keep,
                )
                self._store.writer.cut(fd, log.keep)
            if tail:
                self._write(fd, tail)
        finally:
            self._close(fd)

    def append(self, header: SessionHeader, base: int, events: Sequence[SessionEvent]) -> None:
        """Store `events` as those from number `base` on."""
        if not events:
            return
        self.lease.renew(only_if_due=True)
        self.lease.check()
        if self.path is None:
            if base != 0:
                raise self._gap(base)
            self._create(header, events)
            return
        if self._size < 0 or base < self.stored:
            events = events[self._already_stored(base, events) :]
            if not events:
                return
            base = self.stored
        fd, st = self._open(self.path)
        try:
            if st.st_size != self._size:  # somebody without the lease has written, or our own failed write still stands
                events = events[self._already_stored(base, events) :]
                if not events:
                    return
                base = self.stored
            if base != self.stored:
                raise self._gap(base)
            self._write(fd, events)
            if self.lease.expires:
                self._confirm(fd)
        finally:
            self._close(fd)

    def delete(self) -> None:
        """Remove the session's directory; the log goes first, so that a crash leaves no half session."""
        import shutil

        self.lease.check()
        if self.path is not None:
            os.unlink(self.path)
            self._store.writer.sync_dir(os.path.dirname(self.path))
            self.path = None
        self.blank = True
        directory = self.lease.directory
        for name in os.listdir(directory):
            if not name.startswith("lease."):
                path = os.path.join(directory, name)
                if os.path.isdir(path) and not os.path.islink(path):
                    shutil.rmtree(path)
                else:
                    os.unlink(path)
        self.release()

    def release(self) -> None:
        """Give the lease back; a session that was never written leaves nothing behind."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        self.lease.release(remove=self.blank)

    def _create(self, header: SessionHeader, events: Sequence[SessionEvent]) -> None:
        store = self._store
        path = os.path.join(self.lease.directory, store.new_name())
        size = store.writer.create(path, header, events)
        for directory in self._made:
            store.writer.sync_dir(os.path.dirname(directory))
        self._made = []
        self.path, self.blank, self._size, self.stored = path, False, size, len(events)

    def _write(self, fd: int, events: Sequence[SessionEvent]) -> None:
        content = self._store.writer.encode(events, compressed=is_compressed(self.path or ""))
        try:
            self._store.writer.append(fd, self._size, content)
        except OSError as error:
            if isinstance(error, TornWriteError):
                self._size = -1
            if error.filename is None:
                error.filename = self.path
            raise
        self._size += len(content)
        self.stored += len(events)

    def _already_stored(self, base: int, events: Sequence[SessionEvent]) -> int:
        """Read the log anew: how many of `events` it holds already. Raises if it holds others in their place."""
        log = self.read()
        self.mend(log, ())
        if base > self.stored:
            raise self._gap(base)
        there = log.events[base : base + len(events)]
        if list(events[: len(there)]) != there:
            raise SessionPersistenceCorruptionError(
                self.session_id, f"the log holds other events from seq {base} on than those to be written"
            )
        return len(there)

    def _gap(self, base: int) -> SessionFencedError:
        return SessionFencedError(self.session_id, texts.tail_moved(self.stored, base))

    def _confirm(self, fd: int) -> None:
        """After a write under an expiring lease: it counts only if the log was still ours to write."""
        self.lease.check()
        assert self.path is not None
        ours, named = os.fstat(fd), os.stat(self.path)
        if (ours.st_dev, ours.st_ino) != (named.st_dev, named.st_ino):
            raise self.lease.lost()

    def _open(self, path: str) -> tuple[int, os.stat_result]:
        # Under an expiring lease the descriptor stays: who takes over puts a new file in place, and a write of ours
        # that comes late goes into the old one.
        if self._fd >= 0:
            return self._fd, os.fstat(self._fd)
        fd, st = open_for_append(path)
        if self.lease.expires:
            self._fd = fd
        return fd, st

    def _close(self, fd: int) -> None:
        if fd != self._fd:
            os.close(fd)


def _make_dirs(directory: str) -> list[str]:
    """Create a directory and its missing parents for the owner alone; those created, outermost first."""
    missing = []
    path = directory
    while path and not os.path.isdir(path):
        missing.append(path)
        path = os.path.dirname(path)
    for path in reversed(missing):
        try:
            os.mkdir(path, 0o700)
        except FileExistsError:
            if not os.path.isdir(path):
                raise
    return missing[::-1]
