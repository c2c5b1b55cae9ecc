"""A caller that aborts: before, during and after each stage."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from dsh.cordis import AbortController
from dsh.core.tools import (
    Accept,
    Allow,
    Ask,
    Deny,
    ToolInput,
    ToolResult,
    ToolRun,
    Tools,
    ToolsPreExecute,
    ToolsResult,
)

from .tool_helpers import (
    Agent,
    Broken,
    Desk,
    Next,
    code,
    decide,
    judge,
    make,
    note,
    notes,
    stage,
    words,
    wrap,
)

# -- cancellation -----------------------------------------------------------------------------------------------------

BEFORE = ("AbortError", "ABORTED_BEFORE_DISPATCH")
DURING = ("AbortError", "ABORTED")


async def test_b35_a_call_aborted_in_advance_runs_nothing() -> None:
    async with stage() as s:
        steps: list[str] = []
        s.tools.register(make(body=lambda a, e: steps.append("body")))

        async def pre(event: ToolsPreExecute, next: Next) -> Any:
            steps.append("pre")
            return await next()

        s.root.on(ToolsPreExecute, pre)
        judge(s, lambda exec, result: steps.append("post") or Accept())
        controller = AbortController()
        controller.abort()
        result = await s.call(signal=controller.signal)
        assert words(result) == "Error: tool call aborted before dispatch" and code(result) == BEFORE
        assert steps == []


async def test_b36_an_abort_during_policy_beats_an_allow_but_no_denial_or_failure() -> None:
    for decision, expected in (
        (Allow(), "Error: tool call aborted before dispatch"),
        (Deny("denied anyway"), "Error: denied anyway"),
        (RuntimeError("policy broke"), "Error: policy broke"),
    ):
        async with stage() as s:
            steps: list[str] = []
            s.tools.register(make(body=lambda a, e, steps=steps: steps.append("body")))
            controller = AbortController()

            async def pre(
                event: ToolsPreExecute, next: Next, decision: Any = decision, controller: Any = controller
            ) -> Any:
                controller.abort()
                if isinstance(decision, Exception):
                    raise decision
                return decision

            s.root.on(ToolsPreExecute, pre)
            judge(s, lambda exec, result, steps=steps: steps.append("post") or Accept())
            assert words(await s.call(signal=controller.signal)) == expected
            assert steps == ([] if isinstance(decision, Exception) else ["post"])


async def test_b36b_an_abort_between_policy_and_dispatch_keeps_the_body_from_starting() -> None:
    async with stage() as s:
        ran: list[str] = []
        s.tools.register(make(body=lambda a, e: ran.append("body")))
        controller = AbortController()
        execution = s.tools.start(ToolInput("c1", "echo", {}, signal=controller.signal))
        assert await execution.prepare()
        controller.abort()
        await execution.dispatch()
        assert code(await execution.commit()) == BEFORE and ran == []


async def test_b37_a_body_that_ignores_the_abort_is_awaited() -> None:
    async with stage() as s:
        started, go = asyncio.Event(), asyncio.Event()

        async def body(args: Any, exec: ToolRun) -> str:
            exec.defer_context(note("kept"))
            exec.conclude_turn()
            started.set()
            await go.wait()
            return "too late"

        s.tools.register(make(body=body))
        controller = AbortController()
        call = asyncio.ensure_future(s.call(signal=controller.signal))
        await started.wait()
        controller.abort("user")
        for _ in range(5):
            await asyncio.sleep(0)
        assert not call.done()
        go.set()
        result = await call
        assert words(result) == "Error: tool call aborted" and code(result) == DURING
        assert notes(result) == ["kept"] and not result.concludes_turn and result.value is None


async def test_b37b_a_function_that_cannot_hear_of_the_abort_is_cancelled() -> None:
    async with stage() as s:
        started, undone = asyncio.Event(), asyncio.Event()

        @s.tools.tool
        async def never() -> str:
            """Wait for ever."""
            started.set()
            try:
                await asyncio.Event().wait()
            finally:
                undone.set()
            return ""

        controller = AbortController()
        call = asyncio.ensure_future(s.call("never", signal=controller.signal))
        await started.wait()
        controller.abort("user")
        result = await asyncio.wait_for(call, 5)
        assert words(result) == "Error: tool call aborted" and code(result) == DURING and undone.is_set()


async def test_b37c_a_body_that_goes_on_after_the_abort_is_cancelled_in_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("dsh.core.tool_body.STOP_SECONDS", 0.02)
    async with stage() as s:
        started = asyncio.Event()
        swallowed: list[str] = []

        async def body(args: Any, exec: ToolRun) -> str:
            started.set()
            while True:
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    if len(swallowed) == 2:
                        raise
                    swallowed.append("again")

        s.tools.register(make(body=body))
        controller = AbortController()
        call = asyncio.ensure_future(s.call(signal=controller.signal))
        await started.wait()
        controller.abort("user")
        result = await asyncio.wait_for(call, 5)
        assert words(result) == "Error: tool call aborted" and code(result) == DURING and len(swallowed) == 2


async def test_b38_a_body_that_fails_after_the_abort_speaks_for_itself() -> None:
    async with stage() as s:
        controller = AbortController()

        async def body(args: Any, exec: ToolRun) -> None:
            controller.abort()
            assert exec.signal.aborted
            raise Broken("stopped half way")

        s.tools.register(make(body=body))
        result = await s.call(signal=controller.signal)
        assert words(result) == "Error: stopped half way" and code(result) == ("Broken", "BROKEN")


async def test_b39a_a_body_sees_the_callers_and_the_wrappers_signal() -> None:
    for who in ("caller", "wrapper"):
        async with stage() as s:
            caller, own = AbortController(), AbortController()
            seen: list[bool] = []

            def body(
                args: Any, exec: ToolRun, seen: Any = seen, caller: Any = caller, own: Any = own, who: str = who
            ) -> str:
                seen.append(exec.signal.aborted)
                (caller if who == "caller" else own).abort(who)
                seen.append(exec.signal.aborted)
                assert exec.signal.reason == who
                return "x"

            s.tools.register(make(body=body))

            async def around(exec: ToolRun, next: Next, own: Any = own, caller: Any = caller) -> Any:
                exec.signal = own.signal
                result = await next()
                assert exec.signal is own.signal
                return result

            wrap(s, around)
            result = await s.call(signal=caller.signal)
            assert seen == [False, True]
            assert s.results[-1][0].signal is caller.signal
            # Only the caller's abort makes a success an aborted call; what its own signal means, a wrapper says itself.
            assert code(result) == (DURING if who == "caller" else None)


async def test_b39b_an_aborted_signal_of_a_wrapper_keeps_the_body_from_starting() -> None:
    async with stage() as s:
        ran: list[str] = []
        s.tools.register(make(body=lambda a, e: ran.append("body")))
        own = AbortController()
        own.abort()

        async def around(exec: ToolRun, next: Next) -> Any:
            exec.signal = own.signal
            return await next()

        wrap(s, around)
        assert code(await s.call()) == BEFORE and ran == []
        with pytest.raises(TypeError):
            exec = s.tools.start(ToolInput("c", "echo", {})).run
            exec._signal_open = True
            exec.signal = cast(Any, "no signal")


async def test_b40_a_success_that_settles_after_the_abort_is_an_aborted_call() -> None:
    async with stage() as s:
        s.tools.register(make())
        controller = AbortController()

        async def around(exec: ToolRun, next: Next) -> Any:
            controller.abort()
            return ToolResult.success("cached", additional_contexts=[note("kept")])

        wrap(s, around)
        result = await s.call(signal=controller.signal)
        assert code(result) == BEFORE and notes(result) == ["kept"]
    async with stage() as s:
        s.tools.register(make())
        controller = AbortController()

        def abort_then_accept(exec: ToolRun, result: ToolResult) -> Any:
            controller.abort()
            return Accept(additional_contexts=[note("kept")])

        judge(s, abort_then_accept)
        result = await s.call(signal=controller.signal)
        assert code(result) == DURING and notes(result) == ["kept"]


async def test_b41_a_cancelled_question_of_an_aborted_call_is_an_abort() -> None:
    async with stage() as s:
        s.tools.register(make())
        controller = AbortController()

        def cancel() -> str:
            controller.abort()
            return "cancelled"

        await s.root.plugin(Desk, {"answer": cancel})
        decide(s, Ask())
        result = await s.call(agent=Agent(), signal=controller.signal)
        assert words(result) == "Error: tool call aborted before dispatch" and code(result) == BEFORE


async def test_b35b_a_call_given_up_after_policy_counts_as_not_dispatched() -> None:
    async with stage() as s:
        ran: list[str] = []
        s.tools.register(make(body=lambda a, e: ran.append("body")))
        execution = s.tools.start(ToolInput("c1", "echo", {}))
        assert await execution.prepare()
        assert code(await execution.commit()) == BEFORE and ran == []
        assert len(s.results) == 1


async def test_scoped_listeners_hear_their_own_agents_calls_only() -> None:
    async with stage() as s:
        one, two = Agent("one"), Agent("two")
        ctx = s.root.scope(one).ctx
        heard: list[str] = []
        ctx.on(ToolsResult, lambda e: heard.append(e.exec.call_id))
        s.tools.register(make())
        await s.call(agent=one, call_id="first")
        await s.call(agent=two, call_id="second")
        await s.call(call_id="third")
        assert heard == ["first"]
        assert isinstance(s.tools, Tools)
