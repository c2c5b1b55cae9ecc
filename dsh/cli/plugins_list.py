"""``dsh plugins list|info``: which plugins there are, and everything about one of them."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dsh.cli.output import fail, paragraph, print_json, print_table, tell

if TYPE_CHECKING:
    from dsh.cli.plugin_facts import ListedPlugin, PluginFacts
    from dsh.loader.resolve import Target
    from dsh.loader.sources import Source
    from dsh.settings.keys import KeyInfo

File = Annotated[
    Path | None, typer.Option("--file", "-f", metavar="FILE", help="The composition; ./cordis.yml otherwise.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def list_(
    file: File = None,
    mounted: Annotated[bool, typer.Option("--mounted", help="Only what the composition mounts.")] = False,
    as_json: AsJson = False,
) -> None:
    """List plugins: built in, installed, and files; with the rows of the composition that mount them."""
    from dsh.cli.plugin_facts import list_plugins
    from dsh.loader.problems import LoadError

    source = composition(file)
    try:
        found = list_plugins(source)
    except LoadError as error:
        if file is not None:
            fail(str(error))
        tell(str(error))
        found = list_plugins()
    found = [each for each in found if each.rows or not mounted]
    if as_json:
        print_json([_wire(each) for each in found])
        return
    titles = {
        "file": "Files of this composition",
        "installed": "Installed (entry points of dsh.plugins)",
        "built-in": "Built in",
    }
    for kind, title in titles.items():
        of_kind = sorted((each for each in found if each.kind == kind), key=lambda each: (not each.rows, each.name))
        if of_kind:
            typer.echo(f"{title}:")
            print_table(
                [(f"  {each.name}", _rows(each), each.about) for each in of_kind], ("  PLUGIN", "ROW", ""), fit=True
            )
            typer.echo("")
    typer.echo("`dsh plugins info NAME` tells all about one")


def _rows(plugin: ListedPlugin) -> str:
    """The rows that mount it; one that is called as the plugin is needs no name."""
    return ", ".join("yes" if f"dsh-{row}" == plugin.name else row for row in plugin.rows) or "-"


def composition(file: Path | None) -> Source:
    """The composition that is looked at."""
    from dsh.cli.host import default_config
    from dsh.loader.boot import make_source

    return make_source(file or default_config())


# --- one plugin -----------------------------------------------------------------------------------------------------


def info(
    name: Annotated[str, typer.Argument(help="A plugin's name, a file, or a row of the composition.")],
    file: File = None,
    as_json: AsJson = False,
) -> None:
    """Tell all about one plugin: its purpose, config, services and events, and where its source is."""
    from dsh.cli.plugin_facts import plugin_facts
    from dsh.cordis import HarnessError

    source = composition(file)
    target, listed = _find(name, source, asked=file is not None)
    try:
        with redirect_stdout(sys.stderr):  # what plugins print while they are imported
            facts = plugin_facts(listed, target)
    except HarnessError as error:
        fail(f"{name}: {error}", name=error.code)
    if as_json:
        print_json(_facts_wire(facts))
    else:
        _print(facts)


def _find(name: str, source: Source, *, asked: bool) -> tuple[Target, ListedPlugin]:
    """The plugin that a name, a path from here or from the composition, or the id of a row means.

    asked: the composition was named, so one that cannot be read ends the command.
    """
    from dsh.cli.plugin_facts import ListedPlugin, list_plugins, place_of
    from dsh.loader.include import walk_composition
    from dsh.loader.names import is_group
    from dsh.loader.problems import LoadError
    from dsh.loader.resolve import ResolveError, resolve

    try:
        rows = {tree.prefix + row.id: (tree, row) for tree, row in walk_composition(source)}
        listed = list_plugins(source)
    except LoadError as error:
        if asked:
            fail(str(error))
        tell(str(error))
        rows, listed = {}, list_plugins()
    wanted, base = name, source.base_dir
    if name in rows:
        wanted, base = rows[name][1].name, rows[name][0].base_dir
    elif name.endswith(".py") and Path(name).is_file():
        wanted = str(Path(name).absolute())
    try:
        target = resolve(wanted, base)
    except ResolveError as error:
        fail(f"{error}", name=error.code)
    place = place_of(target)
    if place is None:
        what = "a group of rows" if is_group(wanted) else "part of a browser page and never mounted"
        fail(f"{name} is no plugin: it is {what}")
    path = str(target.path) if target.path is not None else None
    for each in listed:
        if (each.module, each.attribute) == place or (path is not None and each.file == path):
            return target, each
    from dsh.cli.plugin_facts import module_file

    kind: Any = "file" if path is not None else "installed"
    return target, ListedPlugin(wanted, kind, *place, path or module_file(place[0]))


def _print(facts: PluginFacts) -> None:
    from dsh.loader.resolve import show_path

    listed = facts.listed
    kind = f"installed with {listed.distribution}" if listed.distribution else listed.kind
    mounted = f"mounted as {', '.join(listed.rows)}" if listed.rows else "not mounted"
    typer.echo(f"{listed.name} ({kind}, {mounted})")
    if listed.file is not None:
        typer.echo(f"source: {show_path(listed.file)}")
    if facts.doc:
        typer.echo(f"\n{facts.doc}")
    typer.echo("\nConfig:")
    if not facts.keys:
        typer.echo("  anything; it declares no keys" if facts.has_config else "  none")
    for key in facts.keys:
        if not key.hidden:
            _print_key(key)
    for title, lines in (
        ("Provides", [*facts.provides, *(["something whose name its source does not tell"] if facts.opaque else [])]),
        ("Needs", facts.needs),
        ("Uses if there", facts.uses),
        ("Events it defines", [f"{event} ({mode.replace('_', ' ')})" for event, mode in facts.declares]),
        ("Events it hears", facts.listens),
    ):
        if lines:
            typer.echo(paragraph(f"{title}: {', '.join(lines)}", indent="  ", first="\n"))


def _print_key(key: KeyInfo) -> None:
    from dsh.cordis.jsonio import encode_str, snapshot_json

    notes = [key.type + (f" ({key.bounds}{f' {key.unit}' if key.unit else ''})" if key.bounds else "")]
    if not key.bounds and key.unit:
        notes[0] += f" in {key.unit}"
    if key.required:
        notes.append("required")
    elif key.default is not None and not key.secret:
        notes.append(f"default {encode_str(snapshot_json(key.default))}")
    notes += ["live"] if key.live else []
    notes += [f"deprecated: {key.deprecated}" if isinstance(key.deprecated, str) else "deprecated"] * bool(
        key.deprecated
    )
    typer.echo(paragraph(f"{key.path}: {', '.join(notes)}", indent="      ", first="  "))
    if key.description:
        typer.echo(paragraph(key.description, indent="      ", first="      "))


def _wire(listed: ListedPlugin) -> dict[str, Any]:
    return {
        "name": listed.name,
        "kind": listed.kind,
        "about": listed.about,
        "rows": listed.rows,
        "file": listed.file,
        "distribution": listed.distribution,
    }


def _facts_wire(facts: PluginFacts) -> dict[str, Any]:
    keys = [
        {
            "key": key.path,
            "type": key.type,
            "default": None if key.secret else key.default,
            "required": key.required,
            "live": key.live,
            "allowed": list(key.allowed) or None,
            "bounds": key.bounds or None,
            "unit": key.unit,
            "description": key.description,
        }
        for key in facts.keys
        if not key.hidden
    ]
    return {
        **_wire(facts.listed),
        "doc": facts.doc,
        "config": keys,
        "provides": facts.provides,
        "needs": facts.needs,
        "uses": facts.uses,
        "declares": [{"event": event, "mode": mode} for event, mode in facts.declares],
        "listens": facts.listens,
    }
