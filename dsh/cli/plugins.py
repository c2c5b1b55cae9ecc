"""``dsh plugins``: which plugins there are, what they provide to each other, and the beginning of your own."""

from __future__ import annotations

import typer

from dsh.cli.plugins_graph import graph
from dsh.cli.plugins_list import info, list_
from dsh.cli.plugins_new import new

app = typer.Typer(
    rich_markup_mode=None,
    add_completion=False,
    no_args_is_help=True,
    help="Plugins: which there are, what each does, who provides what; begin your own.",
)
app.command("list")(list_)
app.command()(info)
app.command()(graph)
app.command()(new)
