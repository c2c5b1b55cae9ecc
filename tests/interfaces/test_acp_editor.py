"""The editor profile of ``dsh acp``: what an editor is shown, live and when it opens a stored session."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from tests.cli.kit import Place

from .acp_kit import Client, acp, appears, compose, opened, plugin, script

EDITOR = {"presentation": "editor"}


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place.make(tmp_path)


def call(name: str, call_id: str, **arguments: Any) -> dict[str, Any]:
    return {"call": name, "id": call_id, "arguments": arguments}


def states(client: Client, session: str, call_id: str) -> list[str]:
    """The states a call went through."""
    return [u["status"] for u in client.updates(session) if u.get("toolCallId") == call_id]


async def test_b16_the_handshake_offers_what_an_editor_can_use(place: Place) -> None:
    async with acp(place, "--config", str(compose(place, acp=EDITOR))) as client:
        assert (await client.hello())["agentCapabilities"] == {
            "promptCapabilities": {"image": False, "audio": False, "embeddedContext": True},
            "loadSession": True,
            "sessionCapabilities": {"list": {}, "resume": {}, "close": {}},
        }


async def test_b16_text_and_thoughts_stream_whole_and_in_order(place: Place) -> None:
    async with acp(place, "--config", str(compose(place, acp=EDITOR))) as client:
        session = await opened(client, place)
        words = [f"word{n} " for n in range(500)]
        reply = script([{"think": ["let ", "me ", "see"]}, {"text": words}, {"whole": "no deltas"}])
        started = time.monotonic()
        assert await client.prompt(session, reply) == "end_turn"
        seconds = time.monotonic() - started
        assert "".join(client.texts(session, "agent_thought_chunk")) == "let me see"
        assert "".join(client.texts(session)) == "".join(words) + "no deltas"
        chunks = client.updates(session, "agent_message_chunk")
        assert len(chunks) <= 30 * seconds + 5  # not one frame a delta
        kinds = [update["sessionUpdate"] for update in client.updates(session)]
        assert kinds == sorted(kinds, key=["agent_thought_chunk", "agent_message_chunk", "usage_update"].index)


async def test_b16_text_arrives_while_the_model_is_still_at_it(place: Place) -> None:
    async with acp(place, "--config", str(compose(place, acp=EDITOR))) as client:
        session = await opened(client, place)
        request = client.begin(session, script([{"text": ["so ", "far"]}, {"hang": True}]))
        while "".join(client.texts(session)) != "so far":
            await client.frame(lambda frame, seen=len(client.frames): len(client.frames) > seen)
        client.notify("session/cancel", sessionId=session)
        assert (await client.answer(request))["result"] == {"stopReason": "cancelled"}


async def test_b16_a_reply_that_broke_off_is_marked_and_follows_once_more(place: Place) -> None:
    async with acp(place, "--config", str(compose(place, acp=EDITOR))) as client:
        session = await opened(client, place)
        broken = [{"text": "half"}, call("todo_write", "t", todos=[]), {"fail_once": "SERVER"}, {"finish": "stop"}]
        assert await client.prompt(session, script(broken, [{"text": "."}])) == "end_turn"
        text = "".join(client.texts(session))
        assert text.startswith("half\n\n[") and text.count("half") == 2
        assert states(client, session, "t") == ["pending", "failed"]  # of the attempt that failed
        assert states(client, session, "t#2")[0] == "pending"


async def test_b16_tool_calls_go_forward_through_their_states_with_kind_place_and_content(place: Place) -> None:
    place.write("a.txt", "one\ntwo\n")
    async with acp(place, "--config", str(compose(place, acp=EDITOR))) as client:
        session = await opened(client, place)
        steps = script(
            [call("read", "c1", file_path="a.txt")],
            [call("edit", "c2", file_path="a.txt", old_string="two", new_string="2")],
            [call("write", "c3", file_path="b.txt", content="new\n")],
            [call("bash", "c4", command="echo out", description="Print something")],
            [call("bash", "c5", command="", description="x"), call("nothing", "c6")],
            [{"text": "done"}],
        )
        assert await client.prompt(session, steps) == "end_turn"
        for number in (1, 2, 3, 4):
            assert states(client, session, f"c{number}") == ["pending", "in_progress", "completed"]
        for number in (5, 6):
            assert states(client, session, f"c{number}") == ["pending", "in_progress", "failed"]
        by_call: dict[str, dict[str, Any]] = {}
        for update in client.updates(session):
            if "toolCallId" in update:
                by_call.setdefault(update["toolCallId"], {}).update(update)
        first = client.updates(session, "tool_call")[0]
        assert first == {
            "sessionUpdate": "tool_call",
            "toolCallId": "c1",
            "title": "read",
            "kind": "other",
            "status": "pending",
        }
        path = str(place.work / "a.txt")
        assert by_call["c1"]["kind"] == "read" and by_call["c1"]["title"] == "read a.txt"
        assert by_call["c1"]["locations"] == [{"path": path}]
        assert by_call["c1"]["rawInput"] == {"file_path": "a.txt"}
        assert by_call["c1"]["content"][0]["content"]["text"] == "```\none\ntwo\n```"
        assert by_call["c2"]["kind"] == "edit"
        assert by_call["c2"]["content"] == [{"type": "diff", "path": path, "oldText": "one\ntwo", "newText": "one\n2"}]
        assert by_call["c3"]["content"] == [
            {"type": "diff", "path": str(place.work / "b.txt"), "oldText": None, "newText": "new\n"}
        ]
        assert by_call["c4"]["kind"] == "execute" and by_call["c4"]["title"] == "echo out"
        assert by_call["c4"]["content"][0]["content"]["text"] == "```\nout\n```"
        assert "unknown tool" in by_call["c6"]["content"][0]["content"]["text"]


async def test_b16_a_cancel_ends_every_open_call_before_the_answer(place: Place) -> None:
    async with acp(place, "--config", str(compose(place, acp=EDITOR))) as client:
        session = await opened(client, place)
        ready = place.work / "ready"
        running = call("bash", "c1", command=f"touch {ready}; sleep 300", description="wait")
        request = client.begin(session, script([running, call("read", "c2", file_path="x")]))
        await appears(ready)
        client.notify("session/cancel", sessionId=session)
        assert (await client.answer(request))["result"] == {"stopReason": "cancelled"}
        assert states(client, session, "c1")[-1] == "failed" and states(client, session, "c2")[-1] == "failed"
        assert client.frames[-1]["id"] == request
        assert await client.prompt(session, "on") == "end_turn"


async def test_b16_a_call_that_was_never_written_to_its_end_fails_with_the_turn(place: Place) -> None:
    async with acp(place, "--config", str(compose(place, acp=EDITOR))) as client:
        session = await opened(client, place)
        ready = place.work / "ready"
        half = {"half_call": "bash", "id": "c1"}
        request = client.begin(session, script([half, {"touch": str(ready)}, {"hang": True}]))
        await appears(ready)
        client.notify("session/cancel", sessionId=session)
        assert (await client.answer(request))["result"] == {"stopReason": "cancelled"}
        assert states(client, session, "c1") == ["pending", "failed"]
        assert client.frames[-1]["id"] == request


async def test_b16_one_id_in_two_turns_is_two_calls_to_the_client(place: Place) -> None:
    async with acp(place, "--config", str(compose(place, acp=EDITOR))) as client:
        session = await opened(client, place)
        for _ in range(2):
            steps = script([call("bash", "same", command="true", description="t")], [{"text": "."}])
            assert await client.prompt(session, steps) == "end_turn"
        assert states(client, session, "same") == states(client, session, "same#2")


async def test_b16_todos_are_the_plan(place: Place) -> None:
    async with acp(place, "--config", str(compose(place, acp=EDITOR))) as client:
        session = await opened(client, place)
        todos = [{"content": "look", "status": "completed"}, {"content": "act", "status": "in_progress"}]
        assert await client.prompt(session, script([call("todo_write", "t", todos=todos)], [{"text": "."}]))
        assert client.updates(session, "plan") == [
            {"sessionUpdate": "plan", "entries": [{**todo, "priority": "medium"} for todo in todos]}
        ]


async def test_b16_stop_reasons_of_an_editor(place: Place) -> None:
    async with acp(place, "--config", str(compose(place, acp=EDITOR))) as client:
        session = await opened(client, place)
        assert await client.prompt(session, script([{"text": "t"}, {"finish": "max-tokens"}])) == "max_tokens"
        assert await client.prompt(session, script([{"fail": "REFUSAL"}])) == "refusal"
        frame = await client.answer(client.begin(session, script([{"fail": "AUTH"}])))
        assert frame["error"]["message"] == "Internal error: turn failed: scripted AUTH"


async def test_b16_text_resources_become_fenced_blocks(place: Place) -> None:
    async with acp(place, "--config", str(compose(place, acp=EDITOR))) as client:
        session = await opened(client, place)
        resource = {"type": "resource", "resource": {"uri": "file:///a.md", "text": "x\n```\ny"}}
        assert await client.prompt(session, "see", resource, "ok") == "end_turn"
        assert "".join(client.texts(session)) == "blind heard: see\n````file:///a.md\nx\n```\ny\n````\nok"
        blob = {"type": "resource", "resource": {"uri": "file:///b", "blob": "AA=="}}
        error = await client.refused("session/prompt", sessionId=session, prompt=[blob])
        assert "not text" in error["message"] and error["code"] == -32602


async def test_b16_the_servers_of_an_editor_do_not_keep_it_out(place: Place) -> None:
    async with acp(place, "--config", str(compose(place, acp=EDITOR))) as client:
        await client.hello()
        servers = [{"name": "m", "command": "/bin/m", "args": [], "env": []}]
        assert (await client.ask("session/new", cwd=str(place.work), mcpServers=servers))["sessionId"]
        assert await client.leave() == 0
    assert "MCP" in client.err


async def test_b16_the_model_can_be_seen_and_changed_both_ways(place: Place) -> None:
    async with acp(place, "--config", str(compose(place, acp=EDITOR))) as client:
        await client.hello()
        made = await client.ask("session/new", cwd=str(place.work), mcpServers=[])
        session = made["sessionId"]
        assert made["models"]["currentModelId"] == "scripted/blind"
        assert [one["modelId"] for one in made["models"]["availableModels"]] == ["scripted/blind", "scripted/eyes"]
        (option,) = made["configOptions"]
        assert option["category"] == "model" and option["currentValue"] == "scripted/blind"
        assert await client.ask("session/set_model", sessionId=session, modelId="scripted/eyes") == {}
        assert await client.prompt(session, "a") == "end_turn"
        changed = await client.ask(
            "session/set_config_option", sessionId=session, configId="model", value="scripted/blind"
        )
        assert changed["configOptions"][0]["currentValue"] == "scripted/blind"
        assert await client.prompt(session, "b") == "end_turn"
        assert "".join(client.texts(session)) == "eyes heard: ablind heard: b"
        for model in ("elsewhere/x", "scripted", ""):
            error = await client.refused("session/set_model", sessionId=session, modelId=model)
            assert error["code"] == -32602 and model in error["message"]
        assert (await client.refused("session/set_config_option", sessionId=session, configId="x", value="y"))["code"]


async def test_b16_a_loaded_session_is_told_in_order_before_the_answer(place: Place) -> None:
    place.write("a.txt", "one\n")
    config = compose(place, acp=EDITOR)
    todos = [{"content": "look", "status": "pending"}]
    steps = script(
        [{"think": "hm"}, {"text": "I look."}, call("read", "c1", file_path="a.txt")],
        [call("todo_write", "c2", todos=todos)],
        [{"text": "Done."}],
    )
    async with acp(place, "--config", str(config)) as client:
        session = await opened(client, place)
        assert await client.prompt(session, steps) == "end_turn"
        ready = place.work / "ready"
        request = client.begin(session, script([{"text": "cut"}, {"touch": str(ready)}, {"hang": True}]))
        await appears(ready)
        client.notify("session/cancel", sessionId=session)
        await client.answer(request)
        live = client.updates(session)
        assert await client.leave() == 0
    async with acp(place, "--config", str(config)) as client:
        await client.hello()
        listed = (await client.ask("session/list", cwd=str(place.work)))["sessions"]
        assert [one["sessionId"] for one in listed] == [session]
        assert listed[0]["cwd"] == str(place.work) and listed[0]["updatedAt"].endswith("Z")
        request = client.send("session/load", sessionId=session, cwd=str(place.work), mcpServers=[])
        answer = (await client.answer(request))["result"]
        assert answer["models"]["currentModelId"] == "scripted/blind"
        assert client.frames[-1]["id"] == request
        told = client.updates(session)
        kinds = [(u["sessionUpdate"], u.get("status")) for u in told]
        assert kinds == [
            ("user_message_chunk", None),
            ("agent_thought_chunk", None),
            ("agent_message_chunk", None),
            ("tool_call", "in_progress"),
            ("tool_call_update", "completed"),
            ("tool_call", "in_progress"),
            ("plan", None),
            ("tool_call_update", "completed"),
            ("agent_message_chunk", None),
            ("user_message_chunk", None),
            ("agent_message_chunk", None),
            ("usage_update", None),
        ]
        assert [u["content"]["text"] for u in told if u["sessionUpdate"] == "agent_message_chunk"] == [
            "I look.",
            "Done.",
            "cut",
        ]
        results = [[u["content"] for u in run if u.get("status") == "completed"] for run in (live, told)]
        assert results[0] == results[1]
        assert await client.prompt(session, "and on") == "end_turn"
        assert client.texts(session)[-1].endswith("and on")


async def test_b16_resume_tells_nothing_and_both_refuse_what_is_not_there(place: Place) -> None:
    config = compose(place, acp=EDITOR)
    async with acp(place, "--config", str(config)) as client:
        session = await opened(client, place)
        assert await client.prompt(session, "first") == "end_turn"
        assert await client.ask("session/close", sessionId=session) == {}
        assert (await client.refused("session/prompt", sessionId=session, prompt=[]))["code"] == -32602
        before = len(client.frames)
        assert "models" in await client.ask("session/resume", sessionId=session, cwd=str(place.work))
        assert len(client.frames) == before + 1
        assert await client.prompt(session, "second") == "end_turn"
        for method in ("session/load", "session/resume"):
            error = await client.refused(method, sessionId="no-such", cwd=str(place.work), mcpServers=[])
            assert error == {"code": -32002, "message": "Resource not found: no-such"}
        assert await client.leave() == 0


async def test_b16_a_session_that_is_open_in_another_process_is_refused_by_its_holder(place: Place) -> None:
    config = compose(place, acp=EDITOR)
    async with acp(place, "--config", str(config)) as first, acp(place, "--config", str(config)) as second:
        session = await opened(first, place)
        assert await first.prompt(session, "mine") == "end_turn"
        await second.hello()
        error = await second.refused("session/load", sessionId=session, cwd=str(place.work), mcpServers=[])
        assert str(first.process.pid) in error["message"]
        assert await second.session(place.work)


async def test_b16_long_lists_come_in_pages(place: Place) -> None:
    config = compose(place, acp=EDITOR)
    async with acp(place, "--config", str(config)) as client:
        await client.hello()
        made = set()
        for _ in range(55):
            session = await client.session(place.work)
            assert await client.prompt(session, "x") == "end_turn"
            made.add(session)
        first = await client.ask("session/list")
        second = await client.ask("session/list", cursor=first["nextCursor"])
        assert "nextCursor" not in second
        assert {one["sessionId"] for page in (first, second) for one in page["sessions"]} == made
        assert (await client.ask("session/list", cwd="/elsewhere"))["sessions"] == []
        assert (await client.refused("session/list", cursor="-1"))["code"] == -32602


async def test_b16_a_second_load_tells_the_same_once_more(place: Place) -> None:
    async with acp(place, "--config", str(compose(place, acp=EDITOR))) as client:
        session = await opened(client, place)
        steps = script([call("bash", "c1", command="true", description="t")], [{"text": "."}])
        assert await client.prompt(session, steps) == "end_turn"
        told = []
        for _ in range(2):
            before = len(client.updates(session))
            await client.ask("session/load", sessionId=session, cwd=str(place.work), mcpServers=[])
            told.append(client.updates(session)[before:])
        assert told[0] == told[1] and len(told[0]) > 3


async def test_b16_titles_and_the_use_of_the_window_are_told(place: Place) -> None:
    limits = {"fallbackMaxWords": 3, "fallbackMaxBytes": 40, "maxTitleBytes": 80}
    titles = {"id": "session-title", "name": "dsh-session-title", "config": limits}
    projection = {"id": "session-projection", "name": "dsh-session-projection"}
    async with acp(place, "--config", str(compose(place, acp=EDITOR, extra=[titles, projection]))) as client:
        session = await opened(client, place)
        assert await client.prompt(session, "Tell me about the weather") == "end_turn"
        told = client.updates(session, "session_info_update")
        assert told == [{"sessionUpdate": "session_info_update", "title": "Tell me about"}]
        assert client.updates(session, "usage_update") == [{"sessionUpdate": "usage_update", "used": 2, "size": 1000}]
        (listed,) = (await client.ask("session/list"))["sessions"]
        assert listed["title"] == "Tell me about"


async def test_a_blocked_prompt_ends_quietly_in_an_editor_too(place: Place) -> None:
    config = compose(place, acp=EDITOR, extra=[plugin("blocking")])
    async with acp(place, "--config", str(config)) as client:
        session = await opened(client, place)
        assert await client.prompt(session, "forbidden") == "end_turn"
        assert client.updates(session) == []
