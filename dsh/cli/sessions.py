"""``dsh sessions``: stored sessions, looked at without disturbing whoever has them open."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from dsh.cli.output import age, guarded, print_json, print_table, tell
from dsh.cli.sessions_change import fork, rm
from dsh.cli.sessions_files import export, import_
from dsh.cli.sessions_search import search
from dsh.cli.stored_sessions import AsJson, Root, Since, filtered, row_of
from dsh.cli.stored_sessions import find as find
from dsh.cli.stored_sessions import session_root as session_root

if TYPE_CHECKING:
    from dsh.sessions.stored import StoredSession

app = typer.Typer(
    rich_markup_mode=None,
    add_completion=False,
    no_args_is_help=True,
    help="Stored sessions: list, search, show, rename, copy, remove, carry elsewhere, verify.",
)


@app.command("list")
def list_sessions(
    root: Root = None,
    cwd: Annotated[str | None, typer.Option(help="Only sessions of this workspace.")] = None,
    since: Since = None,
    everything: Annotated[bool, typer.Option("--all", help="Also sessions of subagents.")] = False,
    as_json: AsJson = False,
) -> None:
    """List sessions, the latest activity first."""
    from dsh.interfaces.terminal_text import one_line
    from dsh.sessions.stored import list_stored

    listing = guarded(lambda: list_stored(session_root(root)))
    entries = filtered(listing.sessions, cwd=cwd, since=since, everything=everything)
    if as_json:
        bad = [{"id": one.id, "path": one.path, "reason": one.reason} for one in listing.unreadable]
        print_json({"sessions": [row_of(entry) for entry in entries], "unreadable": bad})
        return
    rows = []
    for entry in entries:
        row = row_of(entry)
        turns = "?" if row["turns"] is None else str(row["turns"])
        named = one_line(row["title"] or "-", 60)
        rows.append((row["id"], age(row["lastActivity"]), turns, row["state"], named, row["cwd"] or "-"))
    if rows:
        print_table(rows, ("SESSION", "AGE", "TURNS", "STATE", "TITLE", "WORKSPACE"))
    else:
        typer.echo("no sessions")
    for one in listing.unreadable:
        tell(f"unreadable: {one.path}: {one.reason}")


@app.command()
def show(
    session: Annotated[str, typer.Argument(help="Id, unique beginning of one, or part of a title.")],
    root: Root = None,
    events: Annotated[bool, typer.Option("--events", help="Every event, one JSON line each.")] = False,
    raw: Annotated[bool, typer.Option("--raw", help="The stored bytes, decompressed.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show one session: its messages, or with an option its events or stored bytes."""
    entry = find(session, root)
    if raw:
        from dsh.sessions.log_file import read_text

        typer.echo(guarded(lambda: read_text(entry.path, entry.id)), nl=False)
        return
    header, log, damage = guarded(lambda: load(entry))
    if damage:
        tell(f"{damage}; shown are the {len(log)} events before the damage")
    _show(entry, header, log, events=events, as_json=as_json)
    if damage:
        raise typer.Exit(1)


def _show(entry: StoredSession, header: Any, log: Any, *, events: bool, as_json: bool) -> None:
    if events:
        for event in log:
            print_json(event.to_wire())
        return
    from dsh.interfaces.outcome import end_name
    from dsh.interfaces.terminal_text import one_line, printable, spelled
    from dsh.llm.content import text_of
    from dsh.sessions.cut_reply import CutReply

    if as_json:
        print_json({"header": header.to_wire(), "events": [event.to_wire() for event in log]})
        return
    row = row_of(entry)
    named = f", {one_line(row['title'])}" if row["title"] else ""
    turns = "?" if row["turns"] is None else row["turns"]
    place = f"workspace {spelled(header.cwd or '-')}"
    typer.echo(f"{spelled(entry.id)}{named}\n{place}, {len(log)} events, {turns} turns, {row['state']}\n")
    reply = CutReply()
    for event in log:
        data = event.data
        reply.event(event.type, data)
        if event.type == "turn/end" and (text := reply.take()):
            typer.echo(printable(text))
        if event.type == "user/message" and (text := text_of(data["content"])):
            mark = ">" if data["source"]["kind"] == "user" else f"[{data['source']['kind']}]"
            typer.echo(f"{mark} {printable(text)}")
        elif event.type == "assistant/message" and (text := text_of(data["message"]["content"])):
            typer.echo(printable(text))
        elif event.type == "tool/call":
            typer.echo(f"  {one_line(data['name'])} {one_line(data['arguments'])}")
        elif event.type == "tool/result":
            block = data["message"]["content"][0]
            typer.echo(f"    {one_line(text_of(block['content'])) or '(no text)'}")
        elif event.type == "turn/end" and data["reason"]["kind"] != "completed":
            typer.echo(f"  (turn {data['turn']} ended: {end_name(data['reason'])})")
    if text := reply.take():
        typer.echo(printable(text))
    if waiting := [one_line(text_of(message["content"]), 40) for message in _waiting(header, log)]:
        count = "1 prompt waits and runs" if len(waiting) == 1 else f"{len(waiting)} prompts wait and run"
        typer.echo(f"  ({count} first when the session goes on: {', '.join(waiting)})")


def _waiting(header: Any, log: Any) -> list[Any]:
    """The prompts left in the queue, in the order in which they run."""
    from dsh.cordis.errors import HarnessError
    from dsh.core.inbox import pending_in

    try:
        lists = pending_in(log, header.seed_length or 0)
    except HarnessError as error:  # a damaged log is shown as far as it can be
        tell(str(error))
        return []
    return [each for each in (*lists["next-step"], *lists["next-turn"]) if each["source"]["kind"] == "user"]


@app.command()
def rename(
    session: Annotated[str, typer.Argument(help="Id, unique beginning of one, or part of a title.")],
    title: Annotated[str, typer.Argument(help="What to call it.")],
    root: Root = None,
) -> None:
    """Give a closed session a title, which nothing but another rename changes."""
    from dsh.interfaces.terminal_text import printable, spelled
    from dsh.sessions.renaming import rename_stored

    entry = find(session, root)
    written = guarded(lambda: rename_stored(session_root(root), entry, title))
    typer.echo(f"{spelled(entry.id)}: {printable(written)}")


@app.command()
def verify(
    session: Annotated[str | None, typer.Argument(help="Id or unique beginning; all sessions otherwise.")] = None,
    root: Root = None,
    as_json: AsJson = False,
) -> None:
    """Check stored logs without writing: exit code 1 when one of them is damaged."""
    from dsh.interfaces.terminal_text import printable, spelled
    from dsh.sessions.verify import verify_log, verify_stored

    if session is not None:
        reports = [verify_log(find(session, root).path)]
    else:
        reports = guarded(lambda: list(verify_stored(session_root(root))))
    if as_json:
        print_json(
            [
                {
                    "id": report.id,
                    "path": report.path,
                    "ok": report.ok,
                    "events": report.events,
                    "turns": report.turns,
                    "problems": report.problems,
                    "repairs": report.repairs,
                    "notes": report.notes,
                }
                for report in reports
            ]
        )
    else:
        for report in reports:
            verdict = f"ok, {report.events} events" if report.ok else f"DAMAGED: {'; '.join(report.problems)}"
            more = [f"opening it mends: {each}" for each in report.repairs] + report.notes
            typer.echo(f"{spelled(report.id or report.path)}: {printable('; '.join([verdict, *more]))}")
    if not all(report.ok for report in reports):
        raise typer.Exit(1)


app.command()(search)
app.command()(fork)
app.command()(rm)
app.command()(export)
app.command("import")(import_)


def load(entry: StoredSession) -> tuple[Any, Any, str | None]:
    """Header, events, and what is damaged; of a damaged log the events before that."""
    from dsh.sessions.errors import SessionPersistenceCorruptionError
    from dsh.sessions.loading import repaired
    from dsh.sessions.log_file import read_log
    from dsh.sessions.salvage import readable_part

    try:
        log = read_log(entry.path, entry.id)
    except SessionPersistenceCorruptionError as error:
        part = readable_part(entry.path, entry.id)
        return part.header, part.events, str(error)
    events, closers = repaired(log, frozenset())
    return log.header, [*events, *closers], None
