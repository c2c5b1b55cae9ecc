"""Agents from Python: load a composition, prompt, follow typed events, wait for what came of it.

    from dsh.sdk import Harness, TextDelta

    async with Harness("cordis.yml") as harness:
        session = await harness.session("main")
        async for event in session.prompt("What does this folder hold?"):
            if isinstance(event, TextDelta):
                print(event.text, end="")

Programs that are not asynchronous use ``dsh.sdk.sync``.
"""

from __future__ import annotations

from dsh.cordis import HarnessError
from dsh.loader.boot import BootError

from .backend import AgentInfo, PermissionRequest
from .events import (
    AssistantMessage,
    Event,
    ReasoningDelta,
    Retry,
    StepEnd,
    StepStart,
    TextDelta,
    ToolEnd,
    ToolStart,
    TurnEnd,
    TurnStart,
    UserMessage,
)
from .harness import Harness
from .run import Result, Run, RunFailedError
from .session import Session

__all__ = [
    "AgentInfo",
    "AssistantMessage",
    "BootError",
    "Event",
    "Harness",
    "HarnessError",
    "PermissionRequest",
    "ReasoningDelta",
    "Result",
    "Retry",
    "Run",
    "RunFailedError",
    "Session",
    "StepEnd",
    "StepStart",
    "TextDelta",
    "ToolEnd",
    "ToolStart",
    "TurnEnd",
    "TurnStart",
    "UserMessage",
]
