"""Stands in for `user-approval` where nobody is ever asked: tells the model so, in that plugin's words."""

from __future__ import annotations

from dsh.cordis import ConfigModel, Context
from dsh.core.system_prompt import SystemPrompt

TEXT = (
    "Approval prompts are disabled in this session: actions that require approval are rejected automatically — do not "
    "request sandbox escalation (do not set `sandbox_permissions`)."
)


class Config(ConfigModel):
    """Nothing to set."""


def apply(ctx: Context, config: Config, system_prompt: SystemPrompt) -> None:
    """Say it."""
    system_prompt.context("approval:policy", 115, TEXT)
