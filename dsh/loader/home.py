"""The home folder of dsh: where it is, what stands in it, and how it is shown to people.

Order: an explicit path, then ``$DSH_HOME`` (blank counts as unset), then ``~/.dsh``. Messages never show the
absolute path of a home folder: it carries the user's name into logs and bug reports.
"""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

HOME_VARIABLE = "DSH_HOME"
DEFAULT_LABEL = "~/.dsh"
VARIABLE_LABEL = "$DSH_HOME"
ANONYMOUS_ID_FILE = ".anonymous-user-id"

_UUID4 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


class Home(NamedTuple):
    """One home folder. `path` is absolute; `label` is what a person reads (``~/.dsh`` or ``$DSH_HOME``)."""

    path: Path
    label: str

    def join(self, *parts: str) -> Path:
        """The path of something inside the home folder. Nothing is created."""
        return self.path.joinpath(*parts)

    def show(self, path: str | os.PathLike[str]) -> str:
        """`path` as a message may print it: relative to the label when it lies in this home, else unchanged."""
        try:
            inside = Path(path).relative_to(self.path)
        except ValueError:
            return os.fspath(path)
        return self.label if inside == Path() else f"{self.label}/{inside.as_posix()}"


def expand_user(path: str) -> str:
    """`path` with a leading ``~``, ``~/`` or ``~\\`` replaced by the user's folder; ``~name`` stays as it is."""
    if path == "~":
        return os.path.expanduser("~")
    if path.startswith(("~/", "~\\")):
        return os.path.join(os.path.expanduser("~"), path[2:])
    return path


def resolve_home(explicit: str | os.PathLike[str] | None = None, environ: Mapping[str, str] | None = None) -> Home:
    """The home folder of this run; it need not exist. `environ` is the process environment if not given."""
    default = Path(os.path.expanduser("~"), ".dsh")
    chosen = os.fspath(explicit) if explicit is not None else ""
    if not chosen.strip():
        chosen = (os.environ if environ is None else environ).get(HOME_VARIABLE, "")
    if not chosen.strip():
        return Home(default, DEFAULT_LABEL)
    path = Path(os.path.abspath(expand_user(chosen)))
    return Home(path, DEFAULT_LABEL if path == default else VARIABLE_LABEL)


def anonymous_id(home: Home) -> str:
    """The random UUIDv4 that stands for this home folder in telemetry; made on first use.

    Racing processes agree on one id, a corrupt file is replaced, and an unwritable home gives an id that lasts
    as long as the caller keeps it. Raises nothing.
    """
    from dsh.loader.fileio import atomic_write

    path = home.join(ANONYMOUS_ID_FILE)
    known = _read_id(path)
    if known is not None:
        return known
    fresh = str(uuid.uuid4())
    try:
        home.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            # A link publishes the finished file under its name or fails because another process was first.
            _publish_exclusive(path, fresh)
        except FileExistsError:
            winner = _read_id(path)
            if winner is not None:
                return winner
            atomic_write(path, (fresh + "\n").encode(), mode=0o600)
        # Two processes may both have replaced one corrupt file; the one on disk is the one to use.
        return _read_id(path) or fresh
    except OSError:
        return fresh


def _read_id(path: Path) -> str | None:
    try:
        text = path.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return None
    return text if _UUID4.fullmatch(text) else None


def _publish_exclusive(path: Path, text: str) -> None:
    draft = path.with_name(f"{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(text + "\n")
        os.link(draft, path)
    finally:
        draft.unlink(missing_ok=True)
