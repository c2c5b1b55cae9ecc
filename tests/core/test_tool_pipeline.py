"""One call through its stages: order, policy, approval, values, nesting, what a result observer sees."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from dsh.cordis import AbortController, HarnessError
from dsh.core.seams import Approval
from dsh.core.tools import (
    Accept,
    Allow,
    Ask,
    Deny,
    ToolInput,
    ToolResult,
    ToolRun,
    ToolsExecute,
    ToolsPostExecute,
    ToolsPreExecute,
    ToolsResult,
    text,
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

# -- values -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "violations"),
    [
        ({1, 2}, "value is not lossless JSON"),
        (float("nan"), "value is not lossless JSON"),
        ({"n": "1"}, '"n" must be an integer'),
        ({}, 'missing required property "n"'),
        ("text", '"value" must be an object'),
    ],
)
async def test_b15a_a_value_outside_its_schema_is_a_failure_before_post(value: Any, violations: str) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    async with stage() as s:
        s.tools.register(make(body=lambda a, e: value, schema=schema))
        seen: list[bool] = []
        judge(s, lambda exec, result: seen.append(result.is_error) or Accept())
        result = await s.call()
        assert words(result) == f'Error: tool "echo" returned invalid output: {violations}'
        assert code(result) == ("ToolOutputError", "INVALID_TOOL_OUTPUT")
        assert seen == [True]


async def test_b15b_projections_that_fail_are_failures() -> None:
    def boom(*_: Any) -> Any:
        raise RuntimeError("boom")

    class Hostile(dict[str, Any]):
        def items(self) -> Any:
            raise RuntimeError("keep out")

    cases: list[tuple[dict[str, Any], str]] = [
        ({"render": boom}, "output.render failed: boom"),
        ({"render": lambda a, v: [{"type": "text", "text": {1}}]}, "output.render returned non-lossless JSON"),
        ({"render": lambda a, v: "text"}, "output.render must return a list of content blocks"),
        ({"meta": boom}, "output.presentationMeta failed: boom"),
        ({"meta": lambda a, v: object()}, "output.presentationMeta returned non-lossless JSON"),
        ({"body": lambda a, e: Hostile()}, "value snapshot failed: keep out"),
    ]
    for options, violation in cases:
        async with stage() as s:
            s.tools.register(make(**options))
            assert words(await s.call()) == f'Error: tool "echo" returned invalid output: {violation}'


async def test_b16_a_value_changed_after_return_does_not_change_the_result() -> None:
    async with stage() as s:
        value = {"items": [1]}
        s.tools.register(make(body=lambda a, e: value, render=lambda a, v: [text(str(len(v["items"])))]))
        result = await s.call()
        value["items"].append(2)
        assert result.value == {"items": [1]} and words(result) == "1"
        with pytest.raises(TypeError):
            cast(Any, result.value)["items"].append(3)


# -- order ------------------------------------------------------------------------------------------------------------


async def test_b18_an_allowed_call_passes_its_stages_in_order() -> None:
    async with stage() as s:
        steps: list[str] = []
        execs: set[int] = set()

        def step(label: str, exec: ToolRun) -> None:
            steps.append(label)
            execs.add(id(exec))

        async def pre(event: ToolsPreExecute, next: Next) -> Any:
            step("pre", event.exec)
            return await next()

        async def around(event: ToolsExecute, next: Next) -> Any:
            step("execute", event.exec)
            result = await next()
            step("executed", event.exec)
            return result

        async def post(event: ToolsPostExecute, next: Next) -> Any:
            step("post", event.exec)
            return await next()

        s.root.on(ToolsPreExecute, pre)
        s.root.on(ToolsExecute, around)
        s.root.on(ToolsPostExecute, post)
        s.root.on(ToolsResult, lambda e: step("result", e.exec))

        async def body(args: Any, exec: ToolRun) -> dict[str, Any]:
            step("body", exec)
            return {"got": args, "id": exec.call_id}

        s.tools.guard(lambda exec: step("guard", exec))
        s.tools.register(make(body=body))
        result = await s.call(arguments={"a": [1]})
        assert steps == ["pre", "guard", "execute", "body", "executed", "post", "result"]
        assert len(execs) == 1
        assert result.value == {"got": {"a": [1]}, "id": "c1"} and not result.is_error and result.error is None


async def test_b19_a_denied_call_skips_the_body_but_not_the_post_stage() -> None:
    async with stage() as s:
        steps: list[str] = []
        s.tools.register(make(body=lambda a, e: steps.append("body")))
        decide(s, Deny("not today"))

        async def around(exec: ToolRun, next: Next) -> Any:
            steps.append("execute")
            return await next()

        wrap(s, around)
        judge(s, lambda exec, result: steps.append("post") or Accept())
        result = await s.call()
        assert words(result) == "Error: not today"
        assert result.error is not None and result.error.info is None
        assert steps == ["post"]


@pytest.mark.parametrize(
    ("error", "info"), [(ValueError("bad policy"), None), (Broken("bad policy"), ("Broken", "BROKEN"))]
)
async def test_b20_a_raising_policy_is_final(error: Exception, info: Any) -> None:
    async with stage() as s:
        steps: list[str] = []
        s.tools.register(make(body=lambda a, e: steps.append("body")))
        decide(s, error)
        judge(s, lambda exec, result: steps.append("post") or Accept())
        result = await s.call()
        assert words(result) == "Error: bad policy" and code(result) == info
        assert steps == []


async def test_b20b_an_answer_that_is_no_decision_refuses_the_call() -> None:
    async with stage() as s:
        ran: list[str] = []
        s.tools.register(make(body=lambda a, e: ran.append("body")))
        decide(s, None)
        result = await s.call()
        assert words(result) == "Error: tools/pre-execute must answer Allow, Deny or Ask, not NoneType"
        assert ran == []


# -- approval ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        ("allowed-once", "<echo>"),
        ("rejected", 'Error: the user rejected tool "echo"'),
        ("cancelled", 'Error: approval for tool "echo" was cancelled'),
        ("unavailable", 'Error: tool "echo" requires approval, but no approval channel is available'),
        ("nonsense", 'Error: tool "echo" requires approval, but no approval channel is available'),
    ],
)
async def test_b21a_a_question_has_five_answers(outcome: str, expected: str) -> None:
    async with stage() as s:
        s.tools.register(make())
        await s.root.plugin(Desk, {"answer": outcome})
        decide(s, Ask("looks dangerous"))
        agent = Agent()
        signal = AbortController().signal
        assert words(await s.call(arguments={"a": 1}, agent=agent, signal=signal)) == expected
        assert s.root[Approval].asked == [  # type: ignore[attr-defined]
            {
                "agent": agent,
                "tool_name": "echo",
                "call_id": "c1",
                "arguments": {"a": 1},
                "reason": "looks dangerous",
                "signal": signal,
            }
        ]


async def test_b21b_a_question_nobody_can_answer_is_a_denial() -> None:
    async with stage() as s:
        s.tools.register(make())
        decide(s, Ask("looks dangerous"))
        assert words(await s.call(agent=Agent())) == "Error: looks dangerous"
    async with stage() as s:
        s.tools.register(make())
        decide(s, Ask())
        assert words(await s.call(agent=Agent())) == 'Error: tool "echo" requires approval (not yet supported)'
        await s.root.plugin(Desk, {"answer": "allowed-once"})
        assert words(await s.call()) == (
            'Error: tool "echo" requires approval, but the call has no agent to route it through'
        )


async def test_b21c_an_approved_call_still_meets_the_guards() -> None:
    async with stage() as s:
        s.tools.register(make())
        await s.root.plugin(Desk, {"answer": "allowed-once"})
        decide(s, Ask())
        s.tools.guard(lambda exec: "guarded")
        assert words(await s.call(agent=Agent())) == "Error: guarded"


# -- finishing --------------------------------------------------------------------------------------------------------


async def test_b29_the_finalizer_of_the_start_has_the_last_word_once() -> None:
    async with stage() as s:
        calls: list[str] = []

        def finalizer(label: str, answer: Any) -> Any:
            def finalize(exec: ToolRun, result: ToolResult) -> Any:
                calls.append(f"{label}: {words(result)}")
                if isinstance(answer, Exception):
                    raise answer
                return answer

            return finalize

        undo: list[Any] = []

        def swap(args: Any, exec: ToolRun) -> str:
            undo.pop()()
            s.tools.register(make(finalize_content=finalizer("second", [text("wrong")])))
            return "x"

        undo.append(s.tools.register(make(body=swap, finalize_content=finalizer("first", [text("final")]))))
        result = await s.call()
        assert words(result) == "final" and result.value == "x" and calls == ["first: <x>"]

        s.tools.register(make("keeps", finalize_content=finalizer("keeps", None)))
        assert words(await s.call("keeps")) == "<keeps>"

        calls.clear()
        s.tools.register(make("raises", finalize_content=finalizer("raises", Broken("finalizer"))))
        result = await s.call("raises")
        assert words(result) == "Error: finalizer" and code(result) == ("Broken", "BROKEN")
        assert calls == ["raises: <raises>"]

        s.tools.register(make("odd", finalize_content=finalizer("odd", [{"type": "text", "text": {1}}])))
        assert (await s.call("odd")).is_error
        decide(s, Deny("no"))
        assert words(await s.call("keeps")) == "Error: no"
        assert calls[-1] == "keeps: Error: no"


async def test_b30a_a_result_that_is_not_json_becomes_an_error_result() -> None:
    async with stage() as s:
        s.tools.register(make())
        judge(s, lambda exec, result: Accept(content=[{"type": "text", "text": object()}]))
        result = await s.call()
        assert words(result) == "Error: tool result must be losslessly JSON-serializable"
    async with stage() as s:
        s.tools.register(make())
        bad: Any = {"id": "m", "role": "user", "content": [{1}], "source": {"kind": "user"}}
        judge(s, lambda exec, result: Accept(additional_contexts=[bad, note("good")]))
        result = await s.call()
        assert words(result) == "Error: tool result must be losslessly JSON-serializable"
        assert notes(result) == ["good"]


async def test_b30b_observers_cannot_change_or_break_a_result(caplog: pytest.LogCaptureFixture) -> None:
    async with stage() as s:

        def body(args: Any, exec: ToolRun) -> dict[str, Any]:
            exec.defer_context(note("context"))
            return {"a": 1}

        s.tools.register(make(body=body))
        seen: list[str] = []

        def broken(event: ToolsResult) -> None:
            raise RuntimeError("observer broke")

        async def late(event: ToolsResult) -> None:
            await asyncio.sleep(0)
            seen.append("late")
            raise RuntimeError("observer broke later")

        s.root.on(ToolsResult, broken)
        s.root.on(ToolsResult, late)
        s.root.on(ToolsResult, lambda e: seen.append("next"))
        result = await s.call()
        assert words(result) == "<{'a': 1}>"
        await s.root.settle()
        assert seen == ["next", "late"]
        assert "observer broke" in caplog.text and "observer broke later" in caplog.text

        exec = s.results[-1][0]
        for change in (
            lambda: setattr(result, "is_error", True),
            lambda: cast(Any, result.content).append(1),
            lambda: cast(Any, result.content[0]).update(text="x"),
            lambda: cast(Any, result.value).update(b=2),
            lambda: cast(Any, result.additional_contexts[0])["content"].clear(),
            lambda: setattr(exec, "signal", AbortController().signal),
            lambda: setattr(exec, "name", "x"),
        ):
            with pytest.raises((AttributeError, TypeError)):
                change()
        for use in (lambda: exec.conclude_turn(), lambda: exec.defer_context(note("late"))):
            with pytest.raises(HarnessError, match="already finished"):
                use()


async def test_b30c_a_refused_notification_is_logged_in_its_own_words(caplog: pytest.LogCaptureFixture) -> None:
    async with stage() as s:
        s.tools.register(make())

        def guard(event: Any) -> None:
            if event.name == "tools/result":
                raise RuntimeError("nobody may know")

        s.root.on("internal/dispatch", guard)
        result = await s.tools.execute(ToolInput("c9", "echo", {}))
        assert words(result) == "<echo>"
        assert 'tool "echo" (c9): tools/result observer failed: nobody may know' in caplog.text


async def test_b31_an_unknown_tool_is_seen_by_policy_and_post() -> None:
    async with stage() as s:
        seen: list[str] = []

        async def pre(event: ToolsPreExecute, next: Next) -> Any:
            seen.append(f"pre {event.exec.name}")
            return await next()

        s.root.on(ToolsPreExecute, pre)
        judge(s, lambda exec, result: seen.append(f"post {words(result)}") or Accept())
        result = await s.call("nope")
        assert code(result) == ("ToolNotFoundError", "UNKNOWN_TOOL")
        assert seen == ["pre nope", 'post Error: unknown tool "nope"']


async def test_b32_arguments_that_are_not_json_never_reach_policy() -> None:
    async with stage() as s:
        seen: list[str] = []
        s.tools.register(make(body=lambda a, e: seen.append("body")))
        decide(s, Allow())
        judge(s, lambda exec, result: seen.append("post") or Accept())
        controller = AbortController()
        controller.abort()
        for signal in (None, controller.signal):
            result = await s.call(arguments={"when": object()}, signal=signal)
            assert words(result) == "Error: tool execution arguments must be losslessly JSON-serializable"
            assert s.results[-1][0].arguments is None
        assert seen == []


async def test_b33_a_nested_call_shares_the_root_and_has_no_card_data() -> None:
    async with stage() as s:
        inner: list[ToolResult] = []

        async def outer(args: Any, exec: ToolRun) -> str:
            nested = ToolInput("c1:1", "inner", {}, agent=exec.agent, parent=exec.token, signal=exec.signal)
            inner.append(await s.tools.execute(nested))
            return "outer"

        s.tools.register(make("outer", outer, meta=lambda a, v: "outer meta"))
        s.tools.register(make("inner", meta=lambda a, v: "inner meta"))
        result = await s.tools.execute(ToolInput("c1", "outer", {}))
        assert result.meta == "outer meta" and inner[0].meta is None
        by_name = {exec.name: exec for exec, _ in s.results}
        assert by_name["inner"].root_call_id == "c1" == by_name["outer"].root_call_id
        assert by_name["inner"].parent is by_name["outer"].token
        explicit = s.tools.start(ToolInput("c3", "inner", {}, root_call_id="c0"))
        assert explicit.run.root_call_id == "c0"


async def test_b34_policy_cannot_approve_one_call_and_run_another() -> None:
    async with stage() as s:
        s.tools.register(make(body=lambda a, e: [e.name, a]))
        refused: list[str] = []

        async def pre(event: ToolsPreExecute, next: Next) -> Any:
            for field in ("name", "arguments", "agent", "call_id", "root_call_id", "parent", "token", "signal"):
                with pytest.raises(AttributeError):
                    setattr(event.exec, field, None)
                refused.append(field)
            with pytest.raises(TypeError):
                event.exec.arguments["path"] = "/etc/passwd"
            return await next()

        s.root.on(ToolsPreExecute, pre)
        given = {"path": "ok"}
        call = ToolInput("c1", "echo", given)
        execution = s.tools.start(call)
        given["path"] = "changed"
        call.name = "other"
        assert await execution.prepare()
        await execution.dispatch()
        assert (await execution.commit()).value == ["echo", {"path": "ok"}]
        assert len(refused) == 8
        tokens = {s.tools.start(ToolInput("c1", "echo", {})).run.token for _ in range(3)}
        assert len(tokens) == 3
