"""`turn-limits`: ends a turn that has taken too many steps, tokens or seconds.

Looked at before each step; pending input stays in the inbox.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from dsh.cordis import ConfigModel, Context, field
from dsh.cordis.records import struct
from dsh.core.agent_events import AgentPreStep, Enter, Reject

if TYPE_CHECKING:
    from dsh.core.agent import Agent
    from dsh.core.session import Session

name = "turn-limits"

_COUNTED = ("inputTokens", "outputTokens", "cacheReadTokens", "cacheWriteTokens")


class Config(ConfigModel):
    """Config of a row `turn-limits`; what is not set is not limited."""

    max_steps_per_turn: int | None = field(None, min=1, live=True, description="Model replies of one turn")
    max_tokens_per_turn: int | None = field(
        None, min=1, live=True, description="Tokens of one turn, sent and received, cached ones included"
    )
    max_turn_seconds: int | None = field(None, min=1, live=True, unit="s", description="Time since the turn began")


@struct
class _Turn:
    """What one agent's current turn has used up; `read` is the number of the first log event not looked at."""

    number: int
    began: float
    read: int
    tokens: int = 0

    def count(self, session: Session) -> None:
        for event in session.events[self.read :]:
            if event.type == "assistant/message":
                usage = event.data.get("usage") or {}
                self.tokens += sum(usage.get(key) or 0 for key in _COUNTED)
        self.read = session.seq


def apply(ctx: Context, config: Config) -> None:
    """Watch every agent's turns."""
    turns: WeakKeyDictionary[Agent, _Turn] = WeakKeyDictionary()

    def used_up(event: AgentPreStep) -> str | None:
        turn = turns.get(event.agent)
        if turn is None or turn.number != event.turn:
            turn = turns[event.agent] = _Turn(event.turn, time.monotonic(), event.agent.session.seq)
        if config.max_steps_per_turn is not None and event.step > config.max_steps_per_turn:
            return f"{config.max_steps_per_turn} steps"
        if config.max_tokens_per_turn is not None:
            turn.count(event.agent.session)
            if turn.tokens >= config.max_tokens_per_turn:
                return f"{config.max_tokens_per_turn} tokens"
        if config.max_turn_seconds is not None and time.monotonic() - turn.began >= config.max_turn_seconds:
            return f"{config.max_turn_seconds} seconds"
        return None

    @ctx.on(AgentPreStep, prepend=True)
    async def check(event: AgentPreStep, next: Callable[[], Awaitable[Enter | Reject]]) -> Any:
        limit = used_up(event)
        if limit is None:
            return await next()
        event.agent.cancel({"kind": "hook", "reason": f"turn limit: {limit}"}, keep_inbox=True)
        return Reject()
