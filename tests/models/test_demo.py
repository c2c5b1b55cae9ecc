"""The demo route."""

from __future__ import annotations

from typing import Any

from dsh.cordis import AbortController, Context
from dsh.llm.assembler import BlockAssembler
from dsh.llm.grammar import StreamGrammar
from dsh.llm.message import create_assistant_message, create_tool_result_message, create_user_message, text_block
from dsh.llm.service import Llm
from dsh.models import demo
from dsh.models.demo import LABEL
from tests.llm.helpers import collect, request

TOOL = {"name": "bash", "description": "Run.", "parameters": {"type": "object"}}


async def reply(root: Context, messages: Any, **more: Any) -> BlockAssembler:
    assembled, grammar = BlockAssembler(), StreamGrammar()
    for chunk in await collect(root[Llm].stream(request("demo", "demo", messages=messages, **more))):
        assert grammar.check(chunk) is None
        assembled.push(chunk)
    return assembled


async def test_replies_are_labelled_say_what_to_do_and_never_change() -> None:
    async with Context() as root:
        await root.plugin(Llm)
        await root.plugin(demo, {"paceMs": 0})
        assert root[Llm].usable("demo") is None
        first, second = [await reply(root, [create_user_message("hello there")]) for _ in range(2)]
        (block,) = first.blocks()
        assert block["text"].startswith(LABEL) and "hello there" in block["text"]
        for way in ("dsh credentials set", "dsh local pull", "baseURL"):
            assert way in block["text"]
        assert first.blocks() == second.blocks() and first.usage is None


async def test_own_replies_come_in_turn() -> None:
    async with Context() as root:
        await root.plugin(Llm)
        await root.plugin(demo, {"paceMs": 0, "replies": ["one", "two"]})
        history = [create_user_message("a"), create_assistant_message([text_block("x")], "demo", "demo")]
        assert (await reply(root, history[:1])).blocks()[0]["text"] == f"{LABEL} one"
        assert (await reply(root, [*history, create_user_message("b")])).blocks()[0]["text"] == f"{LABEL} two"


async def test_a_tool_can_be_called_and_its_result_is_shown() -> None:
    async with Context() as root:
        await root.plugin(Llm)
        await root.plugin(demo, {"paceMs": 0})
        prompt = create_user_message('call bash {"command": "ls"}')
        called = await reply(root, [prompt], tools=[TOOL])
        (block,) = called.tool_calls()
        assert called.finish == {"kind": "tool-calls"}
        assert (block["name"], block["arguments"]) == ("bash", '{"command": "ls"}')
        result = create_tool_result_message(block["id"], [text_block("a.txt")])
        history = [prompt, create_assistant_message([block], "demo", "demo"), result]
        assert "a.txt" in (await reply(root, history, tools=[TOOL])).blocks()[0]["text"]
        # A tool that is not there is not called.
        assert (await reply(root, [prompt])).tool_calls() == []


async def test_a_cancelled_demo_stops() -> None:
    controller = AbortController()
    controller.abort("user")
    async with Context() as root:
        await root.plugin(Llm)
        await root.plugin(demo, {"paceMs": 0})
        assert (await reply(root, [create_user_message("x")], signal=controller.signal)).finish["kind"] == "aborted"
