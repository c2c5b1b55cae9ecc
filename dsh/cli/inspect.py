"""``dsh inspect``: what a composition is made of while it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from dsh.cli.daemons import control_errors, home_folder
from dsh.cli.output import age, paragraph, print_json, print_table
from dsh.interfaces.display.amounts import counted

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command()
def inspect(
    target: Annotated[
        str | None,
        typer.Argument(metavar="[FILE|PID|AGENT]", help="A composition, or a daemon; the only daemon otherwise."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Everything, as JSON.")] = False,
) -> None:
    """Show the inside of a running composition: rows, who waits, services, listeners, agents, tasks.

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
    with daemon.client() as client:
        answer: dict[str, Any] = client.get("/api/plugins")
    return {"pid": daemon.entry.pid, **answer}


async def _booted(file: Path) -> dict[str, Any]:
    """The picture of a composition that was started for it."""
    from dsh.cli.looking import started_or_fail
    from dsh.interfaces.control.picture import picture

    async with started_or_fail(file) as app:
        return {"pid": None, **picture(app.root), "agents": []}


# --- printing -------------------------------------------------------------------------------------------------------


def _print(picture: dict[str, Any]) -> None:
    from dsh.interfaces.control.client import show_path

    pid = picture["pid"]
    where = f"daemon {pid}" if pid is not None else "not running; started for this look and stopped again"
    typer.echo(f"{show_path(str(picture['config']))}: {where}")
    _print_attention(picture)
    _print_agents(picture["agents"])
    _print_rows(picture["rows"])
    _print_lines("Services, who provides them -> who uses them", [_service(each) for each in _services(picture)])
    _print_lines(
        "Events, and who hears them in this order",
        [
            f"{each['name']} ({(each['mode'] or 'not defined yet').replace('_', ' ')}): {_grouped(each['heardBy'])}"
            for each in sorted(picture["events"], key=lambda each: str(each["name"]))
        ],
    )
    tasks = [f"{row['id']}: {_grouped(row['tasks'])}" for row in picture["rows"] if row.get("tasks")]
    _print_lines(f"Tasks, {picture['tasks']} in all", tasks)


def _print_attention(picture: dict[str, Any]) -> None:
    """What does not run, and what went wrong."""
    lines = []
    for row in picture["rows"]:
        if row.get("waitsFor"):
            lines.append(f"! {row['id']} waits for {', '.join(row['waitsFor'])}{_who_offers(picture, row)}")
        if row.get("error"):
            lines.append(f"! {row['id']} {row['state']}: {row['error']}")
        last = row.get("lastError")
        if last is not None and not row.get("error"):
            again = f" ({counted(row['faults'], 'broken task')} so far)" if row["faults"] else ""
            lines.append(f"! {row['id']}, {age(last['at'])} ago: {last['text']}{again}")
    for cycle in picture["cycles"]:
        lines.append(f"! these wait for each other in a cycle: {' -> '.join([*cycle, cycle[0]])}")
    if lines:
        typer.echo("")
    for line in lines:
        for number, part in enumerate(line.split("\n")):
            typer.echo(paragraph(part, first="  " if number else "", indent="    "))


def _who_offers(picture: dict[str, Any], waiting: dict[str, Any]) -> str:
    """Which rows would provide what a row waits for, if they ran."""
    hints = [
        f"{row['id']} would provide {service}, but is {row['state']}"
        for service in waiting["waitsFor"]
        for row in picture["rows"]
        if service in row.get("offers", ()) and row["state"] != "active"
    ]
    return f" ({'; '.join(hints)})" if hints else ", which no row provides"


def _print_agents(agents: list[dict[str, Any]]) -> None:
    if not agents:
        return
    typer.echo("")
    rows = [
        (
            each["label"] or "-",
            each["status"],
            str(each.get("queued") or "-"),
            each.get("model") or "-",
            each.get("error") or each["sessionId"],
        )
        for each in agents
    ]
    print_table(rows, ("AGENT", "STATUS", "QUEUED", "MODEL", "SESSION"), fit=True)


def _print_rows(rows: list[dict[str, Any]]) -> None:
    lines = []
    for row in rows:
        notes = [f"reloaded {row['generation']}x"] if row.get("generation") else []
        notes += [counted(len(row["tasks"]), "task")] if row.get("tasks") else []
        lines.append((row["id"], row["state"], row["plugin"], ", ".join(notes)))
    typer.echo("")
    print_table(lines, ("ROW", "STATE", "PLUGIN", ""), fit=True)


def _print_lines(title: str, lines: list[str]) -> None:
    if lines:
        typer.echo(f"\n{title}:")
    for line in lines:
        typer.echo(paragraph(line, first="  ", indent="      "))


def _services(picture: dict[str, Any]) -> list[dict[str, Any]]:
    return sorted(picture["services"], key=lambda each: (each["realm"] or "", each["name"]))


def _service(service: dict[str, Any]) -> str:
    realm = service["realm"] or ""
    realm = " (private)" if realm.startswith("private#") else f" in {realm}" if realm else ""
    users = f" -> {', '.join(sorted(service['usedBy']))}" if service["usedBy"] else ""
    return f"{service['name']}{realm}: {service['row']}{'' if service['active'] else ' (not active)'}{users}"


def _grouped(names: list[str]) -> str:
    """Names in their order; those that follow each other are counted."""
    parts: list[tuple[str, int]] = []
    for name in names:
        if parts and parts[-1][0] == name:
            parts[-1] = (name, parts[-1][1] + 1)
        else:
            parts.append((name, 1))
    return ", ".join(name if count == 1 else f"{name} ({count}x)" for name, count in parts)
