"""The model-visible list: markers, replacements, provenance, result rewrites."""

from __future__ import annotations

from typing import Any

import pytest

from dsh.core.session import Session
from dsh.core.session_event import SURFACE_TYPES, SessionError, SessionEvent
from dsh.core.surface import (
    SurfaceError,
    fold_surface,
    is_append_origin,
    is_replacement,
    is_surface_eligible,
    is_surface_event,
)
from tests.core.session_helpers import assistant, replace, result, say, text, user, wire


def three_nodes() -> Session:
    session = Session("s")
    say(session, "one", "two", "three")
    return session


def state(session: Session) -> tuple[Any, ...]:
    return session.seq, session.surface.nodes, session.surface.replace_generation, session.derive_messages()


def refused(session: Session, message: str, *args: Any) -> None:
    """The append fails with exactly this text and changes nothing."""
    before = state(session)
    with pytest.raises(SurfaceError) as caught:
        session.append(*args)
    assert str(caught.value) == message
    assert state(session) == before


@pytest.mark.parametrize("type_", sorted(SURFACE_TYPES))
def test_b10_surface_types_need_a_marker(type_: str) -> None:
    refused(Session("s"), f'session event "{type_}" is surface-eligible and requires a surfaceOp marker', type_, user())


def test_b10_other_types_carry_no_surface_metadata() -> None:
    session = three_nodes()
    start = 'session event "turn/start" is not surface-eligible and cannot carry '
    refused(session, start + "surfaceOp", "turn/start", {"turn": 1}, "append")
    refused(session, start + "surfaceOp", "turn/start", {"turn": 1}, replace(0, 0), [0])
    refused(session, start + "sourceEventSeqs", "turn/start", {"turn": 1}, None, [0])
    refused(session, start + "sourceEventSeqs", "turn/start", {"turn": 1}, None, [])


@pytest.mark.parametrize(
    "op",
    [
        {"op": "replace", "start": 0, "end": 1, "extra": 1},
        {"op": "replace", "end": 1},
        {"op": "replace", "start": 0},
        {"op": "replace", "start": False, "end": True},
        {"op": "replace", "start": 0, "end": 1.5},
        {"op": "replace", "start": -1, "end": 1},
        {"op": "replace", "start": "0", "end": 1},
    ],
    ids=repr,
)
def test_b11_a_replace_marker_has_exactly_its_keys(op: Any) -> None:
    refused(
        three_nodes(),
        'session event "user/message" carries an invalid replace surfaceOp',
        "user/message",
        user(),
        op,
        [0, 1],
    )


@pytest.mark.parametrize("op", ["prepend", {"op": "insert"}, {}, 3, ["append"]], ids=repr)
def test_b11_other_markers_are_invalid(op: Any) -> None:
    refused(three_nodes(), 'session event "user/message" carries an invalid surfaceOp', "user/message", user(), op, [0])


def test_b12_a_replacement_takes_the_place_of_its_run() -> None:
    session = three_nodes()
    summary = session.append("user/message", user("summary", "sum"), replace(0, 1), [0, 1])
    assert session.surface.nodes == (summary.seq, 2)
    assert session.surface.replace_generation == 1
    assert [message["content"] for message in session.derive_messages()] == [[text("summary")], [text("three")]]
    assert [event.seq for event in session.events] == [0, 1, 2, 3]


def test_b12_replacing_in_the_middle_and_at_the_tail() -> None:
    session = three_nodes()
    session.append("user/message", user("mid"), replace(1, 1), [1])
    assert session.surface.nodes == (0, 3, 2)
    session.append("user/message", user("tail"), replace(3, 2), [2, 3, 0])
    assert session.surface.nodes == (0, 4)
    assert session.surface.replace_generation == 2


def test_b13_every_shadowed_node_must_be_cited() -> None:
    session = three_nodes()
    text_ = "surface replace: sourceEventSeqs must include every shadowed surface node; missing "
    refused(session, text_ + "1", "user/message", user(), replace(0, 1), [0])
    refused(session, text_ + "0, 2", "user/message", user(), replace(0, 2), [1])
    refused(session, text_ + "0", "user/message", user(), replace(0, 0))


def test_b14_bounds_must_be_current_nodes_in_order() -> None:
    session = three_nodes()
    refused(session, "surface replace: start seq 7 not found in surface", "user/message", user(), replace(7, 1), [1])
    refused(session, "surface replace: end seq 9 not found in surface", "user/message", user(), replace(0, 9), [1])
    refused(
        session,
        "surface replace: start seq 2 (index 2) is after end seq 0 (index 0)",
        "user/message",
        user(),
        replace(2, 0),
        [0, 1, 2],
    )
    session.append("user/message", user(), replace(0, 1), [0, 1])
    refused(session, "surface replace: start seq 0 not found in surface", "user/message", user(), replace(0, 2), [0])


@pytest.mark.parametrize(
    ("sources", "message"),
    [
        ([0, 0], "sourceEventSeqs must not contain duplicates"),
        ([0, 8], "sourceEventSeqs must reference earlier events: 8 >= current seq 3"),
        ([3], "sourceEventSeqs must reference earlier events: 3 >= current seq 3"),
        ([-1], "sourceEventSeqs must contain only non-negative integers"),
        ([True], "sourceEventSeqs must contain only non-negative integers"),
        (["0"], "sourceEventSeqs must contain only non-negative integers"),
    ],
    ids=repr,
)
def test_b15_sources_are_distinct_earlier_events(sources: list[Any], message: str) -> None:
    refused(three_nodes(), message, "user/message", user(), "append", sources)


def test_b16_only_an_assistant_message_may_cite_nothing() -> None:
    session = three_nodes()
    message = "sourceEventSeqs must not be empty except on assistant/message"
    refused(session, message, "user/message", user(), "append", [])
    refused(session, message, "tool/result", result("c"), "append", [])
    event = session.append("assistant/message", assistant(text("x")), "append", [])
    assert event.source_event_seqs == ()
    assert event.to_wire()["sourceEventSeqs"] == []
    unrecorded = session.append("assistant/message", assistant(text("x")), "append")
    assert unrecorded.source_event_seqs is None
    assert "sourceEventSeqs" not in unrecorded.to_wire()


def test_b17_a_replacement_can_be_replaced() -> None:
    session = three_nodes()
    session.append("user/message", user("inner"), replace(0, 1), [0, 1])
    session.append("x", {})
    session.append("user/message", user("outer"), replace(3, 2), [2, 3])
    say(session, "after")
    nodes, replacements = fold_surface(session.events)
    assert nodes == session.surface.nodes == (5, 6)
    assert [(item.seq, item.start, item.end, item.shadowed_seqs) for item in replacements] == [
        (3, 0, 1, (0, 1)),
        (5, 3, 2, (3, 2)),
    ]
    assert Session("copy", seed=session.events).surface.nodes == nodes
    assert len(replacements) == session.surface.replace_generation


def with_result(**more: Any) -> Session:
    session = Session("s")
    say(session, "do it")
    session.append("tool/result", result("c1", "long output", **more), "append")
    return session


def test_b18_a_tool_result_may_be_rewritten_in_its_content() -> None:
    session = with_result(error={"name": "E", "code": "C"}, meta={"view": [1]})
    session.append(
        "tool/result", result("c1", "short", error={"code": "C", "name": "E"}, meta={"view": [1]}), replace(1, 1), [1]
    )
    assert session.surface.nodes == (0, 2)
    assert session.derive_messages()[1]["content"][0]["content"] == [text("short")]


@pytest.mark.parametrize(
    "drifted",
    [
        result("c1", "x", is_error=True),
        result("c2", "x"),
        result("c1", "x", turn=2),
        result("c1", "x", step=2),
        result("c1", "x", meta={"a": 1}),
        result("c1", "x", error={"name": "E", "code": "C"}),
        {**result("c1", "x"), "message": {**result("c1", "x")["message"], "id": "other"}},
        {"turn": 1, "step": 1},
        {"turn": 1, "step": 1, "message": {"content": []}},
    ],
    ids=lambda _: "drift",
)
def test_b18_nothing_else_of_a_result_may_change(drifted: Any) -> None:
    refused(
        with_result(),
        "tool/result surface replacement may change only content",
        "tool/result",
        drifted,
        replace(1, 1),
        [1],
    )


def test_b18_a_result_rewrite_hits_exactly_one_result() -> None:
    session = with_result()
    refused(
        session,
        "tool/result surface replacement must target a current tool/result",
        "tool/result",
        result("c1"),
        replace(0, 0),
        [0],
    )
    refused(
        session,
        "tool/result surface replacement must rewrite exactly one current node",
        "tool/result",
        result("c1"),
        replace(0, 1),
        [0, 1],
    )


def test_b18_a_user_message_may_replace_results() -> None:
    session = with_result()
    session.append("user/message", user("summary"), replace(0, 1), [0, 1])
    assert session.surface.nodes == (2,)


def test_b19_meta_is_compared_by_value() -> None:
    session = with_result(meta={"rows": [1, {"a": [2, 3]}]})
    session.append("tool/result", result("c1", "a", meta={"rows": [1, {"a": [2, 3]}]}), replace(1, 1), [1])
    refused(
        session,
        "tool/result surface replacement may change only content",
        "tool/result",
        result("c1", "b", meta={"rows": [1, {"a": [2, 4]}]}),
        replace(2, 2),
        [2],
    )
    refused(
        session,
        "tool/result surface replacement may change only content",
        "tool/result",
        result("c1", "b", meta={"rows": [True, {"a": [2, 3]}]}),
        replace(2, 2),
        [2],
    )


def windowed(*, start: int) -> list[SessionEvent]:
    raw = [
        wire("user/message", 50, user("a"), surfaceOp="append"),
        wire("tool/result", 51, result("c1"), surfaceOp="append", sourceEventSeqs=[12]),
        wire("user/message", 52, user("b"), surfaceOp=replace(start, 50), sourceEventSeqs=sorted({start, 50})),
        wire("tool/result", 53, result("c1", "short"), surfaceOp=replace(51, 51), sourceEventSeqs=[51]),
    ]
    return [SessionEvent.from_wire(record) for record in raw]


def test_b20_a_window_of_the_log_folds_alone() -> None:
    nodes, replacements = fold_surface(windowed(start=50), base_seq=50)
    assert nodes == (52, 53)
    assert [item.seq for item in replacements] == [52, 53]


def test_b20_a_replacement_reaching_before_the_window_fails() -> None:
    with pytest.raises(SurfaceError, match="^surface replace: start seq 49 not found in surface$"):
        fold_surface(windowed(start=49), base_seq=50)


def test_b21_a_failed_plan_leaves_no_trace() -> None:
    session, twin = three_nodes(), three_nodes()
    for op, sources in ((replace(0, 2), [0]), (replace(5, 6), [0]), ("nonsense", None), (replace(2, 1), [1, 2])):
        with pytest.raises(SessionError):
            session.append("user/message", user(), op, sources)
    for each in (session, twin):
        each.append("user/message", user("sum", "sum"), replace(1, 2), [1, 2])
        say(each, "next")
    assert state(session) == state(twin)
    assert session.surface.nodes == (0, 3, 4)


def test_b12_predicates_tell_appended_from_replacing_events() -> None:
    session = three_nodes()
    session.append("x", {})
    session.append("user/message", user(), replace(0, 0), [0])
    kinds = [(is_surface_event(e), is_append_origin(e), is_replacement(e)) for e in session.events]
    assert kinds == [(True, True, False)] * 3 + [(False, False, False), (True, False, True)]
    assert is_surface_eligible("tool/result")
    assert not is_surface_eligible("tool/call")
