"""``dsh init``: a new folder's cordis.yml and plugins."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dsh.cli.new_files import refuse_existing, write_new

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command()
def init(
    folder: Annotated[Path, typer.Argument(help="Where to write; made if it does not exist.")] = Path(),
) -> None:
    """Write a commented cordis.yml and a plugins folder to start from."""
    from dsh.cli.starter import starter_files

    files = {folder / name: content for name, content in starter_files().items()}
    refuse_existing(files)
    write_new(files)
    for path in files:
        typer.echo(f"wrote {path}")
    typer.echo(f"\nStart it with: dsh run {folder / 'cordis.yml'}")
