"""placeholder"""

import typer

app = typer.Typer(rich_markup_mode=None)


@app.command()
def exec() -> None:
    """exec command."""
