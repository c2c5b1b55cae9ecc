"""placeholder"""

import typer

app = typer.Typer(rich_markup_mode=None)


@app.command()
def run() -> None:
    """run command."""
