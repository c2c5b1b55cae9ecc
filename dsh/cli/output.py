"""How commands print: data for programs, lines for people, one sentence for a failure."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, NoReturn

import typer


class CommandFailed(typer.Exit):
    """The command has said why it fails and leaves; `name` is a stable word for programs."""

    def __init__(self, message: str, code: int, name: str | None = None) -> None:
        super().__init__(code)
        self.message = message
        self.name = name or ("USAGE" if code == 2 else "FAILED")


def fail(message: str, code: int = 1, name: str | None = None) -> NoReturn:
    """Print ``dsh: message`` on standard error and leave with ``code``; `name` is the failure's word for programs."""
    tell(message)
    raise CommandFailed(message, code, name)


def tell(text: str) -> None:
    """Print ``dsh: text`` on standard error, without the control characters that others may have put into it."""
    from dsh.interfaces.terminal_text import printable

    typer.echo(f"dsh: {printable(text)}", err=True)


def read_stdin() -> str:
    """All of standard input; leaves with code 2 when it is no UTF-8."""
    import sys

    getattr(sys.stdin, "reconfigure", lambda **_: None)(errors="strict")  # it replaces what it cannot read otherwise
    try:
        return sys.stdin.read()
    except UnicodeDecodeError:
        fail("standard input is no UTF-8 text", 2)


def print_json(value: Any) -> None:
    """One JSON value and a line feed."""
    from dsh.cordis.jsonio import encode_str, snapshot_json

    typer.echo(encode_str(snapshot_json(value)))


def print_table(rows: Sequence[tuple[str, ...]], header: tuple[str, ...]) -> None:
    """Columns as wide as their longest cell; the last one is not padded. Control characters are spelled out."""
    from dsh.interfaces.terminal_text import spelled

    rows = [tuple(spelled(cell) for cell in row) for row in rows]
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]
    for row in [header, *rows]:
        cells = [cell.ljust(width) for cell, width in zip(row[:-1], widths[:-1], strict=True)]
        typer.echo("  ".join([*cells, row[-1]]).rstrip())


def age(then_ms: int) -> str:
    """How long ago, in the largest whole unit: ``5s``, ``12m``, ``3h``, ``9d``."""
    seconds = max(0, int(time.time() - then_ms / 1000))
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"
