"""Stored logs: round trips of any events in every encoding, and damaged, old or foreign bytes that are refused or
understood, never half; what is understood can be repaired, resumed and written again equal."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson
from hypothesis import given
from hypothesis import strategies as st

from dsh.cordis.jsonio import NotJsonError, encode, snapshot_json
from dsh.core.packed_rows import MalformedRowError, pack, unpack
from dsh.core.repair import interrupted_turn_closers
from dsh.core.session_event import InvalidEnvelopeError, SessionEvent
from dsh.sessions.errors import SessionFormatUnsupportedError, SessionPersistenceCorruptionError
from dsh.sessions.frames import FrameCodec
from dsh.sessions.jsonl_codec import DecodedLog, decode_raw, decode_zstd, encode_batch
from dsh.sessions.loading import repaired, to_session
from dsh.sessions.log_file import StoredLog
from tests.fuzz.kit import EDITS, JSON, fuzz, mutated
from tests.sessions.helpers import LogBuilder, header, log_of, raw_bytes, zstd_bytes

REFUSALS = (SessionPersistenceCorruptionError, SessionFormatUnsupportedError)

CHUNK = st.one_of(
    st.fixed_dictionaries(
        {
            "type": st.sampled_from(["text-delta", "reasoning-delta"]),
            "index": st.integers(0, 1),
            "text": st.text(max_size=3),
        }
    ),
    st.fixed_dictionaries(
        {
            "type": st.just("tool-call-delta"),
            "index": st.integers(0, 1),
            "id": st.sampled_from(["", "c"]),
            "argumentsDelta": st.text(max_size=3),
        },
        optional={"name": st.sampled_from(["t", "u"])},
    ),
    st.fixed_dictionaries({"type": st.just("usage"), "usage": st.just({})}),
)
EVENT = st.one_of(
    st.tuples(
        st.just("assistant/chunk"),
        st.fixed_dictionaries({"turn": st.just(1), "step": st.integers(1, 2), "chunk": CHUNK}),
    ),
    st.tuples(st.just("assistant/chunk"), JSON),
    st.tuples(st.sampled_from(["turn/start", "x/y", "text-chunks-like", "日本"]), JSON),
)


@st.composite
def logs(draw: st.DrawFn) -> list[SessionEvent]:
    """Numbered events of any kind, most of them in runs that can be packed."""
    events: list[SessionEvent] = []
    now = draw(st.integers(-(2**53) + 1, 2**53 - 1))
    for type_, data in draw(st.lists(EVENT, max_size=12)):
        for _ in range(draw(st.sampled_from([1, 1, 3, 5]))):
            now = max(-(2**53) + 1, min(2**53 - 1, now + draw(st.sampled_from([0, 1, 50, -3, 2**40]))))
            extra: dict[str, Any] = draw(
                st.sampled_from(
                    [{}, {}, {}, {"ignorable": True}, {"source_event_seqs": ()}, {"source_event_seqs": (0,)}]
                )
            )
            if type_ == "assistant/chunk":
                extra = {key: value for key, value in extra.items() if key == "ignorable"}
            events.append(SessionEvent(type_, len(events), now, snapshot_json(data), **extra))
    return events


def wire(events: Sequence[SessionEvent]) -> list[Any]:
    return [event.to_wire() for event in events]


@fuzz(300)
@given(logs())
def test_packing_and_unpacking_is_the_identity(events: list[SessionEvent]) -> None:
    rows = [snapshot_json(row) for row in pack(events)]
    back = [event for row in rows for event in unpack(orjson.loads(encode(row)))]
    assert wire(back) == wire(events)
    assert len(rows) <= len(events)


@fuzz(200)
@given(logs(), st.lists(st.integers(0, 60), max_size=4), st.booleans())
def test_every_encoding_and_every_batching_reads_back_equal(
    events: list[SessionEvent], cuts: list[int], packed: bool
) -> None:
    places = sorted({min(cut, len(events)) for cut in cuts})
    batches = [events[start:end] for start, end in zip([0, *places], [*places, len(events)], strict=True)]
    batches = [batch for batch in batches if batch]
    head = header("s")
    raw = raw_bytes(head, *batches)
    log = decode_raw(raw, "s")
    assert (wire(log.events), log.keep, log.rewrite) == (wire(events), len(raw), len(events))
    framed = zstd_bytes(head, *batches)
    log = decode_zstd(framed, FrameCodec(), "s")
    assert (wire(log.events), log.keep, log.rewrite) == (wire(events), len(framed), len(events))
    plain = raw_bytes(head) + b"".join(encode_batch(batch, pack_chunks=packed) for batch in batches)
    assert wire(decode_raw(plain, "s").events) == wire(events)


def understood(decode: Any, data: bytes) -> DecodedLog | None:
    try:
        log: DecodedLog = decode(data)
    except REFUSALS as error:
        assert str(error)
        return None
    assert 0 < log.keep <= len(data) and 0 <= log.rewrite <= len(log.events)
    assert [event.seq for event in log.events] == list(range(len(log.events)))
    return log


SESSION = log_of(1, 2, 3)
RAW = raw_bytes(header("s"), SESSION[:9], SESSION[9:20], SESSION[20:])
ZSTD = zstd_bytes(header("s"), SESSION[:9], SESSION[9:20], SESSION[20:])


def as_raw(data: bytes) -> DecodedLog:
    return decode_raw(data, "s", "/x/session.jsonl")


def as_zstd(data: bytes) -> DecodedLog:
    return decode_zstd(data, FrameCodec(), "s", "/x/session.jsonl.zstd")


@fuzz(400)
@given(EDITS)
def test_damaged_bytes_are_refused_or_understood_and_then_written_again_equal(edits: Any) -> None:
    for decode, data in ((as_raw, mutated(RAW, edits)), (as_zstd, mutated(ZSTD, edits))):
        log = understood(decode, data)
        if log is None:
            continue
        again = as_raw(raw_bytes(log.header, log.events))
        assert (again.header, wire(again.events)) == (log.header, wire(log.events))
        # what is kept of the file reads as the events before `rewrite`
        kept = understood(decode, data[: log.keep])
        assert kept is not None and wire(kept.events) == wire(log.events[: log.rewrite])


@fuzz(300)
@given(st.floats(0, 1))
def test_a_log_cut_anywhere_is_a_beginning_of_itself(cut: float) -> None:
    for decode, data in ((as_raw, RAW), (as_zstd, ZSTD)):
        log = understood(decode, data[: round(cut * len(data))])
        if log is not None:
            assert wire(log.events) == wire(SESSION[: len(log.events)])


@fuzz(100)
@given(st.binary(max_size=200), st.sampled_from([b"", RAW[: RAW.index(b"\n") + 1], ZSTD[:40]]))
def test_any_bytes_are_refused_or_understood(data: bytes, head: bytes) -> None:
    understood(as_raw, head + data)
    understood(as_zstd, head + data)


TYPES = [
    "turn/start",
    "turn/end",
    "step/start",
    "step/end",
    "user/message",
    "assistant/message",
    "assistant/chunk",
    "tool/call",
    "tool/result",
    "request/header",
    "request/context",
    "steering/message",
    "agent/inbox/spliced",
    "session/working-directory",
    "x/y",
]
TEXT_BLOCK = {"type": "text", "text": "x"}
CALL_BLOCK = {"type": "tool-call", "id": "c", "name": "t", "arguments": "{}"}
RESULT_BLOCK = {"type": "tool-result", "toolCallId": "c", "isError": False, "content": [TEXT_BLOCK]}
BLOCK = st.sampled_from([TEXT_BLOCK, CALL_BLOCK, RESULT_BLOCK, {"type": "odd"}, {}]) | JSON
MESSAGE = st.fixed_dictionaries(
    {},
    optional={
        "id": st.sampled_from(["m1", "m2"]) | JSON,
        "role": st.sampled_from(["user", "assistant"]) | JSON,
        "content": st.lists(BLOCK, max_size=3) | JSON,
        "source": st.sampled_from(
            [{"kind": "user"}, {"kind": "tool", "callId": "c"}, {"kind": "model", "provider": "p", "model": "m"}]
        )
        | JSON,
    },
)
NUMBER = st.integers(0, 2) | JSON
DATA = (
    st.fixed_dictionaries(
        {},
        optional={
            "turn": NUMBER,
            "step": NUMBER,
            "message": MESSAGE,
            "callId": st.just("c") | JSON,
            "name": st.just("t"),
            "arguments": st.just("{}"),
            "reason": st.sampled_from([{"kind": "completed"}, {"kind": "error", "error": {}}, {}]) | JSON,
            "content": st.lists(BLOCK, max_size=2) | JSON,
            "isError": st.booleans() | JSON,
            "provenance": JSON,
            "chunk": CHUNK | JSON,
            "header": JSON,
            "trigger": JSON,
            "steering": JSON,
            "id": JSON,
            "role": st.just("user"),
            "source": JSON,
        },
    )
    | MESSAGE
    | JSON
)
OP = (
    st.none()
    | st.just("append")
    | st.fixed_dictionaries({"replace": st.tuples(st.integers(0, 9), st.integers(0, 9))})
    | JSON
)


@st.composite
def foreign_rows(draw: st.DrawFn) -> list[Any]:
    """Rows as an older, newer or broken writer may have left them, each with the right number."""
    rows = []
    for seq in range(draw(st.integers(0, 8))):
        row: dict[str, Any] = {"type": draw(st.sampled_from(TYPES)), "seq": seq, "time": seq, "data": draw(DATA)}
        op = draw(OP)
        if op is not None:
            row["surfaceOp"] = op
        if draw(st.booleans()):
            row["sourceEventSeqs"] = draw(st.lists(st.integers(0, 8), max_size=2) | JSON)
        if draw(st.integers(0, 9)) == 0:
            row[draw(st.sampled_from(["ignorable", "extra"]))] = draw(JSON)
        rows.append(row)
    return rows


@fuzz(500)
@given(foreign_rows())
def test_foreign_rows_are_refused_or_become_a_session_that_can_go_on(rows: list[Any]) -> None:
    data = raw_bytes(header("s")) + b"".join(encode(row) + b"\n" for row in rows)
    log = understood(as_raw, data)
    if log is None:
        return
    stored = StoredLog(log.header, log.events, log.keep, log.rewrite, len(data), "/x/session.jsonl", "r")
    try:
        events, closers = repaired(stored, ())
        session, _ = to_session(stored, ())
    except REFUSALS as error:
        assert str(error)
        return
    session.derive_messages()
    session.request_header()
    session.request_context()
    assert interrupted_turn_closers([*events, *closers]) == []
    assert wire(session.events[: len(events)]) == wire(events)
    again = as_raw(raw_bytes(log.header, list(session.events)))
    assert wire(again.events)[: len(events)] == wire(events)


@fuzz(200)
@given(
    JSON
    | st.fixed_dictionaries(
        {"type": st.sampled_from(["text-chunks", "reasoning-chunks", "tool-call-chunks"])},
        optional={
            "seq0": NUMBER,
            "time0": NUMBER,
            "data": st.fixed_dictionaries(
                {},
                optional={
                    "turn": NUMBER,
                    "step": NUMBER,
                    "index": NUMBER,
                    "dt": st.lists(NUMBER, max_size=2) | JSON,
                    "id": JSON,
                    "name": JSON,
                    "texts": st.lists(st.text(max_size=2) | JSON, max_size=3) | JSON,
                    "args": st.lists(st.text(max_size=2), max_size=3),
                },
            )
            | JSON,
        },
    )
)
def test_any_row_is_events_or_a_named_fault(row: Any) -> None:
    try:
        events = unpack(row)
    except (MalformedRowError, InvalidEnvelopeError, NotJsonError) as error:
        assert str(error)
        return
    assert wire([event for again in pack(events) for event in unpack(again)]) == wire(events)


@fuzz(150)
@given(st.integers(0, 2**32), st.integers(0, 12))
def test_repair_closes_any_interrupted_turn_and_then_rests(seed: int, length: int) -> None:
    """A log that follows the rules and stops anywhere: after the closers each call has one result and all is closed."""
    chance = random.Random(seed)
    builder = LogBuilder()
    turn = 1
    builder.add("turn/start", {"turn": turn})
    builder.prompt("go")
    for step in range(1, 1 + chance.randrange(3)):
        builder.add("step/start", {"turn": turn, "step": step})
        ids = [f"c{step}-{number}" for number in range(chance.randrange(4))]
        content = [{"type": "tool-call", "id": id_, "name": "t", "arguments": "{}"} for id_ in ids]
        source = {"kind": "model", "provider": "p", "model": "m"}
        message = {"id": f"a{step}", "role": "assistant", "content": content, "source": source}
        builder.add(
            "assistant/message",
            {"turn": turn, "step": step, "message": message},
            surface_op="append",
            source_event_seqs=(),
        )
        for id_ in ids:
            call = builder.add("tool/call", {"turn": turn, "step": step, "callId": id_, "name": "t", "arguments": "{}"})
            block = {"type": "tool-result", "toolCallId": id_, "isError": False, "content": [TEXT_BLOCK]}
            result = {"id": f"r{id_}", "role": "user", "content": [block], "source": {"kind": "tool", "callId": id_}}
            data = {"turn": turn, "step": step, "message": result}
            builder.add("tool/result", data, surface_op="append", source_event_seqs=(call.seq,))
        builder.add("step/end", {"turn": turn, "step": step})
    cut = builder.events[: len(builder.events) - min(length, len(builder.events) - 1)]
    closed = [*cut, *interrupted_turn_closers(cut)]
    assert interrupted_turn_closers(closed) == [] and closed[-1].type == "turn/end"
    asked = [
        block["id"]
        for event in closed
        if event.type == "assistant/message"
        for block in event.data["message"]["content"]
    ]
    answered = [event.data["message"]["source"]["callId"] for event in closed if event.type == "tool/result"]
    assert sorted(answered) == sorted(asked)
    stored = StoredLog(header("s"), closed, 1, len(closed), 1, str(Path("/x/session.jsonl")), "r")
    session, closers = to_session(stored, ())
    ends = [event.data["reason"] for event in session.events if event.type == "turn/end"]
    assert closers == [] and ends == [{"kind": "interrupted"}]
