"""What the commands about stored sessions share: which folder, which of them are meant, and a row about each."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from dsh.cli.output import fail

if TYPE_CHECKING:
    from dsh.sessions.stored import StoredSession

Root = Annotated[str | None, typer.Option("--root", help="Session folder; $DSH_HOME/sessions by default.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Since = Annotated[
    str | None, typer.Option(metavar="AGE|DATE", help="Only sessions active since then: 90m, 12h, 7d, 2w, 2026-11-30.")
]
Reference = Annotated[str, typer.Argument(help="Id, unique beginning of one, or part of a title.")]

_AGE: Final = re.compile(r"(\d+)([smhdw])")
_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


def session_root(root: str | None = None) -> str:
    """The session folder that commands read."""
    from dsh.loader.home import resolve_home

    return root if root is not None else str(resolve_home().join("sessions"))


def find(reference: str | None, root: str | None = None, *, last: bool = False) -> StoredSession:
    """The session meant by an id, a unique beginning, a part of its title or ``--last``.

    Leaves with code 2 and the candidates when that is ambiguous, 1 when nothing matches.
    """
    from dsh.cordis.errors import HarnessError
    from dsh.sessions.errors import AmbiguousSessionError
    from dsh.sessions.stored import resolve_stored

    try:
        return resolve_stored(session_root(root), reference, last=last)
    except AmbiguousSessionError as error:
        what = "is in the titles" if error.in_titles else "is the beginning"
        fail("\n  ".join([f'"{reference}" {what} of several sessions:', *error.candidates]), 2)
    except HarnessError as error:
        fail(str(error), name=error.code)


def row_of(entry: StoredSession) -> dict[str, Any]:
    from dsh.cordis.errors import HarnessError
    from dsh.sessions.stored import lease_state, title_of, turn_count

    lease = lease_state(entry)
    turns: int | None = None
    title: str | None = None
    try:
        turns, title = turn_count(entry), title_of(entry)
    except (OSError, HarnessError):
        pass
    return {
        "id": entry.id,
        "title": title,
        "createdAt": entry.header.created_at,
        "lastActivity": entry.last_activity,
        "turns": turns,
        "cwd": entry.header.cwd,
        "state": f"open in pid {lease.record.pid}" if lease.locked else "closed",
    }


def filtered(
    entries: Iterable[StoredSession], *, cwd: str | None = None, since: str | None = None, everything: bool = False
) -> list[StoredSession]:
    """The sessions of one workspace, active since a time, those of subagents only if `everything`."""
    wanted = os.path.abspath(cwd) if cwd is not None else None
    earliest = 0 if since is None else moment(since)
    return [
        entry
        for entry in entries
        if (everything or entry.header.origin is None)
        and (wanted is None or entry.header.cwd == wanted)
        and entry.last_activity >= earliest
    ]


def moment(text: str) -> int:
    """`7d` ago or an ISO date (local, with or without a time), in ms since the epoch; leaves with code 2 otherwise."""
    aged = _AGE.fullmatch(text.strip())
    if aged is not None:
        return int((time.time() - int(aged[1]) * _UNITS[aged[2]]) * 1000)
    from datetime import datetime

    try:
        return int(datetime.fromisoformat(text.strip()).timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        fail(f'--since "{text}" is neither an age such as 90m, 12h, 7d nor a date such as 2026-11-30', 2)
