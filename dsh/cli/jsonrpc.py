"""``dsh jsonrpc`` and ``dsh-jsonrpc-agent``: serve one SDK client over standard input and output."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(rich_markup_mode=None, add_completion=False, pretty_exceptions_enable=False)

ROW = "sdk-jsonrpc-server"


@app.command()
def jsonrpc(
    file: Annotated[
        Path | None,
        typer.Argument(help="The composition; a $DSH_CORDIS_CONFIG goes before it. Without any: profile sdk."),
    ] = None,
    patch: Annotated[list[Path] | None, typer.Option(help="Patch file laid over it; repeatable, in order.")] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="ROW.KEY=VALUE", help="One config key; repeatable.")
    ] = None,
) -> None:
    """Serve one SDK client over standard input and output."""
    config = os.environ.get("DSH_CORDIS_CONFIG") or file
    if config is None:
        from dsh.cli.profiles import profile_file
        from dsh.interfaces.stdout import say

        config = profile_file("sdk")
        say("no composition named by $DSH_CORDIS_CONFIG or argument: using the packaged profile sdk")
    raise typer.Exit(serve(Path(config), patch or (), set_ or ()))


def serve(config: Path, patches: Sequence[Path] = (), sets: Sequence[str] = ()) -> int:
    """Serve a composition on standard input and output until the client leaves; the exit code."""
    from dsh.cli.host import Launch, run
    from dsh.cli.mounted import mounts
    from dsh.cli.start import leave_quietly_until_started
    from dsh.interfaces.stdin import claim_stdin
    from dsh.interfaces.stdout import claim_stdout

    leave_quietly_until_started()
    stdout, stdin = claim_stdout(), claim_stdin()
    for name in ("DSH_SESSION_ROOT", "DSH_CWD"):  # of the client, so relative to where it started us
        if os.environ.get(name):
            os.environ[name] = os.path.abspath(os.environ[name])
    path = config.absolute()
    layers = [patch.absolute() for patch in patches]
    rows = [] if mounts(path, ROW, layers) else [{"id": ROW, "name": f"dsh-{ROW}"}]
    values = {"stdioProtocol": "jsonrpc"}
    return run(Launch(path, layers, sets, rows, values=values, stdout=stdout, stdin=stdin))


def main() -> None:
    """Run the server of this process's arguments."""
    from dsh.cli.logs import configure
    from dsh.cli.main import open_standard_files

    open_standard_files()
    configure(verbosity=0, form="text")
    app()
