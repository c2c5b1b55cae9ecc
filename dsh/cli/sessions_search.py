"""``dsh sessions search``: which sessions hold a text."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dsh.cli.output import age, fail, guarded, print_json, tell, terminal_width
from dsh.cli.stored_sessions import AsJson, Root, Since, filtered, session_root

if TYPE_CHECKING:
    from dsh.sessions.search import FoundSession


def search(
    text: Annotated[str, typer.Argument(help="What to look for, whatever the case.")],
    root: Root = None,
    cwd: Annotated[str | None, typer.Option(help="Only sessions of this workspace.")] = None,
    since: Since = None,
    everything: Annotated[bool, typer.Option("--all", help="Also sessions of subagents.")] = False,
    titles: Annotated[bool, typer.Option("--titles", help="Look at titles only.")] = False,
    limit: Annotated[int, typer.Option(min=1, help="So many sessions at most.")] = 20,
    seconds: Annotated[float, typer.Option(min=0.1, help="Stop looking after so long.")] = 20.0,
    as_json: AsJson = False,
) -> None:
    """Find sessions by their title and by what was said in them, the latest first; exit code 1 when there is none.

    Looked at are messages, calls of tools, their results and todo lists; not reasoning.
    """
    from dsh.sessions.search import search_stored
    from dsh.sessions.stored import list_stored

    if not text.strip():
        fail("the text to look for is empty", 2)
    listing = guarded(lambda: list_stored(session_root(root)))
    entries = filtered(listing.sessions, cwd=cwd, since=since, everything=everything)
    result = search_stored(entries, text, titles_only=titles, limit=limit, seconds=seconds)
    if as_json:
        print_json(
            {
                "sessions": [_wire(each) for each in result.found],
                "searched": result.searched,
                "of": len(entries),
                "complete": result.complete,
                "unreadable": [{"id": session_id, "reason": reason} for session_id, reason in result.unreadable],
            }
        )
    else:
        for each in result.found:
            _print(each)
        if not result.found:
            typer.echo("nothing found")
        for session_id, reason in result.unreadable:
            tell(f"not searched: {session_id}: {reason}")
        if not result.complete:
            tell(f"looked at {result.searched} of {len(entries)} sessions; --limit, --seconds and --since change that")
    if not result.found:
        raise typer.Exit(1)


def _print(found: FoundSession) -> None:
    from dsh.interfaces.terminal_text import one_line, spelled

    entry = found.entry
    typer.echo(f"{spelled(entry.id)}  {age(entry.last_activity)}  {one_line(found.title or '-', 60)}")
    width = max(40, terminal_width()) if sys.stdout.isatty() else 10_000
    for match in found.matches:
        line = f"  {match.seq} {match.kind}: {one_line(match.snippet, 200)}"
        typer.echo(line if len(line) <= width else line[: width - 1] + "…")
    if found.more:
        typer.echo("  …")


def _wire(found: FoundSession) -> dict[str, Any]:
    return {
        "id": found.entry.id,
        "title": found.title,
        "cwd": found.entry.header.cwd,
        "lastActivity": found.entry.last_activity,
        "inTitle": found.in_title,
        "matches": [
            {"seq": each.seq, "type": each.type, "kind": each.kind, "time": each.time, "snippet": each.snippet}
            for each in found.matches
        ],
        "more": found.more,
    }
