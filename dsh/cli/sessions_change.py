"""``dsh sessions fork|rm``: a copy of a session, and its end."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from dsh.cli.output import CommandFailed, fail, guarded, print_json, tell
from dsh.cli.stored_sessions import AsJson, Reference, Root, find, row_of, session_root

if TYPE_CHECKING:
    from dsh.sessions.stored import StoredSession


def fork(
    session: Reference,
    root: Root = None,
    at: Annotated[
        int | None, typer.Option(min=0, metavar="SEQ", help="Copy up to this event, not to the last finished turn.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Copy a session, also one that is open or damaged, as a new one that can be resumed; prints its id."""
    from dsh.cli.copies import make_copy

    copy = make_copy(find(session, root), root, at)
    if as_json:
        print_json(
            {
                "id": copy.entry.id,
                "parentSession": copy.entry.header.parent_session,
                "events": copy.events,
                "leftOut": copy.left_out,
            }
        )
        return
    typer.echo(copy.entry.id)
    left = f"; {copy.left_out} after them are left out" if copy.left_out else ""
    tell(f"a copy of {copy.events} events of {copy.entry.header.parent_session}{left}")


def rm(
    sessions: Annotated[list[str], typer.Argument(help="Ids, unique beginnings of them, or parts of titles.")],
    root: Root = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: AsJson = False,
) -> None:
    """Remove closed sessions for good, their logs with them. Copies made of them stay."""
    entries = list({entry.id: entry for entry in (_meant(each, root) for each in sessions)}.values())
    for entry in entries:
        _refuse_open(entry)
    if not yes:
        _ask(entries)
    from dsh.interfaces.terminal_text import spelled

    removed: list[str] = []
    failed: list[dict[str, str]] = []
    for entry in entries:
        error = _remove(entry, root)
        if error is not None:
            failed.append({"id": entry.id, "error": error})
            tell(f"{spelled(entry.id)} is not removed: {error}", failed=True)
        else:
            removed.append(entry.id)
            if not as_json:
                typer.echo(f"removed {spelled(entry.id)}")
    if as_json:
        print_json({"removed": removed, "failed": failed})
    if failed:
        raise CommandFailed(failed[0]["error"], 1)


def _meant(reference: str, root: str | None) -> StoredSession:
    """The session to remove; one whose header is unreadable must be named by its whole id."""
    from dsh.core.session_header import SessionHeader
    from dsh.sessions.errors import SessionPersistenceCorruptionError, SessionPersistenceError
    from dsh.sessions.stored import StoredSession, find_artifact, resolve_stored

    folder = session_root(root)
    try:
        resolve_stored(folder, reference)
    except SessionPersistenceCorruptionError:
        path = guarded(lambda: find_artifact(folder, reference))
        if path is not None:
            return StoredSession(reference, SessionHeader(reference, 0), path, 0, 0, "")
    except SessionPersistenceError:
        pass  # said by `find`
    return find(reference, root)


def _refuse_open(entry: StoredSession) -> None:
    from dsh.sessions.stored import lease_state

    state = lease_state(entry)
    if state.locked:
        refusal = state.record.refusal(entry.id)
        fail(f"{refusal}; nothing was removed", name=refusal.code)


def _ask(entries: list[StoredSession]) -> None:
    from dsh.interfaces.terminal_text import one_line, spelled

    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        fail("nobody can be asked here: --yes removes without asking", 2)
    for entry in entries:
        row = row_of(entry)
        turns = "?" if row["turns"] is None else row["turns"]
        typer.echo(f"  {spelled(entry.id)}  {turns} turns  {one_line(row['title'] or '-', 50)}", err=True)
    what = "this session" if len(entries) == 1 else f"these {len(entries)} sessions"
    if not typer.confirm(f"Remove {what} for good?", err=True):
        fail("nothing was removed")


def _remove(entry: StoredSession, root: str | None) -> str | None:
    """Remove one session; why it could not be, if so."""
    import logging

    from dsh.cordis.errors import HarnessError, describe_error
    from dsh.sessions.jsonl_store import JsonlStore
    from dsh.sessions.lease import Leases
    from dsh.sessions.log_file import LogWriter

    folder = session_root(root)
    logger = logging.getLogger("dsh")
    try:
        store = JsonlStore(folder, compression=None, writer=LogWriter(), leases=Leases(), logger=logger)
        hold = store.hold(entry.id, entry.header.cwd, must_exist=True)
        try:
            hold.delete()
        finally:
            hold.release()
    except (OSError, HarnessError) as error:
        return describe_error(error)
    return None
