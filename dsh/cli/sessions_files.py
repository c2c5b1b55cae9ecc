"""``dsh sessions export|import``: sessions as files."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dsh.cli.output import fail, guarded, print_json, tell
from dsh.cli.stored_sessions import AsJson, Reference, Root, find, session_root

if TYPE_CHECKING:
    from dsh.sessions.stored import StoredSession

FORMATS = ("jsonl", "md")


def export(
    session: Reference,
    root: Root = None,
    form: Annotated[
        str, typer.Option("--format", "-f", metavar="jsonl|md", help="The whole log, or a transcript to read.")
    ] = "jsonl",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write there, not to standard output.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that exists.")] = False,
) -> None:
    """Print a session as JSON lines, which `dsh sessions import` takes, or as a Markdown transcript."""
    if form not in FORMATS:
        raise typer.BadParameter(f"{form!r} is not one of {', '.join(FORMATS)}", param_hint="--format")
    from dsh.sessions.transfer import export_jsonl

    entry = find(session, root)
    if form == "jsonl":
        data = guarded(lambda: export_jsonl(entry))
    else:
        from dsh.cli.sessions import load
        from dsh.interfaces.terminal_text import printable
        from dsh.sessions.markdown import markdown_of
        from dsh.sessions.stored import title_of

        header, events, damage = guarded(lambda: load(entry))
        if damage:
            tell(f"{damage}; exported are the {len(events)} events before the damage")
        title = None if damage else guarded(lambda: title_of(entry))
        data = printable(markdown_of(header, events, title)).encode()
    if output is None or str(output) == "-":
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
        return
    _write(output, data, force=force)
    tell(f"wrote {len(data)} bytes to {output}")


def _write(path: Path, data: bytes, *, force: bool) -> None:
    """A file for this user alone: what was said may be private."""
    if force:
        from dsh.loader.fileio import atomic_write

        guarded(lambda: atomic_write(path, data, mode=0o600))
        return
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(fd, "wb") as file:
            file.write(data)
    except FileExistsError:
        fail(f"{path} exists already; --force replaces it")
    except OSError as error:
        fail(f"{path}: {error.strerror or error}")


def import_(
    file: Annotated[
        Path, typer.Argument(help="What `dsh sessions export` wrote, or a stored log; - is standard input.")
    ],
    root: Root = None,
    session_id: Annotated[str | None, typer.Option("--as", metavar="ID", help="Give it another id.")] = None,
    cwd: Annotated[str | None, typer.Option(help="Its workspace here, where it differs.")] = None,
    as_json: AsJson = False,
) -> None:
    """Store a session that was exported elsewhere; refused when it is damaged or its id exists already."""
    from dsh.interfaces.terminal_text import spelled
    from dsh.sessions.errors import SessionCollisionError
    from dsh.sessions.transfer import import_jsonl

    if session_id is not None and not session_id.strip():
        fail("--as needs an id", 2)
    try:
        data = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
    except OSError as error:
        fail(f"{file}: {error.strerror or error}")
    name = "standard input" if str(file) == "-" else str(file)
    place = os.path.abspath(cwd) if cwd is not None else None
    folder = session_root(root)

    def bring_in() -> tuple[StoredSession, int]:
        try:
            return import_jsonl(folder, data, name=name, session_id=session_id, cwd=place)
        except SessionCollisionError as error:
            fail(f"{error}; --as gives it another id", name=error.code)

    entry, events = guarded(bring_in)
    if as_json:
        print_json({"id": entry.id, "events": events, "cwd": entry.header.cwd})
        return
    typer.echo(spelled(entry.id))
    tell(f"{events} events; `dsh resume {entry.id}` continues it")
    if entry.header.cwd is not None and not os.path.isdir(entry.header.cwd):
        tell(f"its workspace {entry.header.cwd} is not here; --cwd gives it another")
