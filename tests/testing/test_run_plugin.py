"""The test kit runs plugins as a composition does: with what they need, and nothing unless asked for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from dsh.cordis import (
    AbortController,
    ConfigError,
    ConfigModel,
    Context,
    Disposer,
    HarnessError,
    Service,
    field,
    owned,
)
from dsh.core.session import Session
from dsh.core.session_store import SessionAppended, Sessions
from dsh.core.tools import ToolRun, Tools, ToolsResult
from dsh.llm.service import Llm
from dsh.testing import (
    FakeClock,
    PluginRun,
    RecordedModel,
    Reply,
    ScriptedModel,
    async_test,
    call,
    fail,
    hang,
    result_text,
    run_plugin,
    save_log,
    say,
)
from dsh.testing.parts import PARTS, needed_parts, part

REPOSITORY = Path(__file__).parents[2]
CLOCK = REPOSITORY / "plugins" / "clock.py"


def services(root: Context) -> set[str]:
    return {each.name for each in root.runtime.services.implementations.values()}


BARE = {"events", "registry", "timer", "logger", "launchEnvironment"}


class CounterConfig(ConfigModel):
    size: int = field(1, min=1, live=True)
    name: str = "x"


class Counter(Service, name="counter"):
    """Counts, and says so in its own time."""

    Config = CounterConfig

    def __init__(self, ctx: Context, config: CounterConfig) -> None:
        self.config = config


# -- what is around it ------------------------------------------------------------------------------------------------


async def test_a_plugin_that_needs_nothing_gets_nothing() -> None:
    async with run_plugin(lambda ctx: None) as run:
        assert services(run.root) == BARE


async def test_a_plugin_gets_what_it_declares_and_what_that_needs() -> None:
    def plugin(ctx: Context, config: None, tools: Tools) -> None:
        assert ctx[Tools] == tools

    async with run_plugin(plugin) as run:
        assert services(run.root) == BARE | {"tools"}
        assert run[Tools].schemas() == []
    async with run_plugin(plugin, parts=[Sessions, "systemPrompt"]) as run:
        assert services(run.root) == BARE | {"tools", "sessions", "systemPrompt"}


def test_every_part_provides_its_service_and_comes_after_what_it_needs() -> None:
    from dsh.cordis import resolve_plugin

    for name in PARTS:
        order = needed_parts([name], [])
        assert order[-1] == name and name in resolve_plugin(part(name)).provides
        for place, each in enumerate(order):
            assert {need for need in resolve_plugin(part(each)).needs if need in PARTS} <= set(order[:place])


async def test_a_need_that_nothing_meets_is_told_with_the_remedy() -> None:
    with pytest.raises(AssertionError, match=r"_needs_weather waits for weather: .*services=\{name: object\}"):
        async with run_plugin(_needs_weather):
            pass
    async with run_plugin(_needs_weather, services={"weather": "fine"}) as run:
        assert run["seen"] == "fine"

    def provider(ctx: Context, config: Any) -> None:
        ctx.provide("weather", config["weather"])

    async with run_plugin(_needs_weather, plugins=[(provider, {"weather": "rain"})]) as run:
        assert run["seen"] == "rain"


def _needs_weather(ctx: Context) -> None:
    ctx.provide("seen", ctx["weather"])


_needs_weather.inject = ["weather"]  # type: ignore[attr-defined]


async def test_a_plugin_may_be_a_class_a_row_name_or_a_file(tmp_path: Path) -> None:
    async with run_plugin(Counter, {"size": 2}) as run:
        assert run[Counter].config.size == 2
    async with run_plugin("dsh-tool-todo", {"allowParallelInProgress": True}) as run:
        assert [schema["name"] for schema in run[Tools].schemas()] == ["todo_write"]
    (tmp_path / "mine.py").write_text("def apply(ctx):\n    ctx.provide('base', ctx.base_dir)\n")
    async with run_plugin("./mine.py", folder=tmp_path) as run:
        assert run["base"] == tmp_path


async def test_files_and_processes_are_parts_too(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\n")
    async with run_plugin(
        "dsh-tool-bash", folder=tmp_path, model=[call("bash", _bash("cat a.txt")), say("Seen.")]
    ) as run:
        turn = await run.prompt("look")
        assert "one" in turn.results[0] and turn.text == "Seen."


def _bash(command: str) -> dict[str, str]:
    return {"command": command, "description": "look"}


async def test_the_environment_is_only_what_the_test_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_OF_THE_MACHINE", "1")
    async with run_plugin(lambda ctx: None, environment={"MINE": "2"}) as run:
        values = run["launchEnvironment"].values
        assert values == {"MINE": "2"}


async def test_one_reply_in_place_of_a_list_is_a_mistake() -> None:
    mistakes: list[Any] = ["Hello.", say("Hello."), {"behavior": "rate_limit"}, lambda request: "Hello."]
    for one in mistakes:
        with pytest.raises(TypeError, match=r"must be a list, one entry a request; give \["):
            async with run_plugin(lambda ctx: None, model=one):
                pass


async def test_what_the_test_registers_with_a_service_leaves_before_the_plugin() -> None:
    class Bell(Service, name="bell"):
        def __init__(self, ctx: Context) -> None:
            self.hears: list[Any] = []

        @owned
        def heard_by(self, caller: Context, fn: Any) -> Disposer:
            self.hears.append(fn)
            return caller.defer(lambda: self.hears.remove(fn), "one who hears")

    for key in (Bell, "bell"):
        async with run_plugin(Bell) as run:
            run[key].heard_by(print)
            bell = run.root[Bell]
            assert bell.hears == [print]
            await run.unload()
            assert bell.hears == []


# -- tools ------------------------------------------------------------------------------------------------------------


async def test_a_tool_is_called_through_all_stages() -> None:
    async with run_plugin(CLOCK, {"timezone": "Asia/Tokyo"}) as run:
        results = run.record(ToolsResult)
        result = await run.call("now")
        assert str(result.value).endswith("+09:00") and result_text(result) == result.value
        failed = await run.call("nothing")
        assert failed.is_error and [event.exec.call_id for event in results] == ["call-1", "call-2"]


async def test_a_call_can_be_cancelled() -> None:
    def plugin(ctx: Context, config: None, tools: Tools) -> None:
        @tools.tool
        async def wait(exec: ToolRun) -> str:
            """Wait for the end."""
            await exec.signal.wait()
            return f"stopped: {exec.signal.reason}"

    controller = AbortController()
    async with run_plugin(plugin) as run:
        calling = asyncio.create_task(run.call("wait", signal=controller.signal))
        await asyncio.sleep(0)
        controller.abort("enough")
        assert (await calling).is_error


# -- agents -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("http", [False, True], ids=["in process", "over HTTP"])
async def test_an_agent_takes_a_scripted_turn(http: bool) -> None:
    script = [Reply("Let me see.", calls=[("now", {}), ("now", {})]), lambda request: "Late.", say("Still here.")]
    model = ScriptedModel(script, http=http)
    async with run_plugin(CLOCK, model=model) as run:
        turn = await run.prompt("What time is it?")
        assert (turn.status, turn.text, len(turn.results), model.left) == ("completed", "Late.", 2, 1)
        assert turn.calls == [("now", "{}"), ("now", "{}")]
        again = await run.prompt("Are you there?")
        assert (again.text, again.results, len(again.of_type("turn/start"))) == ("Still here.", [], 1)
        assert len(model.requests) == 3


def said(session: Session) -> str:
    """All the text that was streamed in a session."""
    chunks = [event.data["chunk"] for event in session.events if event.type == "assistant/chunk"]
    return "".join(chunk["text"] for chunk in chunks if chunk["type"] == "text-delta")


@pytest.mark.parametrize("http", [False, True], ids=["in process", "over HTTP"])
async def test_a_model_may_fail_think_and_hang(http: bool) -> None:
    script = [fail("no more today", "QUOTA", status=402), Reply("Hm, yes.", reasoning="Let me think."), hang("I am")]
    async with run_plugin(CLOCK, model=ScriptedModel(script, http=http)) as run:
        failed = await run.prompt("one")
        assert failed.status == "error" and "no more today" in failed.reason["error"]["message"]
        thought = await run.prompt("two")
        assert thought.text == "Hm, yes."
        waiting = asyncio.create_task(run.prompt("three"))
        await run.until(lambda: said(run.agent.session).endswith("I am"))
        run.agent.cancel({"kind": "user"})
        assert (await waiting).status == "aborted"
        run.take_errors()


async def test_a_recorded_session_answers_as_it_did(tmp_path: Path) -> None:
    async with run_plugin(CLOCK, model=[call("now"), say("Late."), say("Bye.")]) as run:
        first = await run.prompt("What time is it?")
        save_log(run.agent.session, tmp_path / "log.jsonl")
    model = RecordedModel(tmp_path / "log.jsonl")
    async with run_plugin(CLOCK, model=model) as run:
        again = await run.prompt("What time is it?")
        assert (again.text, again.calls, len(again.results)) == (first.text, first.calls, 1)
        model.assert_used_up()
        assert (await run.prompt("And now?")).status == "error"
        run.take_errors()
        with pytest.raises(AssertionError, match="past the recording's end"):
            model.assert_used_up()


async def test_requests_past_the_script_fail_the_turn() -> None:
    async with run_plugin(CLOCK, model=[]) as run:
        turn = await run.prompt("anybody?")
        assert turn.status == "error" and "no entry left" in turn.reason["error"]["message"]
        run.take_errors()


async def test_a_plugin_that_serves_a_route_answers_the_agent() -> None:
    async with run_plugin("dsh-llm-demo", {"paceMs": 0, "replies": ["quite so"]}, route=("demo", "demo")) as run:
        assert (await run.prompt("hm")).text == "[demo reply, no model involved] quite so"


async def test_several_agents_have_logs_of_their_own() -> None:
    async with run_plugin(CLOCK, model=["one", "two"]) as run:
        other = run.new_agent("other")
        heard = run.record(SessionAppended)
        assert (await run.prompt("a")).text == "one"
        assert (await run.prompt("b", agent=other)).text == "two"
        assert {event.session.id for event in heard} == {"agent", "other"}


async def test_without_a_model_there_is_no_agent_to_prompt() -> None:
    async with run_plugin(CLOCK) as run:
        with pytest.raises(AssertionError, match="this run has no agent: give run_plugin"):
            await run.prompt("hello?")


async def test_without_tools_there_is_nothing_to_call() -> None:
    async with run_plugin(lambda ctx: None) as run:
        with pytest.raises(AssertionError, match=r"no tools.*parts=\[Tools\]"):
            await run.call("now")


async def test_an_answer_for_the_other_kind_of_model_is_refused() -> None:
    with pytest.raises(TypeError, match="http=True"):
        async with run_plugin(CLOCK, model=[{"behavior": "rate_limit"}]):
            pass
    with pytest.raises(TypeError, match="leave http=True out"):
        async with run_plugin(CLOCK, model=ScriptedModel([say("x").chunks()], http=True)):
            pass


# -- its life ---------------------------------------------------------------------------------------------------------


async def test_an_edit_applies_in_place_restarts_or_is_refused() -> None:
    async with run_plugin(Counter, {"size": 1}) as run:
        counter = run[Counter]
        assert await run.edit({"size": 2}) is True
        assert run[Counter] is counter and counter.config.size == 2
        with pytest.raises(ConfigError, match="size"):
            await run.edit({"size": 0})
        assert counter.config.size == 2
        assert await run.edit({"size": 2, "name": "y"}) is False
        assert run[Counter] is not counter
        counter = run[Counter]
        await run.reload()
        assert run[Counter] is not counter
        await run.unload()
        with pytest.raises(HarnessError):
            run[Counter]


async def test_what_a_test_mounts_itself_leaves_with_the_run() -> None:
    def user(ctx: Context) -> None:
        ctx.provide("twice", ctx["counter"].config.size * 2)

    async with run_plugin(Counter, {"size": 2}) as run:
        await run.ctx.plugin(user, inject=["counter"])
        assert run["twice"] == 4
        await run.edit({"size": 2, "name": "y"})
        assert run["twice"] == 4


async def test_a_config_that_does_not_fit_fails_the_start() -> None:
    with pytest.raises(ConfigError, match="size"):
        async with run_plugin(Counter, {"size": "big"}):
            pass


async def test_a_plugin_that_cannot_start_fails_with_its_own_error() -> None:
    def plugin(ctx: Context) -> None:
        raise ValueError("out of order")

    with pytest.raises(ValueError, match="out of order"):
        async with run_plugin(plugin):
            pass


async def test_an_error_that_was_only_logged_fails_the_test_unless_it_is_taken() -> None:
    def plugin(ctx: Context, config: None, tools: Tools) -> None:
        def bad(event: ToolsResult) -> None:
            raise ValueError("out of order")

        ctx.on(ToolsResult, bad)

    with pytest.raises(AssertionError, match=r"errors were logged .*ValueError: out of order"):
        async with run_plugin(plugin) as run:
            await run.call("any")
    async with run_plugin(plugin) as run:
        await run.call("any")
        (error,) = run.take_errors()
        assert error.endswith("ValueError: out of order") and run.take_errors() == []


async def test_agents_end_before_the_plugin_does() -> None:
    order: list[str] = []

    def plugin(ctx: Context, config: None, llm: Llm) -> None:
        from dsh.core.agent_events import AgentDisposed

        ctx.on(AgentDisposed, lambda event: order.append(event.agent.id), global_=True)
        ctx.defer(lambda: order.append("plugin"))

    async with run_plugin(plugin, model=["hi"]) as run:
        await run.prompt("hello")
    assert order == ["agent", "plugin"]


async def test_waiting_for_something_that_does_not_come_ends() -> None:
    async with run_plugin(CLOCK) as run:
        with pytest.raises(AssertionError, match="still not true after 0.05 seconds"):
            await run.until(lambda: False, seconds=0.05)


async def test_a_clock_stops_with_the_block() -> None:
    clock = FakeClock()

    def plugin(ctx: Context) -> None:
        async def leave() -> None:
            await asyncio.sleep(0.01)  # in real time: the clock would never move again

        ctx.defer(leave)

    async with run_plugin(plugin, clock=clock):
        pass
    with pytest.raises(ZeroDivisionError):
        async with run_plugin(plugin, clock=clock):
            raise ZeroDivisionError


# -- where it runs ----------------------------------------------------------------------------------------------------


@pytest.fixture
async def running() -> AsyncIterator[PluginRun]:
    async with run_plugin(CLOCK, model=["from a fixture"]) as run:
        yield run


async def test_a_run_may_be_a_fixture(running: PluginRun) -> None:
    assert (await running.prompt("hello")).text == "from a fixture"


@async_test
async def test_an_async_test_is_a_plain_function_for_any_runner(tmp_path: Path) -> None:
    assert not asyncio.iscoroutinefunction(test_an_async_test_is_a_plain_function_for_any_runner)
    async with run_plugin(CLOCK, model=["at work"], folder=tmp_path) as run:
        assert (await run.prompt("hello")).text == "at work"
        assert run.agent.session.header.cwd == str(tmp_path)
