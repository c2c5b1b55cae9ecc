"""Rows of the runtime itself that need no plugin: what they ask for is always there."""

from __future__ import annotations

from typing import Any

from dsh.cordis import Context


def timer(ctx: Context, config: Any) -> None:
    """The `timer` service exists without a row."""


def loader(ctx: Context, config: Any) -> None:
    """The `loader` service exists without a row."""
