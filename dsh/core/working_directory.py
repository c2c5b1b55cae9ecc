"""Where a session works now: its workspace, or the folder that somebody entered since.

Entering a folder is one log event, so a resumed session is where it was. The header keeps the folder the session
began in; permissions go by that one.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

from dsh.cordis import HarnessError

if TYPE_CHECKING:
    from .session import Session

WORKING_DIRECTORY: Final = "session/working-directory"


def entered_in(data: Any) -> str | None:
    """The folder in the data of an event that entered one."""
    cwd = data.get("cwd") if isinstance(data, dict) else None
    return cwd if isinstance(cwd, str) else None


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
