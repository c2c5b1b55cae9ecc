"""The ``dsh`` command: global options, and commands that are imported when they are used."""

import gc
import importlib
import os
import sys
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from dsh.cli.quick_values import use_quick_values, use_quick_values_below
from dsh.cli.start import prepare

COMMANDS = {
    "run": "Load the plugin graph, start its agents and follow edits.",
    "exec": "Run one task and print its final text; exit code 0 when the turn completed.",
    "resume": "Continue a finished, killed or cancelled session, in its own folder.",
    "acp": "Serve an editor or another client of the Agent Client Protocol over standard input and output.",
    "jsonrpc": "Serve one SDK client over standard input and output.",
    "ps": "List running daemons and their agents.",
    "attach": "Talk to an agent of a running daemon from this terminal.",
    "send": "Send a prompt to an agent of a running daemon; prints the message's id.",
    "tail": "Show what happens in a session, as it happens.",
    "cancel": "Stop the turn that an agent of a running daemon is in.",
    "stop": "End a running daemon and wait until it is gone.",
    "inspect": "Show the inside of a running composition: rows, who waits, services, listeners, agents, tasks.",
    "sessions": "Stored sessions: list, search, show, rename, copy, remove, carry elsewhere, verify.",
    "plugins": "Plugins: which there are, what each does, who provides what; begin your own.",
    "config": "The composition, without starting it.",
    "settings": "Your settings, live in running compositions.",
    "credentials": "Keys by name; values are never printed.",
    "models": "Model routes: which can be used, which is the default and why; choose another.",
    "doctor": "Check this installation, home folder, composition and sessions; say what to do.",
    "completion": "A script for your shell, to complete commands, keys, values, agents and sessions.",
    "init": "Write a commented cordis.yml and a plugins folder to start from.",
    "local": "The model that runs on this machine.",
    "dev": "Helpers for building on dsh.",
}
"""Each command and what the list of commands says about it; it is the ``app`` of the module of that name."""


STARTING = ("run", "exec", "resume", "acp", "jsonrpc")
"""Commands that start a composition."""


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
        if cmd_name in STARTING:
            gc.disable()  # what a start builds stays: looking through it for garbage takes a sixth of the time
        command = typer.main.get_command(importlib.import_module(f"dsh.cli.{cmd_name}").app)
        command.name = cmd_name
        use_quick_values_below(command, ctx)
        return command

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that the arguments start with, on the profile chosen before it."""
        profile = ctx.params.get("profile")
        if profile is not None:
            from dsh.cli.profiles import ProfileError, with_profile

            if profile == "headless" and args[0] not in COMMANDS:
                args = ["exec", *args]
            try:
                args = with_profile(profile, ctx.params.get("patch") or (), args)
            except ProfileError as error:
                ctx.fail(str(error))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """The list of commands of the help page; none of them is imported for it."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


app = typer.Typer(
    cls=LazyCommands,
    help="Run AI agents from one file, cordis.yml.",
    no_args_is_help=True,
    invoke_without_command=True,
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
    context: typer.Context,
    profile: Annotated[
        str | None, typer.Option(help="A composition shipped with dsh: headless or sdk.", metavar="NAME")
    ] = None,
    patch: Annotated[
        list[Path] | None, typer.Option(metavar="FILE", help="With --profile: laid over it; repeatable, in order.")
    ] = None,
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
    if patch and profile is None:
        context.fail("--patch before a command needs --profile")
    if context.invoked_subcommand is None:
        _start_profile(context, profile, patch or [])


def _start_profile(context: typer.Context, profile: str | None, patches: list[Path]) -> None:
    """What a profile does without a command: `sdk` serves; the others need to be told more."""
    if profile is None:
        context.fail("Missing command.")
    from dsh.cli.profiles import ProfileError, profile_file

    try:
        config = profile_file(profile)
    except ProfileError as error:
        context.fail(str(error))
    if profile != "sdk":
        context.fail(f"the profile {profile} needs a command: dsh --profile {profile} exec TASK")
    from dsh.cli.jsonrpc import serve

    gc.disable()  # as in get_command
    raise typer.Exit(serve(config, patches))


def open_standard_files() -> None:
    """Give a process that was started with a closed standard file an empty one, before a log gets its number."""
    for fd, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is None:
            null = os.open(os.devnull, os.O_RDWR)
            if null != fd:
                os.dup2(null, fd)
                os.close(null)
            setattr(sys, name, open(fd, mode, encoding="utf-8", closefd=False))  # noqa: SIM115
        elif name == "stdin":
            getattr(sys, name).reconfigure(encoding="utf-8", errors="replace")
        else:  # a terminal that cannot show a character shows its number
            getattr(sys, name).reconfigure(errors="backslashreplace")


def main() -> None:
    """Run the command of this process's arguments."""
    prepare()
    open_standard_files()
    try:
        app()
    except SystemExit as end:
        if not isinstance(end.__context__, BrokenPipeError):
            raise
        _end_unexpectedly(end.__context__)  # typer would leave with code 1 and without a word
    except OSError as error:
        _end_unexpectedly(error)


def _end_unexpectedly(error: OSError) -> NoReturn:
    """Leave for what no command expects, such as a full disk; with code 0 when the reader of the output left first."""
    from dsh.cli.logs import shows_tracebacks
    from dsh.cli.output import explain, tell

    left = isinstance(error, BrokenPipeError) and _reader_left()
    if not left:
        if shows_tracebacks():
            raise error
        tell(explain(error))
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what standard output did not take is not tried again
    sys.exit(0 if left else 1)


def _reader_left() -> bool:
    """Whether nobody reads standard output any more."""
    import select

    output = select.poll()
    output.register(1, 0)  # asks for nothing but errors
    return bool(output.poll(0))


if __name__ == "__main__":
    main()
