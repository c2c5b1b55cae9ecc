"""One line of `dsh doctor`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from dsh.cordis.records import record

Level = Literal["ok", "warning", "problem"]


@record
class Finding:
    """What one check found: `what` was looked at, how it stands, and what to do when it is not well.

    fix: does what `remedy` says and returns what was done; None when only a person can. It may raise OSError.
    """

    what: str
    level: Level
    text: str
    remedy: str | None = None
    fix: Callable[[], str] | None = None


def ok(what: str, text: str) -> Finding:
    """Nothing to do."""
    return Finding(what, "ok", text)


def warning(what: str, text: str, remedy: str | None = None, fix: Callable[[], str] | None = None) -> Finding:
    """Something works less well than it could."""
    return Finding(what, "warning", text, remedy, fix)


def problem(what: str, text: str, remedy: str | None = None, fix: Callable[[], str] | None = None) -> Finding:
    """Something does not work."""
    return Finding(what, "problem", text, remedy, fix)
