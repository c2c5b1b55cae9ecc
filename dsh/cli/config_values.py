"""``dsh config get|set|unset``: one value of the composition, in the file that says it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dsh.cli.output import fail, failures, needs_quotes, print_json, tell

if TYPE_CHECKING:
    from dsh.interfaces.drafts import Draft, Layer, Place
    from dsh.loader.problems import Problem
    from dsh.loader.sources import Source

File = Annotated[
    Path | None, typer.Option("--file", "-f", metavar="FILE", help="The composition; ./cordis.yml otherwise.")
]
Patch = Annotated[list[Path] | None, typer.Option(metavar="FILE", help="Patch file laid over it; repeatable.")]
Target = Annotated[
    str, typer.Argument(metavar="ROW.KEY", help="A row and a key, e.g. agent-loop.maxParallelToolCalls.")
]
LayerName = Annotated[
    str | None,
    typer.Option(metavar="file|user", help="Edit the row's own file, or the patch file beside it, and no other."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]

_ATTEMPTS = 5
_NULLS = ("null", "Null", "NULL", "~")
_LAYERS = {
    "user": "your patch",
    "patch": "a patch",
    "arguments": "the command line",
    "default": "the default",
    "program": "the program",
}


def get(
    target: Annotated[str, typer.Argument(metavar="ROW[.KEY]", help="A row, or a key of it.")],
    file: File = None,
    patch: Patch = None,
    as_json: AsJson = False,
) -> None:
    """Print a value, and on standard error where it comes from."""
    from dataclasses import replace

    from dsh.interfaces.drafts import Draft
    from dsh.loader.problems import LoadError

    source = composition(file, patch)
    with failures():
        place = Draft(source).find(target)
        if not place.found and place.layer != "default":
            raise place.nothing()
    below: Place | None = None
    if place.layer in ("user", "patch", "arguments"):
        try:
            below = Draft(replace(source, sibling=False, overlays=(), sets=())).find(target)
        except LoadError:  # the row comes from the patch
            below = None
    if as_json:
        wire = _wire(place)
        if below is not None and below.found:
            wire["overrides"] = _wire(below)
        print_json(wire)
        return
    typer.echo(_shown(place))
    where = _where(place)
    if below is not None and below.found:
        where += f"; {_where(below)} says {_one_line(below)}" if below.keys else f"; over {_where(below)}"
    typer.echo(where, err=True)
    _tell_setting(place)


def set_(
    target: Target,
    value: Annotated[str, typer.Argument(help="The value, written as in cordis.yml.")],
    file: File = None,
    patch: Patch = None,
    layer: LayerName = None,
) -> None:
    """Change one value in the file that says it; a value that is refused changes nothing."""
    from dsh.loader.row_checks import SECRET_KEY
    from dsh.loader.yamlio import YamlError, parse_value

    try:
        parsed = parse_value(value)
    except YamlError as error:
        fail(f"{target}: {error.reason}; {needs_quotes(value)}")
    if parsed is None and value.strip() not in _NULLS:
        parsed = value  # '' is the empty text; who means nothing says null
    if SECRET_KEY.search(target) and isinstance(parsed, str):
        hint = "store one with `dsh credentials set NAME`, or say `!env NAME`"
        fail(f"{target}: keys and passwords do not belong into a composition; {hint}")
    as_text = ""
    if isinstance(parsed, Mapping) and not value.lstrip().startswith("{"):
        as_text = needs_quotes(value)
    source = composition(file, patch, own=True)
    _edit(source, target, layer, lambda draft, to: draft.set(target, parsed, to), as_text)


def unset(target: Target, file: File = None, patch: Patch = None, layer: LayerName = None) -> None:
    """Take one value out of the file that says it; what is below it, or the default, answers again."""
    _edit(composition(file, patch, own=True), target, layer, lambda draft, to: draft.unset(target, to))


# --- editing ----------------------------------------------------------------------------------------------------------


def _edit(
    source: Source, target: str, layer: str | None, change: Callable[[Draft, Layer | None], Place], as_text: str = ""
) -> None:
    """Make the edit, look at the composition with it, write it; again if somebody saved the file meanwhile.

    `as_text` is said where a text was wanted.
    """
    from dsh.interfaces.drafts import Draft
    from dsh.loader.writeback import FileChangedError

    to: Any = known_layer(layer)
    with failures():
        for left in reversed(range(_ATTEMPTS)):
            draft = Draft(source)
            place = change(draft, to)
            _check(source, draft, as_text)
            try:
                draft.write()
                break
            except FileChangedError:
                if not left:
                    raise
        in_force = draft.find(target)
    for warning in draft.warnings:
        tell(warning)
    set_now = place.found or place.layer == "default"
    typer.echo(f"{target} = {_one_line(place)} ({_where(place)})" if set_now else f"{target} is not set any more")
    if in_force.mark != place.mark and in_force.found:
        tell(f"not in force: {_where(in_force)} says {_one_line(in_force)}")
    _tell_setting(place)


def known_layer(layer: str | None) -> str | None:
    """The value of `--layer`; leaves when it is none of its words."""
    if layer not in (None, "file", "user"):
        raise typer.BadParameter(f"{layer!r} is not one of file, user", param_hint="--layer")
    return layer


def _check(source: Source, draft: Draft, as_text: str) -> None:
    """Leave when the composition with the draft has a mistake that it has not without it."""
    problems, warnings = look(source, draft.texts)
    problems += map(str, draft.slips)
    for problem in problems:
        tell(problem)
    if as_text and any("must be a string" in problem for problem in problems):
        tell(as_text)
    if problems:
        fail("nothing was changed")
    for warning in warnings:
        tell(warning)


def look(source: Source, texts: Mapping[Path, str]) -> tuple[list[str], list[str]]:
    """What would be wrong with new texts of files, and what would be odd. What is wrong already is odd only."""
    from dsh.interfaces.offline import check

    with redirect_stdout(sys.stderr):  # plugins are imported, and some print
        after = check(source, texts)
        if after.ok and not after.warnings:
            return [], []
        before = check(source)
    known = {_meaning(each) for each in [*before.problems, *before.warnings]}
    odd = [each for each in after.warnings if _meaning(each) not in known]
    problems = [each for each in after.problems if _meaning(each) not in known]
    still = [f"wrong before and still: {each}" for each in after.problems if _meaning(each) in known]
    return [str(each) for each in problems], [*still, *(f"warning: {each}" for each in odd)]


def _meaning(problem: Problem) -> tuple[Any, ...]:
    return problem.row, problem.key, problem.message


def composition(file: Path | None, patch: list[Path] | None, *, own: bool = False) -> Source:
    """The composition that is meant; with `own` it is one that may be edited."""
    from dsh.cli.host import default_config
    from dsh.loader.boot import make_source
    from dsh.loader.writeback import is_packaged

    path = file or default_config()
    if own and is_packaged(path):
        fail("there is no cordis.yml here; `dsh init` writes one, and the one that comes with dsh is not edited")
    return make_source(path, overlays=patch or ())


# --- showing ----------------------------------------------------------------------------------------------------------


def _shown(place: Place) -> str:
    """The value as a document: texts as they are, mappings and lists over several lines."""
    value = _redacted(place)
    if isinstance(value, str):
        return value
    from dsh.loader.yamlio import dump_yaml

    return dump_yaml(value).removesuffix("\n")


def _tell_setting(place: Place) -> None:
    """Say so where the user's settings, which lie over every composition, have a value of their own."""
    from dsh.cordis.errors import HarnessError
    from dsh.loader.home import resolve_home
    from dsh.loader.names import short_name
    from dsh.settings.offline import SECTIONS, OfflineSettings

    section = {"bash-local": "shell"}.get(name := short_name(place.row.name) or "", name)
    if section not in SECTIONS or place.keys[:1] != ("config",) or len(place.keys) < 2:
        return
    key = ".".join(map(str, (section, *place.keys[1:])))
    try:
        document = OfflineSettings(resolve_home())
        value = document.get(key)
    except HarnessError:  # `dsh settings` says what is wrong with it
        return
    if value is not None:
        tell(f"your settings say {one_line(value)} ({document.shown}); `dsh settings unset {key}` ends that")


def _one_line(place: Place) -> str:
    return one_line(_redacted(place))


def one_line(value: Any) -> str:
    """A value on one line; texts without quotes."""
    from dsh.loader.rendering import render_flow

    return value if isinstance(value, str) and "\n" not in value else render_flow(value)


def _where(place: Place) -> str:
    if place.layer == "default":
        return _LAYERS["default"]
    where = str(place.mark) if place.mark is not None else place.source.shown
    label = _LAYERS.get(place.layer)
    return where if label is None else f"{where}, {label}"


def _redacted(place: Place) -> Any:
    from dsh.interfaces.offline import redacted

    return redacted({str(place.keys[-1]) if place.keys else "": place.value}).popitem()[1]


def _wire(place: Place) -> dict[str, Any]:
    from dsh.loader.writeback import json_value

    mark = place.mark if place.layer != "default" else None
    return {
        "row": place.address,
        "key": place.key or None,
        "value": json_value(_redacted(place)),
        "layer": place.layer,
        "file": mark.file if mark is not None else None,
        "line": mark.line if mark is not None and mark.line else None,
    }
