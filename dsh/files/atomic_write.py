"""Put a file in place in one step: readers see the old content or the new, never half of one."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from collections.abc import Callable

from dsh.cordis.records import record

_NO_LINKS = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})
_CREATE = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class HardLinksUnsupportedError(OSError):
    """The file system cannot link, so a file cannot be created there without the risk of replacing another."""


@record
class Publication:
    """How to publish: `mode` bits of the new file, its owner (kept when root replaces a file), and whether a file
    that is already there must survive (`exclusive`, then publishing raises `FileExistsError`)."""

    mode: int = 0o600
    owner: tuple[int, int] | None = None
    exclusive: bool = False


def publish(path: bytes, content: bytes, how: Publication, last_check: Callable[[], None]) -> os.stat_result:
    """Write `content` to `path`, durably, and return the stat of the new file.

    The content is staged in a private directory beside the target (dot name, so that watchers pass over it, and short,
    so that it fits wherever the target fits). `last_check` runs right before the file appears and may raise to stop it.
    Whatever happens, nothing staged stays behind; a failing cleanup after the file is in place is no error.
    Raises `OSError`, `HardLinksUnsupportedError` among them.
    """
    parent = os.path.dirname(path)
    os.makedirs(parent, exist_ok=True)
    stage = _make_stage(parent)
    staged = os.path.join(stage, b"f")
    try:
        fd = os.open(staged, _CREATE, 0o600)
        try:
            _write_all(fd, content)
            if how.owner is not None:
                os.fchown(fd, *how.owner)
            os.fchmod(fd, how.mode)
            os.fsync(fd)
            last_check()
            if how.exclusive:
                _link(staged, path)
                with contextlib.suppress(OSError):
                    os.unlink(staged)
            else:
                os.replace(staged, path)
            # The descriptor still is our file, whatever stands under its name by now.
            return os.fstat(fd)
        finally:
            os.close(fd)
    finally:
        with contextlib.suppress(OSError):
            os.unlink(staged)
        with contextlib.suppress(OSError):
            os.rmdir(stage)


def _link(staged: bytes, path: bytes) -> None:
    try:
        os.link(staged, path, follow_symlinks=False)
    except OSError as error:
        if error.errno in _NO_LINKS:
            raise HardLinksUnsupportedError(error.errno, os.strerror(error.errno)) from error
        raise


def _make_stage(parent: bytes) -> bytes:
    while True:
        stage = os.path.join(parent, b".dsh-" + secrets.token_hex(6).encode())
        try:
            os.mkdir(stage, 0o700)
        except FileExistsError:
            continue
        return stage


def _write_all(fd: int, content: bytes) -> None:
    view = memoryview(content)
    while view:
        view = view[os.write(fd, view[: 1 << 24]) :]
