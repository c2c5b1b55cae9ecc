"""``dsh acp``: serve editors and automation over the Agent Client Protocol on standard input and output."""

from pathlib import Path
from typing import Annotated, Any

import typer

from dsh.cli.run import enter_folder

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command()
def acp(
    config: Annotated[
        Path | None, typer.Option(help="The composition; ./cordis.yml or the packaged one otherwise.")
    ] = None,
    patch: Annotated[list[Path] | None, typer.Option(help="Patch file laid over it; repeatable, in order.")] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="ROW.KEY=VALUE", help="One config key; repeatable.")
    ] = None,
    cwd: Annotated[Path | None, typer.Option(help="Work in this folder.")] = None,
) -> None:
    """Serve an editor or another client of the Agent Client Protocol over standard input and output.

    A composition with a row acp decides how much a client is shown; without one, editors get everything.
    """
    from dsh.cli.start import leave_quietly_until_started

    leave_quietly_until_started()
    from dsh.interfaces.stdin import claim_stdin
    from dsh.interfaces.stdout import claim_stdout

    stdin, stdout = claim_stdin(), claim_stdout()  # before anything else can read or print
    from dsh.cli.host import Launch, default_config, run
    from dsh.cli.mounted import mounts

    chosen = (config or default_config()).absolute()
    patches = [path.absolute() for path in patch or ()]
    enter_folder(cwd)
    rows: list[dict[str, Any]] = []
    if not mounts(chosen, "acp", patches):
        rows = [{"id": "acp", "name": "dsh-acp", "config": {"presentation": "editor"}}]
    values = {"stdioProtocol": "acp", "startConfiguredAgents": False, "acpConnection": {}}
    raise typer.Exit(run(Launch(chosen, patches, set_ or (), rows, values=values, stdout=stdout, stdin=stdin)))
