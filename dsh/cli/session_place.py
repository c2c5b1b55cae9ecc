"""Where a composition keeps its sessions, read without starting it."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path


def sessions_of(config: Path, patches: Sequence[Path] = (), sets: Sequence[str] = ()) -> str | None:
    """The session folder that a composition names; None for the home's, and for one that cannot be told.

    What is wrong with the composition is left to the start.
    """
    from dsh.cli.mounted import find_mounted
    from dsh.cordis import HarnessError
    from dsh.loader.boot import make_source
    from dsh.loader.environment import load_launch_environment
    from dsh.loader.expr import Scope, resolve_values
    from dsh.loader.home import resolve_home

    home = resolve_home()
    try:
        found = find_mounted(make_source(config, overlays=patches, sets=sets), "session-persistence-jsonl")
        if found is None or not isinstance(found[1].config, dict):
            return None
        folder = found[0].base_dir
        environment = load_launch_environment(home).values
        scope = Scope(environment, os.getcwd(), folder, None, lambda *parts: str(home.join(*parts)), sys.argv)
        root = resolve_values(found[1].config.get("root"), scope)
    except HarnessError:
        return None
    if not isinstance(root, str) or not root:
        return None
    return os.path.abspath(os.path.join(folder, os.path.expanduser(root)))
