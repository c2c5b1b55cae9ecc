"""Where a session works now: its workspace, or the folder that somebody entered since.

Entering a folder is one log event, so a resumed session is where it was. The header keeps the folder the session
began in; permissions go by that one.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from dsh.cordis import HarnessError

if TYPE_CHECKING:
    from .session import Session
    from .session_event import SessionEvent

WORKING_DIRECTORY: Final = "session/working-directory"


class DirectoryFold:
    """The last folder entered in a log; each read looks only at events that came since the read before."""

    __slots__ = ("_entered", "_log", "_seen")

    def __init__(self, log: Sequence[SessionEvent]) -> None:
        self._log = log
        self._seen = 0
        self._entered: str | None = None

    def entered(self) -> str | None:
        """The folder, None if nobody entered one."""
        log = self._log
        for index in range(self._seen, len(log)):
            event = log[index]
            if event.type == WORKING_DIRECTORY:
                cwd = event.data.get("cwd") if isinstance(event.data, dict) else None
                self._entered = cwd if isinstance(cwd, str) else None
        self._seen = len(log)
        return self._entered


def working_directory(session: Session) -> str | None:
    """The absolute folder that relative paths of this session start at.

    A folder that was entered and is gone since gives way to the session's workspace. None if the session has neither.
    """
    entered = session.entered_directory()
    if entered is not None and os.path.isdir(entered):
        return entered
    return session.header.cwd


def enter_directory(session: Session, path: str) -> str:
    """Let the session work in ``path`` (absolute, or relative to where it works now); the absolute folder.

    Processes that run already stay where they are. Raises ``HarnessError`` (``NO_DIRECTORY``) when it is no folder.
    """
    target = os.path.abspath(os.path.join(working_directory(session) or os.getcwd(), path))
    if not os.path.isdir(target):
        raise HarnessError(f"not a directory: {target}", code="NO_DIRECTORY")
    if target != (session.entered_directory() or session.header.cwd):
        # Readers that do not know the event may skip it: to them the session stays in its workspace.
        session.append(WORKING_DIRECTORY, {"cwd": target}, ignorable=True)
    return target
