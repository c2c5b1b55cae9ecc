"""The post stage: replaced content and values, blocks; contexts and conclusions a call hands on."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from dsh.core.tools import (
    Accept,
    Blocked,
    ToolResult,
    ToolRun,
    text,
)

from .tool_helpers import (
    Next,
    code,
    judge,
    make,
    note,
    notes,
    raising,
    stage,
    words,
    wrap,
)

# -- post decisions ---------------------------------------------------------------------------------------------------


async def test_b25a_post_may_replace_what_the_model_reads() -> None:
    async with stage() as s:
        s.tools.register(make(body=lambda a, e: {"n": 1}, meta=lambda a, v: {"shown": v["n"]}))
        judge(s, lambda exec, result: Accept(content=[text("shorter")]))
        result = await s.call()
        assert (words(result), result.value, result.meta) == ("shorter", {"n": 1}, {"shown": 1})


async def test_b25b_post_may_replace_the_value_and_both_projections_follow() -> None:
    async with stage() as s:
        s.tools.register(make(body=lambda a, e: 1, schema={"type": "integer"}, meta=lambda a, v: {"shown": v}))
        answers: list[Any] = [Accept(value=7), Accept(value="seven"), Accept(value=7, content=[text("x")])]
        judge(s, lambda exec, result: answers[0])
        result = await s.call()
        assert (words(result), result.value, result.meta) == ("<7>", 7, {"shown": 7})
        answers.pop(0)
        assert code(await s.call()) == ("ToolOutputError", "INVALID_TOOL_OUTPUT")
        answers.pop(0)
        result = await s.call()
        assert words(result) == "Error: tools/post-execute accept decision cannot replace both value and content"


async def test_b25c_a_failure_has_no_value_to_replace() -> None:
    async with stage() as s:
        s.tools.register(make(body=raising(ValueError("x"))))
        judge(s, lambda exec, result: Accept(value=None))
        assert words(await s.call()) == "Error: tools/post-execute cannot replace the value of a failed result"


async def test_b25d_a_replaced_value_needs_the_tool_to_be_there() -> None:
    async with stage() as s:
        undo = s.tools.register(make())

        def replace_value(exec: ToolRun, result: ToolResult) -> Any:
            undo()
            return Accept(value="new")

        judge(s, replace_value)
        result = await s.call()
        assert words(result) == 'Error: unknown tool "echo"' and code(result) == ("ToolNotFoundError", "UNKNOWN_TOOL")


async def test_b25e_a_started_body_finishes_on_its_own_definition() -> None:
    async with stage() as s:
        started, go = asyncio.Event(), asyncio.Event()

        async def body(args: Any, exec: ToolRun) -> str:
            started.set()
            await go.wait()
            return "old"

        undo = s.tools.register(make(body=body))
        running = asyncio.ensure_future(s.call())
        await started.wait()
        undo()
        s.tools.register(make(body=lambda a, e: "new"))
        go.set()
        assert words(await running) == "<old>"
        assert words(await s.call()) == "<new>"


async def test_b26_a_block_is_a_failure_in_the_policys_words() -> None:
    async with stage() as s:

        def body(args: Any, exec: ToolRun) -> str:
            exec.defer_context(note("from the body"))
            exec.conclude_turn()
            return "secret"

        s.tools.register(make(body=body, meta=lambda a, v: {"v": v}))
        answers: list[Any] = [
            Blocked([text("line one"), {"type": "image", "attachment": {}}, text("line two")], [note("policy says")]),
            Blocked("one text"),
            Blocked([]),
        ]
        judge(s, lambda exec, result: answers[0])
        result = await s.call()
        assert words(result) == "line one\n[image]\nline two"
        assert result.is_error and result.error is not None
        assert result.error.message == "line one\n[image content]\nline two" and result.error.info is None
        assert notes(result) == ["policy says"] and result.value is None and result.meta is None
        assert not result.concludes_turn
        answers.pop(0)
        assert words(await s.call()) == "one text"
        answers.pop(0)
        empty = await s.call()
        assert empty.error is not None and empty.error.message == "tool result blocked by post-execute policy"
        assert notes(empty) == []


# -- contexts and conclusions -----------------------------------------------------------------------------------------


async def test_b27a_contexts_come_from_body_wrapper_and_post_in_that_order() -> None:
    async with stage() as s:

        def body(args: Any, exec: ToolRun) -> str:
            exec.defer_context(note("body 1"))
            exec.defer_context(note("body 2"))
            return "ok"

        s.tools.register(make(body=body))

        async def around(exec: ToolRun, next: Next) -> Any:
            result = await next()
            assert notes(result) == ["body 1", "body 2"]
            return replace(result, additional_contexts=(*result.additional_contexts, note("wrapper")))

        wrap(s, around)
        judge(s, lambda exec, result: Accept(additional_contexts=[note("post")]))
        result = await s.call()
        assert notes(result) == ["body 1", "body 2", "wrapper", "post"]
        assert words(result) == "<ok>"


async def test_b27b_a_failing_body_keeps_its_contexts() -> None:
    async with stage() as s:

        def body(args: Any, exec: ToolRun) -> str:
            exec.defer_context(note("before the fall"))
            raise ValueError("fell")

        s.tools.register(make(body=body))
        assert notes(await s.call()) == ["before the fall"]

        async def around(exec: ToolRun, next: Next) -> Any:
            await next()
            return ToolResult.failure("in other words", additional_contexts=[note("wrapper")])

        wrap(s, around)
        assert notes(await s.call()) == ["before the fall", "wrapper"]
        judge(s, lambda exec, result: Accept(value=1, additional_contexts=[note("post")]))
        refused = await s.call()
        assert words(refused) == "Error: tools/post-execute cannot replace the value of a failed result"
        assert notes(refused) == ["before the fall", "wrapper", "post"]


async def test_b28_a_conclusion_counts_only_on_success() -> None:
    async with stage() as s:

        def body(args: Any, exec: ToolRun) -> str:
            exec.conclude_turn()
            if args.get("fail"):
                raise ValueError("no")
            return "done"

        s.tools.register(make(body=body))
        assert (await s.call()).concludes_turn
        assert not (await s.call(arguments={"fail": True})).concludes_turn
        judge(s, lambda exec, result: Accept(value="other"))
        assert (await s.call()).concludes_turn
