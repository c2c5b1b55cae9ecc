"""A turn that has taken enough is ended."""

from __future__ import annotations

from typing import Any

import pytest

import dsh.policy.turn_limits
from dsh.cordis import Context
from dsh.core.tools import Tools
from dsh.llm.message import create_user_message
from dsh.testing import Reply, run_plugin, say

USAGE = {"inputTokens": 10, "outputTokens": 5, "cacheReadTokens": 100}
STUBBORN = Reply(calls=[("spin", "{}")], usage=USAGE)
"""A model that always calls the same tool."""


def spinning(ctx: Context, config: None, tools: Tools) -> None:
    @tools.tool
    def spin() -> str:
        "Do nothing."
        return "again"


def limited(script: list[Any], **config: Any) -> Any:
    return run_plugin(dsh.policy.turn_limits, config, plugins=[spinning], model=script)


async def test_f57_the_step_limit_ends_a_runaway_turn_with_its_reason() -> None:
    async with limited([STUBBORN] * 9, maxStepsPerTurn=3) as run:
        run.agent.followup(create_user_message("go"))
        turn = await run.prompt("later")
        assert len(run.model.requests) == 3
        (end,) = turn.of_type("turn/end")
        assert end["reason"] == {"kind": "aborted", "reason": {"kind": "hook", "reason": "turn limit: 3 steps"}}
        assert run.agent.inbox.has_pending  # what waited still waits


async def test_each_turn_counts_anew() -> None:
    async with limited([STUBBORN, STUBBORN, say("done")] * 2, maxStepsPerTurn=3, maxTokensPerTurn=1000) as run:
        assert [(await run.prompt(text)).status for text in ("one", "two")] == ["completed", "completed"]


async def test_the_token_limit_counts_what_was_sent_and_received() -> None:
    async with limited([STUBBORN] * 9, maxTokensPerTurn=200) as run:
        turn = await run.prompt("go")
        assert len(run.model.requests) == 2  # 115 tokens a step
        assert turn.reason["reason"]["reason"] == "turn limit: 200 tokens"


async def test_the_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(dsh.policy.turn_limits.time, "monotonic", lambda: now[0])

    def slow(_request: Any) -> Reply:
        now[0] += 4
        return STUBBORN

    async with limited([slow] * 9, maxTurnSeconds=10) as run:
        turn = await run.prompt("go")
        assert len(run.model.requests) == 3
        assert turn.reason["reason"]["reason"] == "turn limit: 10 seconds"


async def test_without_limits_nothing_is_limited() -> None:
    async with limited([*[STUBBORN] * 5, say("done")]) as run:
        assert (await run.prompt("go")).reason == {"kind": "completed"}
