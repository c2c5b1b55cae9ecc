"""`test:activation-error`: cannot start."""

from __future__ import annotations

from dsh.cordis import Context


def apply(ctx: Context) -> None:
    """Fail."""
    raise RuntimeError("startup activation snapshot failure")
