"""``dsh config schema``: what a composition may say, for editors, programs and people."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dsh.cli.output import fail, print_table, tell

if TYPE_CHECKING:
    from dsh.interfaces.known_plugins import KnownPlugin
    from dsh.loader.sources import Source

_SHOWN_DEFAULT = 32


def schema(
    plugin: Annotated[
        str | None, typer.Argument(metavar="PLUGIN", help="A row's id, or a plugin's name in any spelling.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write JSON schemas there, for an editor; beside it for patches."),
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--file", "-f", metavar="FILE", help="The composition; ./cordis.yml otherwise.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON schema.")] = False,
) -> None:
    """What may stand in cordis.yml: keys, types, bounds, defaults; for an editor with --out."""
    from dsh.cli.host import default_config
    from dsh.loader.boot import make_source

    source = make_source(file or default_config())
    with redirect_stdout(sys.stderr):  # plugins are imported, and some print
        known = _Known(source)
    if plugin is not None:
        _one(known, plugin, out, as_json)
    elif out is not None:
        _write_all(known, out)
    elif as_json or not sys.stdout.isatty():
        typer.echo(_text(known.composition()), nl=False)
    else:
        _list(known)


class _Known:
    """The plugins that rows of one composition may name, and its rows by id."""

    def __init__(self, source: Source) -> None:
        from dsh.interfaces.known_plugins import built_in_plugins

        self.source = source
        self.plugins: list[KnownPlugin] = list(built_in_plugins())
        self.rows: dict[str, str] = {}
        self._add_rows()

    def _add_rows(self) -> None:
        """Take in the rows, and the plugins that only they name. A broken composition has none."""
        from dsh.interfaces.known_plugins import GROUP_NAMES, find_plugin_named
        from dsh.loader.include import walk_composition
        from dsh.loader.problems import LoadError

        names = {name for each in self.plugins for name in each.names} | set(GROUP_NAMES)
        try:
            for tree, row in walk_composition(self.source):
                if tree is self.source and not row.derived_id:
                    self.rows[row.id] = row.name
                found = None if row.name in names else find_plugin_named(row.name, tree.base_dir)
                if found is not None:
                    self.plugins.append(found)
                names.add(row.name)
        except LoadError as error:
            tell(f"only the plugins that come with dsh are known, for {error}")

    def composition(self) -> dict[str, Any]:
        from dsh.interfaces.schema_export import composition_schema

        return composition_schema(self.plugins)

    def find(self, wanted: str) -> KnownPlugin:
        """The plugin of a row, or with a name. Leaves when there is none."""
        name = self.rows.get(wanted, wanted)
        for each in self.plugins:
            if name in each.names:
                return each
        from dsh.cordis.nearest import did_you_mean

        names = [name for each in self.plugins for name in each.names]
        fail(f'no row and no plugin is called "{wanted}"{did_you_mean(wanted, [*self.rows, *names])}')


# --- for editors ------------------------------------------------------------------------------------------------------


def _write_all(known: _Known, out: Path) -> None:
    from dsh.interfaces.schema_export import CUSTOM_TAGS, patch_schema, settings_schema
    from dsh.loader.home import resolve_home
    from dsh.settings.offline import SECTIONS, OfflineSettings, schema_of

    models = {ns: schema_of(ns) for ns in SECTIONS}
    sections = {ns: model.json_schema() for ns, model in models.items() if model is not None}
    home = resolve_home()
    composition = known.source.path
    assert composition is not None
    files = [
        (out, known.composition(), composition, known.source.shown),
        (
            _beside(out, "patch"),
            patch_schema(known.plugins, known.rows),
            known.source.sibling_path or composition,
            f"{composition.stem}.patch.yml",
        ),
        (
            _beside(out, "settings"),
            settings_schema(sections),
            OfflineSettings(home).path,
            OfflineSettings(home).shown,
        ),
    ]
    for path, content, _, _ in files:
        _write(path, content)
    typer.echo(f"{len(known.plugins)} plugins; what an editor needs as the first line of each file:")
    for path, _, document, shown in files:
        typer.echo(f"\n{shown}\n{_hint(path, document)}")
    typer.echo(f'\nand of its settings, for expressions:\n"yaml.customTags": {json.dumps(list(CUSTOM_TAGS))}')


def _beside(out: Path, kind: str) -> Path:
    """`cordis.schema.json` as `cordis.patch.schema.json`."""
    stem, dot, rest = out.name.partition(".")
    return out.with_name(f"{stem}.{kind}{dot}{rest}")


def _hint(schema: Path, document: Path) -> str:
    """The comment by which an editor finds the schema: relative if both are in one tree, which may move."""
    target, folder = Path(os.path.abspath(schema)), Path(os.path.abspath(document)).parent
    relative = os.path.relpath(target, folder)
    shown = str(target) if relative.startswith("..") else relative
    return f"# yaml-language-server: $schema={shown}"


def _write(path: Path, content: Mapping[str, Any]) -> None:
    try:
        path.write_text(_text(content), encoding="utf-8")
    except OSError as error:
        fail(f"{path}: cannot be written ({error.strerror})")


def _text(content: Mapping[str, Any]) -> str:
    return json.dumps(content, indent=1, ensure_ascii=False, default=str) + "\n"


# --- for people -------------------------------------------------------------------------------------------------------


def _list(known: _Known) -> None:
    from dsh.settings.keys import keys_of

    rows = []
    for each in known.plugins:
        mounted = [row for row, name in known.rows.items() if name in each.names]
        count = len([key for key in keys_of(each.declared) if not key.hidden])
        rows.append((each.names[0], str(count or ""), ", ".join(mounted), each.about))
    print_table(rows, ("PLUGIN", "KEYS", "ROWS", "ABOUT"))
    tell("`dsh config schema PLUGIN` tells its keys, `--out cordis.schema.json` writes schemas for an editor")


def _one(known: _Known, wanted: str, out: Path | None, as_json: bool) -> None:
    from dsh.settings.keys import KeyInfo, keys_of

    found = known.find(wanted)
    content = found.schema or {"$schema": "http://json-schema.org/draft-07/schema#"}
    if out is not None:
        _write(out, content)
        return
    if as_json:
        typer.echo(_text(content), nl=False)
        return
    typer.echo(f"{found.names[0]}: {found.about}" if found.about else found.names[0])
    keys: Sequence[KeyInfo] = [each for each in keys_of(found.declared) if not each.hidden]
    if not keys:
        typer.echo("It takes no config." if found.declared is None else "It does not say what config it takes.")
        return
    lines = [(_key(each), _type(each), _default(each), "live" if each.live else "", _about(each)) for each in keys]
    print_table(lines, ("KEY", "TYPE", "DEFAULT", "", "MEANING"))


def _key(key: Any) -> str:
    return str(key.path)


def _type(key: Any) -> str:
    return ", ".join(part for part in (key.type, key.bounds) if part) + (f" {key.unit}" if key.unit else "")


def _default(key: Any) -> str:
    if key.required:
        return "required"
    if key.default is None:
        return "-"
    text = json.dumps(key.default, ensure_ascii=False, default=str) if not isinstance(key.default, str) else key.default
    text = text or '""'
    return text if len(text) <= _SHOWN_DEFAULT else text[: _SHOWN_DEFAULT - 1] + "…"


def _about(key: Any) -> str:
    deprecated = f" (deprecated: {key.deprecated})" if key.deprecated else ""
    return f"{key.description}{' (secret)' if key.secret else ''}{deprecated}"
