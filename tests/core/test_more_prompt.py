"""Prompt and tools as the loop uses them: what a broken or an empty one does to a turn."""

from __future__ import annotations

from dsh.core.agent import AgentOptions
from tests.core.kit import of_type, spine, text_reply, tool_reply, types
from tests.core.test_loop_errors_cancel import balanced, end
from tests.core.test_loop_turns import add_tool, say

ROUTE = AgentOptions("test", "m")


async def test_b46_an_agent_without_workspace_fails_a_prompt_that_names_it_and_lives_on() -> None:
    async with spine([text_reply("ok")]) as s:
        agent = s.loop.create("a", ROUTE, {})
        section = s.prompt.section("workspace", 10, "You work in {{cwd}}.")
        agent.followup(say("a"))
        await agent.when_idle()
        assert end(agent.session)["error"]["message"] == (
            'prompt variable "{{cwd}}" has no value for this assembly (section "workspace")'
        )
        assert balanced(agent.session) and s.model.requests == []
        section()
        agent.followup(say("b"))
        await agent.when_idle()
        assert end(agent.session) == {"kind": "completed"}


async def test_b53_an_empty_prompt_makes_a_request_without_one() -> None:
    async with spine([text_reply("ok")]) as s:
        await s.prompt.ctx.fiber.update({"includeHarnessIdentity": False})
        agent = s.agent()
        agent.followup(say("a"))
        await agent.when_idle()
        assert s.model.requests[0].system is None
        assert "system" not in of_type(agent.session, "request/header")[0]["header"]


async def test_b10_arguments_that_do_not_fit_are_answered_with_every_violation_and_the_body_never_runs() -> None:
    async with spine([tool_reply(("work", '{"x": "one"}')), text_reply("ok")]) as s:
        ran: list[int] = []

        async def body() -> None:
            ran.append(1)

        add_tool(s, "work", body)
        agent = s.agent()
        agent.followup(say("a"))
        await agent.when_idle()
        result = of_type(agent.session, "tool/result")[0]
        assert result["error"] == {"name": "ToolArgsError", "code": "INVALID_ARGS"}
        assert result["message"]["content"][0]["content"][0]["text"] == (
            'Error: invalid arguments: "x" must be an integer'
        )
        assert ran == [] and types(agent.session)[-1] == "turn/end"
