"""What the DeepSeek route makes of what it receives, over real HTTP."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any

import pytest

from dsh.cordis import AbortController
from dsh.llm.types import StreamChunk
from dsh.models.deepseek import adapter
from dsh.models.deepseek.response import PIECE, CompletionReader, read_usage
from dsh.models.mock_replies import DONE, ODD_SPACES, PING
from tests.llm.helpers import collect
from tests.models.helpers import KEY, ROUTE, environment, stack

TEXT = "Hello from the mock model."


def delta(**fields: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": None}]}


def ending(reason: str | None, **more: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": {}, "finish_reason": reason}], **more}


def piece(**fields: Any) -> dict[str, Any]:
    function = {key: fields.pop(key) for key in ("name", "arguments") if key in fields}
    return {**fields, "function": function}


def read(*payloads: Any) -> list[StreamChunk]:
    reader = CompletionReader()
    return [*(chunk for payload in payloads for chunk in reader.push(payload)), *reader.close()]


def blocks(*payloads: Any) -> list[Any]:
    return [chunk["block"] for chunk in read(*payloads) if chunk["type"] == "block-end"]


# Transport


async def test_b20d_a_stream_arriving_byte_by_byte_is_exact() -> None:
    said = 'héllo 你好 😀 \\ " end'
    async with stack([{"behavior": "split_bytes", "text": said}]) as s:
        reply = await s.reply()
        assert reply.blocks() == [{"type": "text", "text": said}]


async def test_b21_separators_that_are_legal_in_json_survive() -> None:
    async with stack(["u2028"]) as s:
        assert (await s.reply()).blocks() == [{"type": "text", "text": ODD_SPACES}]


async def test_b22a_comments_keep_a_stream_alive() -> None:
    async with stack(["keep_alive"], streamIdleTimeoutMs=150, server={"ping_ms": 50, "pings": 8}) as s:
        assert (await s.reply()).blocks() == [{"type": "text", "text": TEXT}]


async def test_b22b_comments_alone_run_into_the_progress_clock_and_silence_into_the_idle_clock() -> None:
    async with stack(["pings_only", "stall"], streamIdleTimeoutMs=200, streamProgressTimeoutMs=500) as s:
        pings = (await s.reply()).finish["failure"]
        assert pings["code"] == "TIMEOUT" and "no event for 500 ms" in pings["message"]
        silent = (await s.reply()).finish["failure"]
        assert silent["code"] == "TIMEOUT" and "nothing for 200 ms" in silent["message"]
        for received in s.server.requests:
            await received.done.wait()
            assert received.outcome == "client_closed"


async def test_b22c_a_slow_consumer_is_no_timeout() -> None:
    async with stack(["success"], streamIdleTimeoutMs=300, streamProgressTimeoutMs=300, server={"delay_ms": 10}) as s:
        kinds = []
        async with aclosing(s.llm.stream(s.request())) as chunks:  # type: ignore[type-var]
            async for chunk in chunks:
                kinds.append(chunk["type"])
                await asyncio.sleep(0.4 if len(kinds) < 4 else 0)
        assert kinds[-1] == "finish" and "text-delta" in kinds


@pytest.mark.parametrize("behavior", ["stall", "pings_only"])
async def test_b23b_abort_in_the_middle_of_the_body(behavior: str) -> None:
    controller = AbortController()
    async with stack([behavior]) as s:
        task = asyncio.create_task(collect(s.llm.stream(s.request(signal=controller.signal))))
        await s.server.wait_for_requests(1)
        controller.abort("user")
        assert (await task)[-1]["reason"]["kind"] == "aborted"
        await s.server.requests[0].done.wait()
        assert s.server.requests[0].outcome == "client_closed"


async def test_b23c_abort_before_the_headers_and_during_the_upload() -> None:
    # A listener that accepts, reads nothing and says nothing: a large body blocks in the upload, a small one after it.
    connected = asyncio.Event()
    ended = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        reader._transport.pause_reading()  # type: ignore[attr-defined]
        connected.set()
        await ended.wait()
        writer.transport.abort()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with stack(baseURL=url) as s:
        for text in ("small", "x" * 30_000_000):
            connected.clear()
            controller = AbortController()
            task = asyncio.create_task(collect(s.llm.stream(s.request(text, signal=controller.signal))))
            await connected.wait()
            await asyncio.sleep(0.05)
            assert not task.done()
            controller.abort("user")
            assert (await task)[-1]["reason"]["kind"] == "aborted"
    ended.set()
    server.close()


async def test_b24_an_early_stop_closes_the_socket_and_reports_nothing() -> None:
    async with stack(["pings_only"]) as s:
        async with aclosing(s.llm.stream(s.request())) as chunks:  # type: ignore[type-var]
            async for chunk in chunks:
                if chunk["type"] == "text-delta":
                    break
        await s.server.requests[0].done.wait()
        assert s.server.requests[0].outcome == "client_closed"


async def test_b25b_a_truncated_tail_is_no_success_and_what_follows_done_is_ignored() -> None:
    text = [delta(content="whole"), ending("stop")]
    script = [
        {"chunks": [delta(content="wh"), 'data: {"choices": [{"del']},
        {"chunks": [*text, "data: [DONE]\n\n", delta(content="late"), "data: {broken\n\n"]},
    ]
    async with stack(script) as s:
        cut = (await s.reply()).finish["failure"]
        assert cut["code"] == "STREAM_CLOSED" and "2 characters" in cut["message"]
        assert (await s.reply()).blocks() == [{"type": "text", "text": "whole"}]


async def test_b25c_a_connection_is_kept_for_the_next_request() -> None:
    ports: list[int] = []
    body = b'data: {"choices":[{"delta":{"content":"ok"},"finish_reason":"stop"}]}\n\n' + DONE

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while not reader.at_eof():
            try:
                head = await reader.readuntil(b"\r\n\r\n")
            except asyncio.IncompleteReadError:
                break
            ports.append(writer.get_extra_info("peername")[1])
            length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length"))
            await reader.readexactly(int(length.split(b":")[1]))
            writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n" % (len(body), body))
            await writer.drain()
            writer.write(b"0\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with stack(baseURL=f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}") as s:
        for _ in range(3):
            assert (await s.reply()).blocks() == [{"type": "text", "text": "ok"}]
        assert len(set(ports)) == 1
    server.close()


@pytest.mark.parametrize(
    ("behavior", "code"),
    [
        ("connection_reset", "TRANSPORT"),
        ("stream_disconnect", "TRANSPORT"),
        ("partial_disconnect", "TRANSPORT"),
        ("stream_eof", "STREAM_CLOSED"),
        ("partial_eof", "STREAM_CLOSED"),
        ("empty", "EMPTY_RESPONSE"),
        ("empty_body", "EMPTY_RESPONSE"),
        ("malformed_json", "MALFORMED_RESPONSE"),
        ("malformed_event", "MALFORMED_RESPONSE"),
        ("inband_error", "SERVER"),
        ("rate_limit", "RATE_LIMIT"),
        ("server_error", "SERVER"),
        ("service_unavailable", "SERVER"),
        ("auth_error", "AUTH"),
        ("invalid_request", "INVALID_REQUEST"),
        ("context_overflow", "CONTEXT_WINDOW_EXCEEDED"),
        ("quota_exceeded", "QUOTA"),
    ],
)
async def test_b16h_every_bad_behaviour_has_its_code(behavior: str, code: str) -> None:
    async with stack([behavior]) as s:
        reply = await s.reply()
        assert reply.finish["kind"] == "error" and reply.finish["failure"]["code"] == code
        assert KEY not in str(reply.finish)


async def test_refused_and_unknown_hosts_are_transport_failures_that_name_the_address() -> None:
    for url in ("http://127.0.0.1:9", "http://no-such-host.invalid"):
        async with stack(baseURL=url) as s:
            failure = (await s.reply()).finish["failure"]
            assert failure["code"] == "TRANSPORT" and url.removeprefix("http://") in failure["message"]


# Replies


async def test_json_and_wrong_content_types_are_read_for_what_they_are() -> None:
    error = {"json": {"error": {"message": "slow down", "type": "rate_limit_error"}}}
    page = {"chunks": ["<html>login</html>"]}
    async with stack(["json_200", "wrong_content_type", error, page]) as s:
        assert (await s.reply()).blocks() == [{"type": "text", "text": TEXT}]
        assert (await s.reply()).blocks() == [{"type": "text", "text": TEXT}]
        assert (await s.reply()).finish["failure"]["code"] == "RATE_LIMIT"
        assert (await s.reply()).finish["failure"]["code"] == "MALFORMED_RESPONSE"


async def test_an_error_event_is_an_error_whatever_it_holds() -> None:
    async with stack([{"chunks": ['event: error\ndata: {"message": "out of credits"}\n\n']}]) as s:
        failure = (await s.reply()).finish["failure"]
        assert failure == {"message": "out of credits", "code": "QUOTA"}


def test_b29a_one_block_each_in_order_of_appearance_and_the_first_empty_text_opens_none() -> None:
    chunks = read(
        delta(role="assistant", content=""),
        delta(reasoning_content="think", content=None),
        delta(reasoning_content="ing", content="x"),
        delta(content="y", tool_calls=[piece(index=0, id="c1", name="bash", arguments="")]),
        ending("tool_calls"),
    )
    assert [(c["type"], c.get("index")) for c in chunks] == [
        ("block-start", 0),
        ("reasoning-delta", 0),
        ("reasoning-delta", 0),
        ("block-start", 1),
        ("text-delta", 1),
        ("text-delta", 1),
        ("block-start", 2),
        ("tool-call-delta", 2),
        ("block-end", 0),
        ("block-end", 1),
        ("block-end", 2),
        ("finish", None),
    ]


def test_b29b_fragments_of_parallel_calls_find_their_call() -> None:
    calls = blocks(
        delta(tool_calls=[piece(index=0, id="a", name="x", arguments='{"n"'), piece(index=1, id="b", name="y")]),
        delta(tool_calls=[piece(index=1, id="", name="", arguments="[1"), piece(index=0, id=None, arguments=":1}")]),
        delta(tool_calls=[piece(index=1, arguments=","), piece(index=1, arguments="2]")]),
        ending("tool_calls"),
    )
    assert [(c["id"], c["name"], c["arguments"]) for c in calls] == [("a", "x", '{"n":1}'), ("b", "y", "[1,2]")]


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        # A known id beats a wrong index.
        ([piece(index=0, id="a", arguments="1"), piece(index=5, id="a", arguments="2")], [("a", "12")]),
        # A new id on an owned index is a new call.
        ([piece(index=0, id="a", arguments="1"), piece(index=0, id="b", arguments="2")], [("a", "1"), ("b", "2")]),
        # No id: the index's call.
        ([piece(index=0, id="a"), piece(index=1, id="b"), piece(index=0, arguments="1")], [("a", "1"), ("b", "")]),
        # Neither: the call last streamed.
        ([piece(index=0, id="a"), piece(index=1, id="b"), piece(arguments="1")], [("a", ""), ("b", "1")]),
        # A first delta without index is a new call.
        ([piece(id="a", arguments="1"), piece(id="b", arguments="2")], [("a", "1"), ("b", "2")]),
        # An id that comes late is adopted.
        ([piece(index=0, arguments="1"), piece(index=0, id="a", arguments="2")], [("a", "12")]),
        # Arguments as an object.
        ([piece(index=0, id="a", arguments={"n": 1})], [("a", '{"n":1}')]),
    ],
)
def test_b29c_routing_of_odd_deltas(pieces: list[Any], expected: list[Any]) -> None:
    calls = blocks(*(delta(tool_calls=[one]) for one in pieces), ending("tool_calls"))
    assert [(c["id"], c["arguments"]) for c in calls] == expected


def test_b29d_a_missing_id_is_minted_and_a_name_replaces() -> None:
    (minted,) = blocks(delta(tool_calls=[piece(index=0, name="ba"), piece(index=0, name="bash")]), ending("tool_calls"))
    assert minted["id"].startswith("call_") and len(minted["id"]) > 10 and minted["name"] == "bash"


def test_b30_usage_attached_trailing_or_both_and_disjoint() -> None:
    first = {"prompt_tokens": 10, "completion_tokens": 1}
    last = {
        "prompt_tokens": 100,
        "completion_tokens": 20,
        "prompt_cache_hit_tokens": 1,
        "prompt_tokens_details": {"cached_tokens": 64},
        "completion_tokens_details": {"reasoning_tokens": 5},
    }
    whole = {"inputTokens": 36, "outputTokens": 20, "cacheReadTokens": 64, "reasoningTokens": 5}

    def usages(*payloads: Any) -> list[Any]:
        return [chunk["usage"] for chunk in read(delta(content="x"), *payloads) if chunk["type"] == "usage"]

    assert usages(ending("stop", usage=last)) == [whole]
    assert usages(ending("stop"), {"choices": [], "usage": last}) == [whole]
    assert usages(ending("stop", usage=first), {"usage": last}) == [whole]
    assert usages(ending("stop", usage=first), {"choices": None, "usage": None}) == [
        {"inputTokens": 10, "outputTokens": 1}
    ]
    assert usages(ending("stop")) == []


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        ({"prompt_tokens": 9, "completion_tokens": 2, "prompt_cache_hit_tokens": 9}, (0, 2, 9)),
        ({"prompt_tokens": 9, "completion_tokens": 2, "prompt_cache_hit_tokens": 0}, (9, 2, 0)),
        ({"prompt_tokens": 9, "total_tokens": 12}, (9, 3, None)),
        ({"total_tokens": 12}, None),
        ({"prompt_tokens": "9", "completion_tokens": 1}, None),
        ({"prompt_tokens": True, "completion_tokens": 1}, None),
        ({"prompt_tokens": -1, "completion_tokens": 1}, None),
        ([], None),
    ],
)
def test_fault56_tokens_are_counted_once_and_unknown_is_not_zero(usage: Any, expected: Any) -> None:
    sample = read_usage(usage)
    if expected is None:
        assert sample is None
    else:
        assert sample is not None
        assert (sample["inputTokens"], sample["outputTokens"], sample.get("cacheReadTokens")) == expected


@pytest.mark.parametrize("reason", ["stop", "tool_calls", "", None])
def test_b31a_a_stop_without_a_block_is_empty(reason: str | None) -> None:
    last = read(delta(role="assistant", content=""), ending(reason))[-1]["reason"]
    assert last["kind"] == "error" and last["failure"]["code"] == "EMPTY_RESPONSE"


def test_b31b_reasoning_alone_is_a_success_and_so_is_an_empty_cut() -> None:
    assert read(delta(reasoning_content="hm"), ending("stop"))[-1] == {"type": "finish", "reason": {"kind": "stop"}}
    assert read(ending("length"))[-1]["reason"] == {"kind": "max-tokens"}


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("stop", {"kind": "stop"}),
        ("tool_calls", {"kind": "tool-calls"}),
        ("function_call", {"kind": "tool-calls"}),
        ("length", {"kind": "max-tokens"}),
        ("", {"kind": "stop"}),
        (None, {"kind": "stop"}),
        (
            "content_filter",
            {"kind": "error", "failure": {"message": "model stopped: content_filter", "code": "CONTENT_FILTER"}},
        ),
        (
            "insufficient_system_resource",
            {
                "kind": "error",
                "failure": {
                    "message": "model stopped: insufficient_system_resource",
                    "code": "INSUFFICIENT_SYSTEM_RESOURCE",
                },
            },
        ),
    ],
)
def test_finish_words(word: str | None, reason: Any) -> None:
    assert read(delta(content="x"), ending(word))[-1]["reason"] == reason


@pytest.mark.parametrize(
    "payload",
    [
        [],
        3,
        {"choices": [None]},
        {"choices": {"0": 1}},
        {"choices": 5},
        delta(content=5),
        delta(reasoning_content=["x"]),
        delta(tool_calls={"0": 1}),
        delta(tool_calls=["x"]),
        delta(tool_calls=[{"index": 0, "function": "f"}]),
        {"choices": [{"delta": "text"}]},
    ],
)
def test_payloads_of_the_wrong_shape_are_refused(payload: Any) -> None:
    with pytest.raises(ValueError):
        CompletionReader().push(payload)


def test_odd_but_harmless_payloads_are_read() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert blocks({"choices": None}, {}, {"id": "x"}, delta(content=parts), ending("stop")) == [
        {"type": "text", "text": "ab"}
    ]


async def test_a_malformed_payload_is_shown_in_120_characters() -> None:
    async with stack([{"chunks": [f'data: {{"choices": [null], "x": "{"y" * 500}"}}\n\n']}]) as s:
        message = (await s.reply()).finish["failure"]["message"]
        assert message.startswith('malformed SSE payload: {"choices"') and len(message) < 150


# Live configuration


async def test_b32a_endpoint_and_key_change_between_requests_and_a_running_stream_keeps_its_own() -> None:
    from dsh.models.mock_server import MockLlmServer

    async with (
        stack(["success", "slow_success"], server={"slow_delay_ms": 50}) as s,
        MockLlmServer(["success"]) as other,
    ):
        await s.reply()
        running = asyncio.create_task(s.reply())
        await s.server.wait_for_requests(2)
        await s.row.update({"baseURL": other.url, "apiKeyEnv": "OTHER_KEY"})
        failure = (await s.reply()).finish
        # The new endpoint with the new reference: on this machine a missing key is allowed.
        assert failure["kind"] == "stop" and "authorization" not in other.requests[0].headers
        assert (await running).blocks() == [{"type": "text", "text": TEXT}]
        assert s.server.requests[1].headers["authorization"] == f"Bearer {KEY}"


async def test_b32b_invalid_config_is_refused_whole() -> None:
    async with stack(["success"]) as s:
        for bad in (
            {"thinking": "disabled", "reasoningEffort": "high"},
            {"models": [{"id": "a"}, {"id": "a"}]},
            {"models": [{"id": ""}]},
            {"baseURL": "ftp://x"},
            {"streamIdleTimeoutMs": 0},
            {"retryPolicy": {"maxRetry": 1}},
            {"apiKeyEnv": "sk-123"},
        ):
            with pytest.raises(Exception, match="must|twice|unknown key"):
                await s.row.update(bad)
        assert (await s.reply()).finish == {"kind": "stop"}


async def test_b32c_a_policy_change_reaches_the_service_without_a_gap() -> None:
    from dsh.llm.service import AdaptersUpdated

    async with stack() as s:
        gaps: list[Any] = []
        s.root.on(AdaptersUpdated, lambda event: gaps.append([p["id"] for p in s.llm.list_providers()]))
        await s.row.update({**s.row.raw_config, "retryPolicy": {"maxRetries": 2}})
        policy = s.llm.provider_retry_policy(ROUTE)
        assert policy is not None and policy.max_retries == 2
        assert gaps == [[ROUTE]]


async def test_b33_the_row_mounts_without_a_key_and_says_what_is_missing() -> None:
    async with stack(key=None, baseURL="http://api.invalid") as s:
        assert [model["id"] for model in await s.llm.list_models(ROUTE)] == [
            "deepseek-v4-flash",
            "deepseek-v4-pro",
            "deepseek-v4-flash-vision-exp",
            "deepseek-flash",
        ]
        failure = (await s.reply()).finish["failure"]
        assert failure["code"] == "MISSING_CREDENTIAL"
        reason = s.llm.usable(ROUTE)
        assert reason == failure["message"]
        for way in ("dsh credentials set DEEPSEEK_API_KEY", "dsh local pull", "baseURL"):
            assert way in reason


async def test_facts_of_listed_and_unlisted_models() -> None:
    models = [{"id": "small", "name": "Small", "contextWindow": 1000, "maxTokens": 10, "description": "tiny"}]
    async with stack(models=models, defaultContextWindow=500) as s:
        small = await s.llm.resolve_model_info(ROUTE, "small")
        assert small["context"] == {"contextWindow": 1000} and small["defaultMaxTokens"] == 10
        assert small["name"] == "Small" and small["description"] == "tiny"
        other = await s.llm.resolve_model_info(ROUTE, "anything")
        assert other["context"] == {"contextWindow": 500} and other["inputModalities"] == ["text"]
        assert [effort["id"] for effort in other["reasoning"]["efforts"]] == ["off", "low", "high", "max"]
        assert other["reasoning"]["defaultEffort"] == "high"


async def test_the_base_url_comes_from_the_environment_when_the_row_names_none() -> None:
    async with stack(["success"]) as s:
        from dsh.models.deepseek.adapter import DeepSeekAdapter
        from dsh.models.deepseek.config import Config

        adapter = DeepSeekAdapter(s.root, lambda: Config())
        assert adapter._base_url(Config()) == "https://api.deepseek.com"
        isolated = s.root.isolate("launchEnvironment")
        isolated.provide("launchEnvironment", environment(DEEPSEEK_BASE_URL="http://proxy:1/v1/"))
        assert DeepSeekAdapter(isolated, lambda: Config())._base_url(Config()) == "http://proxy:1/v1"


def test_keep_alive_comments_are_comments() -> None:
    assert PING.startswith(b":")


# Replies that are none


@pytest.mark.parametrize(
    "fields", [{"content": "more "}, {"reasoning_content": "more "}, {"tool_calls": True}], ids=str
)
async def test_a_reply_without_end_is_cut_off(fields: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adapter, "MAX_REPLY", 100_000)
    if "tool_calls" in fields:
        fields = {"tool_calls": [piece(index=0, id="c", name="write", arguments="more ")]}
    async with stack([{"chunks": [delta(**fields)] * 5000, "ending": "stall"}]) as s:
        reply = await s.reply()
    assert reply.finish["kind"] == "error" and reply.finish["failure"]["code"] == "MALFORMED_RESPONSE"
    assert "characters of output and no end of its reply" in reply.finish["failure"]["message"]


async def test_many_short_pieces_weigh_more_than_their_text() -> None:
    reader = CompletionReader()
    for _ in range(10):
        reader.push(delta(content="x"))
    assert reader.held == 10 * (1 + PIECE) and reader.received == 10


async def test_a_web_page_instead_of_a_reply_says_whose_it_is_and_where_to_look() -> None:
    async with stack([{"chunks": ["<html>login</html>"]}]) as s:
        failure = (await s.reply()).finish["failure"]
    assert failure["code"] == "MALFORMED_RESPONSE"
    assert "<html>login</html> (127.0.0.1" in failure["message"]
    assert failure["message"].endswith("that baseURL of the llm-deepseek row is right)")
