"""A turn that has taken enough is ended."""

from __future__ import annotations

from typing import Any

import pytest

import dsh.policy.turn_limits
from dsh.core.agent import Agent
from dsh.llm.message import create_user_message
from tests.core.kit import Spine, of_type, spine, text_reply, tool_reply

USAGE = {"inputTokens": 10, "outputTokens": 5, "cacheReadTokens": 100}


def stubborn(_request: Any) -> Any:
    """A model that always calls the same tool."""
    chunks = tool_reply(("spin", "{}"))
    return [*chunks[:-1], {"type": "usage", "usage": USAGE}, chunks[-1]]


async def limited(s: Spine, **config: Any) -> Agent:
    fiber = await s.root.plugin(dsh.policy.turn_limits, config)
    assert fiber.error is None

    def spin() -> str:
        "Do nothing."
        return "again"

    s.tools.tool(spin)
    return s.agent()


async def test_f57_the_step_limit_ends_a_runaway_turn_with_its_reason() -> None:
    async with spine([stubborn] * 9) as s:
        agent = await limited(s, maxStepsPerTurn=3)
        agent.followup(create_user_message("go"))
        agent.followup(create_user_message("later"))
        await agent.when_idle()
        assert len(s.model.requests) == 3
        (end,) = of_type(agent.session, "turn/end")
        assert end["reason"] == {"kind": "aborted", "reason": {"kind": "hook", "reason": "turn limit: 3 steps"}}
        assert agent.inbox.has_pending  # what waited still waits


async def test_each_turn_counts_anew() -> None:
    async with spine([stubborn, stubborn, text_reply("done")] * 2) as s:
        agent = await limited(s, maxStepsPerTurn=3, maxTokensPerTurn=1000)
        for text in ("one", "two"):
            agent.followup(create_user_message(text))
            await agent.when_idle()
        assert [end["reason"]["kind"] for end in of_type(agent.session, "turn/end")] == ["completed", "completed"]


async def test_the_token_limit_counts_what_was_sent_and_received() -> None:
    async with spine([stubborn] * 9) as s:
        agent = await limited(s, maxTokensPerTurn=200)
        agent.followup(create_user_message("go"))
        await agent.when_idle()
        assert len(s.model.requests) == 2  # 115 tokens a step
        (end,) = of_type(agent.session, "turn/end")
        assert end["reason"]["reason"]["reason"] == "turn limit: 200 tokens"


async def test_the_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(dsh.policy.turn_limits.time, "monotonic", lambda: now[0])

    def slow(request: Any) -> Any:
        now[0] += 4
        return stubborn(request)

    async with spine([slow] * 9) as s:
        agent = await limited(s, maxTurnSeconds=10)
        agent.followup(create_user_message("go"))
        await agent.when_idle()
        assert len(s.model.requests) == 3
        (end,) = of_type(agent.session, "turn/end")
        assert end["reason"]["reason"]["reason"] == "turn limit: 10 seconds"


async def test_without_limits_nothing_is_limited() -> None:
    async with spine([*[stubborn] * 5, text_reply("done")]) as s:
        agent = await limited(s)
        agent.followup(create_user_message("go"))
        await agent.when_idle()
        assert of_type(agent.session, "turn/end")[0]["reason"] == {"kind": "completed"}
