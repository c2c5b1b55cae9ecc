"""``dsh plugins graph``: which row provides what to whom."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dsh.cli.output import fail, paragraph, print_json

if TYPE_CHECKING:
    from dsh.interfaces.service_graph import RowServices, ServiceGraph


def graph(
    target: Annotated[
        str | None,
        typer.Argument(metavar="[FILE|PID|AGENT]", help="A composition, or with --live a daemon."),
    ] = None,
    live: Annotated[bool, typer.Option("--live", help="As it is in a running daemon, not as the file says.")] = False,
    dot: Annotated[bool, typer.Option("--dot", help="Print it in the language of Graphviz.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show which row provides what to whom; missing providers and rings are marked, exit code 1 when there are any.

    From the file alone, without starting anything: services that a plugin asks for only while it runs are not in it.
    """
    if dot and as_json:
        fail("give --dot or --json, not both", 2)
    found, name = _live(target) if live else _offline(target)
    if as_json:
        print_json({"composition": name, **_wire(found)})
    elif dot:
        typer.echo(_dot(found))
    else:
        _print(found, name)
    if any(True for _ in found.missing()) or any(True for _ in found.cycles()):
        raise typer.Exit(1)


def _offline(target: str | None) -> tuple[ServiceGraph, str]:
    from pathlib import Path

    from dsh.cli.output import tell
    from dsh.cli.plugins_list import composition
    from dsh.interfaces.offline import check
    from dsh.interfaces.service_graph import ServiceGraph

    source = composition(Path(target) if target is not None else None)
    with redirect_stdout(sys.stderr):  # plugins are imported, and some print
        result = check(source)
    if not result.services and result.problems:
        fail("\n".join(map(str, result.problems)))
    for problem in result.problems:
        if problem.stage in ("import", "parse", "read"):
            tell(str(problem))  # what it would provide is not in the picture
    return ServiceGraph(result.services), source.shown


def _live(target: str | None) -> tuple[ServiceGraph, str]:
    from dsh.cli.daemons import control_errors, home_folder
    from dsh.interfaces.control.client import find_daemon
    from dsh.interfaces.service_graph import RowServices, ServiceGraph

    with control_errors():
        daemon = find_daemon(home_folder(), target)
        with daemon.client() as client:
            picture: dict[str, Any] = client.get("/api/plugins")
    rows = [
        RowServices(row["id"], row["plugin"], set(row["needs"]), {*row["provides"], *row["offers"]}, state=row["state"])
        for row in picture["rows"]
        if "needs" in row
    ]
    return ServiceGraph(rows, {each["name"] for each in picture["services"] if each["active"]}), daemon.name


def _print(found: ServiceGraph, name: str) -> None:
    from dsh.interfaces.terminal_text import spelled

    missing = dict[str, list[str]]()
    for row, service in found.missing():
        missing.setdefault(row.address, []).append(service)
    rings = list(found.cycles())
    in_ring = {row.address for ring in rings for row in ring}
    typer.echo(f"{spelled(name)}: {len(found.rows)} rows, {len(found.providers)} services\n")
    for row in found.rows:
        label = row.address if row.plugin == row.address else f"{row.address} ({row.plugin})"
        notes = [row.state] if row.state not in (None, "active") else []
        notes += ["in a ring"] if row.address in in_ring else []
        typer.echo(spelled(label) + "".join(f" ! {note}" for note in notes))
        lines = []
        for service in sorted(row.provides):
            users = [user.address for user in found.users.get(service, []) if user is not row]
            lines.append(f"provides {service}" + (f" -> {', '.join(users)}" if users else ""))
        if row.opaque:
            lines.append("provides something whose name its source does not tell")
        needed = sorted(row.needs - row.provides)
        if needed:
            lines.append("needs " + ", ".join(_needed(found, each, missing.get(row.address, [])) for each in needed))
        for line in lines:
            typer.echo(paragraph(line, first="  ", indent="      "))
    if missing or rings:
        typer.echo("")
    for address, services in missing.items():
        typer.echo(f"! {spelled(address)} needs {', '.join(services)}, which no row provides")
    for ring in rings:
        names = [row.address for row in ring]
        typer.echo(f"! these wait for each other in a cycle: {spelled(' -> '.join([*names, names[0]]))}")


def _needed(found: ServiceGraph, service: str, missing: list[str]) -> str:
    if service in missing:
        return f"{service} (MISSING)"
    providers = [row.address for row in found.providers.get(service, [])]
    return f"{service} <- {' or '.join(providers)}" if providers else f"{service} (of the program)"


def _wire(found: ServiceGraph) -> dict[str, Any]:
    def row_wire(row: RowServices) -> dict[str, Any]:
        return {
            "id": row.address,
            "plugin": row.plugin,
            "provides": sorted(row.provides),
            "needs": sorted(row.needs),
            "opaque": row.opaque,
        }

    edges = [
        {"from": provider.address, "to": user.address, "service": service}
        for service, providers in found.providers.items()
        for provider in providers
        for user in found.users.get(service, [])
        if user is not provider
    ]
    return {
        "rows": [row_wire(row) for row in found.rows],
        "edges": edges,
        "missing": [{"row": row.address, "service": service} for row, service in found.missing()],
        "cycles": [[row.address for row in ring] for ring in found.cycles()],
    }


def _dot(found: ServiceGraph) -> str:
    """The graph for Graphviz: an arrow leads from who provides a service to who needs it."""
    rings = [[row.address for row in ring] for ring in found.cycles()]
    red = {(ring[i], ring[i - 1]) for ring in rings for i in range(len(ring))}
    lines = ["digraph services {", "  rankdir=LR;", "  node [shape=box];"]
    for row in found.rows:
        lines.append(f"  {_quoted(row.address)} [tooltip={_quoted(row.plugin)}];")
    missing = list(found.missing())
    for service in dict.fromkeys(service for _, service in missing):
        lines.append(f"  {_quoted('missing ' + service)} [label={_quoted(service)}, style=dashed, color=red];")
    for edge in _wire(found)["edges"]:
        colour = ", color=red" if (edge["from"], edge["to"]) in red else ""
        ends = f"{_quoted(edge['from'])} -> {_quoted(edge['to'])}"
        lines.append(f"  {ends} [label={_quoted(edge['service'])}{colour}];")
    for row, service in missing:
        lines.append(f"  {_quoted('missing ' + service)} -> {_quoted(row.address)} [style=dashed, color=red];")
    return "\n".join([*lines, "}"])


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
