"""The home folder of dsh: where it is, what stands in it, and how it is shown to people.

Order: an explicit path, then ``$DSH_HOME`` (blank counts as unset), then ``~/.dsh``. Messages never show the
absolute path of a home folder: it carries the user's name into logs and bug reports.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

HOME_VARIABLE = "DSH_HOME"
DEFAULT_LABEL = "~/.dsh"
VARIABLE_LABEL = "$DSH_HOME"


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
