"""Lines for a person on standard error, where the log is one for programs: they become records of it."""

from __future__ import annotations

import logging


def logged(text: str, level: int = logging.INFO) -> bool:
    """Whether ``text`` was written as a record of this process's log because all of that is to be JSON."""
    for handler in logging.getLogger("dsh").handlers:
        if getattr(handler, "for_programs", False):
            handler.handle(logging.LogRecord("dsh", level, "", 0, text, None, None))
            return True
    return False
