"""``dsh doctor``: what of an installation works, what does not, and what to do about it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from dsh.cli.output import fail, paragraph, print_json
from dsh.interfaces.display.amounts import counted

if TYPE_CHECKING:
    from dsh.cli.health.finding import Finding

app = typer.Typer(rich_markup_mode=None, add_completion=False)

MARKS: Final = {"ok": "✓", "warning": "!", "problem": "✗"}
PLAIN_MARKS: Final = {"ok": "+", "warning": "!", "problem": "x"}
"""For a terminal that cannot show the others."""


@app.command()
def doctor(
    file: Annotated[
        Path | None, typer.Argument(help="The composition; ./cordis.yml or the packaged one otherwise.")
    ] = None,
    online: Annotated[bool, typer.Option("--online", help="Ask the default model for one word.")] = False,
    fix: Annotated[bool, typer.Option("--fix", help="Do what can be done: file modes, what the dead left.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Check this installation, home folder, composition and sessions; say what to do.

    One line for each check; exit code 1 when something does not work. Without --fix nothing is changed.
    """
    try:
        os.getcwd()
    except OSError:
        fail("the folder that this was called in is gone; change into another")
    findings = []
    for found in _findings(file, online=online):
        done = _fixed(found) if fix else None
        findings.append((found, done))
        if not as_json:
            _print(found, done)
    left = [found for found, done in findings if done is None]
    bad = [found for found in left if found.level == "problem"]
    if as_json:
        wire = [
            {
                "check": found.what,
                "level": found.level,
                "text": found.text,
                "remedy": found.remedy,
                "fixable": found.fix is not None,
                "fixed": done,
            }
            for found, done in findings
        ]
        print_json({"ok": not bad, "findings": wire})
    else:
        _print_end(left, bad)
    if bad:
        raise typer.Exit(1)


def _findings(file: Path | None, *, online: bool) -> Iterator[Finding]:
    import asyncio

    from dsh.cli.health.composition import check_composition, check_models, mounted_plugins
    from dsh.cli.health.home import check_home
    from dsh.cli.health.machine import check_machine
    from dsh.cli.health.sessions import check_sessions
    from dsh.cli.host import default_config
    from dsh.cli.session_place import sessions_of
    from dsh.loader.home import resolve_home

    home = resolve_home()
    config = (file or default_config()).absolute()
    packaged = file is None and config != Path("cordis.yml").absolute()
    root = Path(sessions_of(config) or home.join("sessions"))
    yield from check_machine(mounted_plugins(config), root)
    yield from check_home(home, Path(os.getcwd()), config)
    yield from check_sessions(root)
    sound = True
    for found in check_composition(config, packaged=packaged):
        sound = sound and found.level != "problem"
        yield found
    if sound:
        yield from asyncio.run(check_models(config, online=online))


def _fixed(found: Finding) -> str | None:
    """What was done about it; None when nothing was."""
    if found.fix is None:
        return None
    try:
        return found.fix()
    except OSError as error:
        typer.echo(f"  cannot be mended: {error.strerror or error}", err=True)
        return None


def _print(found: Finding, done: str | None) -> None:
    mark = _marks()["ok" if done is not None else found.level]
    text = f"{found.text}: {done}" if done is not None else found.text
    if found.remedy is not None and done is None:
        text += f" -> {found.remedy}"
        text += " (or --fix)" if found.fix is not None else ""
    lines = text.split("\n")
    typer.echo(paragraph(f"{found.what}: {lines[0]}", first=f"{mark} ", indent="    "))
    for line in lines[1:]:
        typer.echo(paragraph(line, first="    ", indent="    "))


def _print_end(left: list[Finding], bad: list[Finding]) -> None:
    warnings = sum(found.level == "warning" for found in left)
    if bad:
        typer.echo(f"\n{counted(len(bad), 'problem')}, {counted(warnings, 'warning')}")
    else:
        typer.echo("\nall well" if not warnings else f"\nnothing is broken; {counted(warnings, 'warning')}")


def _marks() -> dict[str, str]:
    try:
        "✓✗".encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return PLAIN_MARKS
    return MARKS
