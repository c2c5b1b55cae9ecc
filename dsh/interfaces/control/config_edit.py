"""Changing the composition's file by the API: edit the text, apply it, take it back if the running tree refuses it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dsh.loader.fileio import atomic_write, file_mode
from dsh.loader.problems import LoadError
from dsh.loader.writeback import WriteBackError, set_row_value, unset_row_value
from dsh.loader.yamlio import YamlError

from .messages import ApiError

if TYPE_CHECKING:
    from dsh.loader.tree import Loader


async def edit_config(loader: Loader, path: Path, wanted: Mapping[str, Any], unwanted: Sequence[str]) -> list[str]:
    """Set and unset `row.key` paths below the config of rows of the file; the warnings. Raises ApiError."""
    rows = {entry.id for entry in loader.entries() if entry.tree.source.path == path}
    places = {name: _place(name, rows) for name in (*wanted, *unwanted)}

    def edit() -> tuple[bytes, bytes, list[str]]:
        before = path.read_bytes()
        warnings: list[str] = []
        try:
            for name, value in wanted.items():
                warnings += set_row_value(path, *places[name], value)
            for name in unwanted:
                warnings += unset_row_value(path, *places[name])
        except Exception:
            _put_back(path, before)
            raise
        return before, path.read_bytes(), warnings

    try:
        before, after, warnings = await asyncio.to_thread(edit)
    except (WriteBackError, YamlError, OSError) as error:
        raise ApiError(422, "NOT_WRITTEN", str(error)) from None
    try:
        await loader.refresh(path)
    except LoadError as error:
        if path.read_bytes() == after:  # else somebody has saved the file since, and that is the one that counts
            await asyncio.to_thread(_put_back, path, before)
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


def _put_back(path: Path, before: bytes) -> None:
    if path.read_bytes() != before:
        atomic_write(path, before, mode=file_mode(path, 0o644))
