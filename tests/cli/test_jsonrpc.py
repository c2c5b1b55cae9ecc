"""The JSON-RPC runtime: requests, refusals, order of notifications, sessions that come back."""

from __future__ import annotations

import asyncio
import json
import random
from pathlib import Path
from typing import Any

import pytest

from dsh.core.packed_rows import unpack
from dsh.models.mock_server import MockLlmServer
from tests.cli.jsonrpc_kit import AGENT, PROFILE, ROWS, STALL, RpcFailure, runtime, stored
from tests.cli.kit import Place

SERVER_INFO = {"name": "deepseek-harness-sdk-runtime", "version": "0.0.1"}

CHILD = '''\
"""A tool that gives its task to a session of its own, as delegation does."""
from dsh.cordis import Emit
from dsh.core.agent import AgentOptions, CreateAgentOptions
from dsh.core.agents import Agents
from dsh.core.session_store import SessionCreated
from dsh.core.tools import ToolRun, Tools
from dsh.llm.message import create_user_message


class SubagentEnd(Emit, name="subagent/end"):
    run_id: str
    provider: str
    id: str
    local: bool
    stop_reason: str
    last_assistant_message: object = None


def apply(ctx, config, agents: Agents, tools: Tools):
    # A listener that appends as soon as it hears of a session: its event must not overtake the news of the child.
    ctx.on(SessionCreated, lambda e: e.session.append("test/noted", {}, ignorable=True), prepend=True)

    @tools.tool
    async def delegate(task: str, exec: ToolRun) -> str:
        """Give the task to a child.

        task: what to do
        """
        parent = exec.agent
        meta = {"cwd": parent.session.header.cwd, "parentSession": parent.id, "origin": "subagent"}
        options = CreateAgentOptions("child", meta, agent_options=AgentOptions("deepseek-official", "deepseek-flash"))
        handle = await agents.create(options)
        handle.agent.followup(create_user_message(task))
        await handle.agent.when_idle()
        last = [e for e in handle.agent.session.events if e.type == "assistant/message"][-1]
        content = last.data["message"]["content"]
        await handle.dispose()
        for local, reason in ((False, "completed"), (True, config.get("reason", "completed"))):
            ctx.emit(SubagentEnd("r", "spawn", "child", local, reason, content), scope=parent)
        return "done"
'''


@pytest.fixture
def place(tmp_path: Path) -> Place:
    place = Place.make(tmp_path)
    place.write("cordis.yml", ROWS)
    return place


def rows(place: Place, more: str) -> None:
    place.write("cordis.yml", ROWS + more)


# -- requests ---------------------------------------------------------------------------------------------------------


async def test_b09a_requests_that_cannot_be_served_are_errors_that_name_the_reason(place: Place) -> None:
    async with MockLlmServer(["success"]) as server, runtime(place, "cordis.yml") as run:
        place.model(server.url)
        failures: dict[str, Any] = {
            "unknown DeepSeek Harness SDK runtime method: session/dance": ("session/dance", {}),
            "session/prompt before initialize": ("session/prompt", {"sessionId": "s", "contentBlocks": [TEXT]}),
            "session/resume before initialize": ("session/resume", {"sessionId": "s"}),
            'no adapter registered for provider "nobody"': ("initialize", run.route(provider="nobody")),
            "initialize provider must be a non-empty string": ("initialize", ["an", "array"]),
            "session/prompt sessionId must be a non-empty string": ("session/prompt", ["an", "array"]),
            "session/prompt contentBlocks must be a non-empty array": ("session/prompt", {"sessionId": "s"}),
            "session/prompt contentBlocks[0] must be an object with a type": (
                "session/prompt", {"sessionId": "s", "contentBlocks": ["hi"]},
            ),
            "no live session: s": ("session/cancel", {"sessionId": "s"}),
            "no open permission request: r": ("permission/respond", {"requestId": "r", "outcome": "rejected"}),
        }  # fmt: skip
        for message, (method, params) in failures.items():
            with pytest.raises(RpcFailure) as caught:
                await run.call(method, params)
            assert (str(caught.value), caught.value.code) == (message, -32603)
        for bad in (0, -1, 1.5, "5", True, 2**53, [], {}):
            with pytest.raises(RpcFailure, match="initialize maxTokens must be a positive safe integer"):
                await run.initialize(maxTokens=bad)
        with pytest.raises(RpcFailure, match="has no reasoning effort"):
            await run.initialize(reasoningEffort="enormous")
        assert run.events("s") == []


TEXT = {"type": "text", "text": "hi"}


async def test_b09b_ids_come_back_as_they_are_and_lines_that_are_no_frames_are_ignored(place: Place) -> None:
    async with runtime(place, "cordis.yml") as run:
        run.write(b'\n\n  \nnot json\n[1]\n"text"\n17\n{"jsonrpc":"2.0","method":"some/notification"}\n')
        ids: list[Any] = ["7f9c0b1e-text", 7, "7", 0, -1, 2**40, None]
        for id in ids:
            run.write(json.dumps({"jsonrpc": "2.0", "id": id, "method": "nope"}).encode() + b"\n")
        await run.initialize(provider="demo", model="demo")
        assert [frame["id"] for frame in run.answers()][: len(ids)] == ids
        assert all(type(a["id"]) is type(b) for a, b in zip(run.answers(), ids, strict=False))


async def test_b09c_initialize_can_be_repeated_and_later_sessions_use_the_new_values(place: Place) -> None:
    async with MockLlmServer(["success"], repeat_last=True) as server:
        place.model(server.url)
        (place.work / "other").mkdir()
        async with runtime(place, "cordis.yml") as run:
            result = await run.initialize(maxTokens=111)
            assert result["serverInfo"] == SERVER_INFO and "session/cancel" in result["capabilities"]["methods"]
            await run.turn("one")
            await run.initialize(
                model="deepseek-v4-flash", cwd=str(place.work / "other"), maxTokens=222, reasoningEffort="high"
            )
            await run.turn("two")
            await run.turn("one")
            listed = (await run.call("session/list"))["sessions"]
            assert {each["sessionId"]: each["cwd"] for each in listed} == {
                "one": str(place.work), "two": str(place.work / "other")
            }  # fmt: skip
            headers = {
                id: [e["data"]["header"]["config"] for e in run.events(id) if e["type"] == "request/header"]
                for id in ("one", "two")
            }
        bodies = [request.body for request in server.requests]
        assert [body["max_tokens"] for body in bodies] == [111, 222, 111]
        assert [body["model"] for body in bodies] == ["deepseek-flash", "deepseek-v4-flash", "deepseek-flash"]
        assert len(headers["one"]) == 1
        assert headers["two"][0]["reasoningEffort"] == "high"


async def test_b09d_two_first_prompts_at_once_share_one_agent_and_keep_their_order(place: Place) -> None:
    async with MockLlmServer(["success"], repeat_last=True) as server:
        place.model(server.url)
        async with runtime(place, "cordis.yml") as run:
            # All in one write, before the runtime stands.
            ids = [run.send("initialize", run.route())]
            for text in ("first", "second", "third"):
                blocks = [{"type": "text", "text": text}]
                ids.append(run.send("session/prompt", {"sessionId": "s", "contentBlocks": blocks}))
            answers = [await run.answer(id) for id in ids[1:]]
            for _ in range(100):
                await run.idle("s")
                if run.told("s").count("turn/end") == 3:
                    break
            spliced = [m for e in run.events("s") if e["type"] == "agent/inbox/spliced" for m in e["data"]["inserted"]]
            assert [m["content"][0]["text"] for m in spliced] == ["first", "second", "third"]
            assert [m["id"] for m in spliced] == [each["messageId"] for each in answers]
            assert [e["seq"] for e in run.events("s")] == list(range(len(run.events("s"))))


async def test_b09e_a_creation_that_failed_is_shared_and_can_be_tried_again(place: Place) -> None:
    place.write(
        "refuse.py",
        "from dsh.core.session_store import SessionCreated\n"
        "def apply(ctx):\n"
        "    left = ['once']\n"
        "    @ctx.on(SessionCreated)\n"
        "    def refuse(event):\n"
        "        if left:\n"
        "            left.pop()\n"
        "            raise RuntimeError('not this time')\n",
    )
    rows(place, "- {id: refuse, name: ./refuse.py}\n")
    async with runtime(place, "cordis.yml") as run:
        await run.initialize(provider="demo", model="demo")
        both = [run.send("session/prompt", {"sessionId": "s", "contentBlocks": [TEXT]}) for _ in range(2)]
        for id in both:
            with pytest.raises(RpcFailure, match="not this time"):
                await run.answer(id)
        await run.turn("s")
        assert run.told("s").count("turn/end") == 1


async def test_b09f_an_agent_disposed_elsewhere_is_an_error_until_the_session_is_resumed(place: Place) -> None:
    place.write(
        "killer.py",
        "from dsh.core.agent_events import AgentStatus\n"
        "from dsh.core.agent_loop import AgentLoop\n"
        "def apply(ctx, config, loop: AgentLoop):\n"
        "    @ctx.on(AgentStatus)\n"
        "    def idle(event):\n"
        "        if event.status == 'idle' and event.agent.id == 'victim':\n"
        "            for one in list(loop.lifecycles):\n"
        "                one.dispose_soon()\n",
    )
    rows(place, "- {id: killer, name: ./killer.py}\n")
    async with runtime(place, "cordis.yml") as run:
        await run.initialize(provider="demo", model="demo")
        await run.turn("victim")
        for _ in range(2):
            with pytest.raises(RpcFailure, match="^session agent was disposed outside the server: victim$"):
                await run.prompt("victim")
        assert await run.call("session/resume", {"sessionId": "victim"}) == {}
        await run.turn("victim")
        assert run.told("victim").count("turn/end") == 2


async def test_b09g_requests_during_a_shutdown_are_refused_and_the_answer_comes_once(place: Place) -> None:
    async with MockLlmServer([STALL]) as server:
        place.model(server.url)
        async with runtime(place, "cordis.yml") as run:
            await run.initialize()
            await run.prompt("s")
            await server.wait_for_requests(1)
            first, prompt, second = (
                run.send("shutdown"),
                run.send("session/prompt", {"sessionId": "s", "contentBlocks": [TEXT]}),
                run.send("shutdown"),
            )
            for id in (prompt, second):
                with pytest.raises(RpcFailure, match="^SDK server is shutting down$"):
                    await run.answer(id)
            assert await run.answer(first) == {}
            assert await run.finish(10) == 0
            assert run.told("s")[-2:] == ["turn/end", "idle"]
            end = run.events("s")[-1]["data"]["reason"]
            assert end == {"kind": "aborted", "reason": {"kind": "disposed"}}


async def test_b09h_own_methods_cancel_list_read_and_close_sessions(place: Place) -> None:
    async with MockLlmServer([STALL, "success"], repeat_last=True) as server:
        place.model(server.url)
        async with runtime(place, "cordis.yml") as run:
            await run.initialize()
            await run.prompt("s")
            await run.event("assistant/chunk")
            assert [each["status"] for each in (await run.call("session/list"))["sessions"]] == ["running"]
            assert await run.call("session/cancel", {"sessionId": "s"}) == {}
            await run.idle("s")
            assert run.events("s")[-1]["data"]["reason"] == {"kind": "aborted", "reason": {"kind": "user"}}
            live = await run.call("session/read", {"sessionId": "s"})
            assert live == {"events": run.events("s")}
            page = await run.call("session/read", {"sessionId": "s", "fromSeq": 2, "limit": 3})
            assert page == {"events": run.events("s")[2:5], "nextSeq": 5}
            assert await run.call("session/close", {"sessionId": "s"}) == {"closed": True}
            assert await run.call("session/close", {"sessionId": "s"}) == {"closed": False}
            assert [each["status"] for each in (await run.call("session/list"))["sessions"]] == ["stored"]
            assert await run.call("session/read", {"sessionId": "s"}) == live
            with pytest.raises(RpcFailure, match="never"):
                await run.call("session/read", {"sessionId": "never"})
            before = len(run.events("s"))
            await run.turn("s")
            assert run.events("s")[before]["data"]["inserted"][0]["content"] == [TEXT]


async def test_b09m_prompts_that_meet_a_close_go_to_the_session_as_it_comes_back(place: Place) -> None:
    async with MockLlmServer([STALL, "success"], repeat_last=True) as server:
        place.model(server.url)
        async with runtime(place, "cordis.yml") as run:
            await run.initialize()
            await run.prompt("s")
            await run.event("assistant/chunk")
            ids = [run.send("session/close", {"sessionId": "s"})]
            ids += [run.send("session/prompt", {"sessionId": "s", "contentBlocks": [TEXT]}) for _ in range(2)]
            closed, *answers = [await run.answer(id) for id in ids]
            assert closed == {"closed": True} and all("messageId" in answer for answer in answers)
            while run.told("s").count("turn/end") < 3:
                await run.idle("s")
            ends = [e["data"]["reason"]["kind"] for e in run.events("s") if e["type"] == "turn/end"]
            assert ends == ["aborted", "completed", "completed"]


async def test_b09i_the_official_provider_is_brought_along_when_no_row_mounts_it(place: Place) -> None:
    place.write("cordis.yml", ROWS.replace("- {id: llm-deepseek, name: dsh-llm-deepseek}\n", ""))
    async with MockLlmServer(["success"]) as server:
        place.model(server.url)
        async with runtime(place, "cordis.yml") as run:
            both = [run.send("initialize", run.route()) for _ in range(2)]
            for id in both:
                assert (await run.answer(id))["serverInfo"] == SERVER_INFO
            await run.turn("s")
            assert run.events("s")[-1]["data"]["reason"] == {"kind": "completed"}


# -- order ------------------------------------------------------------------------------------------------------------


async def test_b10a_a_prompt_is_in_the_inbox_before_running_and_idle_follows_the_last_event(place: Place) -> None:
    async with MockLlmServer(["success"], repeat_last=True) as server:
        place.model(server.url)
        async with runtime(place, "cordis.yml") as run:
            await run.initialize()
            names = [f"s{number}" for number in range(6)]
            ids = [run.send("session/prompt", {"sessionId": each, "contentBlocks": [TEXT]}) for each in names]
            for id in ids:
                await run.answer(id)
            async with asyncio.timeout(30):
                while sum(run.told(each).count("idle") for each in names) < len(names):
                    await asyncio.sleep(0.01)
            for each in names:
                told = run.told(each)
                assert told[:3] == ["agent/inbox/spliced", "running", "turn/start"]
                assert told[-2:] == ["turn/end", "idle"]
                assert (told.count("running"), told.count("idle")) == (1, 1)
                assert [e["seq"] for e in run.events(each)] == list(range(len(run.events(each))))
                kept = (await run.call("session/read", {"sessionId": each}))["events"]
                assert kept == run.events(each)


@pytest.mark.parametrize(
    ("reason", "capped_is_fine", "status"),
    [("completed", False, "ok"), ("max-tokens", False, "error"), ("max-tokens", True, "ok"), ("error", True, "error")],
)
async def test_b10b_a_child_is_told_before_its_first_event_and_its_end_before_the_parents_result(
    place: Place, reason: str, capped_is_fine: bool, status: str
) -> None:
    place.write("child.py", CHILD)
    place.write(
        "cordis.yml",
        ROWS.replace(
            "name: dsh-sdk-jsonrpc-server}",
            f"name: dsh-sdk-jsonrpc-server, config: {{maxTokensAsSuccess: {str(capped_is_fine).lower()}}}}}",
        )
        + f"- {{id: child, name: ./child.py, config: {{reason: {reason}}}}}\n",
    )
    script = [
        {"toolCalls": [{"name": "delegate", "arguments": '{"task":"look"}'}]},
        {"text": "child says hi"},
        {"text": "all done"},
    ]
    async with MockLlmServer(script) as server:
        place.model(server.url)
        async with runtime(place, "cordis.yml") as run:
            await run.initialize()
            await run.turn("parent")
            told = [_short(frame) for frame in run.frames if "method" in frame]
            started, noted = told.index("started child"), told.index("child test/noted")
            assert started < noted < told.index("child running")
            assert all(not each.startswith("child ") for each in told[:started])
            assert told.index("child turn/end") < told.index("child idle") < told.index(f"finished child {status}")
            assert told.index(f"finished child {status}") < told.index("parent tool/result")
            assert len([each for each in told if each.startswith("finished")]) == 1
            finished = next(f["params"] for f in run.frames if f.get("method") == "subagent.finished")
            assert finished == {
                "provider": "spawn", "agentId": "child", "parentSessionId": "parent", "childSessionId": "child",
                "status": status, "stopReason": reason,
                "lastAssistantMessage": [{"type": "text", "text": "child says hi"}],
            }  # fmt: skip


def _short(frame: Any) -> str:
    params = frame["params"]
    if frame["method"] == "session.event":
        return f"{params['sessionId']} {params['event']['type']}"
    if frame["method"] == "session.status":
        return f"{params['sessionId']} {params['status']}"
    if frame["method"] == "subagent.started":
        return f"started {params['childSessionId']}"
    return f"finished {params['childSessionId']} {params['status']}"


async def test_b10c_a_client_that_does_not_read_delays_nothing_and_misses_nothing(place: Place) -> None:
    count = 20_000
    pieces = [{"choices": [{"index": 0, "delta": {"content": "x" * 20}}]} for _ in range(count)]
    done = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    async with MockLlmServer([{"chunks": [*pieces, done, b"data: [DONE]\n\n"]}]) as server:
        place.model(server.url)
        async with runtime(place, "cordis.yml") as run:
            await run.initialize()
            await run.prompt("s")
            run.paused.clear()
            await stored(place, "s", '"turn/end"')  # as soon as ever, although nobody reads
            assert "idle" not in run.told("s")  # a pipe holds a thousandth of it
            # Still there for others, though nobody reads: a request is served and its effect is in the log.
            run.send("session/working-directory/set", {"sessionId": "s", "path": "/"})
            run.paused.set()
            await run.idle("s")
            told = run.events("s")
            assert [e["seq"] for e in told] == list(range(len(told)))
            texts = [e["data"]["chunk"] for e in told if e["type"] == "assistant/chunk"]
            assert len([c for c in texts if c["type"] == "text-delta"]) == count


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_b10d_whatever_meets_the_wire_tells_what_the_logs_hold_in_their_order(place: Place, seed: int) -> None:
    dice = random.Random(seed)
    names = ["a", "b", "c"]
    call = {"toolCalls": [{"name": "bash", "arguments": '{"command":"sleep 0.05","description":"wait"}'}]}

    def reply(body: Any) -> Any:
        return dice.choice(
            ["success", {"text": "x", "reasoning": "y"}, call if len(body["messages"]) < 60 else "success"]
        )

    async with MockLlmServer([reply], repeat_last=True, delay_ms=1) as server:
        place.model(server.url)
        async with runtime(place, "cordis.yml") as run:
            await run.initialize()
            asked = []
            for _ in range(120):
                name = dice.choice(names)
                method = dice.choice(
                    ["session/prompt"] * 6
                    + ["session/cancel"] * 3
                    + ["session/close", "session/resume", "session/read"]
                )
                more = {"contentBlocks": [TEXT]} if method == "session/prompt" else {}
                asked.append((method, name, run.send(method, {"sessionId": name, **more})))
                if dice.random() < 0.4:
                    await asyncio.sleep(dice.random() * 0.05)
            prompted: dict[str, list[str]] = {name: [] for name in names}
            for method, name, id in asked:
                try:
                    answer = await run.answer(id)
                except RpcFailure as failure:
                    assert method != "session/prompt", failure
                    assert "no live session" in str(failure) or "not found" in str(failure), failure
                else:
                    if method == "session/prompt":
                        prompted[name].append(answer["messageId"])
            for name in names:
                try:
                    await run.call("session/cancel", {"sessionId": name})
                except RpcFailure as failure:
                    assert "no live session" in str(failure)  # it was closed last
            await run.call("shutdown")
            assert await run.finish(10) == 0
            for name in names:
                states = [told for told in run.told(name) if told in ("running", "idle")]
                assert states == ["running", "idle"] * (len(states) // 2)
                told = run.events(name)
                inserted = [m["id"] for e in told if e["type"] == "agent/inbox/spliced" for m in e["data"]["inserted"]]
                assert [id for id in dict.fromkeys(inserted) if id in prompted[name]] == prompted[name]
                log = next(place.home.glob(f"sessions/*/{name}/session.jsonl"))
                kept = {event.seq: event.to_wire() for event in _events(log)}
                assert [e["seq"] for e in told] == sorted(e["seq"] for e in told)
                assert all(kept[e["seq"]] == e for e in told)
                left = {seq for seq in kept if seq not in {e["seq"] for e in told}}
                assert all(kept[seq]["type"] == "session/end-seed" for seq in left)  # of resumes: inherited, not new


def _events(log: Path) -> list[Any]:
    header, *rows = [json.loads(line) for line in log.read_bytes().split(b"\n") if line]
    assert header["type"] == "session"
    return [event for row in rows for event in unpack(row)]


# -- sessions that come back ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ended", ["shutdown", "kill"])
async def test_b09j_a_stored_session_is_resumed_without_input_or_by_its_next_prompt(place: Place, ended: str) -> None:
    async with MockLlmServer(["success"], repeat_last=True) as server:
        place.model(server.url)
        async with runtime(place, "cordis.yml") as run:
            await run.initialize()
            await run.turn("s", "remember this")
            if ended == "shutdown":
                await run.call("shutdown")
                assert await run.finish(10) == 0
            else:
                run.kill()
                await run.finish()
        async with runtime(place, "cordis.yml") as run:
            await run.initialize()
            assert await run.call("session/resume", {"sessionId": "s"}) == {}
            assert await run.call("session/resume", {"sessionId": "s"}) == {}
            assert len(server.requests) == 1 and "running" not in run.told("s")
            await run.turn("s", "and now?")
            with pytest.raises(RpcFailure, match="unknown"):
                await run.call("session/resume", {"sessionId": "unknown"})
            listed = (await run.call("session/list"))["sessions"]
            assert [each["sessionId"] for each in listed] == ["s"]
        texts = [m["content"] for m in server.requests[-1].body["messages"] if m["role"] == "user"]
        assert any("remember this" in str(text) for text in texts) and any("and now?" in str(text) for text in texts)


async def test_b09k_a_session_open_elsewhere_is_an_error_and_never_a_new_session(place: Place) -> None:
    async with runtime(place, "cordis.yml") as first, runtime(place, "cordis.yml") as second:
        for run in (first, second):
            await run.initialize(provider="demo", model="demo")
        await first.prompt("s", "mine")
        await first.idle("s")
        for method, more in (
            ("session/prompt", {"contentBlocks": [TEXT]}),
            ("session/resume", {}),
            ("session/working-directory/get", {}),
        ):
            with pytest.raises(RpcFailure, match=f"is open in pid {first.process.pid}"):
                await second.call(method, {"sessionId": "s", **more})
        assert second.events("s") == []
        first.kill()
        await first.process.wait()
        assert await second.call("session/resume", {"sessionId": "s"}) == {}


async def test_b09l_a_working_directory_is_entered_kept_and_recovered(place: Place) -> None:
    script = [{"toolCalls": [{"name": "bash", "arguments": '{"command":"pwd","description":"where"}'}]}, {"text": "ok"}]
    (place.work / "a" / "b").mkdir(parents=True)
    where = {"sessionId": "s"}
    async with MockLlmServer(script) as server:
        place.model(server.url)
        async with runtime(place, "cordis.yml") as run:
            await run.initialize()
            assert await run.call("session/working-directory/get", where) == {"cwd": str(place.work)}
            for path, at in (("a", "a"), ("b", "a/b"), (str(place.work / "a"), "a"), ("b", "a/b")):
                got = await run.call("session/working-directory/set", {**where, "path": path})
                assert got == {"cwd": str(place.work / at)}
            with pytest.raises(RpcFailure, match=f"^not a directory: {place.work}/a/b/nowhere$"):
                await run.call("session/working-directory/set", {**where, "path": "nowhere"})
            await run.turn("s")
            result = next(e for e in run.events("s") if e["type"] == "tool/result")
            assert result["data"]["message"]["content"][0]["content"][0]["text"].startswith(f"{place.work}/a/b\n")
            await run.call("shutdown")
            await run.finish(10)
        async with runtime(place, "cordis.yml") as run:
            await run.initialize(cwd="/")
            await run.call("session/resume", where)
            assert await run.call("session/working-directory/get", where) == {"cwd": str(place.work / "a" / "b")}
            (place.work / "a" / "b").rmdir()
            assert await run.call("session/working-directory/get", where) == {"cwd": str(place.work)}
            assert (await run.call("session/list"))["sessions"][0]["cwd"] == str(place.work)


# -- which composition ------------------------------------------------------------------------------------------------


async def test_b05a_the_composition_comes_from_the_variable_the_argument_or_the_package(place: Place) -> None:
    for name in ("variable", "argument"):
        place.write(f"{name}.py", f"import sys\ndef apply(ctx):\n    print('mounted {name}', file=sys.stderr)\n")
        place.write(f"{name}.yml", ROWS + f"- {{id: {name}, name: ./{name}.py}}\n")
    root = str(place.work / "elsewhere")
    env = {"DSH_CORDIS_CONFIG": str(place.work / "variable.yml"), "DSH_SESSION_ROOT": root}
    for said, arguments, more in (
        ("mounted variable", ["argument.yml"], env),
        ("mounted argument", ["argument.yml"], {"DSH_CORDIS_CONFIG": ""}),
        ("using the packaged profile sdk", [], {"DSH_SESSION_ROOT": "elsewhere", "DSH_CWD": str(place.home.parent)}),
    ):
        async with runtime(place, *arguments, command=AGENT, env=more) as run:
            await run.call("initialize", {"provider": "demo", "model": "demo"})
            await run.said(said)
            await run.turn("s")
            cwd = await run.call("session/working-directory/get", {"sessionId": "s"})
            assert cwd == {"cwd": more.get("DSH_CWD", str(place.work))}
            await run.call("shutdown")
            assert await run.finish(10) == 0
        used = place.home / "sessions" if arguments and not more["DSH_CORDIS_CONFIG"] else Path(root)
        assert len(list(used.rglob("session.jsonl*"))) == 1
        for log in used.rglob("session.jsonl*"):
            log.unlink()


async def test_b05b_a_profile_takes_patches_and_keeps_its_sessions_in_the_home_folder(place: Place) -> None:
    place.write("one.yml", "- {id: system-prompt, config: {persona: First.}}\n- {id: nobody, config: {}}\n")
    place.write("two.yml", "- {id: system-prompt, config: {persona: Second.}}\n")
    async with MockLlmServer(["success"]) as server:
        place.model(server.url)
        patches = ("--patch", str(place.work / "one.yml"), "--patch", str(place.work / "two.yml"))
        async with runtime(place, *patches, command=PROFILE) as run:
            await run.initialize()
            await run.turn("s")
            await run.call("shutdown")
            assert await run.finish(10) == 0
            assert "nobody" in run.err
        assert "Second." in str(server.requests[0].body) and "First." not in str(server.requests[0].body)
    assert len(list((place.home / "sessions").rglob("session.jsonl*"))) == 1


async def test_b05c_profiles_that_cannot_start_say_so(place: Place) -> None:
    for arguments, said in (
        (["--profile", "web"], "not built yet"),
        (["--profile", "nonsense"], "there are headless, sdk, web"),
        (["--profile", "headless"], "exec TASK"),
        (["--profile", "sdk", "sessions", "list"], "--profile goes with"),
        (["--patch", "x.yml", "run"], "needs --profile"),
        (["-v"], "Missing command"),
    ):
        done = await place.dsh(*arguments)
        assert (done.code, done.out) == (2, "") and said in done.err, done.err


async def test_b05d_a_profile_stands_before_other_commands_too(place: Place) -> None:
    place.write("demo.yml", "- {id: agent-default-model, config: {provider: demo, model: demo}}\n")
    for arguments in (["exec", "hi"], ["hi"]):
        done = await place.dsh("--profile", "headless", "--patch", "demo.yml", *arguments)
        assert (done.code, done.err) == (0, "") and "demo reply" in done.out


async def test_b05e_the_profiles_differ_in_what_the_front_end_needs_alone() -> None:
    from dsh.cli.profiles import profile_file
    from dsh.loader.boot import make_source

    by_profile = {}
    for name in ("sdk", "headless"):
        parsed = make_source(profile_file(name), sibling=False).read().parsed.rows
        by_profile[name] = {row.id: (row.name, row.config) for row in parsed}
    sdk, headless = by_profile["sdk"], by_profile["headless"]
    assert sdk.keys() - headless.keys() == {"sdk-jsonrpc-server"} and headless.keys() <= sdk.keys()
    assert {id for id in headless if headless[id] != sdk[id]} == {"fs", "bash"}


async def test_a_composition_without_the_row_gets_it(place: Place) -> None:
    place.write("cordis.yml", ROWS.replace("- {id: sdk-jsonrpc-server, name: dsh-sdk-jsonrpc-server}\n", ""))
    async with runtime(place, "cordis.yml") as run:
        assert (await run.initialize(provider="demo", model="demo"))["serverInfo"] == SERVER_INFO


async def test_approvals_are_asked_of_clients_that_answer_them(place: Place) -> None:
    place.write(
        "ask.py",
        "from dsh.core.agent_events import AgentPreStep\n"
        "from dsh.core.seams import ApprovalRequest\n"
        "def apply(ctx):\n"
        "    @ctx.on(AgentPreStep)\n"
        "    async def ask(event, next):\n"
        "        async def nobody():\n"
        "            return 'unavailable'\n"
        "        asked = ApprovalRequest(event.agent, 'bash', 'c1', 'why', event.signal)\n"
        "        outcome = await ctx.waterfall(asked, nobody)\n"
        "        event.agent.session.append('test/outcome', {'is': outcome}, ignorable=True)\n"
        "        return await next()\n",
    )
    rows(place, "- {id: ask, name: ./ask.py}\n")
    async with runtime(place, "cordis.yml") as run:
        await run.initialize(provider="demo", model="demo")
        await run.prompt("s")
        assert (await run.event("test/outcome"))["data"] == {"is": "unavailable"}
        await run.idle("s")
        await run.initialize(provider="demo", model="demo", capabilities={"permissions": True})
        await run.prompt("s")
        asked = (await run.wait_for(lambda f: f["method"] == "permission.requested", "question"))["params"]
        assert {k: v for k, v in asked.items() if k != "requestId"} == {
            "sessionId": "s", "toolName": "bash", "callId": "c1", "reason": "why"
        }  # fmt: skip
        with pytest.raises(RpcFailure, match="outcome must be one of"):
            await run.call("permission/respond", {"requestId": asked["requestId"], "outcome": "perhaps"})
        await run.call("permission/respond", {"requestId": asked["requestId"], "outcome": "allowed-once"})
        assert (await run.event("test/outcome"))["data"] == {"is": "allowed-once"}
        await run.idle("s")
        await run.prompt("s")
        await run.wait_for(lambda f: f["method"] == "permission.requested", "question")
        await run.call("session/cancel", {"sessionId": "s"})
        assert (await run.event("test/outcome"))["data"] == {"is": "cancelled"}


async def test_our_own_client_begins_otherwise_and_no_other_hears_what_is_told_to_it(place: Place) -> None:
    async with runtime(place, "cordis.yml") as run:
        with pytest.raises(RpcFailure, match="dsh/attach comes first"):
            await run.call("dsh/agents")
        await run.initialize(provider="demo", model="demo")
        await run.prompt("s")
        await run.idle("s")
        await run.call("session/close", {"sessionId": "s"})
        assert not [frame for frame in run.frames if frame.get("method") == "session.disposed"]
        await run.call("dsh/attach")
        assert (await run.call("dsh/agents")) == {"agents": [], "failed": {}}
        opened = (await run.call("dsh/open", {"provider": "demo", "model": "demo"}))["sessionId"]
        message = {"id": "m", "role": "user", "content": [TEXT], "source": {"kind": "user"}}
        await run.call("dsh/send", {"sessionId": opened, "message": message})
        await run.idle(opened)
        failures: dict[str, Any] = {
            "send message must be an object": ("dsh/send", {"sessionId": opened}),
            'send message must have role "user"': ("dsh/send", {"sessionId": opened, "message": {"id": "x"}}),
            "no live session: t": ("dsh/send", {"sessionId": "t", "message": message}),
            "open sessionId must be a non-empty string": ("dsh/open", {"sessionId": ""}),
            "the composition has no settings service (row settings)": ("dsh/change-setting", {"section": "x"}),
            "unknown DeepSeek Harness SDK runtime method: dsh/dance": ("dsh/dance", {}),
        }
        for said, (method, params) in failures.items():
            with pytest.raises(RpcFailure) as caught:
                await run.call(method, params)
            assert (str(caught.value), caught.value.code) == (said, -32603)
        await run.call("dsh/close", {"sessionId": opened})
        await run.wait_for(lambda f: f["method"] == "session.disposed", "end")
