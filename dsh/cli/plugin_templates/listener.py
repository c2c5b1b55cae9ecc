"""Hears of every tool call and notes the slow ones in the log.

Removing the row from cordis.yml removes the listener; nothing else has to be told. Events that can be heard are the
classes in ``dsh.core.tools`` (tool calls), ``dsh.core.session_store`` (everything in a log) and
``dsh.core.agent_events`` (agents, turns and requests).
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

from dsh.cordis import ConfigModel, Context, field
from dsh.core.tools import ToolResult, ToolsExecute


class Config(ConfigModel):
    """What the row's ``config`` may hold; a field ``slow_ms`` is the key ``slowMs``."""

    slow_ms: float = field(1000, min=0, live=True, unit="ms", description="Calls that take longer are noted")


def apply(ctx: Context, config: Config) -> None:
    """Start. Whatever is registered in here is taken back when the plugin leaves."""

    @ctx.on(ToolsExecute)
    async def note(event: ToolsExecute, call_tool: Callable[[], Awaitable[ToolResult]]) -> ToolResult:
        # This event wraps the call: what is returned is its result. Most events only tell, and take one argument.
        started = time.monotonic()
        result = await call_tool()
        took_ms = (time.monotonic() - started) * 1000
        if took_ms >= config.slow_ms:
            ctx.logger.warning("%s took %.0f ms", event.exec.name, took_ms)
        return result
