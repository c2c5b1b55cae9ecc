"""Faults that streams and tool calls of real providers show, met by a real loop over real HTTP.

Each one is followed by another turn: that is where most of them would show.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

from dsh.llm.message import create_user_message
from tests.models.helpers import AgentStack, agent_stack

HELLO = "Hello from the mock model."


def delta(**fields: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": None}]}


def ending(reason: str) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}


def call(index: int, call_id: Any, name: Any, arguments: Any) -> dict[str, Any]:
    return {"index": index, "id": call_id, "function": {"name": name, "arguments": arguments}}


DONE = "data: [DONE]\n\n"


def logged_text(s: AgentStack) -> str:
    """The text deltas of the log, retried attempts included."""
    chunks = [event["chunk"] for event in s.of_type("assistant/chunk")]
    return "".join(chunk["text"] for chunk in chunks if chunk["type"] == "text-delta")


def conversation(s: AgentStack) -> list[Any]:
    """The messages of the last request after the system prompt."""
    return [message for message in s.server.bodies[-1]["messages"] if message["role"] != "system"]


async def test_fault01_a_stream_of_pings_alone_is_cut_retried_and_given_up() -> None:
    policy = {"maxRetries": 1, "backoff": {"initialDelayMs": 1, "maxDelayMs": 1, "jitterRatio": 0}}
    clocks = {"streamIdleTimeoutMs": 5000, "streamProgressTimeoutMs": 200}
    async with agent_stack(["pings_only", "pings_only", "success"], retryPolicy=policy, **clocks) as s:
        reason = await s.prompt("hi")
        assert reason["kind"] == "error" and reason["error"]["code"] == "TIMEOUT"
        assert len(s.of_type("llm/retry")) == 1 and s.of_type("assistant/message") == []
        assert logged_text(s) == "Hello from the m" * 2
        assert await s.prompt("still there?") == {"kind": "completed"}


async def test_fault01b_cancel_works_while_only_pings_arrive() -> None:
    async with agent_stack(["pings_only", "success"]) as s:
        s.agent.followup(create_user_message("hi"))
        while not logged_text(s):
            await asyncio.sleep(0.005)
        s.agent.cancel({"kind": "user"})
        await asyncio.wait_for(s.agent.when_idle(), 5)
        assert s.of_type("turn/end")[-1]["reason"]["kind"] == "aborted"
        await asyncio.wait_for(s.server.requests[0].done.wait(), 5)
        assert s.server.requests[0].outcome == "client_closed"
        assert await s.prompt("again") == {"kind": "completed"}


async def test_fault01c_pings_that_are_events_are_no_progress_either() -> None:
    """Some servers keep a dead stream alive by empty JSON objects, or by pieces that hold nothing."""
    pings = {"chunks": [delta(content="a"), *[{}, delta(content=""), "event: ping\ndata: {}\n\n"] * 300]}
    policy = {"maxRetries": 0, **_fast()}
    clocks = {"streamIdleTimeoutMs": 5000, "streamProgressTimeoutMs": 300, "server": {"delay_ms": 20}}
    async with agent_stack([pings, "success"], retryPolicy=policy, **clocks) as s:
        reason = await asyncio.wait_for(s.prompt("hi"), 10)
        assert reason["kind"] == "error" and reason["error"]["code"] == "TIMEOUT"
        assert logged_text(s) == "a"
        assert await s.prompt("again") == {"kind": "completed"}


async def test_fault02_characters_split_over_network_chunks_arrive_whole() -> None:
    said = "你好，世界 😀 — ça va"
    async with agent_stack([{"behavior": "split_bytes", "text": said}, "success"]) as s:
        await s.prompt("hi")
        assert logged_text(s) == said
        await s.prompt("next")
        assert said in s.server.requests[1].raw.decode() and "\ufffd" not in s.server.requests[1].raw.decode()


async def test_fault03_an_error_inside_a_200_stream_is_a_typed_error_and_is_retried() -> None:
    error = {"error": {"message": "model is overloaded", "type": "server_error", "code": 503}}
    first = {"chunks": [delta(role="assistant", content=""), error]}
    later = {"chunks": [delta(content="a"), delta(content="b"), delta(content="c"), error]}
    async with agent_stack([first, later, "success", first, "success"], retryPolicy={"maxRetries": 2, **_fast()}) as s:
        assert await s.prompt("hi") == {"kind": "completed"}
        assert [event["failure"]["message"] for event in s.of_type("llm/retry")] == ["model is overloaded"] * 2
        assert len(s.of_type("assistant/message")) == 1
    fatal = {"chunks": [{"error": {"message": "Insufficient Balance", "code": 402}}]}
    async with agent_stack([fatal, "success"]) as s:
        reason = await s.prompt("hi")
        assert reason["error"] == {"message": "Insufficient Balance", "code": "QUOTA", "status": 402}
        assert await s.prompt("again") == {"kind": "completed"}


async def test_fault04_a_cut_stream_is_no_success_and_executes_nothing() -> None:
    text = {"chunks": [delta(content=part) for part in "abcde"]}
    half_call = {"chunks": [delta(tool_calls=[call(0, "c1", "bash", '{"command": "rm -rf')])]}
    policy = {"maxRetries": 1, **_fast()}
    async with agent_stack([text, half_call, "success"], retryPolicy=policy) as s:
        reason = await s.prompt("hi")
        assert reason["kind"] == "error" and reason["error"]["code"] == "STREAM_CLOSED"
        assert "after 19 characters of output" in reason["error"]["message"]
        assert s.calls == [] and s.of_type("tool/call") == []
        assert logged_text(s) == "abcde"
        assert await s.prompt("next") == {"kind": "completed"}
        assert [m["role"] for m in conversation(s)] == ["user", "user"]


async def test_fault05_reasoning_goes_back_with_every_assistant_message() -> None:
    def strict(reply: Any) -> Any:
        def entry(body: Any) -> Any:
            assistants = [m for m in body["messages"] if m["role"] == "assistant"]
            if any("reasoning_content" not in m for m in assistants):
                return {"status": 400, "error": {"message": "The `reasoning_content` must be passed back to the API."}}
            return reply

        return entry

    tool_step = {"reasoning": "I should look 🤔", "toolCalls": [{"name": "bash", "arguments": {"command": "ls"}}]}
    script = [strict(tool_step), strict({"text": "plain, no thought"}), strict("success"), strict("success")]
    async with agent_stack(script) as s:
        assert await s.prompt("hi") == {"kind": "completed"}
        assert await s.prompt("next") == {"kind": "completed"}
        thoughts = [m["reasoning_content"] for m in s.server.bodies[-1]["messages"] if m["role"] == "assistant"]
        assert thoughts == ["I should look 🤔", ""]


async def test_fault07_empty_identities_of_continuations_erase_nothing() -> None:
    first, second = '{"command":"one"}', '{"command":"two"}'
    deltas = [
        delta(tool_calls=[call(0, "c1", "bash", ""), call(1, "c2", "bash", "")]),
        delta(tool_calls=[call(0, "", "", first[:6]), call(1, None, None, second[:9])]),
        delta(tool_calls=[call(1, "", None, second[9:]), call(0, None, "", first[6:])]),
        ending("tool_calls"),
        DONE,
    ]
    async with agent_stack([{"chunks": deltas}, "success"]) as s:
        assert await s.prompt("hi") == {"kind": "completed"}
        assert sorted(s.calls) == ["one", "two"]
        sent = conversation(s)
        assert [(c["id"], c["function"]["arguments"]) for c in sent[1]["tool_calls"]] == [("c1", first), ("c2", second)]
        assert [m["tool_call_id"] for m in sent[2:]] == ["c1", "c2"]


async def test_fault08_calls_without_arguments_run_and_are_replayed_as_an_object() -> None:
    missing = {"index": 2, "id": "c3", "function": {"name": "bash"}}
    deltas = [
        delta(tool_calls=[call(0, "c1", "bash", ""), call(1, "c2", "bash", None), missing]),
        ending("tool_calls"),
        DONE,
    ]
    async with agent_stack([{"chunks": deltas}, "success"]) as s:
        assert await s.prompt("hi") == {"kind": "completed"}
        assert s.calls == ["none"] * 3
        sent = conversation(s)[1]["tool_calls"]
        assert [json.loads(c["function"]["arguments"]) for c in sent] == [{}] * 3


async def test_fault09_truncated_arguments_never_poison_the_session() -> None:
    cut = [delta(tool_calls=[call(0, "c1", "bash", '{"command": "a')])]
    by_limit = {"chunks": [*cut, ending("length"), DONE]}
    by_mistake = {"chunks": [*cut, ending("tool_calls"), DONE]}
    async with agent_stack([by_limit, by_mistake, "success", "success"]) as s:
        assert await s.prompt("one") == {"kind": "max-tokens"}
        assert s.calls == [] and s.of_type("tool/call") == []
        assert await s.prompt("two") == {"kind": "completed"}
        (result,) = s.of_type("tool/result")
        assert result["error"]["code"] == "INVALID_ARGS" and s.calls == []
        assert await s.prompt("three") == {"kind": "completed"}
        for body in s.server.bodies:
            for message in body["messages"]:
                for sent in message.get("tool_calls", ()):
                    assert isinstance(json.loads(sent["function"]["arguments"]), dict)


def _fast() -> dict[str, Any]:
    return {"backoff": {"initialDelayMs": 1, "maxDelayMs": 1, "jitterRatio": 0}}


async def test_fault44_the_key_is_in_no_event_and_no_error() -> None:
    from tests.models.helpers import KEY

    echo = {"status": 401, "error": {"message": f"Incorrect API key provided: {KEY}"}}
    async with agent_stack([echo, "success"]) as s:
        reason = await s.prompt("hi")
        assert reason["error"]["code"] == "AUTH" and "***" in reason["error"]["message"]
        await s.prompt("again")
        assert KEY not in str([event.to_wire() for event in s.session.events])


async def test_a_provider_row_that_restarts_in_the_middle_of_a_stream_only_costs_a_retry() -> None:
    async with agent_stack(["pings_only", "success"]) as s:
        s.agent.followup(create_user_message("hi"))
        while not logged_text(s):
            await asyncio.sleep(0.005)
        await s.row.restart()
        await asyncio.wait_for(s.agent.when_idle(), 10)
        assert s.of_type("turn/end")[-1]["reason"] == {"kind": "completed"}
        assert s.of_type("llm/retry")[0]["failure"]["code"] == "TRANSPORT"
        assert s.of_type("assistant/message")[0]["message"]["content"][0]["text"] == HELLO
