"""The folder of sessions: can it be written, are all of them readable, who holds them, what was left behind."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from dsh.cli.health.finding import Finding, ok, problem, warning

if TYPE_CHECKING:
    from dsh.sessions.leftovers import Leftover

SHOWN = 5
"""Unreadable sessions that are named."""


def check_sessions(root: Path) -> Iterator[Finding]:
    """root: where sessions are kept; it need not exist."""
    from dsh.cordis.errors import HarnessError
    from dsh.sessions.leftovers import look_through
    from dsh.sessions.stored import list_stored

    if not root.exists():
        yield ok("sessions", f"{root} is not there yet and is made on first use")
        return
    try:
        listing = list_stored(os.fspath(root))
    except HarnessError as error:
        yield problem("sessions", str(error))
        return
    if not os.access(root, os.W_OK | os.X_OK):
        yield problem("sessions", f"{root} is not writable: no session can be stored", f"chmod u+rwx {root}")
    else:
        yield ok("sessions", f"{len(listing.sessions)} in {root}; `dsh sessions verify` reads every log")
    for bad in listing.unreadable[:SHOWN]:
        name = bad.id or bad.path
        remedy = f"`dsh sessions show {bad.id}` prints what is readable" if bad.id else "move it away"
        yield problem("sessions", f"{name}: {bad.reason}", remedy)
    if len(listing.unreadable) > SHOWN:
        text = f"{len(listing.unreadable) - SHOWN} more are unreadable"
        yield problem("sessions", text, "`dsh sessions verify` names all")
    held, left = look_through(os.fspath(root))
    if held:
        pids = sorted({str(each.pid) for each in held})
        yield ok("leases", f"{len(held)} open, in pid {', '.join(pids)}")
    leases = [each for each in left if each.file is None]
    drafts = [each for each in left if each.file is not None]
    if leases:
        pids = sorted({str(each.pid) for each in leases})
        text = f"{len(leases)} left by processes that are gone (pid {', '.join(pids)})"
        yield warning("leases", text, "whoever resumes the session takes it over", partial(_clear, leases))
    if drafts:
        text = f"{len(drafts)} unfinished files of processes that were killed"
        yield warning("leases", text, "they are in nobody's way", partial(_clear, drafts))
    if not left and not held:
        yield ok("leases", "no session is open, none was left open")


def _clear(left: Sequence[Leftover]) -> str:
    from dsh.sessions.leftovers import clear

    done = sum(clear(each) for each in left)
    return f"cleared {done} of {len(left)}"
