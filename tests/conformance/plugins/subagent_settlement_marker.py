"""`test:subagent-settlement-marker`: leaves a file when a subagent ends, for a client that waits for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dsh.cordis import Context

MARKER = ".dsh-snapshot-subagent-settled"


def apply(ctx: Context) -> None:
    """Watch."""

    def settled(_event: Any) -> None:
        Path(MARKER).touch()

    ctx.on("subagent/end", settled)
