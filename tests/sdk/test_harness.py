"""A program drives a composition: in its own process and in one of their own, with the same results."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import weakref
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from dsh.models.mock_server import MockLlmServer
from dsh.sdk import (
    AssistantMessage,
    BootError,
    Harness,
    HarnessError,
    PermissionRequest,
    ReasoningDelta,
    Retry,
    Run,
    RunFailedError,
    StepEnd,
    StepStart,
    TextDelta,
    ToolEnd,
    ToolStart,
    TurnEnd,
    TurnStart,
    UserMessage,
)
from tests.cli.kit import TIMEOUT, Place

from .kit import ROWS, WAYS, call, harness, made, spawned, until

Start = Callable[..., Harness]
WAIT = "touch began; until [ -e go ]; do sleep 0.02; done; echo gone"
REFUSING = """
from dsh.core.agent_events import AgentPreStep, Reject

def apply(ctx):
    async def listen(event, next):
        if any("forbidden" in str(message) for message in event.messages):
            return Reject()
        if any("broken" in str(message) for message in event.messages):
            raise ValueError("no such luck")
        return await next()

    ctx.on(AgentPreStep, listen)
"""


def bash(command: str) -> dict[str, Any]:
    return call("bash", json.dumps({"command": command, "description": "try"}))


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return made(tmp_path / "place")


@pytest.fixture(params=list(WAYS))
def start(request: pytest.FixtureRequest, place: Place) -> Start:
    """How to make a harness on the place's composition, whose model is a server."""
    return partial(WAYS[request.param], place)


def rows(place: Place, *more: str) -> None:
    place.write("cordis.yml", ROWS + "".join(f"- {row}\n" for row in more))


async def started(run: Run, kind: str) -> None:
    """Wait until the run has had an event of a type."""
    async with asyncio.timeout(TIMEOUT):
        async for event in run:
            if event.type == kind:
                return


# -- events -----------------------------------------------------------------------------------------------------------


async def test_events_are_typed_and_their_raw_form_is_what_the_log_holds(start: Start) -> None:
    script = [{"reasoning": "Let me look.", "text": "I look.", **bash("echo hi; exit 3")}, {"text": "It failed."}]
    async with MockLlmServer(script) as server, start(server) as h:
        session = await h.session("main")
        run = session.prompt("Look.")
        events = [event async for event in run]
        again = [event async for event in run]
        history = await session.history()
    assert again == events and history == events
    assert [event.raw.seq for event in events] == list(range(len(events)))
    assert {event.session_id for event in events} == {session.id}
    shown = [event for event in events if type(event).__name__ != "Event" and not isinstance(event, TextDelta)]
    kinds = [type(event) for event in shown if not isinstance(event, ReasoningDelta)]
    step = [StepStart, AssistantMessage, ToolStart, ToolEnd, StepEnd]
    assert [kind for kind in kinds if kind is not UserMessage] == [
        TurnStart, *step, StepStart, AssistantMessage, StepEnd, TurnEnd
    ]  # fmt: skip
    user = next(event for event in events if isinstance(event, UserMessage))
    assert (user.text, user.source, user.message_id) == ("Look.", "user", run.message_id)
    assert "".join(e.text for e in events if isinstance(e, ReasoningDelta)) == "Let me look."
    assert "".join(e.text for e in events if isinstance(e, TextDelta)) == "I look.It failed."
    called, ended = (next(e for e in events if isinstance(e, kind)) for kind in (ToolStart, ToolEnd))
    assert isinstance(called, ToolStart) and isinstance(ended, ToolEnd)
    assert called.arguments == {"command": "echo hi; exit 3", "description": "try"}
    assert (ended.call_id, ended.name) == (called.call_id, "bash") and "hi" in ended.text
    messages = [event for event in events if isinstance(event, AssistantMessage)]
    assert messages[1].text == "It failed." and messages[1].usage["outputTokens"] > 0 and not messages[1].interrupted
    assert isinstance(events[-1], TurnEnd) and events[-1].status == "completed"


async def test_a_retry_is_an_event_and_a_failure_is_in_the_result(start: Start) -> None:
    async with MockLlmServer(["server_error", "auth_error"]) as server, start(server) as h:
        run = (await h.session()).prompt("Hi")
        retries = [event async for event in run if isinstance(event, Retry)]
        result = await run.result()
    assert [(event.retry, event.delay_ms, event.code) for event in retries] == [(1, 1, "SERVER")]
    assert result.status == "error" and result.error is not None and result.error["code"] == "AUTH" and not result.ok
    with pytest.raises(RunFailedError, match="Authentication fails") as caught:
        result.check()
    assert caught.value.code == "AUTH" and caught.value.result is result


# -- the turn a prompt causes -------------------------------------------------------------------------------------


async def test_each_of_several_prompts_has_the_events_and_the_result_of_its_own_turn(start: Start) -> None:
    script = [{"text": name} for name in "ABC"]
    async with MockLlmServer(script) as server, start(server) as h:
        session = await h.session("main")
        runs = [session.prompt(f"prompt {name}") for name in "ABC"]
        assert [run.status for run in runs[1:]] == ["queued", "queued"]
        results = await asyncio.gather(*(run.result() for run in reversed(runs)))
        assert [result.output for result in results] == ["C", "B", "A"]
        for number, run in enumerate(runs, 1):
            events = [event async for event in run]
            assert {event.raw.data["turn"] for event in events if "turn" in event.raw.data} == {number}
            assert [event.text for event in events if isinstance(event, UserMessage)][0].endswith("ABC"[number - 1])
            assert run.status == "completed" and (await run.result()).turns == 1


async def test_a_steering_prompt_joins_the_turn_and_an_idle_agent_starts_one_with_it(
    start: Start, place: Place
) -> None:
    async with MockLlmServer([bash(WAIT), {"text": "Both."}, {"text": "Third."}]) as server, start(server) as h:
        session = await h.session("main")
        first = session.prompt("one")
        await until((place.work / "began").exists)
        second = session.steer("and two")
        place.write("go", "")
        assert (await second.result()).output == (await first.result()).output == "Both."
        seen = [event async for event in second]
        assert seen[0].type == seen[1].type == "agent/inbox/spliced" and isinstance(seen[-1], TurnEnd)
        assert [event.text for event in seen if isinstance(event, UserMessage)] == ["and two"]
        assert (await session.steer("three").result()).output == "Third."


async def test_a_cancelled_prompt_leaves_the_queue_alone_and_a_cancelled_turn_takes_it_along(
    start: Start, place: Place
) -> None:
    async with MockLlmServer([bash(WAIT), {"text": "Later."}]) as server, start(server) as h:
        session = await h.session("main")
        first, second, third = (session.prompt(text) for text in ("one", "two", "three"))
        await until((place.work / "began").exists)
        second.cancel()
        assert (await second.result()).status == "discarded"
        assert (first.status, third.status) == ("running", "queued")
        first.cancel()
        first.cancel()
        assert [(await run.result()).status for run in (first, third)] == ["aborted", "discarded"]
        with pytest.raises(RunFailedError, match="taken out of the queue unread") as caught:
            (await third.result()).check()
        assert caught.value.code == "RUN_DISCARDED"
        first.cancel()  # long over: the next turn is not meant
        assert (await session.prompt("four").result()).output == "Later."


async def test_a_prompt_given_while_a_cancel_takes_effect_gets_its_turn(start: Start, place: Place) -> None:
    async with MockLlmServer([bash(WAIT), {"text": "Late."}]) as server, start(server) as h:
        session = await h.session("main")
        first = session.prompt("one")
        await until((place.work / "began").exists)
        session.cancel()
        late = session.prompt("two")
        assert (await first.result()).status == "aborted"
        result = await late.result()
        assert (result.status, result.output) == ("completed", "Late.")


async def test_a_failed_turn_parks_the_queue_and_the_next_prompt_starts_with_it(start: Start) -> None:
    script = ["auth_error", {"text": "Second."}, {"text": "Third."}]
    async with MockLlmServer(script) as server, start(server) as h:
        session = await h.session("main")
        first, second = session.prompt("one"), session.prompt("two")
        assert (await first.result()).status == "error"
        parked = await second.result()
        assert (parked.status, parked.turns, parked.output) == ("parked", 0, "")
        with pytest.raises(RunFailedError, match="still in its queue"):
            parked.check()
        assert (await session.prompt("three").result()).output == "Third."
        assert len(server.requests) == 3


async def test_a_refused_prompt_and_one_whose_step_cannot_start_are_told_apart(start: Start, place: Place) -> None:
    place.write("refusing.py", REFUSING)
    rows(place, "{id: refusing, name: ./refusing.py}")
    async with MockLlmServer(["success"]) as server, start(server) as h:
        session = await h.session("main")
        refused = await session.prompt("the forbidden one").result()
        assert (refused.status, refused.turns, refused.ok) == ("blocked", 1, False)
        broken = await session.prompt("the broken one").result()
        assert broken.status == "parked" and broken.error is not None and "no such luck" in broken.error["message"]
        with pytest.raises(RunFailedError, match="still in its queue: no such luck"):
            broken.check()


async def test_a_block_that_is_left_cancels_its_run_and_a_wait_that_is_left_does_not(
    start: Start, place: Place
) -> None:
    async with MockLlmServer([bash(WAIT), bash("sleep 60")]) as server, start(server) as h:
        session = await h.session("main")
        run = session.prompt("one")
        await until((place.work / "began").exists)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(run.result(), 0.05)
        assert run.status == "running"
        with pytest.raises(RuntimeError, match="enough"):
            async with run:
                raise RuntimeError("enough")
        assert run.done and (await run.result()).status == "aborted"


async def test_prompts_that_cannot_be_given_are_refused(start: Start) -> None:
    async with MockLlmServer(["success"]) as server, start(server) as h:
        session = await h.session("main")
        empties: list[Any] = ["", "  \n", []]
        for empty in empties:
            with pytest.raises(HarnessError, match="empty"):
                session.prompt(empty)
        with pytest.raises(HarnessError, match=r"contentBlocks\[0\].text must be a string"):
            session.prompt([{"type": "text", "text": 3}])
        result = await session.prompt([{"type": "text", "text": "one "}, {"type": "text", "text": "two"}]).result()
        assert result.ok and server.bodies[0]["messages"][-1]["role"] == "user"


# -- sessions ---------------------------------------------------------------------------------------------------------


async def test_several_sessions_work_side_by_side_each_in_its_folder(start: Start, place: Place) -> None:
    (place.work / "other").mkdir()
    commands = {name: f"touch {name}; until [ -e ../a ] || [ -e a ]; do sleep 0.02; done; pwd" for name in "ab"}

    def answer(body: Any) -> Any:
        last = body["messages"][-1]
        return {"text": last["content"].strip()} if last["role"] == "tool" else bash(commands[last["content"][-1]])

    async with MockLlmServer([answer] * 4) as server, start(server) as h:
        other = await h.new_session(session_id="mine", cwd="other")
        plain = await h.new_session(model="deepseek-official/deepseek-flash")
        waiting = other.prompt("b")
        await until((place.work / "other" / "b").exists)
        working = plain.prompt("a")
        outputs = [(await run.result()).output for run in (waiting, working)]
        assert outputs == [str(place.work / "other"), str(place.work)]
        assert other.id == "mine" and await h.session("mine") is other
        labels = {one.session_id: one.label for one in await h.agents()}
        assert labels["mine"] is None and sorted(str(label) for label in labels.values()) == ["None", "None", "main"]


async def test_what_is_asked_for_and_is_not_there_is_named(start: Start) -> None:
    async with start() as h:
        with pytest.raises(HarnessError, match=r'no agent "mian"; did you mean "main"\?; agents: main'):
            await h.session("mian")
        with pytest.raises(HarnessError, match='"provider/model", not'):
            await h.new_session(model="flash")
        with pytest.raises(HarnessError) as caught:
            await h.resume("nobody")
        assert caught.value.code == "SESSION_NOT_FOUND"
        await h.new_session(session_id="taken")
        with pytest.raises(HarnessError, match="taken"):
            await h.new_session(session_id="taken")


async def test_a_closed_session_ends_its_runs_and_resumes_where_it_was(start: Start, place: Place) -> None:
    async with MockLlmServer([bash(WAIT), {"text": "Again."}]) as server, start(server) as h:
        session = await h.new_session()
        run, queued = session.prompt("one"), session.prompt("two")
        follower = session.follow()
        await until((place.work / "began").exists)
        await session.close()
        assert [(await one.result()).status for one in (run, queued)] == ["disposed", "disposed"]
        async with asyncio.timeout(TIMEOUT):
            assert [event.type async for event in follower][-1] == "turn/end"
        with pytest.raises(HarnessError, match="no live session"):
            await session.prompt("three").result()
        session.cancel()  # nothing is there to stop
        resumed, again = await asyncio.gather(h.resume(session.id[:20]), h.resume(session.id))
        assert resumed is again is session
        # what was queued is still in the queue, and goes first
        assert (await resumed.prompt("three").result()).status in ("completed", "error")
        with pytest.raises(HarnessError, match="ends with"):
            await (await h.session("main")).close()


async def test_following_ends_at_once_where_no_agent_is(start: Start) -> None:
    async with start() as h:
        session = await h.new_session()
        await session.close()
        async with asyncio.timeout(TIMEOUT):
            assert [event async for event in session.follow()] == []
    with pytest.raises(HarnessError, match="not running"):
        async with asyncio.timeout(TIMEOUT):
            await anext(session.follow())


async def test_a_session_that_the_program_lets_go_of_is_not_kept(place: Place) -> None:
    async with harness(place) as h:
        session = await h.new_session()
        kept = weakref.ref(session)
        await session.close()
        del session
        gc.collect()
        assert kept() is None


async def test_a_prompt_from_another_thread_is_refused_before_any_of_it_is_given(start: Start) -> None:
    async with MockLlmServer(["success"]) as server, start(server) as h:
        session = await h.session("main")
        with pytest.raises(HarnessError, match="in the event loop of its harness"):
            await asyncio.to_thread(session.prompt, "lost")
        assert (await session.prompt("given").result()).ok
        history = await session.history()
        assert [event.text for event in history if isinstance(event, UserMessage)][-1] == "given"
        assert not [event for event in history if "lost" in str(event.raw.data)]


async def test_a_session_that_is_open_elsewhere_is_refused(start: Start, place: Place) -> None:
    async with MockLlmServer(["success"]) as server, harness(place, server) as elsewhere:
        session = await elsewhere.new_session()
        assert (await session.prompt("Hi").result()).ok
        async with start() as h:
            with pytest.raises(HarnessError, match=session.id):
                await h.resume(session.id)


async def test_following_a_session_shows_what_others_cause(start: Start) -> None:
    async with MockLlmServer(["success", "success"]) as server, start(server) as h:
        session = await h.session("main")
        with session.follow() as follower:
            await session.prompt("one").result()
            await session.prompt("two").result()
        seen = [event async for event in follower]
        assert [event.turn for event in seen if isinstance(event, TurnEnd)] == [1, 2]
        assert [event.raw.seq for event in seen] == list(range(len(seen)))


async def test_leaving_with_a_run_under_way_ends_it_in_the_log(start: Start, place: Place) -> None:
    async with MockLlmServer([bash(WAIT)]) as server:
        async with start(server) as h:
            session = await h.session("main")
            run = session.prompt("one")
            await until((place.work / "began").exists)
            waiting = asyncio.create_task(run.result())
        assert (await waiting).status == "disposed" and run.done
        with pytest.raises(HarnessError, match="not running"):
            session.prompt("two")
        with pytest.raises(HarnessError, match="not running"):
            await h.session("main")
    async with start() as h:
        resumed = await h.resume(session.id)
        assert (await resumed.history())[-1].type in ("turn/end", "session/end-seed")


# -- settings and permissions ----------------------------------------------------------------------------------------


async def test_settings_are_read_changed_and_watched(start: Start, place: Place) -> None:
    async with start() as h:
        key = "agent-loop.maxParallelToolCalls"
        heard: list[Any] = []
        h.settings.watch(key, lambda value: 1 / 0)  # which is told, and stops neither the harness nor other watchers
        undo = h.settings.watch(key, heard.append)
        assert await h.settings.get(key) == 10 and await h.settings.get("agent-loop") == {"maxParallelToolCalls": 10}
        await h.settings.set(key, 2)
        assert (
            await h.settings.get(key) == 2 and "maxParallelToolCalls: 2" in (place.home / "settings.yaml").read_text()
        )
        await h.settings.unset(key)
        assert (await h.settings.get())["agent-loop"] == {"maxParallelToolCalls": 10}
        await until(lambda: heard == [2, 10])
        undo()
        await h.settings.set(key, 3)
        assert heard == [2, 10]
        with pytest.raises(HarnessError, match="agent-loop.maxParallelToolCalls"):
            await h.settings.set(key, 0)
        assert await h.settings.get(key) == 3
        with pytest.raises(HarnessError, match=r'did you mean "agent-loop.maxParallelToolCalls"'):
            await h.settings.get("agent-loop.max_parallel_tool_calls")
        with pytest.raises(HarnessError, match=r'no settings section "agent-lop"; did you mean "agent-loop"'):
            await h.settings.set("agent-lop.maxParallelToolCalls", 1)
        with pytest.raises(HarnessError, match=r'unknown key; did you mean "maxParallelToolCalls"'):
            await h.settings.set("agent-loop.maxParallelToolCall", 1)


@pytest.mark.parametrize(("answer", "ran"), [(True, True), (False, False), (None, False), ("raise", False)])
async def test_a_callback_decides_what_needs_a_permission(start: Start, place: Place, answer: Any, ran: bool) -> None:
    asked: list[PermissionRequest] = []

    async def decide(request: PermissionRequest) -> bool:
        asked.append(request)
        if answer == "raise":
            raise ValueError("nobody there")
        return answer  # type: ignore[no-any-return]

    rows(place, "{id: approval, name: tests.interfaces.acp_plugins.approval}")
    async with MockLlmServer([bash("echo risky; touch done"), "success"]) as server:
        async with start(server, permission=decide) as h:
            run = (await h.session("main")).prompt("Hi")
            assert (await run.result()).ok
            called = [event async for event in run if isinstance(event, ToolStart)]
    assert [(one.session_id, one.tool_name, one.call_id) for one in asked] == [
        (called[0].session_id, "bash", called[0].call_id)
    ]
    assert (place.work / "done").exists() is ran


async def test_a_question_that_nobody_waits_for_any_more_is_cancelled(start: Start, place: Place) -> None:
    asked, over = asyncio.Event(), asyncio.Event()

    async def think(request: PermissionRequest) -> bool:
        asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            over.set()
        raise AssertionError

    rows(place, "{id: approval, name: tests.interfaces.acp_plugins.approval}")
    script = [bash("echo risky; touch done")] * 2
    async with MockLlmServer(script) as server, start(server, permission=think) as h:
        session = await h.session("main")
        run = session.prompt("Hi")
        async with asyncio.timeout(TIMEOUT):
            await asked.wait()
            run.cancel()
            assert (await run.result()).status == "aborted"
            await over.wait()
        asked.clear()
        over.clear()
        session.prompt("Hi")
        async with asyncio.timeout(TIMEOUT):
            await asked.wait()  # and leave with it
    assert over.is_set() and not (place.work / "done").exists()


# -- compositions -----------------------------------------------------------------------------------------------------


async def test_a_composition_that_does_not_load_says_where_and_why(start: Start, place: Place) -> None:
    rows(place, "{id: more, name: dsh-tool-todo, config: {allowParallelInProgress: maybe}}")
    with pytest.raises(BootError, match=r'row "more", key config.allowParallelInProgress: must be') as caught:
        async with start():
            pass
    assert "cordis.yml:26" in str(caught.value)
    place.write("cordis.yml", ROWS + "- {id: [\n")
    with pytest.raises(BootError, match="cordis.yml:2[67]"):
        async with start():
            pass
    (place.work / "cordis.yml").unlink()
    with pytest.raises(BootError, match="the file does not exist"):
        async with start():
            pass


async def test_a_folder_that_is_not_there_is_no_place_to_work(start: Start, place: Place) -> None:
    with pytest.raises(BootError, match="no folder .*/absent"):
        async with start(cwd=place.work / "absent"):
            pass
    async with start() as h:
        with pytest.raises(HarnessError, match="no folder .*/absent") as caught:
            await h.new_session(cwd="absent")
    assert caught.value.code == "NO_FOLDER"


async def test_one_patch_in_place_of_a_list_is_a_mistake(start: Start) -> None:
    with pytest.raises(TypeError, match=r"must be a list; give \['more.yml'\]"):
        start(patches="more.yml")


async def test_values_and_patches_are_laid_over_the_file(start: Start, place: Place) -> None:
    patch = place.write(
        "more.yml", "- insert: [{id: todo, name: dsh-tool-todo, config: {allowParallelInProgress: true}}]\n"
    )
    async with MockLlmServer(["success"]) as server:
        values = {"agent-loop.maxParallelToolCalls": 3, "system-prompt.persona": "yes: [it's] {{cwd}}"}
        async with start(server, set=values, patches=[patch]) as h:
            assert await h.settings.get("agent-loop.maxParallelToolCalls") == 3
            assert (await (await h.session("main")).prompt("Hi").result()).ok
    body = server.bodies[0]
    assert "yes: [it's] " + str(place.work) in body["messages"][0]["content"]
    assert "todo_write" in {tool["function"]["name"] for tool in body["tools"]}
    with pytest.raises(BootError, match="no row has that id; did you mean agent-loop"):
        async with start(set={"agent-lop.x": 1}):
            pass


async def test_an_edit_of_the_file_is_followed(start: Start, place: Place) -> None:
    follow = {} if "spawned" in os.environ["PYTEST_CURRENT_TEST"] else {"follow": True}
    async with MockLlmServer(["success"]) as server, start(server, **follow) as h:
        session = await h.session("main")
        await asyncio.sleep(0)
        place.write("cordis.yml", ROWS.replace("[{id: main}]", "[{id: main}, {id: second}]"))

        async def labels() -> list[str | None]:
            return [one.label for one in await h.agents()]

        async with asyncio.timeout(TIMEOUT):
            while await labels() != ["main", "second"]:
                await asyncio.sleep(0.05)
        assert (await session.prompt("Hi").result()).ok and await h.session("main") is session


# -- one way alone ----------------------------------------------------------------------------------------------------


async def test_a_runtime_that_dies_ends_the_runs(place: Place, capfd: pytest.CaptureFixture[str]) -> None:
    async with MockLlmServer([bash(WAIT)]) as server:
        async with spawned(place, server) as h:
            session = await h.session("main")
            run = session.prompt("one")
            await until((place.work / "began").exists)
            process = h._backend._process  # type: ignore[attr-defined]
            os.kill(process.pid, signal.SIGKILL)
            with pytest.raises(HarnessError, match="the runtime ended with exit code -9"):
                await run.result()
            assert run.status == "disposed"
            with pytest.raises(HarnessError, match="the runtime ended"):
                await h.agents()
    place.write("go", "")
