"""``dsh local``: the model that runs on this machine."""

from __future__ import annotations

import sys

import typer

from dsh.cli.output import fail

app = typer.Typer(
    rich_markup_mode=None, add_completion=False, no_args_is_help=True, help="The model that runs on this machine."
)


@app.callback()
def local() -> None:
    """The model that runs on this machine."""


@app.command()
def pull() -> None:
    """Fetch the small local model (98 MB) into $DSH_HOME/models and verify it."""
    import asyncio

    from dsh.cordis.errors import HarnessError
    from dsh.loader.home import resolve_home
    from dsh.models.local_pull import model_file
    from dsh.models.local_pull import pull as fetch

    home = resolve_home()
    target = model_file(home)
    if target.is_file():
        typer.echo(f"{home.show(target)} is there already")
        return
    bar = _Bar()
    try:
        try:
            path = asyncio.run(fetch(home, bar))
        finally:
            bar.end()
    except HarnessError as error:
        fail(str(error))
    except OSError as error:
        fail(f"cannot write {home.show(target)}: {error.strerror or error}")
    typer.echo(f"wrote {home.show(path)}")


class _Bar:
    """A progress line on a terminal, a line per stage elsewhere."""

    def __init__(self) -> None:
        self._terminal = sys.stderr.isatty()
        self._stage = ""
        self._shown = -1

    def __call__(self, stage: str, done: int, total: int | None) -> None:
        """``done`` of ``total`` bytes of ``stage`` are there; an unknown total shows bytes alone."""
        percent = done * 100 // total if total else -1
        if self._terminal and (stage, percent) != (self._stage, self._shown):
            filled = "#" * (max(percent, 0) * 30 // 100)
            amount = f"{percent:3d}%" if total else f"{done / 1e6:.0f} MB"
            sys.stderr.write(f"\r{stage:<12} [{filled:<30}] {amount}")
            sys.stderr.flush()
        elif not self._terminal and stage != self._stage:
            sys.stderr.write(f"{stage} …\n")
        self._stage, self._shown = stage, percent

    def end(self) -> None:
        """Leave the progress line."""
        if self._terminal and self._stage:
            sys.stderr.write("\n")
        self._stage = ""
