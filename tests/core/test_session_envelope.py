"""Envelope, JSON rules, freezing, the events view."""

from __future__ import annotations

import datetime
import enum
import math
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from dsh.cordis.jsonio import decode, encode, json_equal
from dsh.core.session import Session
from dsh.core.session_event import InvalidEnvelopeError, SessionError, SessionEvent
from tests.core.session_helpers import user, wire


def deep(levels: int) -> Any:
    value: Any = []
    for _ in range(levels):
        value = [value]
    return value


def deepest(value: Any) -> Any:
    while value:
        value = value[0]
    return value


def test_b01_sequence_numbers_equal_the_length_before() -> None:
    session = Session("s")
    for expected in range(3):
        assert session.seq == expected == len(session)
        assert session.append("todo/write", {"todos": []}).seq == expected
    assert [event.seq for event in session.events] == [0, 1, 2]


class Unserialisable:
    def __repr__(self) -> str:
        return "Unserialisable()"


cyclic: dict[str, Any] = {}
cyclic["self"] = [cyclic]


@pytest.mark.parametrize(
    "value",
    [
        math.nan,
        math.inf,
        -0.0,
        b"x",
        {1},
        Unserialisable(),
        {1: 2},
        cyclic,
        datetime.date(2026, 1, 1),
        2**53 + 1,
    ],
    ids=repr,
)
def test_b02_data_that_json_cannot_hold_is_refused(value: Any) -> None:
    session = Session("s")
    session.append("x", {})
    before = list(session.events)
    with pytest.raises(SessionError, match='^session event "my/type" carries non-JSON-serializable data'):
        session.append("my/type", {"value": value})
    assert list(session.events) == before
    assert session.append("x", {}).seq == 1


def test_b02_surface_metadata_that_json_cannot_hold_is_refused() -> None:
    session = Session("s")
    for metadata in ({"surface_op": {"op": b"x"}}, {"surface_op": "append", "source_event_seqs": [math.nan]}):
        with pytest.raises(
            SessionError, match='^session event "user/message" carries non-JSON-serializable surface metadata$'
        ):
            session.append("user/message", user(), **metadata)
    assert session.seq == 0


def test_b03_the_event_is_detached_and_frozen() -> None:
    session = Session("s")
    data: dict[str, Any] = {"todos": [{"content": "a"}]}
    event = session.append("todo/write", data)
    data["todos"][0]["content"] = "changed"
    data["more"] = 1
    assert event.data == {"todos": [{"content": "a"}]}
    for change in (
        lambda: event.data.update(x=1),
        lambda: event.data.__setitem__("x", 1),
        lambda: event.data["todos"].append(1),
        lambda: event.data["todos"][0].pop("content"),
    ):
        with pytest.raises(TypeError):
            change()
    assert event.data == {"todos": [{"content": "a"}]}


def test_b03_frozen_data_is_shared_not_copied() -> None:
    first = Session("a").append("x", {"list": [1, 2]})
    assert Session("b").append("x", first.data).data is first.data


def test_b04_a_value_used_twice_without_a_cycle_is_stored_twice() -> None:
    shared = {"k": [1]}
    event = Session("s").append("x", {"a": shared, "b": shared})
    assert event.data == {"a": {"k": [1]}, "b": {"k": [1]}}


class Counting(dict[str, Any]):
    """Counts how often each item is read, and fails on one of them."""

    reads: list[str]

    def items(self) -> Any:
        self.reads = []

        def each() -> Iterator[tuple[str, Any]]:
            for key in self:
                self.reads.append(key)
                if key == "bad":
                    raise RuntimeError("item access failed")
                yield key, self[key]

        return each()


def test_b05_what_the_data_itself_raises_passes_through() -> None:
    session = Session("s")
    value = Counting({"a": 1, "bad": 2, "c": 3})
    with pytest.raises(RuntimeError, match="item access failed"):
        session.append("x", {"inner": value})
    assert value.reads == ["a", "bad"]
    assert session.seq == 0


def test_b05_each_item_is_read_once() -> None:
    value = Counting({"a": 1, "b": [2]})
    assert Session("s").append("x", value).data == {"a": 1, "b": [2]}
    assert value.reads == ["a", "b"]


def test_b06_depth_has_no_limit() -> None:
    event = Session("s").append("x", deep(5_000))
    assert json_equal(event.data, deep(5_000))
    with pytest.raises(TypeError):
        deepest(event.data).append(1)

    raw = wire("x", 0, deep(20_000))
    restored = Session("r", seed=[raw], seed_source="persistence").events[0]
    text = encode(restored.to_wire())
    assert text.count(b"[") == 20_001
    again = decode(text)
    assert json_equal(again, wire("x", 0, deep(20_000)))
    assert Session("r2", seed=[again], seed_source="persistence").events[0] == restored
    assert Session("r3", seed=[again]).events[0] == restored
    with pytest.raises(TypeError):
        deepest(restored.data).append(1)


@pytest.mark.parametrize("field", ["seq", "time"])
def test_b07_booleans_are_no_integers(field: str) -> None:
    with pytest.raises(SessionError, match="^seed event at index 0 has an invalid event envelope$"):
        Session("s", seed=[{**wire("x", 0, {}), field: True}])
    event = SessionEvent("x", 0, 0, {})
    setattr(event, field, False)
    with pytest.raises(SessionError, match="^seed event at index 0 has an invalid event envelope$"):
        Session("s", seed=[event])


def test_b07_a_boolean_bound_is_no_integer() -> None:
    session = Session("s")
    session.append("user/message", user(), "append")
    session.append("user/message", user(), "append")
    with pytest.raises(SessionError, match="carries an invalid replace surfaceOp"):
        session.append("user/message", user(), {"op": "replace", "start": False, "end": True}, [0, 1])


@pytest.mark.parametrize(
    "change",
    [
        {"extra": 1},
        {"ignorable": False},
        {"ignorable": "yes"},
        {"time": 1.5},
        {"time": "now"},
        {"seq": -1},
        {"type": 3},
        {"data": ...},
        {"surfaceOp": None},
        {"sourceEventSeqs": 3},
    ],
    ids=repr,
)
def test_b08_a_malformed_envelope_is_refused(change: Mapping[str, Any]) -> None:
    raw = {key: value for key, value in {**wire("x", 0, {}), **change}.items() if value is not ...}
    for source in ("create", "persistence"):
        with pytest.raises(SessionError, match="^seed event at index 0 has an invalid event envelope$"):
            Session("s", seed=[dict(raw)], seed_source=source)
    with pytest.raises(InvalidEnvelopeError):
        SessionEvent.from_wire(raw)


def test_b08_an_ignorable_event_is_accepted_and_kept() -> None:
    session = Session("s", seed=[wire("future/type", 0, {"a": 1}, ignorable=True)])
    assert session.events[0].ignorable
    assert session.events[0].to_wire()["ignorable"] is True
    assert session.append("other/type", {}, ignorable=True).to_wire()["ignorable"] is True
    assert "ignorable" not in session.append("other/type", {}).to_wire()


def test_b08_data_need_not_be_an_object() -> None:
    session = Session("s", seed=[wire("x", 0, None), wire("x", 1, [1])])
    assert [event.data for event in session.events][:2] == [None, [1]]


def test_b08_not_json_is_told_apart_from_a_bad_envelope() -> None:
    with pytest.raises(SessionError, match="^seed event at index 1 is not losslessly JSON-serializable$"):
        Session("s", seed=[wire("x", 0, {}), wire("x", 1, {"a": math.nan})])


def test_b09_the_events_view_never_grows() -> None:
    session = Session("s")
    session.append("a", {})
    before = session.events
    assert session.events is before
    session.append("b", {})
    assert len(before) == 1
    assert [event.type for event in before] == ["a"]
    with pytest.raises(IndexError):
        before[1]
    after = session.events
    assert len(after) == 2
    assert after is not before
    assert after[-1].type == "b"


def test_b09_the_view_indexes_and_slices_like_a_list() -> None:
    session = Session("s")
    for number in range(5):
        session.append("x", {"n": number})
    view, expected = session.events, list(session.events)
    session.append("late", {})
    for cut in (slice(None), slice(1, 3), slice(-2, None), slice(None, None, -1), slice(4, 0, -2), slice(0, 99)):
        assert view[cut] == expected[cut]
    assert view[-5] is expected[0]
    assert list(reversed(view)) == expected[::-1]
    with pytest.raises(IndexError):
        view[-6]


class Colour(enum.StrEnum):
    RED = "red"


def test_b02_values_are_stored_in_their_plain_kind() -> None:
    event = Session("s").append("x", {"colour": Colour.RED, "tuple": (1, 2), "whole": 3.0, "__proto__": 1})
    assert type(event.data["colour"]) is str
    assert event.data == {"colour": "red", "tuple": [1, 2], "whole": 3, "__proto__": 1}
    assert type(event.data["whole"]) is int
    assert list(event.data) == ["colour", "tuple", "whole", "__proto__"]


def test_b08_wire_form_round_trips_in_storage_key_order() -> None:
    event = SessionEvent("assistant/message", 3, 9, {"b": 1, "a": 2}, "append", (), True)
    record = event.to_wire()
    assert list(record) == ["type", "seq", "time", "data", "sourceEventSeqs", "surfaceOp", "ignorable"]
    assert SessionEvent.from_wire(decode(encode(record))) == event
    lone = SessionEvent("x", 0, 0, {"text": "\ud83d"})
    assert SessionEvent.from_wire(decode(encode(lone.to_wire()))) == lone
