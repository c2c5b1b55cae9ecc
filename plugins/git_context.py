"""Tells the agent on which git branch its workspace is and which files changed. Shows: a prompt context.

The text goes to the model as a message only when it differs from what the model saw last.
"""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path

from dsh.cordis import ConfigModel, Context, field
from dsh.core.system_prompt import AssembleContext, SystemPrompt


class Config(ConfigModel):
    max_files: int = field(10, min=0, live=True, description="Changed files to list")
    timeout_seconds: float = field(2.0, min=0.1, live=True, description="Longest wait for git, in seconds")


def apply(ctx: Context, config: Config, prompt: SystemPrompt) -> None:
    async def text(scope: AssembleContext) -> str | None:
        cwd = scope.agent.session.header.cwd if scope.agent is not None else None
        lines = await git_status(cwd, config.timeout_seconds) if cwd is not None else []
        if not lines:
            return None
        branch, *files = lines
        hidden = len(files) - config.max_files
        shown = files[: config.max_files] + ([f"… and {hidden} more"] if hidden > 0 else [])
        return "\n".join(["git branch " + branch.removeprefix("## "), *shown])

    prompt.context("git", 50, text)


async def git_status(cwd: str, timeout: float) -> list[str]:
    """``git status`` in ``cwd``: the branch line, then a line per changed file; nothing outside of a repository."""
    if not any((folder / ".git").exists() for folder in (Path(cwd), *Path(cwd).parents)):
        return []  # asked before each request; a process costs more than a look
    # Without the lock that git takes to note what it saw: a command of the agent at that moment would fail for it.
    command = ["git", "--no-optional-locks", "status", "--short", "--branch"]
    try:
        done = await asyncio.to_thread(
            subprocess.run, command, cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    return done.stdout.decode("utf-8", "replace").splitlines() if done.returncode == 0 else []
