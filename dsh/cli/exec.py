"""``dsh exec``: one task, then leave.

Annotations are objects here and not texts, as in the module of each command that starts a composition: typer reads
them, and evaluating texts takes a while.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dsh.cli.output import fail, read_stdin, usable_text
from dsh.cli.run import FORMATS, enter_folder

if TYPE_CHECKING:
    from dsh.cli.last_line import LastLine

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command("exec")
def exec_(
    task: Annotated[str, typer.Argument(help="What to do; - reads it from standard input.")],
    config: Annotated[
        Path | None, typer.Option(help="The composition; ./cordis.yml or the packaged one otherwise.")
    ] = None,
    patch: Annotated[list[Path] | None, typer.Option(help="Patch file laid over it; repeatable, in order.")] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="ROW.KEY=VALUE", help="One config key; repeatable.")
    ] = None,
    cwd: Annotated[Path | None, typer.Option(help="Work in this folder.")] = None,
    model: Annotated[str | None, typer.Option(metavar="PROVIDER/MODEL", help="Model instead of the default.")] = None,
    session: Annotated[str | None, typer.Option(help="Continue this session: id or unique beginning.")] = None,
    fork: Annotated[bool, typer.Option("--fork", help="With --session: continue on a copy of it.")] = False,
    timeout: Annotated[float | None, typer.Option(min=0.001, help="Cancel the run after this many seconds.")] = None,
    output: Annotated[str, typer.Option(help="Standard output: text, json or stream-json.")] = "text",
) -> None:
    """Run one task and print its final text; exit code 0 when the turn completed."""
    if output not in FORMATS:
        raise typer.BadParameter(f"{output!r} is not one of {', '.join(FORMATS)}", param_hint="--output")
    from dsh.cli.host import default_config
    from dsh.cli.last_line import last_line

    with last_line(output) as line:
        chosen = (config or default_config()).absolute()
        patches = [path.absolute() for path in patch or ()]
        enter_folder(cwd)
        session_id = None
        if session is not None:
            from dsh.cli.session_place import sessions_of
            from dsh.cli.sessions import find

            root = sessions_of(chosen, patches, set_ or ())
            entry = find(session, root)
            if fork:
                from dsh.cli.copies import copy_of

                entry = copy_of(entry, root)
            session_id = entry.id
        elif fork:
            fail("--fork copies a session and needs --session", 2)
        raise typer.Exit(run_task(line, chosen, task, patches, set_ or (), output, model, session_id, timeout))


def run_task(
    line: "LastLine",
    config: Path,
    task: str,
    patches: Any = (),
    sets: Any = (),
    output: str = "text",
    model: str | None = None,
    session_id: str | None = None,
    timeout: float | None = None,
) -> int:
    """Run the one-shot runner on a composition, its output going to `line`; the exit code."""
    from dsh.cli.host import Launch, run

    task = usable_text(read_stdin() if task == "-" else task, "task")
    provider, _, name = (model or "").partition("/")
    if model is not None and not (provider and name):
        fail(f"--model {model}: expected PROVIDER/MODEL, such as deepseek-official/deepseek-flash", 2)
    given = {
        "task": task,
        "output": output,
        "provider": provider or None,
        "model": name or None,
        "sessionId": session_id,
        "timeoutSeconds": timeout,
    }
    row = {"id": "headless", "name": "dsh-headless", "config": {k: v for k, v in given.items() if v is not None}}
    alone = {"startConfiguredAgents": False}
    return run(
        Launch(config, patches, sets, [row], values=alone, follow=False, task=True, stdout=line.out, last_line=line)
    )
