"""Replies of a model server, from any payload to blocks: one kind of error, a stream that keeps its grammar, and
histories that a service takes whatever stood in them."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator
from contextlib import nullcontext
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from dsh.cordis.jsonio import snapshot_json
from dsh.llm.assembler import BlockAssembler
from dsh.llm.failure import LlmError
from dsh.llm.grammar import StreamGrammar
from dsh.llm.transport.sse import SseEvent, SseParser
from dsh.models.deepseek import adapter
from dsh.models.deepseek.request import is_paired, valid_arguments, wire_messages
from dsh.models.deepseek.response import CompletionReader, read_usage
from tests.fuzz.kit import CUTS, JSON, fuzz, slices

WORDS = st.sampled_from(["", "c1", "c2", "bash", "stop", "tool_calls", "length", "content_filter", "x", "\ud800", "日"])
ODD = st.none() | st.booleans() | st.integers(-2, 3) | WORDS | st.just([]) | st.just({}) | JSON


def record(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """An object with any of these fields, each mostly of its own shape."""
    return st.fixed_dictionaries({}, optional={name: value | ODD for name, value in fields.items()})


CALL = record(index=st.integers(-1, 3), id=WORDS, type=WORDS, function=record(name=WORDS, arguments=WORDS | JSON))
DELTA = record(
    role=WORDS,
    content=WORDS | st.lists(record(type=WORDS, text=WORDS), max_size=3),
    reasoning_content=WORDS,
    reasoning=WORDS,
    tool_calls=st.lists(CALL | ODD, max_size=3),
)
CHOICE = record(index=st.integers(0, 1), delta=DELTA, message=DELTA, finish_reason=WORDS)
USAGE = record(
    prompt_tokens=st.integers(-1, 2**60),
    completion_tokens=st.integers(-1, 9),
    total_tokens=st.integers(-1, 99),
    prompt_cache_hit_tokens=st.integers(-1, 9),
    prompt_tokens_details=record(cached_tokens=st.integers(-1, 9)),
    completion_tokens_details=record(reasoning_tokens=st.integers(-1, 9)),
)
PAYLOAD = record(choices=st.lists(CHOICE | ODD, max_size=2), usage=USAGE) | ODD


def keeps_grammar(chunks: list[Any]) -> None:
    grammar = StreamGrammar()
    for chunk in chunks:
        assert grammar.check(chunk) is None, chunk
    assert grammar.end() is None


def anonymous(chunks: list[Any]) -> str:
    """The chunks without ids that were made up for calls that came without one."""
    return re.sub(r"call_[0-9a-f-]{36}", "call_made_up", json.dumps(chunks))


@fuzz(400)
@given(st.lists(PAYLOAD, max_size=8))
def test_any_payloads_give_a_stream_that_keeps_the_grammar_or_the_one_error(payloads: list[Any]) -> None:
    reader = CompletionReader()
    chunks: list[Any] = []
    for payload in payloads:
        try:
            chunks += reader.push(payload)
        except ValueError:
            return
    chunks += reader.close()
    keeps_grammar(chunks)
    snapshot_json(chunks)
    assembler = BlockAssembler()
    for chunk in chunks:
        assembler.push(chunk)
    ended = [chunk["block"] for chunk in chunks if chunk["type"] == "block-end"]
    blocks = assembler.blocks()
    assert all(block in ended for block in blocks)
    if assembler.finish["kind"] != "max-tokens":
        assert blocks == ended
    assert reader.received == sum(len(c.get("text", "")) + len(c.get("argumentsDelta", "")) for c in chunks)


@fuzz(200)
@given(USAGE)
def test_usage_is_disjoint_counts_or_nothing(usage: Any) -> None:
    sample = read_usage(usage)
    if sample is not None:
        assert all(type(count) is int and count >= 0 for count in sample.values())
        assert set(sample) >= {"inputTokens", "outputTokens"}


CHUNK = st.one_of(
    st.fixed_dictionaries(
        {
            "type": st.just("block-start"),
            "index": st.integers(0, 3),
            "blockType": st.sampled_from(["text", "reasoning", "tool-call", "image", "odd"]),
        }
    ),
    st.fixed_dictionaries(
        {
            "type": st.sampled_from(["text-delta", "reasoning-delta"]),
            "index": st.integers(0, 3),
            "text": st.text(max_size=4),
        }
    ),
    st.fixed_dictionaries(
        {"type": st.just("tool-call-delta"), "index": st.integers(0, 3), "argumentsDelta": st.text(max_size=4)},
        optional={"id": WORDS, "name": WORDS},
    ),
    st.fixed_dictionaries(
        {
            "type": st.just("block-end"),
            "index": st.integers(0, 3),
            "block": st.fixed_dictionaries(
                {"type": st.sampled_from(["text", "reasoning"]), "text": st.text(max_size=4)}
            ),
        }
    ),
    st.fixed_dictionaries(
        {
            "type": st.just("block-end"),
            "index": st.integers(0, 3),
            "block": st.fixed_dictionaries(
                {"type": st.just("tool-call"), "id": WORDS, "name": WORDS, "arguments": st.text(max_size=4)}
            ),
        }
    ),
    st.fixed_dictionaries({"type": st.just("usage"), "usage": st.just({"inputTokens": 1, "outputTokens": 1})}),
    st.fixed_dictionaries(
        {
            "type": st.just("finish"),
            "reason": st.fixed_dictionaries({"kind": st.sampled_from(["stop", "max-tokens", "error"])}),
        }
    ),
)


@fuzz(300)
@given(st.lists(CHUNK, max_size=16))
def test_the_assembler_takes_chunks_in_any_order(chunks: list[Any]) -> None:
    assembler = BlockAssembler()
    for chunk in chunks:
        assembler.push(chunk)
    kept = assembler.interrupted_blocks()
    assert all(block["type"] in ("text", "reasoning") and block["text"].strip() for block in kept)
    try:
        blocks = assembler.blocks()
    except ValueError as error:
        assert "unknown type" in str(error)
        return
    snapshot_json(blocks)
    assert len({id(block) for block in blocks}) == len(blocks)
    assert assembler.tool_calls() == [block for block in blocks if block["type"] == "tool-call"]
    if assembler.finish["kind"] == "max-tokens":
        assert assembler.tool_calls() == []


class FakeReply:
    """A reply whose body is there already, in slices."""

    headers: dict[str, str] = {}
    status = 200

    def __init__(self, pieces: list[bytes]) -> None:
        self._pieces = pieces

    async def read_unless_events(self) -> bytes | None:
        body = b"".join(self._pieces)
        visible = body.removeprefix(b"\xef\xbb\xbf").lstrip()
        return body if not visible or visible[:1] in b"{[<" else None

    async def batches(self) -> AsyncGenerator[list[SseEvent], None]:
        parser = SseParser()
        for piece in self._pieces:
            if events := parser.feed(piece):
                yield events

    def progressed(self) -> None:
        pass

    async def drain(self) -> None:
        pass


def received(pieces: list[bytes]) -> tuple[Any, str | None]:
    """What the adapter makes of a body: its chunks (text joined), and the code of the failure if it failed."""

    async def run() -> tuple[list[Any], str | None]:
        chunks: list[Any] = []
        try:
            exchange: Any = nullcontext((FakeReply(pieces), adapter._Peer(*["x"] * len(adapter._Peer._fields))))
            async for chunk in adapter._chunks(exchange):
                chunks.append(chunk)
        except LlmError as error:
            assert error.failure.message
            return chunks, error.code
        keeps_grammar(chunks)
        return chunks, None

    chunks, code = asyncio.run(run())
    return anonymous(chunks), code


EVENT = PAYLOAD.map(lambda payload: b"data: " + json.dumps(payload).encode() + b"\n\n")
BODY = st.lists(
    EVENT
    | st.sampled_from([b"data: [DONE]\n\n", b": ping\n\n", b"event: error\ndata: {}\n\n", b"data: {\n\n"])
    | st.just({"error": {"message": "m"}}).map(lambda e: b"data: " + json.dumps(e).encode() + b"\r\n\r\n")
    | st.binary(max_size=10),
    max_size=8,
).map(b"".join)


@fuzz(200)
@given(BODY, CUTS)
def test_a_body_gives_the_same_reply_or_failure_however_it_is_cut(body: bytes, cuts: list[float]) -> None:
    whole = received([body])
    assert received(slices(body, cuts)) == whole


ARGUMENTS = st.sampled_from(
    ["", "null", "{}", '{"a": 1}', '{"a": ', "[1]", '"x"', "NaN", '{"a": NaN}', "{} {}", "\ud800"]
)
BLOCK = st.one_of(
    st.fixed_dictionaries({"type": st.sampled_from(["text", "reasoning"]), "text": st.text(max_size=4)}),
    st.fixed_dictionaries(
        {"type": st.just("tool-call"), "id": st.sampled_from(["a", "b"]), "name": st.just("t"), "arguments": ARGUMENTS}
    ),
)
RESULT = st.fixed_dictionaries(
    {
        "type": st.just("tool-result"),
        "toolCallId": st.sampled_from(["a", "b", "c"]),
        "isError": st.booleans(),
        "content": st.lists(st.fixed_dictionaries({"type": st.just("text"), "text": st.text(max_size=3)}), max_size=2),
    }
)
MESSAGE = st.one_of(
    st.fixed_dictionaries({"role": st.just("assistant"), "content": st.lists(BLOCK, max_size=3)}),
    st.fixed_dictionaries(
        {"role": st.just("user"), "content": st.lists(RESULT | BLOCK.filter(lambda b: b["type"] == "text"), max_size=3)}
    ),
    st.fixed_dictionaries({"role": st.just("system"), "content": st.just([{"type": "text", "text": "s"}])}),
)


@fuzz(400)
@given(st.lists(MESSAGE, max_size=8), st.booleans())
def test_any_history_becomes_one_that_a_service_takes(messages: list[Any], thinking: bool) -> None:
    wire = wire_messages("system", messages, thinking=thinking)
    assert is_paired(wire)
    for message in wire:
        assert isinstance(message["content"], str)
        assert message["role"] != "assistant" or not thinking or "reasoning_content" in message
        for call in message.get("tool_calls", ()):
            assert isinstance(json.loads(call["function"]["arguments"]), dict)


@fuzz(200)
@given(st.text(max_size=30) | ARGUMENTS | JSON.map(json.dumps))
def test_arguments_that_go_back_are_an_object_and_good_ones_are_untouched(text: str) -> None:
    back = valid_arguments(text)
    assert isinstance(json.loads(back), dict)
    try:
        good = isinstance(json.loads(text, parse_constant=lambda name: 1 / 0), dict)
    except (ValueError, ZeroDivisionError):
        good = False
    if good and "-0" not in text:
        assert back == text
