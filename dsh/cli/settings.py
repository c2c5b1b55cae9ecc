"""``dsh settings``: the user's document, over every composition and live in running ones."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dsh.cli.output import fail, guarded, needs_quotes, print_json, print_table, tell

if TYPE_CHECKING:
    from dsh.loader.rows import Row
    from dsh.settings.offline import SettingValue

app = typer.Typer(
    rich_markup_mode=None,
    add_completion=False,
    no_args_is_help=True,
    help="Your settings, live in running compositions.",
)

_WIDEST = 60
"""Characters of a value that a table shows."""

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Key = Annotated[str, typer.Argument(help="Section and key, e.g. agent-loop.maxParallelToolCalls.")]


@app.command("list")
def list_settings(as_json: AsJson = False) -> None:
    """Every known setting with its value and the layer it comes from."""
    _print(_values(), as_json)


@app.command()
def get(key: Key, as_json: AsJson = False) -> None:
    """Print the value in force and, on a terminal, where it comes from."""
    values = _values()
    found = [each for each in values if each.key == key or each.key.startswith(f"{key}.")]
    if not found:
        from dsh.cordis.nearest import did_you_mean

        fail(f'no setting "{key}"{did_you_mean(key, [each.key for each in values])}')
    if len(found) == 1 and found[0].key == key and not as_json:
        typer.echo(_shown(found[0].value))
        if sys.stdout.isatty():
            typer.echo(_from(found[0]), err=True)
    else:
        _print(found, as_json)


@app.command("set")
def set_(
    key: Key,
    value: Annotated[str, typer.Argument(help="The value, written as in cordis.yml.")],
    force: Annotated[bool, typer.Option("--force", help="Store a key that its section does not know.")] = False,
) -> None:
    """Store one value; a refused one changes nothing."""
    from dsh.loader.row_checks import SECRET_KEY

    if SECRET_KEY.search(key):
        fail(f"{key}: keys and passwords do not belong into settings; store one with `dsh credentials set NAME`")
    from dsh.loader.yamlio import YamlError, detach, parse_value

    try:
        parsed = detach(parse_value(value))
    except YamlError as error:
        fail(f"{key}: {error.reason}; {needs_quotes(value)}")
    document = _document()
    for warning in guarded(lambda: document.set(key, parsed, known_only=not force)):
        tell(warning)
    typer.echo(f"{key} = {_shown(parsed)} ({document.shown})")


@app.command()
def unset(key: Key) -> None:
    """Forget one value; the row's or the default answers again."""
    document = _document()
    for warning in guarded(lambda: document.unset(key)):
        tell(warning)


@app.command()
def path(as_json: AsJson = False) -> None:
    """Print where the settings stand; the file need not exist yet."""
    file = _document().path
    if as_json:
        print_json({"path": str(file), "exists": file.exists()})
    else:
        typer.echo(str(file))


@app.command()
def edit() -> None:
    """Open your settings in $VISUAL or $EDITOR; they are looked at before they are saved.

    A mistake is said with its place, and you can go on editing.
    """
    from dsh.cli.editor import edit_text

    document = _document()
    before: str | None = guarded(document.text)
    bases = {section: row.config for section, row in _rows().items()}
    warnings: list[str] = []

    def accept(data: bytes) -> list[str]:
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError as error:
            return [f"{document.shown}: not UTF-8 text (it has the byte 0x{data[error.start]:02x})"]
        problems: list[str]
        problems, warnings[:] = document.check(text, bases)
        return problems

    start = document.template() if before is None else before
    saved = edit_text(
        document.path.name,
        start.encode(),
        accept,
        lambda data: guarded(lambda: document.replace(before, data.decode("utf-8"))),
    )
    for warning in warnings if saved else ():
        tell(f"warning: {warning}")
    typer.echo(f"{document.shown}: saved" if saved else f"{document.shown}: nothing was changed")


def _print(values: Sequence[SettingValue], as_json: bool) -> None:
    if as_json:
        wire = [{"key": each.key, "value": each.value, "layer": each.layer, "place": each.place} for each in values]
        print_json(wire)
        return
    lines = [(each.key, "-" if each.value is None else _cut(_shown(each.value)), _from(each)) for each in values]
    print_table(lines, ("SETTING", "VALUE", "FROM"))


def _from(setting: SettingValue) -> str:
    return setting.layer if setting.place is None else f"{setting.layer}, {setting.place}"


def _cut(text: str) -> str:
    return text if len(text) <= _WIDEST else f"{text[: _WIDEST - 1]}…"


def _values() -> list[SettingValue]:
    """Every known value; one under a name like that of a secret is not shown, whoever wrote it there."""
    rows = _rows()

    def place(section: str, path: Sequence[str]) -> str | None:
        mark = rows[section].find_mark(("config", *path))
        return str(mark) if mark is not None else None

    bases = {section: row.config for section, row in rows.items()}
    values: list[SettingValue] = guarded(lambda: _document().values(bases, place))
    return [replace(each, value="***") if _looks_secret(each) else each for each in values]


def _looks_secret(setting: SettingValue) -> bool:
    from dsh.loader.row_checks import SECRET_KEY

    return isinstance(setting.value, str) and any(SECRET_KEY.search(part) for part in setting.key.split("."))


def _document() -> Any:
    from dsh.loader.home import resolve_home
    from dsh.settings.offline import OfflineSettings

    return OfflineSettings(resolve_home())


def _rows() -> dict[str, Row]:
    """The rows of ``./cordis.yml`` by settings section, as far as they can be read without starting."""
    from dsh.cli.host import default_config
    from dsh.cli.mounted import find_mounted
    from dsh.cordis.errors import HarnessError
    from dsh.loader.boot import make_source
    from dsh.settings.offline import SECTIONS

    source = make_source(default_config())
    found: dict[str, Row] = {}
    try:
        for section in SECTIONS:
            mounted = find_mounted(source, "bash-local" if section == "shell" else section)
            if mounted is not None and isinstance(mounted[1].config, dict):
                found[section] = mounted[1]
    except HarnessError:
        return {}
    return found


def _shown(value: Any) -> str:
    from dsh.interfaces.setting_names import shown

    return shown(value)
