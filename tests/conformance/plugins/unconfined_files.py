"""Stands in for `sandbox-policy` where nothing is confined: tells the model so, in that plugin's words."""

from __future__ import annotations

from dsh.cordis import ConfigModel, Context
from dsh.core.system_prompt import SystemPrompt

TEXT = (
    "Current DSH file policy: danger-full-access. The DSH file sandbox does not restrict file modifications by "
    "available operations."
)


class Config(ConfigModel):
    """Nothing to set."""


def apply(ctx: Context, config: Config, system_prompt: SystemPrompt) -> None:
    """Say it."""
    system_prompt.context("sandbox:policy", 110, TEXT)
