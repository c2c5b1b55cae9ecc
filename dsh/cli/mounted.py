"""Whether a composition brings a plugin of its own, read without starting it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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
    from dsh.loader.names import module_of
    from dsh.loader.problems import LoadError

    module = module_of(name)
    try:
        rows = _rows(make_source(config, overlays=patches), ())
        return any(row.disabled is not True and module_of(row.name) == module for row in rows)
    except LoadError:
        return False


def _rows(source: Source, outer: tuple[Path | None, ...]) -> Iterable[Row]:
    from dsh.cordis import ConfigError
    from dsh.loader.include import IncludeConfig, include_path
    from dsh.loader.names import is_include
    from dsh.loader.sources import Source

    for top in source.read().parsed.rows:
        for row in top.walk():
            yield row
            if not is_include(row.name) or row.disabled is True:
                continue
            try:
                path = include_path(IncludeConfig.validate(row.config), source.base_dir)
            except ConfigError:  # a wrong one fails the start; one with an expression is known only then
                continue
            if path not in outer and path.is_file():
                yield from _rows(Source(path), (*outer, source.path))
