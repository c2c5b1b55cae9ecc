"""``dsh ps``: running daemons and their agents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from dsh.cli.daemons import control_errors, home_folder
from dsh.cli.output import age, print_table, tell

if TYPE_CHECKING:
    from dsh.interfaces.control.client import Daemon

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command()
def ps(as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """List running daemons and their agents."""
    from dsh.interfaces.control.client import seen_daemons
    from dsh.interfaces.control.run_folder import has_lost_socket

    with control_errors():
        daemons = seen_daemons(home_folder())
    if as_json:
        import json

        typer.echo(json.dumps({"daemons": [_wire(daemon) for daemon in daemons]}, ensure_ascii=False))
    elif daemons:
        rows = [row for daemon in daemons for row in _rows(daemon)]
        print_table(rows, ("PID", "UP", "AGENT", "STATUS", "QUEUED", "SESSION", "COMPOSITION"))
        for daemon in daemons:
            if has_lost_socket(daemon.entry):
                tell(daemon.silence)
    else:
        typer.echo("no daemon is running; start one with `dsh run`")


def _wire(daemon: Daemon) -> dict[str, Any]:
    if daemon.status is not None:
        return daemon.status
    entry = daemon.entry
    known = {"pid": entry.pid, "runId": entry.run_id, "config": entry.config, "cwd": entry.cwd}
    return {**known, "startedAt": entry.started_at, "state": "no answer", "agents": []}


def _rows(daemon: Daemon) -> list[tuple[str, ...]]:
    from dsh.interfaces.control.client import show_path

    entry, status = daemon.entry, daemon.status
    here = (str(entry.pid), age(entry.started_at))
    config = show_path(entry.config)
    state = "no answer" if status is None else status["state"]
    if not daemon.agents:
        return [(*here, "-", state, "-", "-", config)]
    rows: list[tuple[str, ...]] = []
    for agent in daemon.agents:
        shown = agent["status"] if state == "running" or agent["status"] == "failed" else f"{agent['status']}, {state}"
        queued = str(agent.get("queued") or "-")
        rows.append((*here, agent["label"] or "-", shown, queued, agent["sessionId"], config))
    return rows
