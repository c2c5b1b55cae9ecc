"""The run folder: one entry for each daemon of a home folder, and the socket that the daemon answers on.

An entry is written once its socket listens and both carry the daemon's run id, so nothing here depends on process ids:
a socket that refuses connections belongs to a daemon that is gone, whoever has its pid now. Whoever meets such an entry
removes it. Standard library only: commands that ask daemons import nothing else of the runtime.
"""

from __future__ import annotations

import errno
import json
import os
import socket
import stat
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

FOLDER: Final = "run"
LONGEST_PATH: Final = 100
"""Bytes of a socket's path that fit everywhere: the address holds 108 on Linux, 104 on others."""

CONNECT_SECONDS: Final = 2.0
ORPHAN_SECONDS: Final = 60.0
"""Age at which a socket without an entry is one whose daemon was killed between making the two."""

_GONE: Final = frozenset({errno.ECONNREFUSED, errno.ENOENT, errno.ENOTSOCK, errno.ENOTDIR})
_NO_SOCKETS_HERE: Final = frozenset({errno.EOPNOTSUPP, errno.ENOTSUP, errno.EPERM, errno.EINVAL, errno.ENOSYS})


class RunFolderError(Exception):
    """The folder cannot be used; the text is a sentence for a person."""


class Entry(NamedTuple):
    """One daemon as it noted itself. started_at: ms since the epoch. url: its page address on TCP, with the token."""

    path: str
    pid: int
    run_id: str
    socket: str
    host: str
    config: str
    cwd: str
    started_at: int
    url: str | None = None


def host_name() -> str:
    """This machine's name."""
    return os.uname().nodename if hasattr(os, "uname") else socket.gethostname()


def working_folder() -> str:
    """The current folder; empty when it was removed."""
    try:
        return os.getcwd()
    except OSError:
        return ""


# -- the daemon's side ------------------------------------------------------------------------------------------------


def open_run_folder(home: Path) -> str:
    """The run folder of a home, made if needed and closed to everybody else. Raises RunFolderError."""
    folder = os.path.join(home, FOLDER)
    try:
        os.makedirs(home, mode=0o700, exist_ok=True)
        _private_folder(folder)
    except OSError as error:
        raise RunFolderError(f"{folder}: {error.strerror or error}") from error
    return folder


def _private_folder(folder: str) -> None:
    with suppress(FileExistsError):
        os.mkdir(folder, 0o700)
    found = os.lstat(folder)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        raise RunFolderError(f"{folder} is not a folder of your own; remove it")
    if stat.S_IMODE(found.st_mode) != 0o700:
        os.chmod(folder, 0o700)


def listen(folder: str, run_id: str) -> tuple[socket.socket, str]:
    """A listening socket for this user alone, and its path.

    It stands in the run folder, or, where that path is too long or the file system has no sockets, in a short folder
    of this user. Raises RunFolderError.
    """
    name = f"{os.getpid()}-{run_id}.sock"
    reason = "its path is too long for a socket"
    for short in (False, True):
        sock = None
        try:
            path = os.path.join(_short_folder() if short else folder, name)
            if len(os.fsencode(path)) > LONGEST_PATH:
                continue
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            sock.bind(path)
            os.chmod(path, 0o600)  # nobody can connect before it listens
            sock.listen(64)
            sock.setblocking(False)
            return sock, path
        except OSError as error:
            if sock is not None:
                sock.close()
            reason = error.strerror or str(error)
            if error.errno not in _NO_SOCKETS_HERE:
                break
    raise RunFolderError(f"{folder}: no socket can be opened there ({reason})")


def _short_folder() -> str:
    base = os.environ.get("XDG_RUNTIME_DIR", "")
    if not (base.startswith("/") and len(base) < 60 and os.path.isdir(base)):
        base = "/tmp"
    folder = os.path.join(base, f"dsh-{os.geteuid()}")
    _private_folder(folder)
    return folder


def publish(folder: str, entry: Entry) -> Entry:
    """Write the entry whole, or not at all; returns it with its path. Raises RunFolderError."""
    path = os.path.join(folder, f"{entry.pid}-{entry.run_id}.json")
    draft = path + ".tmp"
    entry = entry._replace(path=path)
    try:
        fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(fd, "w", encoding="utf-8") as file:
            file.write(json.dumps(entry._asdict()))
        os.replace(draft, path)
    except OSError as error:
        with suppress(OSError):
            os.unlink(draft)
        raise RunFolderError(f"{path}: {error.strerror or error}") from error
    return entry


def withdraw(entry: Entry) -> None:
    """Remove an entry and its socket; what is gone already is no error."""
    for path in (entry.path, entry.socket):
        with suppress(OSError):
            os.unlink(path)


# -- everybody's side -------------------------------------------------------------------------------------------------


def find_entries(home: Path | str) -> list[Entry]:
    """The entries of daemons that may be there, oldest first; those of daemons that are gone are removed."""
    folder = os.path.join(home, FOLDER)
    try:
        names = os.listdir(folder)
    except OSError:
        return []
    entries = [entry for name in names if name.endswith(".json") and (entry := _read(os.path.join(folder, name)))]
    _remove_orphans(folder, names, {entry.socket for entry in entries})
    return sorted((entry for entry in entries if not _remove_if_gone(entry)), key=lambda entry: entry.started_at)


def why_unseen(home: Path | str) -> str | None:
    """Why nobody can tell which daemons a home folder has, and what helps; None when the entries can be listed."""
    folder = os.path.join(home, FOLDER)
    try:
        found = os.lstat(folder)
        if not stat.S_ISDIR(found.st_mode):
            return f"{folder} is not a folder; remove it and start the daemons again"
        if os.geteuid() not in (0, found.st_uid):
            return f"{folder} belongs to another user; ask as that user, or use another home folder (dsh --home PATH)"
        os.listdir(folder)
    except FileNotFoundError:
        return None
    except PermissionError:
        closed = folder if os.access(home, os.X_OK) else home
        return f"{closed} cannot be read; `chmod 700 {closed}` opens it for its owner"
    except OSError as error:
        return f"{folder} cannot be read: {error.strerror}"
    return None


def gone_entries(home: Path | str) -> list[Entry]:
    """The entries that daemons of this machine left behind; removes nothing."""
    folder = os.path.join(home, FOLDER)
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return []
    entries = [entry for name in names if name.endswith(".json") and (entry := _read(os.path.join(folder, name)))]
    return [entry for entry in entries if entry.host == host_name() and is_gone(entry)]


def is_gone(entry: Entry) -> bool:
    """Whether nobody listens on an entry's socket any more."""
    return _refuses(entry.socket)


def has_lost_socket(entry: Entry) -> bool:
    """Whether a daemon listens on its entry's socket still, and the file through which it is reached was removed."""
    return not os.path.lexists(entry.socket) and _is_held(entry.socket)


def _read(path: str) -> Entry | None:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a FIFO would be waited for
        with open(fd, encoding="utf-8") as file:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                return None
            raw: Any = json.load(file)
        entry = Entry(**{name: raw.get(name) for name in Entry._fields})
    except (OSError, ValueError, AttributeError):
        return None
    texts = (entry.run_id, entry.socket, entry.host, entry.config, entry.cwd)
    whole = all(isinstance(each, str) for each in texts) and type(entry.pid) is int and type(entry.started_at) is int
    return entry._replace(path=path) if whole else None


def _remove_if_gone(entry: Entry) -> bool:
    if not _refuses(entry.socket):
        return False
    if entry.host == host_name():  # a home on a file server may hold the entries of other machines
        withdraw(entry)
    return True


def _remove_orphans(folder: str, names: list[str], known: set[str]) -> None:
    """Sockets and drafts of daemons that were killed before their entry stood."""
    for name in names:
        path = os.path.join(folder, name)
        if path in known or not name.endswith((".sock", ".json.tmp")):
            continue
        with suppress(OSError):
            old = time.time() - os.lstat(path).st_mtime > ORPHAN_SECONDS
            if old and (name.endswith(".tmp") or _refuses(path)):
                os.unlink(path)


def _refuses(path: str) -> bool:
    """Whether a socket is one that nobody listens on. A daemon that is stopped or busy does not refuse."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.settimeout(CONNECT_SECONDS)
        try:
            sock.connect(path)
        except OSError as error:
            return error.errno in _GONE and not (error.errno == errno.ENOENT and _is_held(path))
    return False


def _is_held(path: str) -> bool:
    """Whether a process has the socket that was bound to `path` open; false where the system keeps no list of them."""
    try:
        with open("/proc/net/unix", "rb") as sockets:
            return any(line.rstrip(b"\n").endswith(b" " + os.fsencode(path)) for line in sockets)
    except OSError:
        return False
