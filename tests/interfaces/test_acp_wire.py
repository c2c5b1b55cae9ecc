"""The automation profile of ``dsh acp`` on the wire: real processes, real pipes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.kit import Place

from .acp_kit import acp, appears, compose, opened, plugin, script, stored_events

BAD = -32602


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place.make(tmp_path)


async def test_b13_the_handshake_says_who_answers_and_what_it_takes(place: Place) -> None:
    async with acp(place, "--config", str(compose(place, acp={}))) as client:
        assert await client.hello() == {
            "protocolVersion": 1,
            "agentInfo": {"name": "deepseek-harness-acp", "version": "0.0.1"},
            "agentCapabilities": {"promptCapabilities": {"image": False, "audio": False, "embeddedContext": False}},
            "authMethods": [],
        }
        assert await client.ask("authenticate", methodId="any") == {}
        assert set(await client.ask("session/new", cwd=str(place.work), mcpServers=[])) == {"sessionId"}
        assert await client.leave() == 0
        assert client.err == ""


async def test_b13_each_committed_block_is_one_chunk_before_the_answer(place: Place) -> None:
    async with acp(place, "--config", str(compose(place, acp={}))) as client:
        session = await opened(client, place)
        steps = script(
            [
                {"think": "hm"},
                {"text": ["fir", "st"]},
                {"text": ""},
                {"call": "todo_write", "id": "c", "arguments": {}},
            ],
            [{"whole": "second"}],
        )
        request = client.begin(session, steps)
        assert (await client.answer(request))["result"] == {"stopReason": "end_turn"}
        assert client.texts(session) == ["first", "second"]
        assert {update["sessionUpdate"] for update in client.updates(session)} == {"agent_message_chunk"}
        assert client.frames[-1]["id"] == request


async def test_b13_a_retried_reply_leaks_nothing_of_the_failed_attempt(place: Place) -> None:
    async with acp(place, "--config", str(compose(place, acp={}))) as client:
        session = await opened(client, place)
        reply = script([{"text": "half"}, {"fail_once": "SERVER"}, {"text": "whole"}])
        assert await client.prompt(session, reply) == "end_turn"
        assert client.texts(session) == ["half", "whole"]


async def test_b13_text_and_links_of_a_prompt_are_joined_in_order(place: Place) -> None:
    async with acp(place, "--config", str(compose(place, acp={}))) as client:
        session = await opened(client, place)
        link = {"type": "resource_link", "name": "a.py", "uri": "file:///a.py", "mimeType": "text/x-python"}
        assert await client.prompt(session, "look at ", link, "please") == "end_turn"
        heard = 'look at \n[resource_link name="a.py" uri="file:///a.py"]\nplease'
        assert client.texts(session) == [f"blind heard: {heard}"]
        assert await client.leave() == 0
    (message,) = [e["data"] for e in stored_events(place, session) if e["type"] == "user/message"][:1]
    assert message["content"] == [{"type": "text", "text": heard}]
    assert message["source"] == {"kind": "user"}


REFUSED_SESSIONS: list[tuple[Any, str]] = [
    ({"cwd": "here", "mcpServers": []}, "cwd must be an absolute path: here"),
    ({"cwd": "", "mcpServers": []}, "cwd must be an absolute path: "),
    ({"cwd": "/", "mcpServers": [], "additionalDirectories": ["/x"]}, "additionalDirectories is not supported"),
    ({"cwd": "/", "mcpServers": [{"name": "m", "command": "m"}]}, "mcpServers is not supported"),
    ({"mcpServers": []}, "cwd must be a string"),
    ({"cwd": "/"}, "mcpServers must be a list"),
    ({"cwd": "/", "mcpServers": {}}, "mcpServers must be a list"),
    ({"cwd": "/no/such/folder", "mcpServers": []}, "cwd is not a folder: /no/such/folder"),
    (["/"], "params must be an object"),
]


async def test_b13_a_session_that_cannot_be_is_refused_by_name(place: Place) -> None:
    async with acp(place, "--config", str(compose(place, acp={}))) as client:
        await client.hello()
        for params, message in REFUSED_SESSIONS:
            error = await client.refused("session/new", params)
            assert error == {"code": BAD, "message": f"Invalid params: {message}"}
            assert await client.session("/")


REFUSED_CONTENT: list[tuple[Any, str]] = [
    ({"type": "text", "text": " \n"}, "empty prompt"),
    ({"type": "text"}, "text block: text must be a string"),
    ({"type": "audio", "data": "", "mimeType": "audio/wav"}, 'prompt content of type "audio" is not supported'),
    ({"type": "image", "data": "", "mimeType": "image/png"}, 'prompt content of type "image" is not supported'),
    (
        {"type": "resource", "resource": {"uri": "x", "text": "y"}},
        'prompt content of type "resource" is not supported',
    ),
    ({"type": "hologram"}, 'prompt content of type "hologram" is not supported'),
    (7, "a prompt block must be an object"),
]


async def test_b13_content_that_cannot_be_taken_is_refused_and_the_session_stays(place: Place) -> None:
    async with acp(place, "--config", str(compose(place, acp={}))) as client:
        session = await opened(client, place)
        for block, message in REFUSED_CONTENT:
            error = await client.refused("session/prompt", sessionId=session, prompt=[block])
            assert error == {"code": BAD, "message": f"Invalid params: {message}"}
        assert await client.prompt(session, "hi") == "end_turn"
        assert client.texts(session) == ["blind heard: hi"]


async def test_b13_wrong_types_unknown_names_and_early_requests_leave_the_connection_usable(place: Place) -> None:
    async with acp(place, "--config", str(compose(place, acp={}))) as client:
        early = await client.refused("session/new", cwd="/", mcpServers=[])
        assert early == {"code": -32600, "message": "Invalid request: initialize must come first"}
        assert (await client.refused("initialize", protocolVersion="one"))["code"] == BAD
        session = await opened(client, place)
        unknown = await client.refused("session/prompt", sessionId="no-such", prompt=[])
        assert unknown == {"code": BAD, "message": "Invalid params: unknown session: no-such"}
        assert (await client.refused("session/prompt", sessionId=5, prompt=[]))["code"] == BAD
        assert (await client.refused("session/prompt", sessionId=session, prompt="hi"))["code"] == BAD
        assert (await client.refused("session/load", sessionId=session, cwd="/", mcpServers=[]))["code"] == -32601
        assert (await client.refused("no/such"))["code"] == -32601
        client.notify("no/such")
        client.notify("session/cancel")
        client.notify("session/cancel", sessionId="no-such")
        client.notify("session/cancel", sessionId=["x"])
        assert await client.prompt(session, "still there?") == "end_turn"


async def test_b13_malformed_lines_are_answered_and_change_nothing(place: Place) -> None:
    async with acp(place, "--config", str(compose(place, acp={}))) as client:
        session = await opened(client, place)
        client.raw(b"\n  \n{nonsense\n")
        await client.frame(lambda frame: frame.get("error", {}).get("code") == -32700)
        client.raw(b'[1, 2]\n"text"\n{"jsonrpc":"2.0","id":77,"method":8}\n\xff\xfe\n')
        await client.frame(lambda frame: frame.get("id") == 77 and frame["error"]["code"] == -32600)
        client.raw(b'{"jsonrpc":"2.0","id":4711,"result":{}}\n')  # an answer nobody asked for
        assert await client.prompt(session, "hi") == "end_turn"
        client.raw(b'{"jsonrpc":"2.0","id":1,"method":"session/new"')  # half a line at the end
        assert await client.leave() == 0


async def test_b13_one_prompt_at_a_time_and_the_next_after_it(place: Place) -> None:
    async with acp(place, "--config", str(compose(place, acp={}))) as client:
        session, other = await opened(client, place), await client.session(place.work)
        ready = place.work / "ready"
        first = client.begin(session, script([{"touch": str(ready)}, {"hang": True}]))
        second = client.begin(session, "too early")
        error = (await client.answer(second))["error"]
        assert error == {"code": BAD, "message": "Invalid params: a prompt is already in flight for this session"}
        assert await client.prompt(other, "another session is free") == "end_turn"
        await appears(ready)
        client.notify("session/cancel", sessionId=session)
        assert (await client.answer(first))["result"] == {"stopReason": "cancelled"}
        assert await client.prompt(session, "now") == "end_turn"


async def test_b13_cancel_before_the_prompt_was_admitted(place: Place) -> None:
    async with acp(place, "--config", str(compose(place, acp={}))) as client:
        session = await opened(client, place)
        text = {"type": "text", "text": script([{"hang": True}])}
        prompt = {"jsonrpc": "2.0", "id": 90, "method": "session/prompt"}
        cancel = {"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": session}}
        frames = [{**prompt, "params": {"sessionId": session, "prompt": [text]}}, cancel]
        client.raw(b"".join(json.dumps(frame).encode() + b"\n" for frame in frames))
        assert (await client.answer(90))["result"] == {"stopReason": "cancelled"}
        assert await client.prompt(session, "next") == "end_turn"


async def test_b13_cancel_while_it_streams_delivers_what_was_committed(place: Place) -> None:
    async with acp(place, "--config", str(compose(place, acp={}))) as client:
        session = await opened(client, place)
        ready = place.work / "ready"
        request = client.begin(session, script([{"text": "partial"}, {"touch": str(ready)}, {"hang": True}]))
        await appears(ready)
        client.notify("session/cancel", sessionId=session)
        assert (await client.answer(request))["result"] == {"stopReason": "cancelled"}
        assert client.texts(session) == ["partial"]
        assert await client.leave() == 0
    ends = [e["data"]["reason"] for e in stored_events(place, session) if e["type"] == "turn/end"]
    assert ends == [{"kind": "aborted", "reason": {"kind": "user"}}]


async def test_b13_cancel_during_a_tool_ends_the_tool(place: Place) -> None:
    async with acp(place, "--config", str(compose(place, acp={}))) as client:
        session = await opened(client, place)
        pid = place.work / "pid"
        command = f"echo $$ > {pid}.new; mv {pid}.new {pid}; exec sleep 300"
        call = {"call": "bash", "id": "c1", "arguments": {"command": command, "description": "sleep"}}
        request = client.begin(session, script([call]))
        await appears(pid)
        client.notify("session/cancel", sessionId=session)
        assert (await client.answer(request))["result"] == {"stopReason": "cancelled"}
        assert not Path(f"/proc/{pid.read_text().strip()}").exists()
        assert await client.prompt(session, "go on") == "end_turn"


async def test_b13_cancel_of_nothing_is_nothing(place: Place) -> None:
    async with acp(place, "--config", str(compose(place, acp={}))) as client:
        session = await opened(client, place)
        client.notify("session/cancel", sessionId=session)
        assert await client.prompt(session, "one") == "end_turn"
        client.notify("session/cancel", sessionId=session)
        assert await client.prompt(session, "two") == "end_turn"
        assert client.texts(session) == ["blind heard: one", "blind heard: two"]


async def test_b14_a_failed_turn_is_an_internal_error_with_its_reason(place: Place) -> None:
    async with acp(place, "--config", str(compose(place, acp={}))) as client:
        session = await opened(client, place)
        request = client.begin(session, script([{"text": "lost"}, {"fail": "AUTH"}]))
        error = (await client.answer(request))["error"]
        assert error == {"code": -32603, "message": "Internal error: turn failed: scripted AUTH"}
        assert client.texts(session) == []
        assert await client.prompt(session, "again") == "end_turn"


async def test_b14_a_blocked_prompt_ends_its_turn(place: Place) -> None:
    config = compose(place, acp={}, extra=[plugin("blocking")])
    async with acp(place, "--config", str(config)) as client:
        session = await opened(client, place)
        assert await client.prompt(session, "something forbidden") == "end_turn"
        assert client.updates(session) == []
        assert await client.leave() == 0
    kinds = [event["type"] for event in stored_events(place, session)]
    assert kinds.count("turn/end") == 1 and "step/start" not in kinds
    assert stored_events(place, session)[-1]["data"]["reason"] == {"kind": "blocked"}


async def test_b14_a_capped_reply_ends_its_turn(place: Place) -> None:
    async with acp(place, "--config", str(compose(place, acp={}))) as client:
        session = await opened(client, place)
        assert await client.prompt(session, script([{"text": "too lo"}, {"finish": "max-tokens"}])) == "end_turn"
        assert client.texts(session) == ["too lo"]


@pytest.mark.parametrize("row", ["agent-loop", "acp"])
async def test_a_session_outlives_a_restart_of_the_row_that_runs_or_serves_it(place: Place, row: str) -> None:
    config = compose(place, acp={}, extra=[{"id": "hmr", "name": "@deepseek-ai/cordis-plugin-hmr"}])
    async with acp(place, "--config", str(config)) as client:
        session = await opened(client, place)
        fresh = await client.session(place.work)
        assert await client.prompt(session, "one") == "end_turn"
        ready = place.work / "ready"
        hanging = client.begin(session, script([{"touch": str(ready)}, {"hang": True}]))
        await appears(ready)
        config.write_text(config.read_text("utf-8").replace(f"id: {row}\n", f"id: other-{row}\n"), "utf-8")
        assert (await client.answer(hanging))["result"] == {"stopReason": "cancelled"}
        assert await client.prompt(session, "two") == "end_turn"
        assert await client.prompt(fresh, "three") == "end_turn"
        assert client.texts(session) == ["blind heard: one", "blind heard: two"]
        assert client.texts(fresh) == ["blind heard: three"]
        assert await client.leave() == 0
