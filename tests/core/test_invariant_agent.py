"""The companion that listens to what is said about agents."""

from __future__ import annotations

import logging

import pytest

from dsh.core.agent_events import AgentStatus, notify
from tests.core.kit import spine, text_reply
from tests.core.test_loop_turns import say


async def test_a_repeated_status_is_refused_before_anybody_hears_it(caplog: pytest.LogCaptureFixture) -> None:
    async with spine([text_reply("ok")]) as s:
        agent = s.agent()
        heard: list[str] = []
        s.root.on(AgentStatus, lambda e: heard.append(e.status))
        agent.followup(say("hi"))
        await agent.when_idle()
        assert heard == ["running", "idle"] and caplog.text == ""
        with caplog.at_level(logging.ERROR):
            notify(s.root, AgentStatus(agent=agent, status="idle"))
        assert heard == ["running", "idle"]
        assert 'agent event "agent/status" listener threw' in caplog.text
        assert 'agent "a" announced status idle again' in caplog.text


async def test_each_agent_has_a_status_of_its_own(caplog: pytest.LogCaptureFixture) -> None:
    async with spine([text_reply("ok")] * 2) as s:
        for agent in (s.agent("a"), s.agent("b")):
            agent.followup(say("hi"))
        for agent in s.agents.list():
            await agent.when_idle()
        assert caplog.text == ""
