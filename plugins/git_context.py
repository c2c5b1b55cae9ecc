"""Tells the agent on which git branch its workspace is and which files changed. Shows: a prompt context.

The text goes to the model as a message only when it differs from what the model saw last.
"""

from __future__ import annotations

import asyncio

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
    try:
        process = await asyncio.create_subprocess_exec(
            *("git", "status", "--short", "--branch"),
            cwd=cwd,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
    except OSError:
        return []
    try:
        output, _ = await asyncio.wait_for(process.communicate(), timeout)
    except TimeoutError:
        process.kill()
        await process.wait()
        return []
    return output.decode("utf-8", "replace").splitlines() if process.returncode == 0 else []
