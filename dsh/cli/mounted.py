"""Which rows of a composition mount a built-in plugin, read without starting it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dsh.loader.rows import Row
    from dsh.loader.sources import Source


def mounts(config: Path, name: str, patches: Sequence[Path] = ()) -> bool:
    """Whether a row of ``config``, or of a file it includes, mounts the built-in ``name``.

    A composition that cannot be read mounts nothing: its start says what is wrong with it.
    """
    from dsh.loader.boot import make_source
    from dsh.loader.problems import LoadError

    try:
        return find_mounted(make_source(config, overlays=patches), name) is not None
    except LoadError:
        return False


def find_mounted(source: Source, name: str) -> tuple[Source, Row] | None:
    """The first row that mounts the built-in ``name``, groups and included files searched too, and where it stands.

    A row whose ``disabled`` is an expression counts. Raises LoadError.
    """
    from dsh.loader.names import module_of

    module = module_of(name)
    return next(((place, row) for place, row in _rows([source]) if module_of(row.name) == module), None)


def _rows(trees: list[Source]) -> Iterator[tuple[Source, Row]]:
    """The rows of the first of `trees` and of what it includes; the others are those around it."""
    from dsh.cordis import ConfigError
    from dsh.loader.include import IncludeConfig, included
    from dsh.loader.names import is_include

    source = trees[0]
    for row in _enabled(source.read().parsed.rows):
        yield source, row
        if not is_include(row.name):
            continue
        try:
            inner = included(IncludeConfig.validate(row.config), source.prefix + row.id, trees)
        except ConfigError:  # a wrong one fails the start; one with an expression is known only then
            continue
        yield from _rows([inner, *trees])


def _enabled(rows: Iterable[Row]) -> Iterator[Row]:
    for row in rows:
        if row.disabled is not True:
            yield row
            yield from _enabled(row.children)
