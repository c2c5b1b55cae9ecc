"""Events of the loader."""

from __future__ import annotations

from typing import Literal

from dsh.cordis import Emit

EntryChange = Literal["apply", "reload", "unload", "failed", "moved"]


class ConfigUpdated(Emit, name="loader/config-update"):
    """The program changed the tree: rows were created, updated or removed by a call, not by an edit of a file."""


class TreeRefreshed(Emit, name="loader/refreshed"):
    """An edit of a config file was applied: the file, and the addresses of the rows it touched."""

    path: str
    rows: tuple[str, ...]


class EntryChanged(Emit, name="loader/entry"):
    """Something happened to a row: it was mounted, got a new config or code, left, failed, or moved."""

    id: str
    kind: EntryChange
