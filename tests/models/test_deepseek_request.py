"""What the DeepSeek route sends."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dsh.llm.failure import LlmError
from dsh.llm.message import (
    create_assistant_message,
    create_message,
    create_tool_result_message,
    create_user_message,
    text_block,
)
from dsh.llm.transport.http import USER_AGENT
from dsh.models.deepseek.adapter import DeepSeekAdapter
from dsh.models.deepseek.request import valid_arguments, wire_messages
from tests.models.helpers import KEY, MODEL, ROUTE, stack

TOOL = {"name": "bash", "description": "Run a command.", "parameters": {"type": "object", "properties": {}}}


def call(call_id: str, name: str = "bash", arguments: str = '{"command":"ls"}') -> Any:
    return {"type": "tool-call", "id": call_id, "name": name, "arguments": arguments}


def reply(*blocks: Any, provider: str = ROUTE) -> Any:
    return create_assistant_message(blocks, provider, MODEL)


def result(call_id: str, *texts: str) -> Any:
    return create_tool_result_message(call_id, [text_block(text) for text in texts])


async def sent(
    messages: Any = None, config: dict[str, Any] | None = None, **request: Any
) -> tuple[dict[str, Any], Any]:
    """Body and headers of one request."""
    async with stack(["success"], **(config or {})) as s:
        await s.reply(messages=messages, **request)
        received = s.server.requests[0]
        return json.loads(received.raw), received.headers


async def test_b26a_golden_body_of_a_tool_conversation() -> None:
    messages = [create_user_message("List files"), reply(call("c1")), result("c1", "a.txt")]
    async with stack(["success"]) as s:
        await s.reply(messages=messages, system="You are helpful.", tools=[TOOL])
        assert s.server.requests[0].raw.decode() == (
            '{"model":"deepseek-v4-flash","messages":[{"role":"system","content":"You are helpful."},'
            '{"role":"user","content":"List files"},'
            '{"role":"assistant","content":"","reasoning_content":"","tool_calls":[{"id":"c1","type":"function",'
            '"function":{"name":"bash","arguments":"{\\"command\\":\\"ls\\"}"}}]},'
            '{"role":"tool","tool_call_id":"c1","content":"a.txt"}],'
            '"stream":true,"stream_options":{"include_usage":true},"thinking":{"type":"enabled"},'
            '"reasoning_effort":"high","tools":[{"type":"function","function":{"name":"bash",'
            '"description":"Run a command.","parameters":{"type":"object","properties":{}}}}],"max_tokens":256000}'
        )


async def test_b26b_scalars_are_sent_when_given_and_absent_rather_than_null() -> None:
    body, _ = await sent(temperature=0.5, max_tokens=9, stop=("END",))
    assert (body["temperature"], body["max_tokens"], body["stop"]) == (0.5, 9, ["END"])
    body, _ = await sent()
    assert not {"temperature", "stop", "tools", "tool_choice"} & body.keys()
    assert None not in body.values()


@pytest.mark.parametrize(
    ("effort", "thinking", "word"),
    [("off", "disabled", None), ("low", "enabled", "low"), ("max", "enabled", "max"), (None, "enabled", "high")],
)
async def test_b26c_efforts(effort: str | None, thinking: str, word: str | None) -> None:
    body, _ = await sent(reasoning_effort=effort)
    assert body["thinking"] == {"type": thinking} and body.get("reasoning_effort") == word


async def test_b26d_a_lock_disables_thinking_and_refuses_other_efforts() -> None:
    body, _ = await sent(config={"thinking": "disabled"})
    assert body["thinking"] == {"type": "disabled"} and "reasoning_effort" not in body
    async with stack(thinking="disabled") as s:
        finish = (await s.reply(reasoning_effort="high")).finish
        assert finish["failure"]["code"] == "UNSUPPORTED_REASONING_EFFORT" and s.server.requests == []


async def test_b26e_a_session_title_never_thinks() -> None:
    body, _ = await sent(purpose="session-title")
    assert body["thinking"] == {"type": "disabled"} and "reasoning_effort" not in body


async def test_b26f_the_output_cap_comes_from_request_model_or_row() -> None:
    models = [{"id": MODEL, "maxTokens": 77}]
    assert (await sent(config={"models": models}, max_tokens=5))[0]["max_tokens"] == 5
    assert (await sent(config={"models": models, "maxTokens": 99}))[0]["max_tokens"] == 77
    assert (await sent(config={"maxTokens": 99}))[0]["max_tokens"] == 99


async def test_b26g_lone_surrogates_become_replacement_characters() -> None:
    body, _ = await sent([create_user_message("a\ud83dz 😀")])
    assert body["messages"][0]["content"] == "a\ufffdz 😀"


def test_b27a_every_assistant_message_carries_its_reasoning_while_thinking() -> None:
    messages = [
        create_user_message("q"),
        reply({"type": "reasoning", "text": "because "}, {"type": "reasoning", "text": "so"}, text_block("a")),
        create_user_message("q2"),
        reply(text_block("b"), provider="other"),
    ]
    thinking = wire_messages(None, messages, thinking=True)
    assert [m.get("reasoning_content") for m in thinking] == [None, "because so", None, ""]
    silent = wire_messages(None, messages, thinking=False)
    assert [m.get("reasoning_content") for m in silent] == [None, "because so", None, None]


def test_b28_content_is_never_null_and_an_empty_result_is_stated() -> None:
    messages = [create_user_message([]), reply(call("c1"), call("c2")), result("c1"), result("c2", "")]
    wire = wire_messages(None, messages, thinking=False)
    assert [m["content"] for m in wire] == ["", "", "(no output)", "(no output)"]
    assert wire_messages("", [], thinking=True) == []


def test_texts_join_without_separator_and_unknown_blocks_are_skipped() -> None:
    odd: Any = {"type": "hologram", "data": 1}
    messages = [
        create_message("system", [text_block("rule")], {"kind": "user"}),
        create_user_message([text_block("a"), odd, text_block("b")]),
    ]
    assert wire_messages("top", messages, thinking=True) == [
        {"role": "system", "content": "top"},
        {"role": "system", "content": "rule"},
        {"role": "user", "content": "ab"},
    ]


def test_images_that_reach_the_route_are_refused() -> None:
    image: Any = {"type": "image", "attachment": {"attachmentId": "sha256:1"}}
    with pytest.raises(LlmError) as refused:
        wire_messages(None, [reply(image)], thinking=True)
    assert refused.value.code == "UNSUPPORTED_CONTENT"


async def test_an_image_in_the_history_is_described_instead() -> None:
    image: Any = {"type": "image", "attachment": {"attachmentId": "sha256:0123456789"}}
    body, _ = await sent([create_user_message([image])])
    assert "attachment sha256:01234567" in body["messages"][0]["content"]


def test_calls_and_results_are_paired_whatever_the_history_looks_like(caplog: pytest.LogCaptureFixture) -> None:
    messages = [
        create_user_message("q"),
        reply(call("c1"), call("c2"), call("c3")),
        create_user_message("steer"),
        result("c2", "two"),
        result("c1", "one"),
        result("lost", "orphan"),
        reply(text_block("done")),
        result("c1", "again"),
    ]
    wire = wire_messages(None, messages, thinking=False)
    assert [(m["role"], m.get("tool_call_id"), m["content"]) for m in wire] == [
        ("user", None, "q"),
        ("assistant", None, ""),
        ("tool", "c2", "two"),
        ("tool", "c1", "one"),
        ("tool", "c3", "(no output)"),
        ("user", None, "steer"),
        ("user", None, "Result of the unknown tool call lost:\norphan"),
        ("assistant", None, "done"),
        ("user", None, "Result of the unknown tool call c1:\nagain"),
    ]
    assert "repaired" in caplog.text


def test_a_well_formed_history_is_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    messages = [
        reply(call("c1"), call("c2")),
        result("c1", "1"),
        result("c2", "2"),
        reply(call("c1")),
        result("c1", "3"),
    ]
    assert [m["role"] for m in wire_messages(None, messages, thinking=True)] == ["assistant", "tool", "tool"] + [
        "assistant",
        "tool",
    ]
    assert "repaired" not in caplog.text


@pytest.mark.parametrize("arguments", ["", "  ", "null", '{"path": "a', "[1]", "NaN", '"text"', "\ud800"])
def test_arguments_sent_back_are_always_a_json_object(arguments: str) -> None:
    value = json.loads(valid_arguments(arguments))
    assert value == ({} if arguments.strip() in ("", "null") else {"malformed_arguments": arguments})


@pytest.mark.parametrize("arguments", ["{}", '{"a": 1,  "b":"\u2028"}', '{"n": 12345678901234567890123}'])
def test_valid_arguments_go_back_verbatim(arguments: str) -> None:
    assert valid_arguments(arguments) == arguments


async def test_b34a_exact_headers() -> None:
    _, headers = await sent(session_id="s-1", config={"sendUserId": "official"})
    names = set(headers) - {"host", "connection", "content-length"}
    assert {name: headers[name] for name in names} == {
        "accept": "text/event-stream",
        "accept-encoding": "identity",
        "authorization": f"Bearer {KEY}",
        "content-type": "application/json",
        "user-agent": USER_AGENT,
        "x-deepseek-harness-session-id": "s-1",
    }
    assert headers["content-length"].isdigit()
    _, headers = await sent(purpose="compaction", session_id="ü")
    assert headers["x-deepseek-harness-compact"] == "1" and "x-deepseek-harness-session-id" not in headers


async def test_b34b_the_installation_id_goes_to_the_official_service_only(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DSH_HOME", str(tmp_path))
    _, headers = await sent()
    assert "x-deepseek-harness-user-id" not in headers
    _, first = await sent(config={"sendUserId": "always"})
    _, second = await sent(config={"sendUserId": "always"})
    assert first["x-deepseek-harness-user-id"] == second["x-deepseek-harness-user-id"]
    async with stack() as s:
        adapter = DeepSeekAdapter(s.root, lambda: s.row.config)
        official = await adapter._headers(s.row.config, "https://api.deepseek.com/beta", "k", s.request())
        assert official["x-deepseek-harness-user-id"] == first["x-deepseek-harness-user-id"]


async def test_b35_a_repeated_request_is_byte_identical_and_a_longer_one_extends_it() -> None:
    history = [create_user_message("q"), reply(call("c1", arguments='{"b":1,"a":2}')), result("c1", "ok")]
    async with stack(["success"] * 3) as s:
        await s.reply(messages=history, tools=[TOOL], system="s")
        await s.reply(messages=history, tools=[TOOL], system="s")
        await s.reply(
            messages=[*history, reply(text_block("a")), create_user_message("next")], tools=[TOOL], system="s"
        )
        first, second, longer = (request.raw for request in s.server.requests)
        assert first == second
        shared = first[: first.index(b'],"stream"')]
        assert longer.startswith(shared + b",")


async def test_b19b_no_message_shows_a_bad_key() -> None:
    for key, code in (("sk bad key", "INVALID_CREDENTIAL"), ("schlüssel", "INVALID_CREDENTIAL")):
        async with stack(key=key) as s:
            failure = (await s.reply()).finish["failure"]
            assert failure["code"] == code and "DEEPSEEK_API_KEY" in failure["message"] and key not in str(failure)
    async with stack(["auth_error"], key=f"  {KEY}\n") as s:
        failure = (await s.reply()).finish["failure"]
        assert failure["code"] == "AUTH" and KEY not in str(failure)
        assert s.server.requests[0].headers["authorization"] == f"Bearer {KEY}"


@pytest.mark.parametrize(
    ("name", "sent"),
    [("read", "read"), ("", "unknown"), ("has space", "has_space"), ("a.b/日\ud800", "a_b___"), ("x" * 90, "x" * 64)],
)
def test_a_name_that_the_service_would_refuse_in_a_history_is_not_sent(name: str, sent: str) -> None:
    """Found by fuzzing: one call without a name made every later request of its session invalid."""
    call = {"type": "tool-call", "id": "c", "name": name, "arguments": "{}"}
    (message, *_) = wire_messages(None, [{"role": "assistant", "content": [call]}], thinking=False)
    assert message["tool_calls"][0]["function"]["name"] == sent
