"""Log lines on standard error."""

from __future__ import annotations

import logging
import sys
from typing import TextIO

_LEVELS = {-1: logging.ERROR, 0: logging.WARNING, 1: logging.INFO}


class StderrHandler(logging.StreamHandler[TextIO]):
    """Writes to whatever standard error is at that moment: a console puts lines above its prompt by replacing it.

    for_programs: all that this process says there is to be a record.
    """

    def __init__(self, *, for_programs: bool = False) -> None:
        logging.Handler.__init__(self)
        self.for_programs = for_programs

    @property
    def stream(self) -> TextIO:  # type: ignore[override]
        """The current standard error."""
        return sys.stderr


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time (s), level, logger, message, and the traceback text if there is one."""

    def format(self, record: logging.LogRecord) -> str:
        """The line for ``record``."""
        from dsh.cordis.jsonio import encode_str

        line = {
            "time": record.created,
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return encode_str(line)


class TextFormatter(logging.Formatter):
    """``dsh: message: what went wrong`` for a person; tracebacks only when asked for."""

    def __init__(self, *, traceback: bool) -> None:
        super().__init__()
        self._traceback = traceback

    def format(self, record: logging.LogRecord) -> str:
        """The line for ``record``."""
        from dsh.cordis.errors import error_chain
        from dsh.interfaces.terminal_text import printable

        level = "" if record.levelno == logging.INFO else f"{record.levelname.lower()}: "
        name = record.name.removeprefix("dsh.").removeprefix("dsh")
        text = f"dsh: {level}{f'[{name}] ' if name else ''}{record.getMessage()}"
        if record.exc_info and self._traceback:
            return printable(text + "\n" + self.formatException(record.exc_info))
        error = record.exc_info[1] if record.exc_info else None
        why = error_chain(error) if error is not None else ""
        return printable(text if why in text else f"{text}: {why}")


def configure(*, verbosity: int, form: str) -> None:
    """Send the product's log records to standard error.

    ``verbosity`` -1 shows errors, 0 warnings, 1 information, 2 debug and tracebacks.
    """
    handler = StderrHandler(for_programs=form == "json")
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter(traceback=verbosity > 0))
    logger = logging.getLogger("dsh")
    logger.handlers[:] = [handler]
    logger.propagate = False
    logger.setLevel(_LEVELS.get(verbosity, logging.DEBUG))


def shows_tracebacks() -> bool:
    """Whether this process was asked for all that there is to say (``-vv``)."""
    return logging.getLogger("dsh").isEnabledFor(logging.DEBUG)
