"""Changing the composition's file by the API: edit the text, apply it, take it back if the running tree refuses it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dsh
from dsh.loader.fileio import atomic_write, file_mode
from dsh.loader.problems import LoadError
from dsh.loader.writeback import WriteBackError, set_row_value, unset_row_value
from dsh.loader.yamlio import YamlError

from .messages import ApiError
from .run_folder import working_folder

if TYPE_CHECKING:
    from dsh.loader.tree import Loader


def own_file(loader: Loader) -> Path:
    """The file of the composition. Raises ApiError when it is none that this user's edits belong into."""
    source = loader.root_source
    if source is None or source.path is None:
        raise ApiError(409, "NO_FILE", "this run has no file; `dsh init` writes a composition of your own")
    real = Path(os.path.realpath(source.path))
    package = Path(dsh.__file__).resolve().parent
    # The starter of a checkout stands beside the package; who works in that folder means that very file.
    starter = real == package.parent / "cordis.yml" and real.parent != Path(os.path.realpath(working_folder()))
    if starter or package in real.parents:
        text = "this run uses a composition that comes with dsh; `dsh init` writes one of your own"
        raise ApiError(409, "PACKAGED", text)
    return Path(source.path)


async def edit_config(loader: Loader, path: Path, wanted: Mapping[str, Any], unwanted: Sequence[str]) -> list[str]:
    """Set and unset `row.key` paths below the config of rows of the file; the warnings. Raises ApiError.

    One at a time: the next one would take what this one may still put back for the file as it is.
    """
    rows = {entry.id for entry in loader.entries() if entry.tree.source.path == path}
    places = {name: _place(name, rows) for name in (*wanted, *unwanted)}

    def edit() -> tuple[bytes, bytes, list[str]]:
        before = ours = path.read_bytes()
        warnings: list[str] = []
        try:
            for name in places:
                if name in wanted:
                    warnings += set_row_value(path, *places[name], wanted[name])
                else:
                    warnings += unset_row_value(path, *places[name])
                ours = path.read_bytes()
        except Exception:
            _put_back(path, before, ours)
            raise
        return before, ours, warnings

    try:
        before, after, warnings = await asyncio.to_thread(edit)
    except (WriteBackError, YamlError, OSError) as error:
        raise ApiError(422, "NOT_WRITTEN", str(error)) from None
    try:
        await loader.refresh(path)
    except LoadError as error:
        if await asyncio.to_thread(_put_back, path, before, after):
            with suppress(LoadError):  # what stood there before is refused as well; the watcher tells of that
                await loader.refresh(path)
        problems = [str(problem) for problem in error.problems]
        raise ApiError(422, "REFUSED", str(error), {"problems": problems}) from None
    return warnings


def _place(name: str, rows: set[str]) -> tuple[str, list[str]]:
    """Row and keys of `row.key.key`; ids may hold dots, the longest that fits is meant."""
    row = max((row for row in rows if name.startswith(row + ".")), key=len, default=None)
    if row is None:
        raise ApiError(422, "NO_ROW", f'"{name}" names no row of the file; write row.key')
    return row, ["config", *name[len(row) + 1 :].split(".")]


def _put_back(path: Path, before: bytes, ours: bytes) -> bool:
    """Undo an edit; False when somebody has saved the file since, and that is the one that counts."""
    if path.read_bytes() != ours:
        return False
    if ours != before:
        atomic_write(path, before, mode=file_mode(path, 0o644))
    return True
