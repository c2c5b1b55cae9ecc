"""``dsh run``: load the plugin graph, start its agents, follow edits until told to stop."""

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from dsh import __version__
from dsh.cli.output import fail, usable_text

app = typer.Typer(rich_markup_mode=None, add_completion=False)

FORMATS = ("text", "json", "stream-json")

CONTROL = {"id": "control", "name": "dsh-control"}
"""The row by which other terminals reach the run, unless the file has its own."""


@app.command()
def run(
    file: Annotated[
        Path | None, typer.Argument(help="The composition; ./cordis.yml or the packaged one otherwise.")
    ] = None,
    patch: Annotated[list[Path] | None, typer.Option(help="Patch file laid over it; repeatable, in order.")] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="ROW.KEY=VALUE", help="One config key; repeatable.")
    ] = None,
    prompt: Annotated[str | None, typer.Option(help="First prompt for the agent.")] = None,
    agent: Annotated[str | None, typer.Option(help="Label of the agent to prompt; the first one otherwise.")] = None,
    exit_when_idle: Annotated[
        bool, typer.Option(help="Leave once no agent works any more; text piped in is the prompt.")
    ] = False,
    no_watch: Annotated[bool, typer.Option("--no-watch", help="Do not follow edits of files.")] = False,
    cwd: Annotated[Path | None, typer.Option(help="Work in this folder.")] = None,
    output: Annotated[str, typer.Option(help="Standard output: text, json or stream-json.")] = "text",
    control_port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Control API on this loopback TCP port too; 0 picks one.")
    ] = None,
) -> None:
    """Load the plugin graph, start its agents and follow edits.

    On a terminal a console opens; without one this is a daemon until a signal.
    """
    from dsh.cli.first_line import first_line, opens_console

    if output not in FORMATS:
        raise typer.BadParameter(f"{output!r} is not one of {', '.join(FORMATS)}", param_hint="--output")
    interactive = output == "text" and not exit_when_idle and opens_console()
    composition = file or ("cordis.yml" if os.path.isfile("cordis.yml") else "the packaged composition")
    with first_line(f"dsh {__version__}  {composition}", wanted=interactive) as typed:
        from dsh.cli.host import Launch, default_config
        from dsh.cli.host import run as host
        from dsh.cli.last_line import last_line

        with last_line(output, terminal=interactive) as line:
            if prompt is not None:
                usable_text(prompt, "prompt")
            if prompt is None and not interactive:
                from dsh.cli.piped_prompt import piped_prompt, tell_unread

                if not exit_when_idle:
                    tell_unread()
                elif (piped := piped_prompt()) is not None and piped.strip():
                    prompt = piped
            config = (file or default_config()).absolute()
            patches = [path.absolute() for path in patch or ()]
            enter_folder(cwd)
            front: dict[str, Any]
            if interactive:
                front = {"id": "console", "name": "dsh-console", "config": {"agent": agent, "prompt": prompt}}
            else:
                config_ = {"output": output, "prompt": prompt, "agent": agent, "exitWhenIdle": exit_when_idle}
                front = {"id": "event-stream", "name": "dsh-event-stream", "config": config_}
            launch = Launch(config, patches, set_ or (), [front], stdout=line.out, last_line=line)
            launch.follow, launch.task = not no_watch, exit_when_idle
            launch.defaults = [CONTROL]
            launch.values = {"typedAhead": typed}
            if control_port is not None:
                launch.values["controlPort"] = control_port
            raise typer.Exit(host(launch))


def enter_folder(cwd: Path | None) -> None:
    """Make ``cwd`` the process's folder, where agents without one of their own work."""
    if cwd is None:
        return
    try:
        os.chdir(cwd)
    except OSError as error:
        fail(f"--cwd {cwd}: {error.strerror}", 2)
