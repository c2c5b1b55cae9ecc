"""Files that a command writes for a person to start from: all of them or none, and never over others."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from dsh.cli.output import fail


def refuse_existing(paths: Iterable[Path]) -> None:
    """Leave if one of the files exists already, be it as a dangling link."""
    existing = next(filter(os.path.lexists, paths), None)
    if existing is not None:
        fail(f"{existing} exists already; nothing was written")


def write_new(files: Mapping[Path, bytes]) -> None:
    """Write files that do not exist yet, with the folders they need; leaves without any of them if one cannot be."""
    written: list[Path] = []
    for path, content in files.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("xb") as file:
                written.append(path)
                file.write(content)
        except OSError as error:
            for each in written:
                each.unlink(missing_ok=True)
            in_the_way = isinstance(error, FileExistsError) and not path.parent.is_dir()
            why = f"{path.parent} is no folder" if in_the_way else error.strerror
            fail(f"cannot write {path}: {why}; nothing was written")
