"""``dsh resume``: go on with a stored session."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dsh import __version__
from dsh.cli.output import fail, tell
from dsh.cli.run import CONTROL, FORMATS

if TYPE_CHECKING:
    from dsh.cli.last_line import LastLine
    from dsh.sessions.stored import StoredSession

app = typer.Typer(rich_markup_mode=None, add_completion=False)

TAIL = 6
"""Messages of the session that a console shows before the prompt."""


@app.command()
def resume(
    session: Annotated[str | None, typer.Argument(help="Id, unique beginning of one, or part of a title.")] = None,
    task: Annotated[str | None, typer.Argument(help="One task to run; - reads it from standard input.")] = None,
    last: Annotated[bool, typer.Option("--last", help="The session with the latest activity.")] = False,
    config: Annotated[
        Path | None, typer.Option(help="The composition; ./cordis.yml or the packaged one otherwise.")
    ] = None,
    patch: Annotated[list[Path] | None, typer.Option(help="Patch file laid over it; repeatable, in order.")] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="ROW.KEY=VALUE", help="One config key; repeatable.")
    ] = None,
    output: Annotated[str, typer.Option(help="Standard output: text, json or stream-json.")] = "text",
    model: Annotated[str | None, typer.Option(metavar="PROVIDER/MODEL", help="With a task: another model.")] = None,
    fork: Annotated[bool, typer.Option("--fork", help="Continue on a copy, also of a session open elsewhere.")] = False,
    at: Annotated[
        int | None, typer.Option(min=0, metavar="SEQ", help="With --fork: copy up to this event, not to the end.")
    ] = None,
) -> None:
    """Continue a finished, killed or cancelled session, in its own folder.

    With a task it runs like `dsh exec`; without one like `dsh run`.
    """
    from dsh.cli.first_line import first_line, opens_console

    if output not in FORMATS:
        raise typer.BadParameter(f"{output!r} is not one of {', '.join(FORMATS)}", param_hint="--output")
    if last and session is not None and task is None:  # `dsh resume --last TASK`
        session, task = None, session
    interactive = task is None and output == "text" and opens_console()
    with first_line(f"dsh {__version__}  {session or 'the last session'}", wanted=interactive) as typed:
        from dsh.cli.host import default_config
        from dsh.cli.last_line import last_line
        from dsh.cli.session_place import sessions_of
        from dsh.cli.sessions import find

        with last_line(output, terminal=interactive) as line:
            if last and session is not None:
                fail("give a session or --last, not both", 2)
            if not last and session is None:
                fail("name a session, or use --last; `dsh sessions list` shows them", 2)
            if at is not None and not fork:
                fail("--at says where a copy ends and needs --fork", 2)
            chosen = (config or default_config()).absolute()
            patches = [path.absolute() for path in patch or ()]
            root = sessions_of(chosen, patches, set_ or ())
            entry = find(session, root, last=last)
            if fork:
                from dsh.cli.copies import copy_of

                entry = copy_of(entry, root, at)
            else:
                _refuse_if_open(entry)
            _enter(entry)
            if task is not None:
                from dsh.cli.exec import run_task

                code = run_task(line, chosen, task, patches, set_ or (), output, model, entry.id)
            else:
                code = _continue(line, entry, chosen, patches, set_ or [], output, typed)
            if code:
                from dsh.cli.copies import after_damage

                after_damage(entry)
            raise typer.Exit(code)


def _refuse_if_open(entry: StoredSession) -> None:
    from dsh.sessions.stored import lease_state

    state = lease_state(entry)
    if state.locked:
        refusal = state.record.refusal(entry.id)
        fail(str(refusal), name=refusal.code)


def _enter(entry: StoredSession) -> None:
    """Work where the session worked; say so when that folder is gone."""
    cwd = entry.header.cwd
    if cwd is None or cwd == os.getcwd():
        return
    try:
        os.chdir(cwd)
    except OSError as error:
        tell(f"the session's folder {cwd} cannot be used ({error.strerror}); staying here")


def _continue(
    line: LastLine,
    entry: StoredSession,
    config: Path,
    patches: list[Path],
    sets: list[str],
    output: str,
    typed: list[str],
) -> int:
    """Run the composition with the session in the place of one configured agent."""
    from dsh.cli.host import Launch, run
    from dsh.cli.mounted import find_mounted
    from dsh.loader.boot import make_source
    from dsh.loader.problems import LoadError
    from dsh.loader.sources import UsageError

    source = make_source(config, overlays=patches, sets=sets)
    try:
        found = find_mounted(source, "agent-loop")
    except LoadError as error:
        fail(str(error), 2 if isinstance(error, UsageError) else 1)
    if found is None:
        fail(f"{config}: no row mounts the agent loop, so nothing can continue a session")
    place, row = found
    labels = _labels(row.config)
    label = next((each for each in labels if entry.id.startswith(f"{each}-")), labels[0] if labels else None)
    changes: list[dict[str, Any]] = []
    if label is None:
        if place is not source:
            fail(f"{place.shown}: the agent loop of this included file names no agent, so none can continue a session")
        label = "resumed"
        own = row.config if isinstance(row.config, dict) else {}
        changes = [{"id": row.id, "config": {**own, "agents": [{"id": label}]}}]
    identity = {"id": entry.id, "resume": True, "restoreRoute": True}
    values = {"configuredAgentIdentities": {label: identity}, "typedAhead": typed}
    if line.out is None:
        front: dict[str, Any] = {"id": "console", "name": "dsh-console", "config": {"agent": label, "tail": TAIL}}
        return run(Launch(config, patches, sets, [front], [CONTROL], changes, values))
    given = {"output": output, "agent": label, "requireAgents": True}
    front = {"id": "event-stream", "name": "dsh-event-stream", "config": given}
    return run(Launch(config, patches, sets, [front], [CONTROL], changes, values, stdout=line.out, last_line=line))


def _labels(config: Any) -> list[str]:
    agents = config.get("agents") if isinstance(config, dict) else None
    if not isinstance(agents, list):
        return []
    return [each["id"] for each in agents if isinstance(each, dict) and isinstance(each.get("id"), str)]
