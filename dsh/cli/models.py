"""``dsh models``: the model routes of a composition, which of them can be used, and which is the default and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dsh.cli.output import fail, guarded, paragraph, print_json, tell

if TYPE_CHECKING:
    from dsh.interfaces.control.client import Daemon

SECTION = "agent-default-model"

app = typer.Typer(
    rich_markup_mode=None,
    add_completion=False,
    invoke_without_command=True,
    help="Model routes: which can be used, which is the default and why; choose another.",
)

File = Annotated[
    Path | None, typer.Option("--file", "-f", metavar="FILE", help="The composition; ./cordis.yml otherwise.")
]


@app.callback()
def models(
    context: typer.Context,
    file: File = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Model routes: which can be used, which is the default and why; choose another."""
    if context.invoked_subcommand is not None:
        return
    path, found, daemon = routes(file)
    why = reason(path, found)
    if as_json:
        print_json({"composition": str(path), "pid": daemon and daemon.entry.pid, **found, "why": why})
    else:
        _print(path, found, why, daemon)


@app.command("set")
def set_(
    route: Annotated[str, typer.Argument(metavar="PROVIDER/MODEL", help="As `dsh models` lists them.")],
    file: File = None,
) -> None:
    """Make a route the default of every agent that names none: in your settings, live in running daemons."""
    from dsh.loader.home import resolve_home
    from dsh.settings.offline import OfflineSettings

    provider, slash, model = route.partition("/")
    if not slash or not provider.strip() or not model.strip():
        fail(f'"{route}" is no route: write PROVIDER/MODEL, as in deepseek-official/deepseek-flash', 2)
    doubts = _doubts(provider, model, file)
    document = OfflineSettings(resolve_home())
    for warning in guarded(lambda: document.set(SECTION, {"provider": provider, "model": model})):
        tell(warning)
    typer.echo(f"{provider}/{model} is the default now ({document.shown})")
    for doubt in doubts:
        tell(doubt)


def _doubts(provider: str, model: str, file: Path | None) -> list[str]:
    """What speaks against a route in this composition; nothing when that cannot be told. Leaves when no row offers the
    provider: no agent could be answered."""
    try:
        path, found, _ = routes(file)
    except typer.Exit:  # said already
        return []
    from dsh.cordis.nearest import did_you_mean
    from dsh.interfaces.control.client import show_path

    known = {each["id"]: each for each in found["providers"]}
    if provider not in known:
        hint = did_you_mean(provider, list(known)) or f" ({', '.join(known) or 'it has none'})"
        fail(f'no row of {show_path(str(path))} offers the provider "{provider}"{hint}; nothing was changed')
    doubts = []
    ids = [each["id"] for each in known[provider]["models"]]
    if ids and model not in ids:
        doubts.append(f'{provider} does not list the model "{model}"{did_you_mean(model, ids)}')
    if known[provider]["unusable"] is not None:
        doubts.append(f"{provider} cannot be used now: {known[provider]['unusable']}")
    return doubts


def routes(file: Path | None) -> tuple[Path, dict[str, Any], Daemon | None]:
    """The composition's file and its catalog: from the daemon that runs it, else from one started for this look."""
    import asyncio

    from dsh.cli.daemons import home_folder
    from dsh.cli.host import default_config
    from dsh.interfaces.control.client import ControlError, find_daemons

    path = (file or default_config()).absolute()
    for daemon in find_daemons(home_folder()):
        if Path(daemon.entry.config) == path:
            try:
                with daemon.client() as client:
                    return path, client.get("/api/models"), daemon
            except ControlError:
                continue  # it ended or has no models; the file says more
    return path, asyncio.run(_started(path)), None


async def _started(path: Path) -> dict[str, Any]:
    from dsh.cli.looking import started_or_fail
    from dsh.interfaces.catalog import catalog
    from dsh.llm.service import Llm

    async with started_or_fail(path) as app:
        llm = app.root.get(Llm)
        if llm is None:
            return {"providers": [], "default": None}
        return await catalog(app.root, llm)


# --- the default ----------------------------------------------------------------------------------------------------


def reason(path: Path, found: Mapping[str, Any]) -> str:
    """Why the default is the default, as a sentence."""
    from dsh.cli.mounted import find_mounted
    from dsh.cordis.errors import HarnessError
    from dsh.loader.boot import make_source
    from dsh.loader.home import resolve_home
    from dsh.settings.offline import OfflineSettings

    default = found["default"]
    try:
        document = OfflineSettings(resolve_home())
        chosen = document.get(SECTION)
        mounted = find_mounted(make_source(path), SECTION)
    except HarnessError as error:
        return str(error)
    if mounted is None:
        return "no row agent-default-model: every agent has to name its own route"
    if default is None:
        return "nothing is chosen"
    if isinstance(chosen, Mapping) and _is_route(chosen, default):
        return f"your choice in {document.shown}; `dsh settings unset {SECTION}` takes it back"
    row = mounted[1]
    config = row.config if isinstance(row.config, Mapping) else {}
    candidates = config.get("candidates")
    if not isinstance(candidates, list):
        return f'the row "{row.id}" says so'
    return _of_candidates(row.id, candidates, default, found["providers"])


def _of_candidates(row: str, candidates: Sequence[Any], default: Any, providers: Sequence[Mapping[str, Any]]) -> str:
    usable = {each["id"]: each["unusable"] for each in providers}
    passed = []
    for each in candidates:
        if not isinstance(each, Mapping):
            continue
        provider = each.get("provider")
        if usable.get(str(provider), "no such provider") is None and _is_route(each, default):
            break
        passed.append(f"{provider}/{each.get('model')}" + ("" if provider in usable else " (no row offers it)"))
    else:
        return f'no candidate of row "{row}" can be used, so the first one is tried and says what it lacks'
    first = f'the first candidate of row "{row}" that can be used'
    return f"{first}, after {' and '.join(passed)}" if passed else first


def _is_route(given: Mapping[str, Any], default: Mapping[str, Any]) -> bool:
    return (given.get("provider"), given.get("model")) == (default["provider"], default["model"])


# --- printing -------------------------------------------------------------------------------------------------------


def _print(path: Path, found: Mapping[str, Any], why: str, daemon: Daemon | None) -> None:
    from dsh.interfaces.control.client import show_path
    from dsh.interfaces.spending import price_text
    from dsh.interfaces.terminal_text import spelled

    where = f"daemon {daemon.entry.pid}" if daemon is not None else "no daemon of it answers; started for this look"
    typer.echo(f"{show_path(str(path))}: {where}")
    default = found["default"]
    shown = "none" if default is None else f"{default['provider']}/{default['model']}"
    if default is not None and default.get("reasoningEffort"):
        shown += f", reasoning effort {default['reasoningEffort']}"
    typer.echo(spelled(f"default: {shown}"))
    typer.echo(paragraph(why, first="  ", indent="  "))
    for provider in found["providers"]:
        state = "can be used" if provider["unusable"] is None else f"cannot be used: {provider['unusable']}"
        name = "" if provider["name"] == provider["id"] else f" ({provider['name']})"
        typer.echo(paragraph(f"{provider['id']}{name}: {state}", first="\n", indent="  "))
        if provider.get("error"):
            typer.echo(paragraph(f"its models cannot be listed: {provider['error']}", first="  ", indent="    "))
        width = max((len(model["id"]) for model in provider["models"]), default=0)
        for model in provider["models"]:
            is_default = default is not None and (provider["id"], model["id"]) == (
                default["provider"],
                default["model"],
            )
            typer.echo(spelled(f"{'*' if is_default else ' '} {model['id'].ljust(width)}  {_facts(model)}".rstrip()))
            if model.get("prices"):
                typer.echo(f"    {price_text(model['prices'])}")
    if not found["providers"]:
        typer.echo("\nno row offers a model")


def _facts(model: Mapping[str, Any]) -> str:
    facts = [f"{model['context']['contextWindow']:,} tokens"] if model.get("context") else []
    facts += ["+".join(model["inputModalities"])] if model.get("inputModalities") else []
    efforts = [each["id"] for each in (model.get("reasoning") or {}).get("efforts", ())]
    facts += [f"effort {'|'.join(efforts)}"] if efforts else []
    return "; ".join(facts)
