"""How commands print: data for programs, lines for people, one sentence for a failure."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from typing import Any, NoReturn, TypeVar

import typer

T = TypeVar("T")


class CommandFailed(typer.Exit):
    """The command has said why it fails and leaves; `name` is a stable word for programs."""

    def __init__(self, message: str, code: int, name: str | None = None) -> None:
        super().__init__(code)
        self.message = message
        self.name = name or ("USAGE" if code == 2 else "FAILED")


def fail(message: str, code: int = 1, name: str | None = None) -> NoReturn:
    """Print ``dsh: message`` on standard error and leave with ``code``; `name` is the failure's word for programs."""
    tell(message, failed=True)
    raise CommandFailed(message, code, name)


@contextmanager
def failures() -> Iterator[None]:
    """Say in one sentence what went wrong in the block, and leave with code 1; what plugins print is no output."""
    from dsh.cordis.errors import HarnessError

    try:
        with redirect_stdout(sys.stderr):
            yield
    except HarnessError as error:
        fail(str(error), name=error.code)
    except OSError as error:
        fail(explain(error))


def guarded(work: Callable[[], T]) -> T:
    """What `work` returns; what goes wrong in it ends the command as in `failures`."""
    with failures():
        return work()


def tell(text: str, *, failed: bool = False) -> None:
    """Print ``dsh: text`` on standard error, without the control characters that others may have put into it.

    failed: it is why the command fails, which a log for programs notes as an error.
    """
    import logging

    from dsh.interfaces.log_lines import logged
    from dsh.interfaces.terminal_text import printable

    if logged(printable(text), logging.ERROR if failed else logging.INFO):
        return
    typer.echo(f"dsh: {printable(text)}", err=True)


def explain(error: OSError) -> str:
    """One sentence on what the system refused: the file and the reason."""
    reason = error.strerror or str(error)
    if error.filename is not None:
        return f"{os.fsdecode(error.filename)}: {reason}"
    try:
        os.getcwd()
    except OSError:
        return "the folder that this command was started in was removed; go to another one"
    where = error.__traceback__
    while where is not None and where.tb_next is not None:
        where = where.tb_next
    printing = where is not None and where.tb_frame.f_code is typer.echo.__code__
    return f"standard output cannot be written: {reason}" if printing else reason


def read_stdin() -> str:
    """All of standard input; leaves with code 2 when it is no UTF-8."""
    getattr(sys.stdin, "reconfigure", lambda **_: None)(errors="strict")  # it replaces what it cannot read otherwise
    try:
        return sys.stdin.read()
    except UnicodeDecodeError:
        fail("standard input is no UTF-8 text", 2)


def usable_text(text: str, what: str) -> str:
    """A prompt as it was given; leaves with code 2 for one that is empty or no UTF-8."""
    if not text.strip():
        fail(f"the {what} is empty", 2)
    if any("\ud800" <= character <= "\udfff" for character in text):
        fail(f"the {what} is no UTF-8 text", 2)
    return text


def needs_quotes(text: str) -> str:
    """What to type in a shell where `text` would be read as something else than itself."""
    import json
    import shlex

    return f"a text like this needs quotes of its own: {shlex.quote(json.dumps(text, ensure_ascii=False))}"


def print_json(value: Any) -> None:
    """One JSON value and a line feed."""
    from dsh.cordis.jsonio import encode_str, snapshot_json

    typer.echo(encode_str(snapshot_json(value)))


def print_table(rows: Sequence[tuple[str, ...]], header: tuple[str, ...], *, fit: bool = False) -> None:
    """Columns as wide as their longest cell; the last one is not padded. Control characters are spelled out.

    fit: what a terminal is too narrow for is cut off at the end of each line; a pipe gets everything.
    """
    from dsh.interfaces.display.cells import cells, cut
    from dsh.interfaces.terminal_text import spelled

    rows = [tuple(spelled(cell) for cell in row) for row in rows]
    widths = [max(cells(row[i]) for row in [header, *rows]) for i in range(len(header))]
    width = terminal_width() if fit and sys.stdout.isatty() else None
    for row in [header, *rows]:
        padded = [cell + " " * (widest - cells(cell)) for cell, widest in zip(row[:-1], widths[:-1], strict=True)]
        line = "  ".join([*padded, row[-1]]).rstrip()
        typer.echo(line if width is None else cut(line, width))


def terminal_width() -> int:
    """Columns of the terminal; 80 of a pipe."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else 80


def paragraph(text: str, *, first: str = "", indent: str = "") -> str:
    """`text` wrapped to the terminal, at most 100 columns: `first` stands before its first line, `indent` before the
    others. Control characters are spelled out."""
    import textwrap

    from dsh.interfaces.terminal_text import spelled

    width = max(20, min(terminal_width(), 100))
    lead, margin = first.rpartition("\n")[::2] if "\n" in first else ("", first)
    lines = textwrap.wrap(
        spelled(text),
        width,
        initial_indent=margin,
        subsequent_indent=indent,
        break_on_hyphens=False,
        break_long_words=False,
    )
    return ("\n" if "\n" in first else "") + lead + "\n".join(lines)


def age(then_ms: int) -> str:
    """How long ago, in the largest whole unit: ``5s``, ``12m``, ``3h``, ``9d``."""
    seconds = max(0, int(time.time() - then_ms / 1000))
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"
