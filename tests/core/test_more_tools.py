"""Corners of the tool registry, of a call's stages and of the order of tools."""

from __future__ import annotations

from typing import Any

import pytest

from dsh.cordis import AbortController
from dsh.core.system_prompt import AssembleContext, ToolSet
from dsh.core.tools import Accept, ToolRegistrationError, ToolResult, ToolRun

from .tool_helpers import Next, judge, make, stage, words, wrap


@pytest.mark.parametrize("name", ["", None, 3])
async def test_b05_a_tool_needs_a_name(name: Any) -> None:
    async with stage() as s:
        with pytest.raises(ToolRegistrationError, match="tool name must be a non-empty string"):
            s.tools.register(make(name))
        assert s.tools.schemas() == []


async def test_b39_the_signal_can_be_replaced_around_the_body_and_not_afterwards() -> None:
    async with stage() as s:
        own = AbortController().signal
        passed: list[str] = []

        s.tools.register(make())

        async def around(exec: ToolRun, next: Next) -> Any:
            before = exec.signal
            exec.signal = own
            exec.signal = before
            result = await next()
            passed.append("around")
            return result

        def verdict(exec: ToolRun, result: ToolResult) -> Any:
            with pytest.raises(AttributeError):
                exec.signal = own
            passed.append("post")
            return Accept()

        wrap(s, around)
        judge(s, verdict)
        assert words(await s.call()) == "<echo>"
        assert passed == ["around", "post"]


async def test_b50_a_provider_that_names_nothing_more_is_known_by_what_it_shows() -> None:
    async with stage(toolOrder=["second", "<unlisted-tools>"]) as s:
        shown = [{"name": name, "description": "", "parameters": {}} for name in ("first", "second")]
        s.prompt.tools(lambda context: ToolSet(shown))
        assembly = await s.prompt.assemble(AssembleContext())
        assert [tool["name"] for tool in assembly.tools] == ["second", "first"]
