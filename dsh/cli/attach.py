"""``dsh attach``: the console on an agent of a running daemon."""

from __future__ import annotations

from typing import Annotated

import typer

from dsh import __version__
from dsh.cli.daemons import control_errors, home_folder

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command()
def attach(
    agent: Annotated[str | None, typer.Argument(help="As for send; the only agent otherwise.")] = None,
    tail: Annotated[int, typer.Option(min=0, help="Earlier messages to show.")] = 6,
) -> None:
    """Talk to an agent of a running daemon from this terminal.

    Ctrl-C stops the running turn, Ctrl-D detaches and the daemon goes on.
    """
    from dsh.cli.first_line import first_line, opens_console

    with first_line(f"dsh {__version__}  attaching to {agent or 'the only agent'}", wanted=opens_console()) as typed:
        import asyncio

        from dsh.interfaces.control.client import find_agent

        with control_errors():
            target = find_agent(home_folder(), agent)
            from dsh.interfaces.control.remote import RemoteConsole

            try:
                code = asyncio.run(RemoteConsole(target, tail, typed).run())
            except KeyboardInterrupt:
                code = 130
    raise typer.Exit(code)
