"""Asks about every bash command that mentions ``risky``, through whoever answers ``approval/request``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from dsh.cordis import AbortError, Context
from dsh.core.seams import Approval, ApprovalOutcome, ApprovalRequest
from dsh.core.tools import Ask, ToolsPreExecute
from dsh.llm.waiting import until_abort


class TestApproval(Approval):
    def __init__(self, ctx: Context, config: object = None) -> None:
        self._ctx = ctx
        ctx.on(ToolsPreExecute, self._policy)

    async def _policy(self, event: ToolsPreExecute, proceed: Callable[[], Awaitable[Any]]) -> Any:
        if "risky" in str(event.exec.arguments):
            return Ask(reason="it looks risky")
        return await proceed()

    async def request(self, *, agent: Any, tool_name: str, call_id: str, signal: Any, **_: Any) -> ApprovalOutcome:
        event = ApprovalRequest(agent=agent, tool_name=tool_name, call_id=call_id, signal=signal)

        async def nobody() -> ApprovalOutcome:
            return "unavailable"

        try:
            return await until_abort(self._ctx.waterfall(event, nobody), signal)
        except AbortError:
            return "cancelled"
