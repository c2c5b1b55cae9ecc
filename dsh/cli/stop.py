"""``dsh stop``: end running daemons."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from dsh.cli.daemons import control_errors, home_folder
from dsh.cli.output import fail

if TYPE_CHECKING:
    from dsh.interfaces.control.client import Daemon

app = typer.Typer(rich_markup_mode=None)

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
    from dsh.interfaces.control.client import find_daemon, find_daemons

    if everything and daemon is not None:
        fail("name a daemon or use --all, not both", 2)
    with control_errors():
        home = home_folder()
        chosen = find_daemons(home) if everything else [find_daemon(home, daemon)]
    if not chosen:
        typer.echo("no daemon is running")
    left = [each for each in chosen if not _stop(each, drain)]
    if left:
        raise typer.Exit(1)


def _stop(daemon: Daemon, drain: bool) -> bool:
    from dsh.interfaces.control.client import Client, ControlError, DaemonGoneError, wait_for_end

    entry = daemon.entry
    try:
        if daemon.status is None:
            text = f"{daemon.name} does not answer; `kill {entry.pid}` ends it, or `kill -CONT {entry.pid}` wakes it"
            raise ControlError(text)
        with Client(entry) as client:
            client.send("POST", "/api/stop", {"mode": "drain" if drain else "now"})
        busy = [agent["label"] or agent["sessionId"] for agent in daemon.agents if agent["status"] == "running"]
        if drain and busy:
            typer.echo(f"waiting for {', '.join(busy)}; `dsh stop {entry.pid}` ends it at once", err=True)
        if not wait_for_end(entry, None if drain else STOP_SECONDS):
            raise ControlError(f"{daemon.name} is still there after {STOP_SECONDS:g} s; `kill -9 {entry.pid}` ends it")
    except DaemonGoneError:
        wait_for_end(entry, STOP_SECONDS)
    except ControlError as error:
        typer.echo(f"dsh: {error}", err=True)
        return False
    typer.echo(f"stopped {daemon.name}")
    return True
