"""The last line of a run's output for programs: a run that fails before its front end could report still says why."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

from dsh.cli.output import CommandFailed

if TYPE_CHECKING:
    from dsh.interfaces.stdout import LineOutput


class LastLine:
    """Standard output of one run in one form (text, json or stream-json), and what ended it before its result.

    `out` is None for a run on a terminal, which has no lines for programs.
    """

    def __init__(self, out: LineOutput | None, form: str) -> None:
        self.out = out
        self._form = form
        self._why: tuple[str, str] | None = None

    def failed(self, code: str, message: str) -> None:
        """Note why the run fails; it counts unless a result is written after all."""
        self._why = (code, message)

    def conclude(self, exit_code: int) -> None:
        """Write the last line of a run that ends with this code, unless its front end has written one."""
        if exit_code == 0 or self.out is None or self.out.concluded:
            return
        from dsh.interfaces.outcome import Outcome, write_result

        outcome = Outcome(None, status="aborted" if exit_code > 128 else "error")
        if self._why is not None:
            code, message = self._why
            outcome.error = {"message": message, "code": code}
        elif exit_code > 128:
            outcome.error = {"message": f"ended by signal {exit_code - 128}", "code": "SIGNAL"}
        else:
            outcome.error = {"message": f"the run ended with exit code {exit_code} and no result", "code": "FAILED"}
        write_result(self.out, self._form, outcome)


@contextmanager
def last_line(form: str, *, terminal: bool = False) -> Iterator[LastLine]:
    """Standard output for the lines of a run; what fails inside the block is the run's failure."""
    out = None
    if not terminal:
        from dsh.interfaces.stdout import claim_stdout

        out = claim_stdout()
    line = LastLine(out, form)
    try:
        yield line
    except CommandFailed as failure:
        line.failed(failure.name, failure.message)
        line.conclude(failure.exit_code)
        raise
    except typer.Exit as end:
        line.conclude(end.exit_code)
        raise
    except SystemExit as end:  # a signal that came before the run could take it
        line.conclude(end.code if isinstance(end.code, int) else 1)
        raise
    except Exception as error:
        from dsh.cordis.errors import describe_error

        line.failed(type(error).__name__, describe_error(error))
        line.conclude(1)
        raise
    finally:
        if out is not None:
            out.close()
