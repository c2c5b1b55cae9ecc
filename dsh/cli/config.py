"""``dsh config``: the composition, looked at without starting it."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Annotated, Any

import typer

from dsh.cli import config_diff, config_edit, config_schema, config_values
from dsh.cli.output import fail, print_json, tell

app = typer.Typer(
    rich_markup_mode=None, add_completion=False, no_args_is_help=True, help="The composition, without starting it."
)
app.command("get")(config_values.get)
app.command("set")(config_values.set_)
app.command("unset")(config_values.unset)
app.command("diff")(config_diff.diff)
app.command("edit")(config_edit.edit)
app.command("schema")(config_schema.schema)

File = Annotated[Path | None, typer.Argument(help="The composition; ./cordis.yml or the packaged one otherwise.")]
Patch = Annotated[list[Path] | None, typer.Option(help="Patch file laid over it; repeatable, in order.")]
Sets = Annotated[list[str] | None, typer.Option("--set", metavar="ROW.KEY=VALUE", help="One config key; repeatable.")]


@app.command()
def show(
    file: File = None,
    patch: Patch = None,
    set_: Sets = None,
    default: Annotated[bool, typer.Option("--default", help="Without the layers over the file.")] = False,
) -> None:
    """Print the composed rows as one document, each run of rows with its origin."""
    from dsh.interfaces.offline import show as compose
    from dsh.loader.problems import LoadError

    try:
        with redirect_stdout(sys.stderr):  # what plugins print is not the document
            text, warnings = compose(_source(file, patch, set_), user_layers=not default)
    except LoadError as error:
        fail(str(error))
    typer.echo(text, nl=False)
    for warning in warnings:
        tell(str(warning))


@app.command()
def check(
    file: File = None,
    patch: Patch = None,
    set_: Sets = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Parse, resolve and validate everything without starting it; exit code 1 when something is wrong."""
    from dsh.interfaces.offline import check as examine

    source = _source(file, patch, set_)
    with redirect_stdout(sys.stderr):  # plugins are imported, and some print
        result = examine(source)
        notes = _dropped(source)
    problems, warnings = result.problems, result.warnings
    if as_json:
        lists = {"problems": [_wire(each) for each in problems], "warnings": [_wire(each) for each in warnings]}
        print_json({"ok": result.ok, "rows": result.rows, **lists, "notes": [_wire(each) for each in notes]})
    else:
        for warning in warnings:
            tell(f"warning: {warning}")
        for problem in problems:
            tell(str(problem))
        for note in notes:
            typer.echo(f"note: {note}")
        if not problems:
            found = f"{len(warnings)} warning{'s' * (len(warnings) > 1)}" if warnings else "nothing wrong"
            typer.echo(f"{source.shown}: {result.rows} rows, {found}")
    if problems:
        raise typer.Exit(1)


def _source(file: Path | None, patch: list[Path] | None, sets: list[str] | None) -> Any:
    from dsh.cli.host import default_config
    from dsh.loader.boot import make_source

    return make_source(file or default_config(), overlays=patch or (), sets=sets or ())


def _dropped(source: Any) -> list[Any]:
    """What patches take out of the file by replacing configs whole; nothing of a composition that cannot be read."""
    from dsh.cli.differences import dropped
    from dsh.loader.problems import LoadError

    try:
        return list(dropped(source.read(user_layers=False).composition.rows, source.read().composition.rows))
    except LoadError:
        return []


def _wire(problem: Any) -> dict[str, Any]:
    fields = {
        "message": problem.message,
        "file": problem.file,
        "line": problem.line,
        "row": problem.row,
        "key": problem.key,
        "plugin": problem.plugin,
        "allowed": list(problem.allowed) or None,
        "nearest": problem.nearest,
    }
    return {key: value for key, value in fields.items() if value is not None}
