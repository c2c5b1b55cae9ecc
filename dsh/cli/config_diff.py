"""``dsh config diff``: what the layers change of the file, and what running daemons have instead of it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dsh.cli.config_values import composition, one_line
from dsh.cli.output import failures, print_json, tell

if TYPE_CHECKING:
    from dsh.cli.differences import Difference
    from dsh.loader.sources import Source
    from dsh.loader.yamlio import Mark


def diff(
    file: Annotated[Path | None, typer.Argument(help="The composition; ./cordis.yml or the packaged one.")] = None,
    patch: Annotated[list[Path] | None, typer.Option(metavar="FILE", help="Patch laid over it; repeatable.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show what patches change of the file, and where a running daemon differs from the files."""
    from dsh.cli.differences import differences, dropped
    from dsh.interfaces.offline import redacted
    from dsh.loader.resolve import show_path

    source = composition(file, patch)
    with failures():
        own = source.read(user_layers=False).composition.rows
        reading = source.read()
    rows = reading.composition.rows
    alone, composed = redacted(own), redacted(rows)
    notes = list(dropped(own, rows))
    layers = list(differences(alone, composed))
    patches = [show_path(path) for path in source.files()[1:] if reading.texts.get(path) is not None]
    daemons = [
        (pid, [each for each in differences(composed, theirs) if each.row not in launcher])
        for pid, theirs, launcher in _running(source)
    ]
    if as_json:
        running = [{"pid": pid, "differences": [_wire(each) for each in found]} for pid, found in daemons]
        changed = [_wire(each, _place(rows, each)) for each in layers]
        print_json(
            {"file": source.shown, "patches": patches, "differences": changed, "daemons": running}
            | {"notes": [str(each) for each in notes]}
        )
        return
    for warning in reading.warnings:
        tell(str(warning))
    typer.echo(
        f"{source.shown}, changed by {', '.join(patches)}" if patches else f"{source.shown}: no patch changes it"
    )
    for each in layers:
        typer.echo(_line(each, _place(rows, each)))
    for note in notes:
        typer.echo(f"note: {note}")
    for pid, found in daemons:
        typer.echo(f"daemon {pid} {'runs something else (files -> daemon)' if found else 'runs what the files say'}")
        for each in found:
            typer.echo(_line(each))


def _running(source: Source) -> Iterator[tuple[int, Any, set[str]]]:
    """The daemons that run the composition, their rows, and which of those the command brought along."""
    from dsh.cli.daemons import home_folder
    from dsh.interfaces.control.run_folder import find_entries

    entries = [
        each
        for each in find_entries(home_folder())
        if source.path is not None and os.path.realpath(each.config) == os.path.realpath(source.path)
    ]
    if not entries:
        return
    from dsh.interfaces.control.client import ControlError, DaemonGoneError, NoAnswerError, status_of
    from dsh.loader.yamlio import parse_yaml

    for entry in entries:
        daemon = status_of(entry)
        if daemon is None:  # it has ended
            continue
        try:
            with daemon.client() as client:
                answer = client.get("/api/config")
                yield entry.pid, parse_yaml(answer["text"]), set(answer.get("launcher", ()))
        except (DaemonGoneError, NoAnswerError) as error:
            tell(str(error))
        except ControlError as error:
            tell(f"{daemon.name}: {error}")


def _place(rows: Any, each: Difference) -> Mark | None:
    """Where the value stands that counts now; nothing for what a patch took away."""
    from dsh.loader.raw_rows import identified_rows
    from dsh.loader.yamlio import find_mark

    row = next((row for _, _, row, row_id in identified_rows(rows) if row_id == each.row), None)
    return None if row is None or each.kind == "removed" else find_mark(row, each.keys)


def _line(each: Difference, place: Mark | None = None) -> str:
    from dsh.interfaces.terminal_text import spelled

    sign, value = {
        "added": ("+", one_line(each.after)),
        "removed": ("-", one_line(each.before)),
        "changed": ("~", f"{one_line(each.before)} -> {one_line(each.after)}"),
    }[each.kind]
    return "  " + spelled(f"{sign} {each.name}: {value}" + (f"  ({place})" if place is not None else ""))


def _wire(each: Difference, place: Mark | None = None) -> dict[str, Any]:
    from dsh.cordis.issues import path_text
    from dsh.loader.writeback import json_value

    wire: dict[str, Any] = {"row": each.row, "key": path_text(each.keys) or None, "kind": each.kind}
    wire |= {"before": json_value(each.before), "after": json_value(each.after)}
    return wire | ({"file": place.file, "line": place.line} if place is not None else {})
