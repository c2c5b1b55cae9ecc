"""``dsh inspect``: what a composition is made of while it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from dsh.cli.daemons import control_errors, home_folder
from dsh.cli.output import fail, print_json, print_table

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command()
def inspect(
    target: Annotated[
        str | None,
        typer.Argument(metavar="[FILE|PID|AGENT]", help="A composition, or a daemon; the only daemon otherwise."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Everything, as JSON.")] = False,
) -> None:
    """Show the rows of a running composition: state, services, what they wait for.

    A composition that no daemon runs is started without its agents, looked at and stopped again.
    """
    import asyncio

    from dsh.interfaces.control.client import ControlError, find_daemon

    picture: dict[str, Any]
    with control_errors():
        try:
            picture = _ask(find_daemon(home_folder(), target))
        except ControlError as error:
            file = _file(target)
            if error.code not in ("NO_DAEMON", "NO_AGENT") or file is None:
                raise
            picture = asyncio.run(_booted(file))
    if as_json:
        print_json(picture)
    else:
        _print(picture)


def _file(target: str | None) -> Path | None:
    """The composition to start when no daemon is meant."""
    if target is not None:
        path = Path(target)
        return path.absolute() if path.exists() else None
    from dsh.cli.host import default_config

    return default_config().absolute()


def _ask(daemon: Any) -> dict[str, Any]:
    from dsh.interfaces.control.client import Client

    with Client(daemon.entry) as client:
        answer: dict[str, Any] = client.get("/api/plugins")
    return {"pid": daemon.entry.pid, **answer}


async def _booted(file: Path) -> dict[str, Any]:
    """The picture of a composition that was started for it: no agents, no front end, no following of edits."""
    from dsh.cordis import Context
    from dsh.interfaces.control.picture import picture
    from dsh.loader.boot import BootError, boot
    from dsh.loader.environment import DotenvRefusedError, load_launch_environment
    from dsh.loader.home import resolve_home

    home = resolve_home()

    def prepare(root: Context) -> None:
        root.provide("configuredAgentSessions", {})
        root.provide("startConfiguredAgents", False)
        root.provide("followFiles", False)

    try:
        environment = load_launch_environment(home)
        async with boot(file, environment=environment, home=home, prepare=prepare) as app:
            return {"pid": None, **picture(app.root)}
    except (BootError, DotenvRefusedError) as error:
        fail(str(error).removeprefix("dsh: "))


def _print(picture: dict[str, Any]) -> None:
    from dsh.interfaces.control.client import show_path

    pid = picture["pid"]
    where = f"daemon {pid}" if pid is not None else "not running; started for this look and stopped again"
    typer.echo(f"{show_path(str(picture['config']))}: {where}\n")
    rows: list[tuple[str, ...]] = []
    for row in picture["rows"]:
        notes = [f"waits for {', '.join(row['waitsFor'])}"] if row.get("waitsFor") else []
        notes += [row["error"]] if row.get("error") else []
        notes += [f"provides {', '.join(row['provides'])}"] if row.get("provides") else []
        notes += [_count(len(row["tasks"]), "task")] if row.get("tasks") else []
        notes += [f"reloaded {row['generation']}x"] if row.get("generation") else []
        notes += [_count(row["faults"], "fault")] if row.get("faults") else []
        rows.append((row["id"], row["plugin"], row["state"], "; ".join(notes)))
    print_table(rows, ("ROW", "PLUGIN", "STATE", ""))
    services = ", ".join(sorted(each["name"] for each in picture["services"] if each["realm"] is None))
    typer.echo(f"\nservices: {services}")
    listeners = sum(event["listeners"] for event in picture["events"])
    typer.echo(f"{len(picture['events'])} events with {listeners} listeners, {picture['tasks']} tasks")
    for cycle in picture["cycles"]:
        typer.echo(f"these wait for each other: {' -> '.join([*cycle, cycle[0]])}")


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
