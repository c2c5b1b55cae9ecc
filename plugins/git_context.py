"""Tells the agent on which git branch its workspace is and which files changed. Shows: a prompt context.

The text goes to the model as a message only when it differs from what the model saw last.
"""

from __future__ import annotations

import asyncio

from dsh.cordis import ConfigModel, Context, field
from dsh.core.agent_events import AgentPreStep
from dsh.core.system_prompt import AssembleContext, SystemPrompt


class Config(ConfigModel):
    max_files: int = field(10, min=0, live=True, description="Changed files to list")
    timeout_seconds: float = field(2.0, min=0.1, live=True, description="Longest wait for git, in seconds")


def apply(ctx: Context, config: Config, prompt: SystemPrompt) -> None:
    latest: dict[str, str] = {}

    @ctx.on(AgentPreStep, prepend=True)
    async def refresh(event: AgentPreStep, proceed):  # type: ignore[no-untyped-def]
        cwd = event.agent.session.header.cwd
        if cwd is not None:
            latest[event.agent.id] = await status(cwd)
        return await proceed()

    def text(scope: AssembleContext) -> str:
        return latest.get(scope.agent.id, "") if scope.agent is not None else ""

    async def status(cwd: str) -> str:
        try:
            process = await asyncio.create_subprocess_exec(
                "git", "status", "--short", "--branch", cwd=cwd,
                stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
            )  # fmt: skip
        except OSError:
            return ""
        try:
            output, _ = await asyncio.wait_for(process.communicate(), config.timeout_seconds)
        except TimeoutError:
            process.kill()
            await process.wait()
            return ""
        if process.returncode != 0:
            return ""
        branch, *files = output.decode("utf-8", "replace").splitlines()
        shown = files[: config.max_files]
        more = [f"… and {len(files) - len(shown)} more"] if len(files) > len(shown) else []
        return "\n".join(["git " + branch.removeprefix("## "), *shown, *more])

    prompt.context("git", 50, text)
