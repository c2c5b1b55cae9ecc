"""What becomes of a call whose body, wrapper or host does not behave."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import pytest

from dsh.core.tools import (
    Accept,
    ToolInput,
    ToolResult,
    ToolRun,
    text,
)

from .tool_helpers import (
    Broken,
    Next,
    code,
    judge,
    make,
    note,
    raising,
    stage,
    words,
    wrap,
)

# -- failing bodies ---------------------------------------------------------------------------------------------------


class Unprintable(Exception):
    """An exception whose text cannot be read."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


class Speechless(Unprintable):
    """The same, but it has a message."""

    message = "the message attribute"


@pytest.mark.parametrize(
    ("error", "message", "info"),
    [
        (ValueError("plain"), "plain", None),
        (Broken("told"), "told", ("Broken", "BROKEN")),
        (Broken("told", code="OTHER"), "told", ("Broken", "OTHER")),
        (TimeoutError(), "TimeoutError", None),
        (ValueError("  "), "ValueError", None),
        (Unprintable(), "<unprintable thrown value>", None),
        (Speechless(), "the message attribute", None),
        (asyncio.CancelledError(), "CancelledError", None),
        (SystemExit(2), "2", None),
        (BaseException("base"), "base", None),
        (ExceptionGroup("unhandled errors", [ExceptionGroup("", [Broken("real")])]), "real", ("Broken", "BROKEN")),
        (ExceptionGroup("two", [ValueError("a"), KeyError("b")]), "two [a; 'b']", None),
    ],
)
async def test_b22a_whatever_a_body_raises_becomes_words(error: BaseException, message: str, info: Any) -> None:
    async with stage() as s:
        s.tools.register(make("bad", raising(error)))
        s.tools.register(make())
        seen: list[str] = []

        async def around(exec: ToolRun, next: Next) -> Any:
            result = await next()
            seen.append(words(result))
            return result

        wrap(s, around)
        bad, good = await asyncio.gather(s.tools.execute(ToolInput("c1", "bad", {})), s.call(call_id="c2"))
        assert words(bad) == f"Error: {message}" and code(bad) == info
        assert bad.is_error and bad.error is not None and bad.error.message == message
        assert words(good) == "<echo>"
        assert f"Error: {message}" in seen


async def test_b22b_a_body_that_cancels_its_own_task_fails_alone() -> None:
    async with stage() as s:

        async def body(args: Any, exec: ToolRun) -> Any:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            await asyncio.sleep(0)

        s.tools.register(make(body=body))
        assert words(await s.call()) == "Error: CancelledError"
        me = asyncio.current_task()
        assert me is not None and me.cancelling() == 0


async def test_b22c_a_sync_body_may_exit_or_raise_too() -> None:
    async with stage() as s:
        s.tools.register(make(body=lambda a, e: sys.exit("bad usage")))
        assert words(await s.call()) == "Error: bad usage"


async def test_b22d_a_cancelled_host_waits_for_the_body_and_is_told_so() -> None:
    async with stage() as s:
        started, steps = asyncio.Event(), []

        async def body(args: Any, exec: ToolRun) -> str:
            started.set()
            try:
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(0.01)
                steps.append("body ended")
            return "never"

        s.tools.register(make(body=body))
        host = asyncio.ensure_future(s.tools.execute(ToolInput("c1", "echo", {})))
        await started.wait()
        host.cancel()
        with pytest.raises(asyncio.CancelledError):
            await host
        assert steps == ["body ended"]
        assert [words(result) for _, result in s.results] == ["Error: tool call aborted"]
        assert s.results[0][0].closed


async def test_b22e_a_body_that_swallows_the_cancellation_does_not_save_its_host() -> None:
    async with stage() as s:
        started = asyncio.Event()

        async def body(args: Any, exec: ToolRun) -> str:
            started.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                pass
            return "still here"

        s.tools.register(make(body=body))
        host = asyncio.ensure_future(s.tools.execute(ToolInput("c1", "echo", {})))
        await started.wait()
        host.cancel()
        with pytest.raises(asyncio.CancelledError):
            await host
        assert len(s.results) == 1


async def test_b22f_a_staged_call_can_still_be_committed_after_its_host_was_cancelled() -> None:
    async with stage() as s:
        started = asyncio.Event()

        async def body(args: Any, exec: ToolRun) -> None:
            started.set()
            await asyncio.Event().wait()

        s.tools.register(make(body=body))
        execution = s.tools.start(ToolInput("c1", "echo", {}))
        assert await execution.prepare()
        dispatch = asyncio.ensure_future(execution.dispatch())
        await started.wait()
        dispatch.cancel()
        with pytest.raises(asyncio.CancelledError):
            await dispatch
        result = await execution.commit()
        assert words(result) == "Error: tool call aborted"
        assert await execution.commit() is result and len(s.results) == 1


async def test_b22g_a_timeout_around_a_call_reaches_whoever_set_it() -> None:
    async with stage() as s:

        async def body(args: Any, exec: ToolRun) -> None:
            await asyncio.Event().wait()

        s.tools.register(make(body=body))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await s.tools.execute(ToolInput("c1", "echo", {}))
        assert len(s.results) == 1


# -- wrappers ---------------------------------------------------------------------------------------------------------


async def test_b23a_a_wrappers_own_answer_is_validated_and_rendered_for_this_call() -> None:
    async with stage() as s:
        ran: list[str] = []
        s.tools.register(
            make(
                body=lambda a, e: ran.append("body"),
                schema={"type": "integer"},
                render=lambda a, v: [text(f"{a['who']} {v}")],
                meta=lambda a, v: {"v": v},
            )
        )
        answers: list[Any] = [ToolResult.success(5), ToolResult.success("five"), "nonsense"]

        async def around(exec: ToolRun, next: Next) -> Any:
            return answers[0]

        wrap(s, around)
        result = await s.call(arguments={"who": "me"})
        assert (result.value, words(result), result.meta) == (5, "me 5", {"v": 5})
        answers.pop(0)
        result = await s.call(arguments={"who": "me"})
        assert words(result) == 'Error: tool "echo" returned invalid output: "value" must be an integer'
        answers.pop(0)
        result = await s.call(arguments={"who": "me"})
        assert words(result) == "Error: tools/execute must answer a ToolResult, not str"
        assert ran == []


async def test_b23b_a_cached_result_of_another_call_is_checked_again() -> None:
    async with stage() as s:
        cache: dict[str, ToolResult] = {}

        def body(args: Any, exec: ToolRun) -> Any:
            exec.defer_context(note(f"from {exec.call_id}"))
            return {"n": 1}

        schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
        undo = s.tools.register(make(body=body, schema=schema, render=lambda a, v: [text(f"{a['who']}: {v['n']}")]))

        async def around(exec: ToolRun, next: Next) -> Any:
            if exec.name not in cache:
                cache[exec.name] = await next()
            return cache[exec.name]

        wrap(s, around)
        first = await s.call(arguments={"who": "first"})
        second = await s.call(arguments={"who": "second"}, call_id="c2")
        assert (words(first), words(second)) == ("first: 1", "second: 1")
        assert second.value == {"n": 1} and second.value is first.value
        # The tool changed its mind about its values; a failure is copied as it is.
        undo()
        s.tools.register(make(schema={"type": "string"}))
        assert code(await s.call(arguments={"who": "third"})) == ("ToolOutputError", "INVALID_TOOL_OUTPUT")
        cache["echo"] = ToolResult.failure("kept", info={"name": "N", "code": "C"})
        failed = await s.call()
        assert words(failed) == "Error: kept" and code(failed) == ("N", "C")


async def test_b23c_a_wrapper_may_run_the_body_again() -> None:
    async with stage() as s:
        runs: list[int] = []

        def body(args: Any, exec: ToolRun) -> int:
            runs.append(len(runs))
            if len(runs) == 1:
                raise RuntimeError("flaky")
            return len(runs)

        s.tools.register(make(body=body))

        async def retry(exec: ToolRun, next: Next) -> Any:
            first = await next()
            return await next() if first.is_error else first

        wrap(s, retry)
        assert words(await s.call()) == "<2>"


async def test_b24_a_raising_wrapper_or_post_listener_is_an_error_result() -> None:
    async with stage() as s:
        posts: list[str] = []
        s.tools.register(make())

        async def around(exec: ToolRun, next: Next) -> Any:
            await next()
            raise Broken("wrapper broke")

        undo = wrap(s, around)
        judge(s, lambda exec, result: posts.append(exec.call_id) or Accept())
        result = await s.call()
        assert words(result) == "Error: wrapper broke" and code(result) == ("Broken", "BROKEN")
        assert posts == []
        undo()

        def broken(exec: ToolRun, result: ToolResult) -> Any:
            posts.append("broken")
            raise RuntimeError("post broke")

    async with stage() as s:
        s.tools.register(make())
        judge(s, broken)
        assert words(await s.call()) == "Error: post broke"
        assert posts == ["broken"]
        judge_nothing: Any = None
    async with stage() as s:
        s.tools.register(make())
        judge(s, lambda exec, result: judge_nothing)
        assert words(await s.call()) == "Error: tools/post-execute must answer Accept or Blocked, not NoneType"
