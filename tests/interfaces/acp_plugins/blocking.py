"""Refuses every step whose input says ``forbidden``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from dsh.cordis import Context
from dsh.core.agent_events import AgentPreStep, Reject


def apply(ctx: Context) -> None:
    @ctx.on(AgentPreStep)
    async def refuse(event: AgentPreStep, proceed: Callable[[], Awaitable[Any]]) -> Any:
        return Reject() if "forbidden" in str(event.messages) else await proceed()
