"""``dsh init``: a new folder's cordis.yml and plugins."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dsh.cli.output import fail

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command()
def init(
    folder: Annotated[Path, typer.Argument(help="Where to write; made if it does not exist.")] = Path(),
) -> None:
    """Write a commented cordis.yml and a plugins folder to start from."""
    from dsh.cli.starter import starter_files

    files = starter_files()
    existing = [name for name in files if (folder / name).exists()]
    if existing:
        fail(f"{folder / existing[0]} exists already; nothing was written")
    for name, content in files.items():
        target = folder / name
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("xb") as file:
                file.write(content)
        except OSError as error:
            fail(f"cannot write {target}: {error.strerror}")
        typer.echo(f"wrote {target}")
    typer.echo(f"\nStart it with: dsh run {folder / 'cordis.yml'}")
