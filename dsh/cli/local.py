"""placeholder"""
import typer
app = typer.Typer(rich_markup_mode=None)

@app.command()
def local() -> None:
    """local command."""
