"""Storage rows for runs of stream deltas."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsh.cordis.jsonio import FrozenDict, decode, encode, freeze_json, json_equal
from dsh.core.packed_rows import MalformedRowError, is_packed, pack, unpack
from dsh.core.session_event import InvalidEnvelopeError, SessionEvent


def delta(seq: int, value: str = "x", time: int | None = None, turn: int = 1, step: int = 1, **chunk: Any) -> Any:
    body = {"type": "text-delta", "index": 0, "text": value, **chunk}
    return event(seq, {"turn": turn, "step": step, "chunk": body}, time)


def call_delta(seq: int, value: str = "x", id: str = "c", turn: int = 1, step: int = 1, **chunk: Any) -> Any:
    body = {"type": "tool-call-delta", "index": 0, "id": id, **chunk, "argumentsDelta": value}
    return event(seq, {"turn": turn, "step": step, "chunk": body}, None)


def event(seq: int, data: Any, time: int | None = None, **envelope: Any) -> SessionEvent:
    return SessionEvent(
        "assistant/chunk", seq, 1000 + 10 * seq if time is None else time, freeze_json(data), **envelope
    )


def round_trip(events: list[SessionEvent]) -> list[SessionEvent]:
    return [item for row in pack(events) for item in unpack(decode(encode(row)))]


def layout(events: list[SessionEvent]) -> list[str]:
    assert round_trip(events) == events
    return [row["type"] for row in pack(events)]


def test_b66_three_deltas_become_one_row() -> None:
    events = [delta(4, "a", 1000), delta(5, "b", 1003), delta(6, "", 1001)]
    (row,) = pack(events)
    assert row == {
        "type": "text-chunks",
        "seq0": 4,
        "time0": 1000,
        "data": {"turn": 1, "step": 1, "index": 0, "dt": [3, -2], "texts": ["a", "b", ""]},
    }
    assert list(row["data"]) == ["turn", "step", "index", "dt", "texts"]
    assert is_packed(row)
    unpacked = unpack(decode(encode(row)))
    assert unpacked == events
    for item in unpacked:
        assert type(item.data) is FrozenDict
        with pytest.raises(TypeError):
            item.data["chunk"]["text"] = "changed"


def test_b66_reasoning_and_tool_calls_have_rows_of_their_own() -> None:
    reasoning = [delta(n, "r", type="reasoning-delta") for n in range(3)]
    named = [call_delta(n, "a", name="bash") for n in range(3, 6)]
    nameless = [call_delta(n, "b") for n in range(6, 9)]
    assert layout(reasoning + named + nameless) == ["reasoning-chunks", "tool-call-chunks", "tool-call-chunks"]
    rows = pack(reasoning + named + nameless)
    assert list(rows[1]["data"]) == ["turn", "step", "index", "dt", "id", "name", "args"]
    assert rows[1]["data"]["args"] == ["a", "a", "a"]
    assert list(rows[2]["data"]) == ["turn", "step", "index", "dt", "id", "args"]


def test_b66_two_deltas_stay_verbatim() -> None:
    events = [delta(0), delta(1)]
    assert pack(events) == [item.to_wire() for item in events]
    assert layout(events) == ["assistant/chunk"] * 2


@pytest.mark.parametrize(
    "breaker",
    [
        delta(3, extra=1),
        delta(4),
        delta(3, index=1),
        delta(3, turn=2),
        delta(3, step=2),
        delta(3, type="reasoning-delta"),
        delta(3, text=5),
        call_delta(3),
        event(3, {"turn": 1, "step": 1, "chunk": {"type": "text-delta", "index": 0}}),
        event(3, {"turn": 1, "step": 1, "more": 1, "chunk": {"type": "text-delta", "index": 0, "text": "x"}}),
        event(3, {"turn": True, "step": 1, "chunk": {"type": "text-delta", "index": 0, "text": "x"}}),
        event(3, {"turn": 1, "step": 1, "chunk": {"type": "finish", "reason": {"kind": "stop"}}}),
        event(3, {"turn": 1, "step": 1, "chunk": {"type": "text-delta", "index": 0, "text": "x"}}, ignorable=True),
        event(3, {"turn": 1, "step": 1, "chunk": "x"}),
        event(3, [1]),
        delta(3, time=2**53 - 1),
        SessionEvent("turn/end", 3, 0, FrozenDict(turn=1)),
    ],
    ids=lambda item: str(item.to_wire()["data"]),
)
def test_b66_anything_off_the_run_breaks_it(breaker: SessionEvent) -> None:
    before = [delta(n) for n in range(3)]
    if breaker.seq == 3 and breaker.time == 2**53 - 1:
        before = [delta(n, time=-10) for n in range(3)]
    assert layout([*before, breaker]) == ["text-chunks", breaker.type]
    after = [delta(breaker.seq + 1 + n, index=7) for n in range(3)]
    assert layout([*before, breaker, *after]) == ["text-chunks", breaker.type, "text-chunks"]


def test_b66_presence_and_value_of_a_call_name_break_a_run() -> None:
    for change in ({"name": "bash"}, {"name": None}, {"id": "other"}):
        events = [call_delta(0), call_delta(1), call_delta(2), call_delta(3, **change)]
        assert layout(events) == ["tool-call-chunks", "assistant/chunk"]
    events = [call_delta(n, name="a") for n in range(3)] + [call_delta(n, name="b") for n in range(3, 6)]
    assert layout(events) == ["tool-call-chunks"] * 2


values = st.text(alphabet=st.characters(), max_size=3)
times = st.integers(-(2**53), 2**53)
chunks = st.one_of(
    st.fixed_dictionaries(
        {"type": st.sampled_from(["text-delta", "reasoning-delta"]), "index": st.integers(0, 1), "text": values},
        optional={"extra": st.just(1)},
    ),
    st.fixed_dictionaries(
        {
            "type": st.just("tool-call-delta"),
            "index": st.just(0),
            "id": st.sampled_from("ab"),
            "argumentsDelta": values,
        },
        optional={"name": st.sampled_from(["n", None])},
    ),
)


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(1, 6), st.integers(1, 2), chunks, st.integers(-5, 50)), max_size=8), st.data())
def test_b66_unpacking_what_was_packed_is_the_identity(runs: list[tuple[int, int, Any, int]], data: Any) -> None:
    events: list[SessionEvent] = []
    time = data.draw(times)
    for length, turn, body, gap in runs:
        for _ in range(length):
            time += gap
            seq = len(events) + (1 if len(events) > 7 else 0)
            events.append(event(seq, {"turn": turn, "step": 1, "chunk": body}, time))
    if any(abs(item.time) >= 2**53 for item in events):
        return
    assert round_trip(events) == events
    rows = pack(events)
    assert pack([item for row in rows for item in unpack(row)]) == rows
    packable = [row for row in rows if is_packed(row)]
    assert all(len(row["data"].get("texts", row["data"].get("args"))) >= 3 for row in packable)


ROW = {
    "type": "text-chunks",
    "seq0": 1,
    "time0": 5,
    "data": {"turn": 1, "step": 1, "index": 0, "dt": [1, 2], "texts": ["a", "b", "c"]},
}
CALL_ROW = {
    "type": "tool-call-chunks",
    "seq0": 1,
    "time0": 5,
    "data": {"turn": 1, "step": 1, "index": 0, "dt": [1], "id": "c", "name": "n", "args": ["a", "b"]},
}


@pytest.mark.parametrize(
    ("row", "change"),
    [
        (ROW, {"dt": [1]}),
        (ROW, {"dt": [1, 2, 3]}),
        (ROW, {"dt": [1, 2**53]}),
        (ROW, {"dt": [1, 1.5]}),
        (ROW, {"dt": [1, True]}),
        (ROW, {"dt": "12"}),
        (ROW, {"texts": []}),
        (ROW, {"texts": ["a", "b", 3]}),
        (ROW, {"texts": ...}),
        (ROW, {"turn": -1}),
        (ROW, {"turn": 2**53}),
        (ROW, {"step": True}),
        (ROW, {"index": "0"}),
        (ROW, {"extra": 1}),
        (CALL_ROW, {"id": ...}),
        (CALL_ROW, {"id": 3}),
        (CALL_ROW, {"name": None}),
        (CALL_ROW, {"texts": ["a", "b"]}),
    ],
    ids=lambda value: repr(value) if "seq0" not in value else "",
)
def test_b67_malformed_row_data_is_refused(row: dict[str, Any], change: dict[str, Any]) -> None:
    data = {key: value for key, value in {**row["data"], **change}.items() if value is not ...}
    with pytest.raises(MalformedRowError, match=f"^malformed {row['type']} storage row: "):
        unpack({**row, "data": data})


@pytest.mark.parametrize(
    "change",
    [
        {"seq0": -1},
        {"seq0": 2**53 - 2},
        {"seq0": True},
        {"time0": 1.5},
        {"time0": 2**53 - 1},
        {"time0": ...},
        {"data": []},
        {"seq": 1},
    ],
    ids=repr,
)
def test_b67_a_malformed_row_envelope_is_refused(change: dict[str, Any]) -> None:
    row = {key: value for key, value in {**ROW, **change}.items() if value is not ...}
    with pytest.raises(MalformedRowError, match="^malformed text-chunks storage row: "):
        unpack(row)


def test_b67_readers_accept_any_layout() -> None:
    (single,) = unpack({**ROW, "data": {**ROW["data"], "dt": [], "texts": ["a"]}})
    assert json_equal(single.to_wire(), delta(1, "a", 5).to_wire())


def test_b67_other_rows_are_ordinary_events() -> None:
    record = {"type": "x", "seq": 0, "time": 0, "data": {"texts": 3}}
    assert [item.to_wire() for item in unpack(dict(record))] == [record]
    for bad in ({"type": "x"}, 3, None, []):
        with pytest.raises(InvalidEnvelopeError):
            unpack(bad)
