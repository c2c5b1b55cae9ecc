"""One log file: reading it while others may write, publishing a new one, appending a batch, mending a torn end.

Everything here blocks and belongs on a worker thread. Writing is only legal under the session's lease.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator, Sequence
from typing import Final

from dsh.cordis.records import struct
from dsh.core.bulk import collector_paused
from dsh.core.session_event import SessionEvent
from dsh.core.session_header import SessionHeader
from dsh.sessions.errors import SessionCollisionError, SessionPersistenceCorruptionError
from dsh.sessions.frames import BadFrameError, FrameCodec, frame_end, walk
from dsh.sessions.jsonl_codec import DecodedLog, decode_header, decode_raw, decode_zstd, encode_batch, encode_header

_NO_LINKS: Final = frozenset(
    {errno.EPERM, errno.EACCES, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV, errno.EINVAL}
)
_READ_TRIES: Final = 8
_HEAD_BYTES: Final = 4096


@struct
class StoredLog:
    """A log as read. size: bytes of the file; path: where it was; the rest as in DecodedLog."""

    header: SessionHeader
    events: list[SessionEvent]
    keep: int
    rewrite: int
    size: int
    path: str
    revision: str

    @property
    def torn(self) -> bool:
        """The file ends in what an interrupted write left."""
        return self.keep != self.size


def revision_of(st: os.stat_result) -> str:
    """An opaque text that changes whenever the file does."""
    return f"{st.st_dev}:{st.st_ino}:{st.st_size}:{st.st_mtime_ns}:{st.st_ctime_ns}"


def is_compressed(path: str) -> bool:
    """Whether an artifact's name says that it holds zstd frames."""
    return path.endswith(".zstd")


def open_regular(path: str) -> tuple[int, os.stat_result]:
    """Open a file for reading; anything but a regular file raises OSError instead of blocking or surprising."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | getattr(os, "O_NONBLOCK", 0))
    st = os.fstat(fd)
    if stat.S_ISREG(st.st_mode):
        return fd, st
    os.close(fd)
    if stat.S_ISDIR(st.st_mode):
        raise IsADirectoryError(errno.EISDIR, "is a directory", path)
    raise OSError(errno.EINVAL, "is not a regular file", path)


def read_stable(path: str) -> tuple[bytes, os.stat_result]:
    """The bytes of a file at one moment, though another process may be appending to it.

    A log only grows, so after some tries a file that never rests is taken as it was read.
    """
    for _ in range(_READ_TRIES):
        fd, before = open_regular(path)
        with open(fd, "rb", buffering=0) as file:
            data = file.read()
            after = os.fstat(fd)
        if (
            len(data) == before.st_size == after.st_size
            and before.st_mtime_ns == after.st_mtime_ns
            and _same_file(path, after)
        ):
            break
    return data, after


def _same_file(path: str, st: os.stat_result) -> bool:
    try:
        named = os.stat(path)
    except FileNotFoundError:
        return False
    return (named.st_dev, named.st_ino) == (st.st_dev, st.st_ino)


def read_log(path: str, session_id: str) -> StoredLog:
    """Read and decode a log file. Raises OSError, SessionPersistenceCorruptionError, SessionFormatUnsupportedError."""
    data, st = read_stable(path)
    with collector_paused():
        log = decode_log(data, path, session_id)
    return StoredLog(log.header, log.events, log.keep, log.rewrite, len(data), path, revision_of(st))


def decode_log(data: bytes, path: str, session_id: str) -> DecodedLog:
    """Decode the bytes of the artifact `path`, whose name tells their encoding."""
    if is_compressed(path):
        return decode_zstd(data, FrameCodec(), session_id, path)
    return decode_raw(data, session_id, path)


def read_text(path: str, session_id: str) -> bytes:
    """The uncompressed bytes of a log, as they stand (of a torn frame what can be decoded)."""
    data, _ = read_stable(path)
    if not is_compressed(path):
        return data
    codec = FrameCodec()
    try:
        return b"".join(codec.decode(data, start, end) for start, end in walk(data))
    except BadFrameError as error:
        raise SessionPersistenceCorruptionError(session_id, error) from error


def read_header(path: str, session_id: str, codec: FrameCodec | None = None) -> tuple[SessionHeader, os.stat_result]:
    """The header of a log file, reading no more than its first line or frame.

    codec: decoder to use for a compressed file. Raises as `read_log`.
    """
    fd, st = open_regular(path)
    try:
        head = os.read(fd, _HEAD_BYTES)
        if is_compressed(path):
            try:
                while (end := frame_end(head, 0) if head else None) is None:
                    more = os.read(fd, max(_HEAD_BYTES, len(head)))
                    if not more:
                        raise SessionPersistenceCorruptionError(session_id, _headerless(head))
                    head += more
                head = (codec or FrameCodec()).decode(head, 0, end)
            except BadFrameError as error:
                raise SessionPersistenceCorruptionError(session_id, error) from error
        while (end_of_line := head.find(b"\n")) < 0:
            more = b"" if is_compressed(path) else os.read(fd, max(_HEAD_BYTES, len(head)))
            if not more:
                raise SessionPersistenceCorruptionError(session_id, _headerless(head))
            head += more
    finally:
        os.close(fd)
    return decode_header(head[:end_of_line], session_id, path), st


def _headerless(head: bytes) -> str:
    return "the file holds no complete session header" if head else "the file is empty"


# -- writing ----------------------------------------------------------------------------------------------------------


class LogWriter:
    """How a backend writes: whether an append waits for the disk, and how chunks are stored. For one thread.

    durable: fsync before returning. pack_chunks: store runs of stream deltas as packed rows.
    """

    def __init__(self, *, durable: bool = True, pack_chunks: bool = True) -> None:
        self.durable = durable
        self.pack_chunks = pack_chunks
        self._codec: FrameCodec | None = None

    def encode(self, events: Sequence[SessionEvent], *, compressed: bool) -> bytes:
        """The bytes of one append."""
        lines = encode_batch(events, pack_chunks=self.pack_chunks)
        return self._frame(lines) if compressed else lines

    def create(self, path: str, header: SessionHeader, events: Sequence[SessionEvent]) -> int:
        """Publish a new log whole or not at all; its size.

        Raises SessionCollisionError if the name is taken, OSError if it could not be written.
        """
        compressed = is_compressed(path)
        head = encode_header(header)
        content = (self._frame(head) if compressed else head) + self.encode(events, compressed=compressed)
        with self._draft(path, content) as draft:
            _publish(draft, path, header.id)
        self.sync_dir(os.path.dirname(path))
        return len(content)

    def republish(self, path: str) -> None:
        """Put a copy of the log in its place, so that a writer that still has the old file open writes to nobody."""
        data, _ = read_stable(path)
        with self._draft(path, data) as draft:
            os.replace(draft, path)
        self.sync_dir(os.path.dirname(path))

    @contextlib.contextmanager
    def _draft(self, path: str, content: bytes) -> Iterator[str]:
        """A private file beside `path` that holds `content`, to be put in its place; nothing of it stays behind."""
        draft = f"{path}.{os.urandom(6).hex()}.tmp"
        fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            try:
                _write_all(fd, content)
                if self.durable:
                    os.fsync(fd)
            finally:
                os.close(fd)
            yield draft
        finally:
            with contextlib.suppress(OSError):
                os.unlink(draft)

    def append(self, fd: int, size: int, content: bytes) -> None:
        """Write one batch at the end of a file of `size` bytes; on any failure the file has that size again.

        Raises OSError; if even the cut failed, TornWriteError.
        """
        try:
            _write_all(fd, content)
            if self.durable:
                os.fsync(fd)
        except BaseException as error:
            try:
                os.ftruncate(fd, size)
            except OSError:
                code = error.errno if isinstance(error, OSError) else None
                raise TornWriteError(code, f"a failed append could not be taken back: {error}") from error
            raise

    def cut(self, fd: int, size: int) -> None:
        """Cut a file to `size` bytes, durably."""
        os.ftruncate(fd, size)
        if self.durable:
            os.fsync(fd)

    def sync_dir(self, directory: str) -> None:
        """Make the names in a directory durable."""
        if not self.durable:
            return
        fd = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EBADF):  # file systems that sync names alone
                raise
        finally:
            os.close(fd)

    def _frame(self, content: bytes) -> bytes:
        if self._codec is None:
            self._codec = FrameCodec()
        return self._codec.encode(content)


class TornWriteError(OSError):
    """An append failed and its beginning may still stand in the file."""


def open_for_append(path: str) -> tuple[int, os.stat_result]:
    """Open a log for appending: (descriptor, its stat)."""
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
    return fd, os.fstat(fd)


def _publish(temporary: str, path: str, session_id: str) -> None:
    try:
        os.link(temporary, path)
        return
    except FileExistsError:
        _refuse_unless_empty(path, session_id)
        os.replace(temporary, path)
        return
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
    # A mount without hard links: claim the name first, so that nothing is ever overwritten, then put the content
    # under it in one step. A crash in between leaves an empty file, which counts as nothing.
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        _refuse_unless_empty(path, session_id)
    os.replace(temporary, path)


def _refuse_unless_empty(path: str, session_id: str) -> None:
    st = os.stat(path)
    if st.st_size or not stat.S_ISREG(st.st_mode):
        raise SessionCollisionError(session_id, "already has a stored log") from None


def _write_all(fd: int, content: bytes) -> None:
    view = memoryview(content)
    while view:
        view = view[os.write(fd, view) :]
