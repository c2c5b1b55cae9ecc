"""The ``dsh`` command: global options, and commands that are imported when they are used."""

import gc
import importlib
import os
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from dsh.cli.quick_values import use_quick_values, use_quick_values_below

COMMANDS = {
    "run": "Load the plugin graph, start its agents and follow edits.",
    "exec": "Run one task and print its final text; exit code 0 when the turn completed.",
    "resume": "Continue a finished, killed or cancelled session, in its own folder.",
    "sessions": "List, show, rename and verify stored sessions.",
    "config": "The composition, without starting it.",
    "settings": "Your settings, live in running compositions.",
    "credentials": "Keys by name; values are never printed.",
    "init": "Write a commented cordis.yml and a plugins folder to start from.",
    "local": "The model that runs on this machine.",
    "dev": "Helpers for building on dsh.",
}
"""Each command and what the list of commands says about it; it is the ``app`` of the module of that name."""


class LazyCommands(TyperGroup):
    """Finds commands by name in a table and imports only the one that runs."""

    def get_params(self, ctx: Any) -> Any:
        """The options that come before the command."""
        return use_quick_values(super().get_params(ctx))

    def list_commands(self, ctx: Any) -> list[str]:
        """All command names, in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command ``cmd_name``, imported now."""
        if cmd_name not in COMMANDS:
            return None
        if cmd_name in ("run", "exec", "resume"):
            gc.disable()  # what a start builds stays: looking through it for garbage takes a sixth of the time
        command = typer.main.get_command(importlib.import_module(f"dsh.cli.{cmd_name}").app)
        command.name = cmd_name
        use_quick_values_below(command, ctx)
        return command

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """The list of commands of the help page; none of them is imported for it."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


app = typer.Typer(
    cls=LazyCommands,
    help="Run AI agents from one file, cordis.yml.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        from dsh import __version__

        typer.echo(f"dsh {__version__}")
        raise typer.Exit


@app.callback()
def options(
    home: Annotated[
        str | None, typer.Option(help="Home folder instead of $DSH_HOME or ~/.dsh.", metavar="PATH")
    ] = None,
    verbose: Annotated[int, typer.Option("--verbose", "-v", count=True, help="More log lines; twice for debug.")] = 0,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Errors only.")] = False,
    log_format: Annotated[str, typer.Option(help="Form of log lines on standard error: text or json.")] = "text",
    no_color: Annotated[bool, typer.Option("--no-color", help="No colours, as with NO_COLOR.")] = False,
    version: Annotated[
        bool, typer.Option("--version", "-V", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Options that come before the command."""
    if log_format not in ("text", "json"):
        raise typer.BadParameter(f"{log_format!r} is not one of text, json", param_hint="--log-format")
    if home is not None:
        os.environ["DSH_HOME"] = os.path.abspath(os.path.expanduser(home))
    if no_color:
        os.environ["NO_COLOR"] = "1"
    from dsh.cli.logs import configure

    configure(verbosity=-1 if quiet else verbose, form=log_format)


def _open_standard_files() -> None:
    """Give a process that was started with a closed standard file an empty one, before a log gets its number."""
    for fd, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is None:
            null = os.open(os.devnull, os.O_RDWR)
            if null != fd:
                os.dup2(null, fd)
                os.close(null)
            setattr(sys, name, open(fd, mode, encoding="utf-8", closefd=False))  # noqa: SIM115


def main() -> None:
    """Entry point of the console script."""
    _open_standard_files()
    try:
        app()
    except BrokenPipeError:  # the reader left; nothing more can be said there
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.exit(0)


if __name__ == "__main__":
    main()
