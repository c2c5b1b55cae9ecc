"""Permissions over ACP: who is asked about what, and what an answer does."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.cli.kit import Place

from .acp_kit import Client, acp, compose, opened, plugin, script, stored_events

METHOD = "session/request_permission"


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place.make(tmp_path)


def risky(place: Place, call_id: str = "c1", **more: Any) -> dict[str, Any]:
    """A call that asks first and leaves a file."""
    command = f"echo risky; touch {place.work / call_id}"
    return {"call": "bash", "id": call_id, "arguments": {"command": command, "description": "try", **more}}


def answering(client: Client, *options: str) -> list[Any]:
    """Answer the next questions by option id, ``cancelled`` or anything else as it is; what was asked."""
    asked: list[Any] = []
    left = list(options)

    async def decide(params: Any) -> Any:
        asked.append(params)
        choice = left.pop(0)
        if choice == "cancelled":
            return {"outcome": {"outcome": "cancelled"}}
        return {"outcome": {"outcome": "selected", "optionId": choice}}

    client.answers[METHOD] = decide
    return asked


def result_text(place: Place, session: str) -> str:
    results = [e["data"]["message"] for e in stored_events(place, session) if e["type"] == "tool/result"]
    text: str = results[-1]["content"][0]["content"][0]["text"]
    return text


async def test_b13_an_allowed_call_runs_after_exactly_this_question(place: Place) -> None:
    async with acp(place, "--config", str(compose(place, acp={}, extra=[plugin("approval")]))) as client:
        session = await opened(client, place)
        asked = answering(client, "allow-once")
        assert await client.prompt(session, script([risky(place)], [{"text": "DONE"}])) == "end_turn"
        assert asked == [
            {
                "sessionId": session,
                "toolCall": {"toolCallId": "c1"},
                "options": [
                    {"optionId": "allow-once", "name": "Allow once", "kind": "allow_once"},
                    {"optionId": "reject-once", "name": "Reject", "kind": "reject_once"},
                ],
            }
        ]
        assert (place.work / "c1").exists()
        assert client.texts(session) == ["DONE"]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("reject-once", 'the user rejected tool "bash"'),
        ("cancelled", 'approval for tool "bash" was cancelled'),
        ("no-such-option", 'tool "bash" requires approval, but no approval channel is available'),
        ("allow-always", 'tool "bash" requires approval, but no approval channel is available'),  # was not offered
    ],
)
async def test_b13_any_other_answer_is_no_approval(place: Place, answer: str, said: str) -> None:
    async with acp(place, "--config", str(compose(place, acp={}, extra=[plugin("approval")]))) as client:
        session = await opened(client, place)
        answering(client, answer)
        assert await client.prompt(session, script([risky(place)], [{"text": "DONE"}])) == "end_turn"
        assert not (place.work / "c1").exists()
        assert await client.leave() == 0
    assert said in result_text(place, session)


async def test_b13_a_client_that_cannot_be_asked_approves_nothing(place: Place) -> None:
    async with acp(place, "--config", str(compose(place, acp={}, extra=[plugin("approval")]))) as client:
        session = await opened(client, place)  # and answers every request with an error
        assert await client.prompt(session, script([risky(place)], [{"text": "DONE"}])) == "end_turn"
        assert not (place.work / "c1").exists()


async def test_b13_a_cancel_ends_the_question_and_a_late_answer_does_nothing(place: Place) -> None:
    async with acp(place, "--config", str(compose(place, acp={}, extra=[plugin("approval")]))) as client:
        session = await opened(client, place)
        request = client.begin(session, script([risky(place)], [{"text": "DONE"}]))
        question = await client.frame(lambda frame: frame.get("method") == METHOD)
        client.answers[METHOD] = never
        client.notify("session/cancel", sessionId=session)
        assert (await client.answer(request))["result"] == {"stopReason": "cancelled"}
        allowed = {"outcome": {"outcome": "selected", "optionId": "allow-once"}}
        client._write({"jsonrpc": "2.0", "id": question["id"], "result": allowed})
        assert await client.prompt(session, "on") == "end_turn"
        assert not (place.work / "c1").exists()


async def test_b13_a_client_that_leaves_during_the_question_leaves_nothing_running(place: Place) -> None:
    async with acp(place, "--config", str(compose(place, acp={}, extra=[plugin("approval")]))) as client:
        session = await opened(client, place)
        client.answers[METHOD] = never
        client.begin(session, script([risky(place)], [{"text": "DONE"}]))
        await client.frame(lambda frame: frame.get("method") == METHOD)
        assert await client.leave() == 0
    assert not (place.work / "c1").exists()
    ends = [e["data"]["reason"]["kind"] for e in stored_events(place, session) if e["type"] == "turn/end"]
    assert ends == ["aborted"]


async def test_nothing_is_asked_without_an_approval_service(place: Place) -> None:
    async with acp(place, "--config", str(compose(place, acp={}))) as client:
        session = await opened(client, place)
        asked = answering(client)
        assert await client.prompt(session, script([risky(place)], [{"text": "DONE"}])) == "end_turn"
        assert asked == [] and (place.work / "c1").exists()


async def test_an_editor_sees_the_call_and_may_decide_for_the_session(place: Place) -> None:
    config = compose(place, acp={"presentation": "editor"}, extra=[plugin("approval")])
    async with acp(place, "--config", str(config)) as client:
        session, other = await opened(client, place), await client.session(place.work)
        asked = answering(client, "allow-always", "reject-always")
        steps = script([risky(place, "c1")], [risky(place, "c2")], [{"text": "DONE"}])
        assert await client.prompt(session, steps) == "end_turn"
        assert len(asked) == 1 and (place.work / "c1").exists() and (place.work / "c2").exists()
        call = asked[0]["toolCall"]
        assert call["toolCallId"] == "c1" and call["kind"] == "execute" and call["title"].startswith("echo risky")
        assert [option["kind"] for option in asked[0]["options"]] == [
            "allow_once",
            "allow_always",
            "reject_once",
            "reject_always",
        ]
        before = next(
            n for n, f in enumerate(client.frames) if f.get("params", {}).get("update", {}).get("toolCallId") == "c1"
        )
        assert before < next(n for n, f in enumerate(client.frames) if f.get("method") == METHOD)
        steps = script([risky(place, "d1")], [risky(place, "d2")], [{"text": "DONE"}])
        assert await client.prompt(other, steps) == "end_turn"  # asked again: another session
        assert len(asked) == 2 and not (place.work / "d1").exists() and not (place.work / "d2").exists()


async def never(_params: Any) -> Any:
    await asyncio.Event().wait()
