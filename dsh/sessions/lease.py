"""The right to write one session's log: one holder at a time, across processes and hosts.

Two files in the session's directory. `lease.json` holds the fencing token (one higher at every acquisition) and who
holds it; it is replaced atomically. `lease.lock` is held under an OS lock for the life of the lease, so that the
kernel frees it with its owner. Where the mount has no usable locks the lease runs out instead: its holder renews it by
rewriting `lease.json` through the descriptor it opened, and the age of that file by the store's own clock decides.

Everything here blocks; it runs on the backend's writer thread.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
import weakref
from typing import Any, Final, Literal

from dsh.cordis.jsonio import JsonObject, decode, encode
from dsh.cordis.records import record
from dsh.sessions import texts
from dsh.sessions.errors import SessionFencedError, SessionLockedError

try:
    import fcntl
except ImportError:  # no such locks on this platform: leases run out instead
    fcntl = None  # type: ignore[assignment]

LOCK_NAME: Final = "lease.lock"
RECORD_NAME: Final = "lease.json"

LeaseMode = Literal["auto", "expiry"]
"""`auto`: OS locks where they work, else expiry. `expiry`: always expiry."""

_NO_LOCKS: Final = frozenset({errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EPERM, errno.ENOSYS, errno.EINVAL})
_TAKEN: Final = frozenset({errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES})
_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", None)


def host_name() -> str:
    """This machine's name."""
    return os.uname().nodename if hasattr(os, "uname") else os.environ.get("COMPUTERNAME", "localhost")


def _now() -> float:
    """Seconds on a clock that also runs while the machine sleeps, where there is one."""
    return time.clock_gettime(_CLOCK) if _CLOCK is not None else time.monotonic()


@record
class Holder:
    """Who holds a lease. started_at: ms since the epoch at which this run opened the store. run_id: one per run."""

    host: str
    pid: int
    started_at: int
    run_id: str

    @classmethod
    def of_this_process(cls) -> Holder:
        """A new run of this process."""
        return cls(host_name(), os.getpid(), time.time_ns() // 1_000_000, os.urandom(8).hex())

    def to_wire(self) -> JsonObject:
        """The form in `lease.json`."""
        return {"host": self.host, "pid": self.pid, "startedAt": self.started_at, "runId": self.run_id}


@record
class LeaseRecord:
    """What `lease.json` says. ttl_ms: how long the lease lives unrenewed; None for one under an OS lock."""

    token: int = 0
    host: Any = None
    pid: Any = None
    started_at: Any = None
    run_id: Any = None
    ttl_ms: int | None = None
    released: bool = True

    def refusal(self, session_id: str) -> SessionLockedError:
        """The error for someone who wanted this lease."""
        pid = "unknown" if self.pid is None else self.pid
        host = "an unknown host" if self.host is None else self.host
        return SessionLockedError(session_id, pid, host, texts.since_text(self.started_at))


@record
class LeaseState:
    """What an outsider can see of a lease. locked: somebody holds it now."""

    record: LeaseRecord
    locked: bool


def read_record(directory: str) -> LeaseRecord:
    """The record of a directory; a missing or unreadable one counts as free with token 0."""
    try:
        with open(os.path.join(directory, RECORD_NAME), "rb") as file:
            raw = decode(file.read(65536))
        assert isinstance(raw, dict)
        holder = raw.get("holder")
        holder = holder if isinstance(holder, dict) else {}
        token, ttl = raw.get("token"), raw.get("ttlMs")
        return LeaseRecord(
            token=token if type(token) is int and token >= 0 else 0,
            host=holder.get("host"),
            pid=holder.get("pid"),
            started_at=holder.get("startedAt"),
            run_id=holder.get("runId"),
            ttl_ms=ttl if type(ttl) is int and ttl > 0 else None,
            released=raw.get("released") is True,
        )
    except (OSError, ValueError, AssertionError):
        return LeaseRecord()


def probe(directory: str) -> LeaseState:
    """Who holds the lease of a session's directory, without touching it for longer than a moment."""
    record = read_record(directory)
    if record.released:
        return LeaseState(record, False)
    if record.ttl_ms is None:
        return LeaseState(record, _lock_is_held(directory, record))
    try:
        now = _store_clock(directory)
    except OSError:
        now = time.time_ns()  # a directory we may not write to has no clock to ask
    try:
        age = now - os.stat(os.path.join(directory, RECORD_NAME)).st_mtime_ns
    except OSError:
        return LeaseState(record, False)
    return LeaseState(record, age <= record.ttl_ms * 1_000_000)


class Lease:
    """One held lease. token: its fencing number. expires: it runs out unless renewed."""

    def __init__(self, leases: Leases, session_id: str, directory: str, token: int) -> None:
        self.session_id = session_id
        self.directory = directory
        self.token = token
        self.expires = False
        self.took_over = False
        """The lease before this one ran out instead of being given back, so its holder may still be writing."""
        self._leases = leases
        self._record_path = os.path.join(directory, RECORD_NAME)
        self._lock_path = os.path.join(directory, LOCK_NAME)
        self._lock_fd = -1
        self._lock_identity: tuple[int, int] | None = None
        self._record_fd = -1
        self._record_identity: tuple[int, ...] = ()
        self._renewed_at = 0.0
        self._failed_renewals = 0
        self.held = True

    def check(self) -> None:
        """Raise SessionFencedError unless this lease is provably still the current one (two stats)."""
        try:
            if self._record_identity == self._identity(os.stat(self._record_path)):
                if self.expires:
                    return
                lock = os.stat(self._lock_path)
                if self.held and self._lock_identity == (lock.st_dev, lock.st_ino):
                    return
        except OSError:
            pass
        raise self.lost()

    def left_ms(self) -> float | None:
        """Milliseconds until the lease runs out by our own clock; None if it does not run out."""
        return self._leases.ttl_ms - (_now() - self._renewed_at) * 1000 if self.expires else None

    def renew(self, *, only_if_due: bool = False) -> None:
        """Start the time to live anew.

        Raises SessionFencedError when the lease has another holder, and when a second renewal in a row failed or no
        time is left. only_if_due: do nothing while more than half of the time is left.
        """
        left = self.left_ms()
        if left is None or (only_if_due and left > self._leases.ttl_ms / 2):
            return
        self.check()
        begin = _now()
        try:
            # Through the descriptor: if somebody took over meanwhile, this touches only our own, unlinked file.
            os.pwrite(self._record_fd, self._leases.record(self.token, expires=True), 0)
            os.fsync(self._record_fd)
        except OSError as error:
            self._failed_renewals += 1
            if self._failed_renewals >= 2 or left <= 0:
                raise SessionFencedError(self.session_id, texts.LEASE_EXPIRED) from error
            return
        self._failed_renewals = 0
        self._renewed_at = begin
        self.check()

    def release(self, *, remove: bool = False) -> None:
        """Give the lease back; once. remove: the session was never written, so leave no trace of it."""
        if not self.held:
            return
        self.held = False
        self._leases.held.discard(self)
        try:
            still_ours = self._record_identity == self._identity(os.stat(self._record_path))
        except OSError:
            still_ours = False
        with contextlib.suppress(OSError):
            if still_ours and remove:
                os.unlink(self._record_path)
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(self._lock_path)
                os.rmdir(self.directory)
            elif still_ours:
                fd = self._record_fd if self._record_fd >= 0 else os.open(self._record_path, os.O_WRONLY)
                try:
                    os.pwrite(fd, self._leases.record(self.token, expires=self.expires, released=True), 0)
                finally:
                    if fd != self._record_fd:
                        os.close(fd)
        self.abandon()

    def abandon(self) -> None:
        """Close what is open without a word to the files: for a lease that is lost, and in a forked child."""
        self.held = False
        self._leases.held.discard(self)
        for fd in (self._record_fd, self._lock_fd):
            if fd >= 0:
                with contextlib.suppress(OSError):
                    os.close(fd)
        self._record_fd = self._lock_fd = -1

    def _identity(self, st: os.stat_result) -> tuple[int, ...]:
        # An expiring record changes with each renewal, but its open descriptor keeps the inode from being reused.
        if self.expires:
            return st.st_dev, st.st_ino
        return st.st_dev, st.st_ino, st.st_size, st.st_mtime_ns

    def lost(self) -> SessionFencedError:
        """The error that says who holds the session now."""
        record = read_record(self.directory)
        if record.run_id is None or record.run_id == self._leases.holder.run_id:
            return SessionFencedError(self.session_id, texts.LEASE_FILES_GONE)
        return SessionFencedError(self.session_id, texts.taken_over(record.pid, record.host))


class Leases:
    """Acquires leases for one run of a backend.

    mode: see LeaseMode. ttl_ms: time to live of an expiring lease.
    """

    def __init__(self, mode: LeaseMode = "auto", ttl_ms: int = 15_000) -> None:
        self.mode = mode
        self.ttl_ms = ttl_ms
        self.holder = Holder.of_this_process()
        self.held: set[Lease] = set()
        self._guards_forks = False

    def record(self, token: int, *, expires: bool, released: bool = False) -> bytes:
        """The text of `lease.json`. Padded, so that one version can be written over the other in place."""
        wire: JsonObject = {"token": token, "holder": self.holder.to_wire()}
        if expires:
            wire["ttlMs"] = self.ttl_ms
        if released:
            wire["released"] = True
        return encode(wire).ljust(384) + b"\n"

    def acquire(self, session_id: str, directory: str) -> Lease:
        """Take the lease of a session whose directory exists.

        Raises SessionLockedError if somebody else holds it, OSError if the directory cannot be used.
        """
        if self.mode == "auto" and fcntl is not None:
            lease = self._acquire_locked(session_id, directory)
            if lease is not None:
                return lease
        return self._acquire_expiring(session_id, directory)

    # -- under an OS lock ----------------------------------------------------------------------------------------------

    def _acquire_locked(self, session_id: str, directory: str) -> Lease | None:
        """None where the mount has no usable locks."""
        path = os.path.join(directory, LOCK_NAME)
        fd = _open_lock(path, session_id, directory)
        if fd is None:
            return None
        try:
            record = read_record(directory)
            if not record.released and record.ttl_ms is not None and probe(directory).locked:
                raise record.refusal(session_id)
            lease = Lease(self, session_id, directory, record.token + 1)
            lease.took_over = not record.released and record.ttl_ms is not None
            lease._lock_fd = fd
            lock = os.fstat(fd)
            lease._lock_identity = lock.st_dev, lock.st_ino
            temporary = self._write_record(directory, lease.token, expires=False)
            lease._record_identity = lease._identity(os.stat(temporary))
            os.replace(temporary, lease._record_path)
        except BaseException:
            os.close(fd)
            raise
        self.held.add(lease)
        self._guard_forks()
        return lease

    def _guard_forks(self) -> None:
        # A forked child shares the lock's open file, so the lock would live on with the child after our death.
        if self._guards_forks:
            return
        self._guards_forks = True
        this = weakref.ref(self)

        def in_child() -> None:
            leases = this()
            for lease in list(leases.held) if leases is not None else ():
                lease.abandon()

        os.register_at_fork(after_in_child=in_child)

    # -- by expiry -----------------------------------------------------------------------------------------------------

    def _acquire_expiring(self, session_id: str, directory: str) -> Lease:
        state = probe(directory)
        before = state.record
        if state.locked:
            raise before.refusal(session_id)
        begin = _now()
        token, claim = self._claim(session_id, directory, before)
        temporary = None
        try:
            # Whoever was first has replaced the record before withdrawing its claim, so one more look is enough.
            if read_record(directory) != before or _now() - begin > self.ttl_ms / 2000:
                raise _refusal(session_id, directory, before)
            lease = Lease(self, session_id, directory, token)
            lease.expires = True
            lease.took_over = not before.released
            temporary = self._write_record(directory, token, expires=True)
            lease._record_fd = os.open(temporary, os.O_RDWR | os.O_CLOEXEC)
            lease._renewed_at = begin
            try:
                os.fsync(lease._record_fd)
                lease._record_identity = lease._identity(os.fstat(lease._record_fd))
                os.replace(temporary, lease._record_path)
                temporary = None
                self.held.add(lease)
                lease.check()
            except BaseException:
                lease.abandon()
                raise
            _remove_old_claims(directory, token)
        finally:
            for path in (temporary, claim):
                if path is not None:
                    with contextlib.suppress(OSError):
                        os.unlink(path)
        return lease

    def _claim(self, session_id: str, directory: str, before: LeaseRecord) -> tuple[int, str]:
        """Become the only one who may replace the record: (token, claim file). The first to create the file wins.

        A claimant that died or paused leaves its file behind; the next token then has a claim of its own.
        """
        token = before.token
        while True:
            token += 1
            claim = os.path.join(directory, f"lease.{token}.claim")
            try:
                os.close(os.open(claim, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
                return token, claim
            except FileExistsError:
                try:
                    age = _store_clock(directory) - os.stat(claim).st_mtime_ns
                except FileNotFoundError:
                    raise _refusal(session_id, directory, before) from None
                if age <= self.ttl_ms * 1_000_000:
                    raise _refusal(session_id, directory, before) from None

    def _write_record(self, directory: str, token: int, *, expires: bool) -> str:
        path = os.path.join(directory, f"{RECORD_NAME}.{os.urandom(6).hex()}.tmp")
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.write(fd, self.record(token, expires=expires))
        finally:
            os.close(fd)
        return path


def _remove_old_claims(directory: str, below: int) -> None:
    """Clear away the claim files of claimants that died."""
    for name in os.listdir(directory):
        part = name.split(".")
        if len(part) == 3 and part[0] == "lease" and part[2] == "claim" and part[1].isdigit() and int(part[1]) < below:
            with contextlib.suppress(OSError):
                os.unlink(os.path.join(directory, name))


def _open_lock(path: str, session_id: str, directory: str) -> int | None:
    """The locked descriptor; None where locks do not work. Raises SessionLockedError."""
    for attempt in range(4):
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            lock, named = os.fstat(fd), os.stat(path)
        except FileNotFoundError:
            os.close(fd)  # removed between the two by a holder that left no trace
        except OSError as error:
            os.close(fd)
            if error.errno in _NO_LOCKS:
                return None
            if error.errno not in _TAKEN:
                raise
            # Somebody may only be looking who holds it, which takes microseconds.
            if attempt < 3:
                time.sleep(0.005)
        else:
            if (lock.st_dev, lock.st_ino) == (named.st_dev, named.st_ino):
                return fd
            os.close(fd)
    raise _refusal(session_id, directory)


def _refusal(session_id: str, directory: str, before: LeaseRecord | None = None) -> SessionLockedError:
    """The error that names who was first: its record comes a moment after the lock or the claim that keeps us out.

    before: what the record said when we still thought that the lease is free.
    """
    for _ in range(200):  # on a busy machine
        record = read_record(directory)
        if not record.released and record != before and _may_live(record):
            return record.refusal(session_id)
        time.sleep(0.005)
    return LeaseRecord().refusal(session_id)


def _lock_is_held(directory: str, record: LeaseRecord) -> bool:
    """Whether the lock of an unreleased record is held; where locks do not work, whether its process still lives."""
    if fcntl is not None:
        try:
            fd = os.open(os.path.join(directory, LOCK_NAME), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        except OSError:
            return True
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return False
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                return True
        finally:
            os.close(fd)
    return _may_live(record)


def _may_live(record: LeaseRecord) -> bool:
    """False if the record names a process of this machine that is gone."""
    if record.host != host_name() or type(record.pid) is not int or record.pid <= 0:
        return True
    try:
        os.kill(record.pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _store_clock(directory: str) -> int:
    """The time (ns) by the clock that stamps files in `directory`."""
    path = os.path.join(directory, f"lease.clock.{os.urandom(6).hex()}.tmp")
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.write(fd, b"\n")
        return os.fstat(fd).st_mtime_ns
    finally:
        os.close(fd)
        with contextlib.suppress(OSError):
            os.unlink(path)
