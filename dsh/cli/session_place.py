"""Where a composition keeps its sessions, read without starting it."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

PERSISTENCE = "session-persistence-jsonl"


def sessions_of(config: Path, patches: Sequence[Path] = (), sets: Sequence[str] = ()) -> str | None:
    """The session folder that a composition names; None for the home's, and for one that cannot be told.

    What is wrong with the composition is left to the start.
    """
    from dsh.cordis import HarnessError
    from dsh.loader.boot import make_source
    from dsh.loader.expr import Scope, resolve_values
    from dsh.loader.home import resolve_home

    home = resolve_home()
    scope = Scope(os.environ, os.getcwd(), config.parent, None, lambda *parts: str(home.join(*parts)), sys.argv)
    try:
        rows = make_source(config, overlays=patches, sets=sets).read().parsed.walk()
        row = next((row for row in rows if row.name.rpartition("dsh-")[2] == PERSISTENCE), None)
        if row is None or not isinstance(row.config, dict):
            return None
        root = resolve_values(row.config.get("root"), scope)
    except HarnessError:
        return None
    if not isinstance(root, str) or not root:
        return None
    return os.path.abspath(os.path.join(config.parent, os.path.expanduser(root)))
