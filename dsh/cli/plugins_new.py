"""``dsh plugins new``: a plugin to start from, with a test and a row."""

from __future__ import annotations

import ast
import keyword
import os
import re
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from dsh.cli.new_files import refuse_existing, write_new
from dsh.cli.output import fail, print_json, tell

TEMPLATES = Path(__file__).parent / "plugin_templates"
"""A plugin called ``my-plugin`` of each kind, and its test."""

KINDS: Mapping[str, Mapping[str, Any]] = {
    "tool": {"greeting": "Hello"},
    "listener": {"slowMs": 1000},
    "service": {"defaultLanguage": "en"},
    "adapter": {"prefix": "You said:"},
}
"""Each kind of plugin, and the config that its row begins with."""

PLACEHOLDERS = {"my_plugin", "MyPlugin", "MyPluginAdapter"}
"""What the templates call theirs."""

TAKEN: Mapping[str, frozenset[str]] = {
    "tool": frozenset({"bash", "read", "write", "edit", "now"}),
    "listener": frozenset(),
    "service": frozenset(
        {"agents", "sessions", "events", "registry", "fs", "subprocess", "shell", "settings", "credentials"}
    ),
    "adapter": frozenset({"demo", "local", "deepseek-official"}),
}
"""What else of each kind has a name already, beside the rows that dsh brings."""

NAME = re.compile(r"[a-z][a-z0-9]*([-_][a-z0-9]+)*")
CONFIG = Path("cordis.yml")


def new(
    name: Annotated[str, typer.Argument(help="Small letters, digits and dashes, such as word-count.")],
    tool: Annotated[bool, typer.Option("--tool", help="Something the agent can call; the default.")] = False,
    listener: Annotated[bool, typer.Option("--listener", help="Hears of what happens.")] = False,
    service: Annotated[bool, typer.Option("--service", help="Something that other plugins use.")] = False,
    adapter: Annotated[bool, typer.Option("--adapter", help="A model provider.")] = False,
    into: Annotated[Path, typer.Option(metavar="DIR", help="Where to write; made if missing.")] = Path("plugins"),
    as_json: Annotated[bool, typer.Option("--json", help="Print what was written as JSON.")] = False,
) -> None:
    """Write a plugin with a typed, live setting, a test that passes, and its row in ./cordis.yml.

    Nothing that exists is overwritten. Without a cordis.yml in this folder the row is printed.
    """
    chosen = [kind for kind, wanted in zip(KINDS, (tool, listener, service, adapter), strict=True) if wanted]
    if len(chosen) > 1:
        fail(f"give one of {', '.join(f'--{kind}' for kind in chosen)}", 2)
    kind = chosen[0] if chosen else "tool"
    names = _names(name, kind)
    files = {
        into / f"{names['my_plugin']}.py": _filled(f"{kind}.py", names),
        into / f"test_{names['my_plugin']}.py": _filled(f"{kind}_test.py", names),
    }
    plugin, test = files
    row = {"id": names["my-plugin"], "name": _row_name(plugin), "config": dict(KINDS[kind])}
    refuse_existing(files)
    config = CONFIG if CONFIG.exists() else None
    if config is not None:
        _check_row(config, row)
    write_new(files)
    if config is not None:
        _add_row(config, row)
    if as_json:
        print_json(
            {
                "kind": kind,
                "plugin": str(plugin),
                "test": str(test),
                "row": row,
                "config": None if config is None else str(config),
            }
        )
        return
    for path in files:
        typer.echo(f"wrote {path}")
    if config is not None:
        typer.echo(f"added the row {row['id']} to {config}")
    else:
        typer.echo(
            f"\nThere is no cordis.yml in this folder. The row for the one you use:\n\n{_row_text(row)}", nl=False
        )
    typer.echo(f"\nNext:\n{_next_steps(kind, names, test, config)}")


# -- names ------------------------------------------------------------------------------------------------------------


def _names(name: str, kind: str) -> dict[str, str]:
    """What stands for ``my-plugin`` in each spelling of the templates. Leaves with code 2 for a name that cannot be."""

    def refuse(why: str) -> NoReturn:
        fail(f"{name!r} cannot be the name of a plugin: {why}", 2)

    if not NAME.fullmatch(name):
        meant = re.sub(r"[^a-z0-9]+", "-", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", name).lower()).strip("-")
        hint = f"; for example {meant}" if NAME.fullmatch(meant) else ", such as word-count"
        refuse(f"a name is small letters and digits, in words joined by dashes{hint}")
    words = re.split("[-_]", name)
    snake, kebab = "_".join(words), "-".join(words)
    if keyword.iskeyword(snake) or keyword.issoftkeyword(snake):
        refuse("it is a word of the Python language")
    if snake in sys.stdlib_module_names or _is_installed(snake):
        refuse("a module that is installed has it, which tests beside the file would no longer find")
    if snake.startswith("test_") or snake in ("test", "conftest"):
        refuse("pytest would take the file for a test")
    pascal = "".join(word.capitalize() for word in words)
    names = {"my-plugin": kebab, "my_plugin": snake, "MyPlugin": pascal, "myPlugin": pascal[0].lower() + pascal[1:]}
    if kebab in _built_in_names() or kebab in TAKEN[kind]:
        refuse("dsh has something of that name")
    if _words_used(f"{kind}.py") & {snake, pascal}:
        refuse("the file that is written uses that word itself")
    return names


def _is_installed(module: str) -> bool:
    found = find_spec(module)
    return found is not None and found.origin is not None  # a folder without code has no origin


def _built_in_names() -> set[str]:
    from dsh.loader.names import CORDIS_PLUGINS, PLUGINS

    return {*PLUGINS, *CORDIS_PLUGINS}


def _words_used(template: str) -> set[str]:
    """The names that a template's code uses besides those it is given."""
    used: set[str] = set()
    for node in ast.walk(ast.parse((TEMPLATES / template).read_text("utf-8"))):
        if isinstance(node, ast.Name):
            used.add(node.id)
        elif isinstance(node, ast.arg):
            used.add(node.arg)
        elif isinstance(node, (ast.alias, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            used.add(node.name)
    return used - PLACEHOLDERS


def _filled(template: str, names: Mapping[str, str]) -> bytes:
    text = (TEMPLATES / template).read_text("utf-8")
    for placeholder, name in names.items():
        text = text.replace(placeholder, name)
    return text.encode("utf-8")


def _row_name(plugin: Path) -> str:
    """How a row of ./cordis.yml names the file."""
    relative = os.path.relpath(plugin)
    return relative if relative.startswith("..") else f"./{relative}"


# -- the row ----------------------------------------------------------------------------------------------------------


def _check_row(config: Path, row: Mapping[str, Any]) -> None:
    """Leave before anything is written if the file cannot take the row."""
    from dsh.cordis import HarnessError
    from dsh.loader.raw_rows import walk_rows
    from dsh.loader.writeback import edit_rows

    def look(rows: list[Any]) -> list[Any]:
        if any(each.get("id", each.get("name")) == row["id"] for each in walk_rows(rows)):
            fail(f'{config} has a row "{row["id"]}" already; nothing was written')
        return rows

    try:
        edit_rows(config, look)
    except HarnessError as error:
        fail(f"{error}; nothing was written")


def _add_row(config: Path, row: Mapping[str, Any]) -> None:
    """Put the row behind the last one that mounts a file, else at the end."""
    from dsh.cordis import HarnessError
    from dsh.loader.writeback import edit_rows

    def add(rows: list[Any]) -> list[Any]:
        own = [place for place, each in enumerate(rows) if _mounts_file(each)]
        place = own[-1] + 1 if own else len(rows)
        return [*rows[:place], dict(row), *rows[place:]]

    try:
        for warning in edit_rows(config, add):
            tell(warning)
    except HarnessError as error:
        fail(f"{error}. The plugin and its test were written; the row is missing:\n{_row_text(row)}")


def _mounts_file(row: Any) -> bool:
    return isinstance(row, dict) and str(row.get("name", "")).startswith(("./", "../", "/"))


def _row_text(row: Mapping[str, Any]) -> str:
    from dsh.loader.yamlio import dump_yaml

    return dump_yaml([dict(row)])


# -- words ------------------------------------------------------------------------------------------------------------


def _next_steps(kind: str, names: Mapping[str, str], test: Path, config: Path | None) -> str:
    snake, kebab = names["my_plugin"], names["my-plugin"]
    steps = [(f"python -m pytest {test}", "its test (needs pytest: pip install pytest)")]
    if config is not None:
        steps.append(("dsh config check", "the whole composition, without starting it"))
        if kind == "tool":
            steps.append((f"""dsh exec 'call {snake} {{"name": "Ada"}}'""", "call it; without a model the demo does"))
        elif kind == "adapter":
            steps.append((f"dsh exec hello --model {kebab}/any", "let it answer"))
        steps.append(("dsh run", "and edit the file or its setting while it runs"))
    width = max(len(command) for command, _ in steps)
    return "\n".join(f"  {command.ljust(width)}   {words}" for command, words in steps)
