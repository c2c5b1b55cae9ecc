"""The home folder: who can read it, its documents, locks that were left, `.env` files, and daemons."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

from dsh.cli.health.finding import Finding, ok, problem, warning
from dsh.loader.home import Home

CREDENTIALS: Final = ".credentials.yaml"
SETTINGS: Final = "settings.yaml"


def check_home(home: Home, here: Path, composition: Path) -> Iterator[Finding]:
    """here: the start folder, whose `.env` counts; composition: the file whose lock is looked at too."""
    yield from _folder(home)
    yield from _documents(home)
    yield from _locks(home, composition)
    yield from _dotenv(home, here)
    yield from _daemons(home)


def _folder(home: Home) -> Iterator[Finding]:
    shown = f"{home.path} ({home.label})"
    try:
        found = os.stat(home.path)
    except FileNotFoundError:
        parent = next(each for each in home.path.parents if each.exists())
        if os.access(parent, os.W_OK):
            yield ok("home", f"{shown} is not there yet and is made on first use")
        else:
            yield problem("home", f"{shown} cannot be made: {parent} is not writable", "choose another with $DSH_HOME")
        return
    except OSError as error:
        yield problem("home", f"{shown} cannot be looked at: {error.strerror}")
        return
    mode = stat.S_IMODE(found.st_mode)
    if not stat.S_ISDIR(found.st_mode):
        yield problem("home", f"{shown} is no folder", "move that file away, or set $DSH_HOME")
    elif not os.access(home.path, os.W_OK | os.X_OK):
        yield problem("home", f"{shown} is not writable", f"chmod u+rwx {home.path}")
    elif hasattr(os, "geteuid") and found.st_uid != os.geteuid():
        yield warning("home", f"{shown} belongs to another user", "set $DSH_HOME to a folder of your own")
    elif mode & 0o022:
        yield problem("home", f"{shown} can be changed by others (mode {mode:04o})", *_private(home.path, 0o700))
    elif mode & 0o077:
        yield warning("home", f"{shown} can be read by others (mode {mode:04o})", *_private(home.path, 0o700))
    else:
        yield ok("home", f"{shown}, yours alone")


def _private(path: Path, mode: int) -> tuple[str, partial[str]]:
    """The remedy for a file or folder that others can reach, in words and in deed."""
    return f"chmod {mode:o} {path}", partial(_chmod, path, mode)


def _chmod(path: Path, mode: int) -> str:
    os.chmod(path, mode)
    return f"made {path} yours alone"


def _documents(home: Home) -> Iterator[Finding]:
    from dsh.settings.document import Document, DocumentError
    from dsh.settings.file import sections_of

    for name, what in ((SETTINGS, "settings"), (CREDENTIALS, "credentials file")):
        path = home.join(name)
        try:
            mode = stat.S_IMODE(os.stat(path).st_mode)
        except OSError:
            continue
        if name == CREDENTIALS and mode & 0o077:
            text = f"{home.show(path)} can be reached by others (mode {mode:04o}), so dsh refuses to read it"
            yield problem(what, text, *_private(path, 0o600))
            continue
        if mode & 0o022:
            yield warning(what, f"{home.show(path)} can be changed by others", *_private(path, 0o600))
        document = Document(path, home)
        try:
            if name == SETTINGS:
                sections_of(document, document.read())
            else:
                document.parse(document.read())
        except DocumentError as error:
            yield problem(what, str(error), "correct the file")
        else:
            yield ok(what, home.show(path))


def _locks(home: Home, composition: Path) -> Iterator[Finding]:
    """Lock files of documents: a writer that died leaves one, and then nobody can write the document any more."""
    from dsh.loader.fileio import lock_holder, lock_path

    documents = [home.join(SETTINGS), home.join(CREDENTIALS), composition]
    left = 0
    for document in documents:
        lock = lock_path(document)
        if not lock.exists():
            continue
        pid, alive = lock_holder(document)
        if pid is None:
            text = f"{home.show(lock)} does not say whose it is"
            yield warning("locks", text, f"remove it if no dsh is writing {home.show(document)}")
        elif not alive:
            left += 1
            text = f"{home.show(lock)} was left by process {pid}, which is gone: {document.name} cannot be written"
            yield problem("locks", text, f"rm {lock}", partial(_remove_lock, document, pid))
    if not left:
        yield ok("locks", "none left behind")


def _remove_lock(document: Path, pid: int) -> str:
    from dsh.loader.fileio import lock_holder, lock_path

    lock = lock_path(document)
    if lock_holder(document) == (pid, False):  # nobody took it meanwhile
        lock.unlink(missing_ok=True)
        return f"removed {lock}"
    return f"left {lock} alone: it is another one now"


def _dotenv(home: Home, here: Path) -> Iterator[Finding]:
    from dsh.loader.environment import DotenvRefusedError, load_launch_environment

    try:
        environment = load_launch_environment(home, here, dict(os.environ))
    except DotenvRefusedError as error:
        yield problem(".env", str(error))
        return
    for text in environment.warnings:
        yield warning(".env", text, "correct the line")
    if not environment.warnings:
        files = [path for path in (here / ".env", home.join(".env")) if path.is_file()]
        yield ok(".env", ", ".join(home.show(each) for each in files) or "none here")


def _daemons(home: Home) -> Iterator[Finding]:
    from dsh.interfaces.control.run_folder import find_entries, gone_entries

    gone = gone_entries(home.path)
    if gone:
        pids = ", ".join(str(entry.pid) for entry in gone)
        text = f"{len(gone)} left by daemons that are gone (pid {pids})"
        yield warning("sockets", text, "any `dsh ps` removes them", partial(_sweep, home.path, len(gone)))
        return
    running = find_entries(home.path)
    if not running:
        yield ok("daemons", "none is running")
        return
    from dsh.interfaces.control.client import status_of

    for entry in running:
        daemon = status_of(entry)
        if daemon is not None and daemon.status is None:
            text = f"daemon {entry.pid} ({entry.config}) does not answer"
            yield warning("daemons", text, f"`kill -CONT {entry.pid}` if it was stopped; `kill {entry.pid}` ends it")
        elif daemon is not None:
            yield ok("daemons", f"{entry.pid} runs {entry.config} with {len(daemon.agents)} agents")


def _sweep(home: Path, count: int) -> str:
    from dsh.interfaces.control.run_folder import find_entries

    find_entries(home)
    return f"removed {count}"
