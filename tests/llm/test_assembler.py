"""Assembling a reply from its chunks."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsh.llm.assembler import BlockAssembler
from dsh.llm.grammar import StreamGrammar


def assemble(*chunks: Any) -> BlockAssembler:
    reply = BlockAssembler()
    for chunk in chunks:
        reply.push(chunk)
    return reply


def start(index: int, kind: str) -> Any:
    return {"type": "block-start", "index": index, "blockType": kind}


def text(index: int, said: str) -> Any:
    return {"type": "text-delta", "index": index, "text": said}


def thought(index: int, said: str) -> Any:
    return {"type": "reasoning-delta", "index": index, "text": said}


def call(index: int, arguments: str, call_id: str = "", name: str = "") -> Any:
    chunk = {"type": "tool-call-delta", "index": index, "id": call_id, "argumentsDelta": arguments}
    return {**chunk, "name": name} if name else chunk


def end(index: int, block: Any) -> Any:
    return {"type": "block-end", "index": index, "block": block}


def finish(kind: str, replay: Any = None) -> Any:
    chunk: dict[str, Any] = {"type": "finish", "reason": {"kind": kind}}
    return chunk if replay is None else {**chunk, "replayState": replay}


def test_b02a_interleaved_blocks_stand_in_order_of_first_sight() -> None:
    reply = assemble(text(5, "a"), thought(2, "x"), text(5, "b"), thought(2, "y"), finish("stop"))
    assert reply.blocks() == [{"type": "text", "text": "ab"}, {"type": "reasoning", "text": "xy"}]


def test_b02b_a_stream_of_deltas_alone_is_fine_and_finish_defaults_to_stop() -> None:
    reply = assemble(call(0, '{"a"', "c1", "bash"), call(0, ":1}"))
    assert reply.finish == {"kind": "stop"}
    assert reply.blocks() == [{"type": "tool-call", "id": "c1", "name": "bash", "arguments": '{"a":1}'}]
    assert reply.usage is None


def test_b02c_stragglers_and_repeats_are_ignored_and_the_first_end_wins() -> None:
    whole = {"type": "text", "text": "whole"}
    reply = assemble(
        start(0, "text"),
        text(0, "who"),
        start(0, "reasoning"),
        end(0, whole),
        text(0, "late"),
        end(0, {"type": "text", "text": "second"}),
        finish("stop"),
    )
    assert reply.blocks() == [whole]


def test_b02d_identity_is_never_erased_by_empty_values() -> None:
    reply = assemble(call(0, "", "c1", "bash"), call(0, "{}", ""), call(1, "x"))
    first, second = reply.tool_calls()
    assert (first["id"], first["name"]) == ("c1", "bash")
    assert (second["id"], second["name"]) == ("call-1", "")


def test_b02e_an_unknown_type_must_be_closed() -> None:
    with pytest.raises(ValueError, match="unknown type"):
        assemble(start(0, "video")).blocks()
    assert assemble(start(0, "video"), end(0, {"type": "video", "url": "u"})).blocks() == [
        {"type": "video", "url": "u"}
    ]


def test_b03_max_tokens_drops_every_tool_call_and_its_replay_entry() -> None:
    replay = {"response": {"r": 1}, "blocks": ["a", "b", "c"]}
    reply = assemble(text(0, "t"), call(1, "{", "c1", "n"), thought(2, "x"), finish("max-tokens", replay))
    assert [block["type"] for block in reply.blocks()] == ["text", "reasoning"]
    assert reply.tool_calls() == []
    assert reply.replay_state == {"response": {"r": 1}, "blocks": ["a", "c"]}


def test_b04_a_misaligned_envelope_is_discarded_and_one_without_blocks_passes() -> None:
    assert assemble(text(0, "t"), finish("stop", {"response": 1, "blocks": []})).replay_state is None
    assert assemble(text(0, "t"), finish("stop", {"response": 1})).replay_state == {"response": 1}
    assert assemble(text(0, "t"), finish("max-tokens", {"response": 1, "blocks": [1, 2]})).replay_state is None


def test_b05_interrupted_blocks_are_what_a_person_saw() -> None:
    reply = assemble(text(0, "half"), thought(1, " \n"), call(2, "{", "c", "n"), thought(3, "why"), start(4, "odd"))
    assert reply.interrupted_blocks() == [{"type": "text", "text": "half"}, {"type": "reasoning", "text": "why"}]
    assert assemble(text(0, "   ")).interrupted_blocks() == []


BLOCKS = st.lists(
    st.one_of(
        st.builds(lambda t: {"type": "text", "text": t}, st.text(max_size=20)),
        st.builds(lambda t: {"type": "reasoning", "text": t}, st.text(max_size=20)),
        st.builds(
            lambda i, n, a: {"type": "tool-call", "id": i, "name": n, "arguments": a},
            st.text(min_size=1, max_size=5),
            st.text(min_size=1, max_size=5),
            st.text(max_size=20),
        ),
    ),
    max_size=5,
)


@given(BLOCKS, st.data())
def test_b06_any_cutting_and_interleaving_gives_the_blocks_back(blocks: list[Any], data: st.DataObject) -> None:
    queues = [_chunks(index, block, data.draw(st.booleans()), data) for index, block in enumerate(blocks)]
    # Every block's first chunk in order, the rest interleaved at will.
    stream = [queue.pop(0) for queue in queues if queue]
    while any(queues):
        stream.append(data.draw(st.sampled_from([queue for queue in queues if queue])).pop(0))
    stream.append(finish("tool-calls"))
    grammar = StreamGrammar()
    assert all(grammar.check(chunk) is None for chunk in stream if chunk["type"] != "skip") and grammar.end() is None
    assert assemble(*stream).blocks() == blocks


def _chunks(index: int, block: Any, short_tail: bool, data: st.DataObject) -> list[Any]:
    key = "arguments" if block["type"] == "tool-call" else "text"
    cut = data.draw(st.integers(0, len(block[key])))
    pieces = [block[key][:cut], block[key][cut:]]
    deltas = {"text": text, "reasoning": thought}
    if block["type"] == "tool-call":
        parts = [call(index, piece, block["id"], block["name"]) for piece in pieces]
    else:
        parts = [deltas[block["type"]](index, piece) for piece in pieces]
    return [start(index, block["type"]), *parts, end(index, block)]


@pytest.mark.parametrize(
    ("chunks", "wrong"),
    [
        ([start(-1, "text")], "negative"),
        ([start(0, "text"), start(0, "text")], "repeated"),
        ([text(0, "x")], "nothing is open"),
        ([start(0, "text"), thought(0, "x")], "where text is open"),
        ([start(0, "text"), finish("stop")], "are open"),
        ([finish("stop"), start(0, "text")], "after finish"),
        ([{"type": "usage", "usage": {}}, {"type": "usage", "usage": {}}], "more than one usage"),
    ],
)
def test_the_grammar_names_each_breach(chunks: list[Any], wrong: str) -> None:
    grammar = StreamGrammar()
    assert wrong in [result for chunk in chunks if (result := grammar.check(chunk))][0]


def test_the_grammar_wants_a_finish_but_no_closed_blocks_in_a_failure() -> None:
    grammar = StreamGrammar()
    assert "without finish" in (grammar.end() or "")
    assert grammar.check(start(0, "text")) is None
    assert grammar.check({"type": "finish", "reason": {"kind": "error", "failure": {}}}) is None
