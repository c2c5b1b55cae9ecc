"""`tool-call-timeout-policy`: ends a call that takes longer than its tool declares.

Cooperative: the body is told through its signal and waited for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

from dsh.cordis import AbortController, AbortSignal, Context
from dsh.core.tools import ToolResult, Tools, ToolsExecute, ToolTimeoutError

name = "tool-call-timeout-policy"


def apply(ctx: Context, config: Any, tools: Tools) -> None:
    """Wrap every call."""

    @ctx.on(ToolsExecute)
    async def enforce(event: ToolsExecute, next: Callable[[], Awaitable[ToolResult]]) -> ToolResult:
        run = event.exec
        tool = tools.get(run.name, run.agent)
        limit = None if tool is None else tool.timeout_ms
        if limit is None:
            return await next()
        outer = run.signal
        expired = ToolTimeoutError(limit)
        ours = AbortController()
        timer = asyncio.get_running_loop().call_later(limit / 1000, ours.abort, expired)
        run.signal = AbortSignal.any(outer, ours.signal)
        signal = run.signal
        try:
            result = await next()
        finally:
            timer.cancel()
            run.signal = outer
        if signal.reason is not expired:  # not stopped, or stopped by the caller first
            return result
        return replace(ToolResult.from_error(expired), additional_contexts=result.additional_contexts)
