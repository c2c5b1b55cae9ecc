"""Companion that checks what is said about agents: a status is announced only when it changed."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

from dsh.cordis import Context
from dsh.core.agent import Agent
from dsh.core.agent_events import AgentStatus
from dsh.core.invariants import Fail, Invariants

PACKAGE = "@deepseek-ai/dsh-agent"


def apply(ctx: Context, config: object, invariants: Invariants) -> None:
    """Watch the status of every agent."""
    invariants.register(PACKAGE, _install)


def _install(ctx: Context, fail: Fail) -> None:
    last: WeakKeyDictionary[Agent, str] = WeakKeyDictionary()

    def guard(dispatch: Any) -> None:
        payload = dispatch.payload
        if not isinstance(payload, AgentStatus):
            return
        agent, status = payload.agent, payload.status
        if last.get(agent) == status:
            fail(f'agent "{agent.id}" announced status {status} again')
        last[agent] = status

    ctx.on("internal/dispatch", guard, global_=True)
