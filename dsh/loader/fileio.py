"""How files a person or another process also writes are changed: lock, then replace whole.

The lock of a document is the file `<document>.lock`, created exclusively and holding the writer's pid. It is never
stolen: a writer that died leaves it behind, and only a person removes it.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from dsh.cordis import HarnessError

DEFAULT_LOCK_LIMIT = 10.0
"""Seconds to wait for a document's lock."""

LEFT_BEHIND_LIMIT = 2.0
"""Seconds to wait for the lock of a process that no longer runs."""

_FIRST_PAUSE = 0.02
_LONGEST_PAUSE = 0.2
_RETRIES = 10
_RETRY_STEP = 0.05
_TRANSIENT = frozenset((errno.EACCES, errno.EBUSY, errno.EPERM))

T = TypeVar("T")


class LockTimeoutError(HarnessError):
    """Another writer holds the lock of a document, or died holding it."""

    code = "LOCK_TIMEOUT"


def lock_path(path: Path) -> Path:
    """The lock file of the document `path`."""
    return path.with_name(path.name + ".lock")


def try_lock(path: Path) -> bool:
    """Take the lock of the document `path` if nobody holds it. Raises OSError when its folder cannot be written."""
    lock = lock_path(path)
    try:
        descriptor = os.open(lock, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return False
    except PermissionError:
        if os.path.lexists(lock):  # some systems answer so while the old lock is being removed
            return False
        raise
    try:
        os.write(descriptor, f"{os.getpid()}\n".encode())
    except OSError as error:
        os.close(descriptor)
        unlock(path)
        raise OSError(error.errno, error.strerror, str(lock)) from error
    os.close(descriptor)
    return True


def unlock(path: Path) -> None:
    """Give back a lock that `try_lock` took."""
    lock_path(path).unlink(missing_ok=True)


def lock_holder(path: Path) -> tuple[int | None, bool]:
    """The pid in the document's lock file (None: unreadable or gone) and whether that process lives."""
    try:
        pid = int(lock_path(path).read_text("ascii"))
    except (OSError, ValueError):
        return None, False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return pid, False
    except (PermissionError, OverflowError):
        return pid, True
    return pid, True


def _timeout_error(path: Path, shown: str | None) -> LockTimeoutError:
    pid, alive = lock_holder(path)
    if pid is None:
        holder = "its holder is unknown"
    elif alive:
        holder = f"held by the running process {pid}"
    else:
        holder = f"left behind by process {pid}, which no longer runs; remove that file"
    return LockTimeoutError(f"timed out waiting for the writer lock {shown or lock_path(path)} ({holder})")


def _attempts(path: Path, limit: float, shown: str | None) -> Iterator[float]:
    """Take the lock of `path`; the seconds to wait before each further attempt. Raises LockTimeoutError."""
    began = time.monotonic()
    pause = _FIRST_PAUSE
    while not try_lock(path):
        waited = time.monotonic() - began
        pid, alive = lock_holder(path)
        left = (limit if pid is None or alive else min(limit, LEFT_BEHIND_LIMIT)) - waited
        if left <= 0:
            raise _timeout_error(path, shown)
        yield min(pause, left)
        pause = min(pause * 2, _LONGEST_PAUSE)


@contextmanager
def document_lock(path: Path, *, limit: float = DEFAULT_LOCK_LIMIT, shown: str | None = None) -> Iterator[None]:
    """Hold the lock of the document `path` (for threads and the command line).

    `limit` is in seconds; `shown` is how the lock file is named in the error. Raises LockTimeoutError.
    """
    for pause in _attempts(path, limit, shown):
        time.sleep(pause)
    try:
        yield
    finally:
        unlock(path)


@asynccontextmanager
async def document_lock_async(
    path: Path, *, limit: float = DEFAULT_LOCK_LIMIT, shown: str | None = None
) -> AsyncIterator[None]:
    """`document_lock` for a coroutine: waiting does not hold a thread and can be cancelled."""
    import anyio

    # The two calls are one system call each on a local folder; a thread hop would cost more, and a cancelled
    # hop could leave a lock nobody knows about.
    for pause in _attempts(path, limit, shown):
        await anyio.sleep(pause)
    try:
        yield
    finally:
        unlock(path)


def atomic_write(path: Path, data: bytes, *, mode: int, before_replace: Callable[[], None] | None = None) -> None:
    """Replace the file `path` by `data` in one step, durable when it returns, with exactly the permissions `mode`.

    A symbolic link at `path` is replaced itself, never followed; resolve it first where that is wanted.
    `before_replace` runs last and may raise to keep the old file. No temporary file survives a failure.
    """
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0), 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            if hasattr(os, "fchmod"):
                os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
        if before_replace is not None:
            before_replace()
        os.replace(draft, path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    """Make a rename durable where the system can sync folders."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        with suppress(OSError):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def retry_transient(action: Callable[[], T], *, pause: Callable[[float], object] = time.sleep) -> T:
    """Run `action` (in a thread), again up to ten times while the file is briefly held by somebody else.

    Scanners and editors make a replace fail with EACCES, EBUSY or EPERM for a moment. `pause` waits seconds.
    """
    for attempt in range(1, _RETRIES + 1):
        try:
            return action()
        except OSError as error:
            if error.errno not in _TRANSIENT:
                raise
            pause(_RETRY_STEP * attempt)
    return action()


def file_mode(path: Path, default: int) -> int:
    """The permission bits of `path`, `default` when it does not exist."""
    try:
        return stat.S_IMODE(path.stat().st_mode)
    except FileNotFoundError:
        return default


def is_read_only(path: Path) -> bool:
    """Whether its permissions forbid the owner to write the file; replacing it would pass over that."""
    return not file_mode(path, stat.S_IWUSR) & stat.S_IWUSR


def ensure_private_dir(folder: Path) -> None:
    """Create `folder` (and what is missing above it) readable by its owner alone; an existing one stays as it is."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)


def read_text(path: Path) -> str:
    """The UTF-8 text of `path` with its line ends untouched. Raises OSError, UnicodeDecodeError."""
    return path.read_bytes().decode("utf-8")
