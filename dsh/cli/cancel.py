"""``dsh cancel``: stop the turn that an agent of a running daemon is in."""

from __future__ import annotations

from typing import Annotated

import typer

from dsh.cli.daemons import control_errors, home_folder

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command()
def cancel(
    agent: Annotated[
        str, typer.Argument(help="Label, session id or the unique beginning of one; PID: before it names the daemon.")
    ],
    drop: Annotated[bool, typer.Option("--drop", help="Drop the prompts that wait, too.")] = False,
) -> None:
    """Stop the turn that an agent of a running daemon is in.

    Prompts that wait stay in the queue.
    """
    from dsh.interfaces.control.client import find_agent
    from dsh.interfaces.terminal_text import spelled

    with control_errors():
        target = find_agent(home_folder(), agent)
        with target.client() as client:
            answer = client.send("POST", target.path("/cancel"), {"keepQueue": not drop})
    name = spelled(target.name)
    typer.echo(f"cancelled the turn of {name}" if answer["cancelled"] else f"{name} was not working")
    if answer["waiting"]:
        one = answer["waiting"] == 1
        typer.echo(
            f"{answer['waiting']} prompt{'' if one else 's'} wait{'s' if one else ''} for the next one; --drop drops"
        )
