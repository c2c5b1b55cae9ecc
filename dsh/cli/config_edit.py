"""``dsh config edit``: a composition in one's own editor, saved once it can be used."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dsh.cli.config_values import LayerName, composition, known_layer, look
from dsh.cli.output import fail, failures, tell

_NEW_PATCH = """\
# Laid over {name}, last first: each item replaces keys of one of its rows, or adds rows.
#
# - {{id: agent-loop, disabled: false}}
# - insert: [{{id: mine, name: ./plugins/mine.py}}]
"""


def edit(
    file: Annotated[Path | None, typer.Argument(help="The composition; ./cordis.yml otherwise.")] = None,
    layer: LayerName = None,
) -> None:
    """Open the composition, or with --layer user the patch beside it, in $VISUAL or $EDITOR.

    What you write is looked at before it is saved. A mistake is said with its place, and you can go on editing.
    """
    from dsh.cli.editor import edit_text
    from dsh.loader.resolve import show_path
    from dsh.loader.writeback import WriteBackError, decoded, read_bytes, replace_file

    source = composition(file, None, own=True)
    path = source.sibling_path if known_layer(layer) == "user" else source.path
    assert path is not None
    with failures():
        before = read_bytes(path)
    if before is None and layer != "user":
        fail(f"{show_path(path)}: the file does not exist; `dsh init` writes one")
    warnings: list[str] = []

    def accept(data: bytes) -> list[str]:
        try:
            text = decoded(path, data)
        except WriteBackError as error:
            return [str(error)]
        problems, warnings[:] = look(source, {path: text})
        return problems

    def save(data: bytes) -> None:
        with failures():
            replace_file(path, before, data)

    start = before if before is not None else _NEW_PATCH.format(name=source.shown).encode()
    changed = edit_text(path.name, start, accept, save)
    for warning in warnings if changed else ():
        tell(warning)
    typer.echo(f"{show_path(path)}: saved" if changed else f"{show_path(path)}: nothing was changed")
