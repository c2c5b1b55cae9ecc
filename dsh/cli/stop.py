"""``dsh stop``: end running daemons."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dsh.cli.daemons import control_errors, home_folder
from dsh.cli.output import fail, tell

if TYPE_CHECKING:
    from dsh.interfaces.control.client import Daemon

app = typer.Typer(rich_markup_mode=None, add_completion=False)

STOP_SECONDS = 30.0


@app.command()
def stop(
    daemon: Annotated[
        str | None, typer.Argument(help="Its pid, composition or an agent of it; the only one otherwise.")
    ] = None,
    drain: Annotated[bool, typer.Option("--drain", help="Let accepted work finish first; take no more.")] = False,
    everything: Annotated[bool, typer.Option("--all", help="Every running daemon.")] = False,
) -> None:
    """End a running daemon and wait until it is gone.

    Running turns are cut off, unless they are drained; what waits stays in the log.
    """
    from dsh.interfaces.control.client import find_daemon, seen_daemons

    if everything and daemon is not None:
        fail("name a daemon or use --all, not both", 2)
    with control_errors():
        home = home_folder()
        chosen = seen_daemons(home) if everything else [find_daemon(home, daemon)]
    if not chosen:
        typer.echo("no daemon is running")
    left = [each for each in chosen if not _stop(each, drain)]
    if left:
        raise typer.Exit(1)


def _stop(daemon: Daemon, drain: bool) -> bool:
    from dsh.interfaces.control.client import Client, ControlError, DaemonGoneError, wait_for_end
    from dsh.interfaces.control.run_folder import has_lost_socket
    from dsh.interfaces.terminal_text import spelled

    entry = daemon.entry
    try:
        if daemon.status is None:
            pid = entry.pid
            if has_lost_socket(entry):
                raise ControlError(daemon.silence)
            known = f"`kill -CONT {pid}` wakes it and `kill {pid}` ends it"
            raise ControlError(f"{daemon.name} does not answer; if process {pid} is dsh still, {known}")
        with Client(entry) as client:
            client.send("POST", "/api/stop", {"mode": "drain" if drain else "now"})
        agents = [agent for agent in daemon.agents if agent["status"] == "running"]
        busy = {agent["label"] or agent["sessionId"]: agent["sessionId"] for agent in agents}
        if drain and busy:
            names = spelled(", ".join(busy))
            typer.echo(f"waiting for {names}; `dsh stop {entry.pid}` ends it at once", err=True)
        ended = wait_for_end(entry, None if drain else STOP_SECONDS)
        if drain and (cut := [name for name, session_id in busy.items() if _was_cut_off(daemon, session_id)]):
            raise ControlError(f"{daemon.name} was stopped before {', '.join(cut)} had finished")
    except DaemonGoneError:  # nobody answers there any more, which need not be the end of the process
        ended = wait_for_end(entry, STOP_SECONDS)
    except ControlError as error:
        tell(str(error))
        return False
    if not ended:
        tell(f"{daemon.name} is still there after {STOP_SECONDS:g} s; `kill -9 {entry.pid}` ends it")
        return False
    typer.echo(f"stopped {daemon.name}")
    return True


def _was_cut_off(daemon: Daemon, session_id: str) -> bool:
    """Whether the last turn of a session ended because its daemon did, as its log tells."""
    from dsh.cli.session_place import sessions_of
    from dsh.cli.sessions import session_root
    from dsh.cordis.errors import HarnessError
    from dsh.interfaces.outcome import end_name
    from dsh.sessions.log_tail import last_in_log
    from dsh.sessions.stored import resolve_stored

    def ended(row: Mapping[str, Any]) -> str | None:
        return end_name(row["data"]["reason"]) if row.get("type") == "turn/end" else None

    try:
        stored = resolve_stored(session_root(sessions_of(Path(daemon.entry.config))), session_id)
        return last_in_log(stored.path, stored.id, (b'"turn/end"',), ended) == "disposed"
    except (OSError, HarnessError, KeyError, TypeError):  # nobody can tell
        return False
