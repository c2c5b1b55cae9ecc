"""Names of files below a folder, for completing `@` words: quick also where there are a million of them."""

from __future__ import annotations

import os
import time
from collections import deque
from typing import Final

ENTRIES: Final = 20_000
"""Files and folders that are looked at, nearest first; deeper ones are found by typing their folder."""

SECONDS: Final = 0.3
"""How long they may be looked for."""

FRESH_SECONDS: Final = 10.0
"""How long what was found is used again."""

FOUND: Final = 30
"""How many names are offered."""

SKIPPED: Final = frozenset({".git", ".hg", ".svn", "node_modules", "__pycache__", ".venv", "venv", ".tox", ".cache"})


class FileNames:
    """Finds files by part of their path. Blocking: to be called in a thread."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[float, list[str]]] = {}

    def matching(self, folder: str, part: str) -> list[str]:
        """Paths relative to `folder`, folders with a slash at the end, the likeliest first.

        What stands in the folder that `part` names comes first, then whatever path holds its letters in order.
        """
        names = list(dict.fromkeys([*_beside(folder, part), *self._below(folder, part)]))
        return [name for name in names if name != part][:FOUND]

    def _below(self, folder: str, part: str) -> list[str]:
        if not part or part.startswith(("/", "~", "..")):
            return []
        at, known = self._found.get(folder, (0.0, []))
        if time.monotonic() - at > FRESH_SECONDS:
            known = _walk(folder)
            self._found = {folder: (time.monotonic(), known)}
        wanted = part.casefold()
        ranked = [(rank, len(path), path) for path in known if (rank := _rank(path.casefold(), wanted)) is not None]
        return [path for _, _, path in sorted(ranked)[:FOUND]]


def _beside(folder: str, part: str) -> list[str]:
    """Entries of the very folder that a path names so far."""
    above, name = os.path.split(part)
    place = os.path.join(folder, os.path.expanduser(above))
    lead = part[: len(part) - len(name)]
    wanted = name.casefold()
    found = []
    try:
        with os.scandir(place) as entries:
            for count, entry in enumerate(entries):
                if count >= ENTRIES:
                    break
                if not entry.name.casefold().startswith(wanted) or (entry.name.startswith(".") and not name):
                    continue
                found.append(lead + entry.name + ("/" if _is_folder(entry) else ""))
    except (OSError, ValueError):
        return []
    return sorted(found)[:FOUND]


def _walk(folder: str) -> list[str]:
    """Paths below a folder, breadth first, within the bounds; hidden folders and piles of others' code are left out."""
    end = time.monotonic() + SECONDS
    found: list[str] = []
    folders = deque([""])
    while folders and len(found) < ENTRIES and time.monotonic() < end:
        above = folders.popleft()
        try:
            with os.scandir(os.path.join(folder, above) if above else folder) as entries:
                for entry in entries:
                    path = above + entry.name
                    if entry.name in SKIPPED or (entry.name.startswith(".") and _is_folder(entry)):
                        continue
                    if _is_folder(entry):
                        found.append(path + "/")
                        if not entry.is_symlink():
                            folders.append(path + "/")
                    else:
                        found.append(path)
                    if len(found) >= ENTRIES:
                        break
        except OSError:
            continue
    return found


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False


def _rank(path: str, wanted: str) -> int | None:
    """How well a path fits, 0 best; None when it does not."""
    name = path.rstrip("/").rpartition("/")[2]
    if name.startswith(wanted):
        return 0
    if wanted in name:
        return 1
    if wanted in path:
        return 2
    letters = iter(path)
    return 3 if all(letter in letters for letter in wanted) else None
