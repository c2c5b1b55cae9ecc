"""``dsh plugins``: the beginning of a plugin of your own."""

from __future__ import annotations

import typer

from dsh.cli.plugins_new import new

app = typer.Typer(rich_markup_mode=None, add_completion=False, no_args_is_help=True, help="Begin a plugin of your own.")


@app.callback()
def plugins() -> None:
    """Begin a plugin of your own."""


app.command()(new)
