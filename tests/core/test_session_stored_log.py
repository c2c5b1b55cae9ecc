"""Reading stored logs: unknown types, older shapes."""

from __future__ import annotations

from typing import Any

import pytest

from dsh.core.event_types import CORE_EVENT_TYPES, KNOWN_EVENT_TYPES, UnknownEventTypeError
from dsh.core.legacy import LegacyLogError, import_legacy
from dsh.core.session import Session
from dsh.core.session_event import SessionError, SessionEvent
from dsh.core.stored_log import interpret_events
from tests.core.session_helpers import assistant, header, replace, result, text, user, wire


def stored(*records: dict[str, Any]) -> list[SessionEvent]:
    return [SessionEvent.from_wire(record) for record in records]


def imported(*records: dict[str, Any]) -> list[dict[str, Any]]:
    return [event.to_wire() for event in import_legacy("s1", stored(*records))]


def test_b68_an_unknown_type_refuses_the_whole_log() -> None:
    log = stored(wire("turn/start", 0, {"turn": 1}), wire("future/thing", 1, {}))
    with pytest.raises(UnknownEventTypeError) as caught:
        interpret_events("s1", log)
    assert str(caught.value) == (
        'session "s1" contains event type "future/thing" (seq 1) unknown to this harness and not marked ignorable; '
        "refusing to interpret the log — it was likely written by a newer harness"
    )
    assert (caught.value.event_type, caught.value.seq) == ("future/thing", 1)


def test_b68_an_ignorable_or_registered_type_loads_verbatim() -> None:
    log = stored(wire("future/thing", 0, {"a": [1]}, ignorable=True))
    assert interpret_events("s1", log) == log
    plugin = stored(wire("my/thing", 0, {}))
    assert interpret_events("s1", plugin, {"my/thing"}) == plugin


def test_b68_the_session_itself_takes_any_type() -> None:
    assert Session("s").append("future/thing", {}).type == "future/thing"
    assert Session("s", seed=[wire("future/thing", 0, {})]).seq == 2


def test_b68_every_documented_type_is_known() -> None:
    assert len(CORE_EVENT_TYPES) == 14
    assert {"tool-workflow/agent-start", "team/message/queued", "compaction/prune"} <= KNOWN_EVENT_TYPES


def test_b68_message_shapes_are_checked_by_seq() -> None:
    log = stored(wire("x", 0, {}, ignorable=True), wire("user/message", 1, {"id": "a"}, surfaceOp="append"))
    with pytest.raises(SessionError, match='^session event at seq 1 message must have role "user"$'):
        interpret_events("s1", log)


def test_legacy_current_events_are_untouched() -> None:
    log = stored(
        wire("turn/start", 0, {"turn": 1}),
        wire("user/message", 1, user(), surfaceOp="append"),
        wire("assistant/message", 2, assistant(text("x")), surfaceOp="append"),
        wire("tool/result", 3, result("c"), surfaceOp="append"),
        wire("request/header", 4, header()),
        wire("turn/end", 5, {"turn": 1, "reason": {"kind": "aborted", "reason": {"kind": "user"}}}),
    )
    assert all(new is old for new, old in zip(import_legacy("s1", log), log, strict=True))


def test_legacy_steering_becomes_a_user_message() -> None:
    source = {"kind": "user"}
    assert imported(
        wire("steering/message", 0, {"turn": 1, "message": user()}, surfaceOp="append"),
        wire("steering/message", 1, {"turn": 1, "content": [text("b")], "source": source}, surfaceOp="append"),
    ) == [
        wire("user/message", 0, user(), surfaceOp="append"),
        wire(
            "user/message",
            1,
            {"content": [text("b")], "source": source, "role": "user", "id": "legacy-message:s1:1"},
            surfaceOp="append",
        ),
    ]


@pytest.mark.parametrize("data", [{"turn": 1}, {"turn": 1, "message": "x"}, {"turn": 1, "content": []}, 3], ids=repr)
def test_legacy_half_a_steering_message_is_refused(data: Any) -> None:
    with pytest.raises(LegacyLogError) as caught:
        imported(wire("steering/message", 0, data, surfaceOp="append"))
    assert str(caught.value) == 'session "s1" contains malformed pre-react-loop steering/message at seq 0'


def test_legacy_messages_without_id_get_a_derived_one() -> None:
    reply = assistant(text("x"))
    del reply["message"]["id"]
    (prompt, answer) = imported(
        wire("user/message", 0, {"content": [], "source": {"kind": "user", "rpcId": 1}}, surfaceOp="append"),
        wire("assistant/message", 1, reply, surfaceOp="append"),
    )
    assert prompt["data"] == {
        "content": [],
        "source": {"kind": "user", "rpcId": 1},
        "role": "user",
        "id": "legacy-message:s1:0",
    }
    assert answer["data"]["message"]["id"] == "legacy-message:s1:1"


def test_legacy_flat_assistant_message() -> None:
    (event,) = imported(
        wire(
            "assistant/message",
            0,
            {
                "turn": 1,
                "step": 2,
                "content": [text("x")],
                "provenance": {"provider": "p", "model": "m"},
                "usage": {"inputTokens": 1, "outputTokens": 2},
            },
            surfaceOp="append",
        )
    )
    assert event["data"] == {
        "turn": 1,
        "step": 2,
        "message": {
            "id": "legacy-message:s1:0",
            "role": "assistant",
            "content": [text("x")],
            "source": {"provider": "p", "model": "m", "kind": "model"},
        },
        "usage": {"inputTokens": 1, "outputTokens": 2},
    }


def test_legacy_flat_result_and_its_rewrite_share_an_id() -> None:
    flat = {"turn": 1, "step": 1, "callId": "c", "content": [text("long")], "isError": False, "meta": {"a": 1}}
    short = {**flat, "content": [text("short")]}
    events = import_legacy(
        "s1",
        stored(
            wire("tool/result", 0, flat, surfaceOp="append"),
            wire("tool/result", 1, short, surfaceOp=replace(0, 0), sourceEventSeqs=[0]),
        ),
    )
    assert events[0].data == {
        "turn": 1,
        "step": 1,
        "message": {
            "id": "legacy-message:s1:0",
            "role": "user",
            "content": [{"type": "tool-result", "toolCallId": "c", "content": [text("long")], "isError": False}],
            "source": {"kind": "tool", "callId": "c"},
        },
        "meta": {"a": 1},
    }
    session = Session("s1", seed=events)
    assert session.surface.nodes == (1,)
    assert session.derive_messages()[0]["id"] == "legacy-message:s1:0"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"kind": "aborted"}, {"kind": "aborted", "reason": {"kind": "legacy"}}),
        ({"kind": "disposed"}, {"kind": "aborted", "reason": {"kind": "disposed"}}),
        (
            {"kind": "error", "step": 1, "message": "m", "code": "C"},
            {"kind": "error", "error": {"message": "m", "code": "C"}},
        ),
        ({"kind": "error", "step": 1, "message": "m"}, {"kind": "error", "error": {"message": "m", "code": "UNKNOWN"}}),
        (
            {"kind": "error", "step": 1, "message": "m", "failure": {"message": "f", "code": "AUTH", "status": 401}},
            {"kind": "error", "error": {"message": "f", "code": "AUTH", "status": 401}},
        ),
        ({"kind": "completed"}, {"kind": "completed"}),
        ({"kind": "from-the-future", "x": 1}, {"kind": "from-the-future", "x": 1}),
    ],
    ids=repr,
)
def test_legacy_turn_ends(old: dict[str, Any], new: dict[str, Any]) -> None:
    (event,) = imported(wire("turn/end", 0, {"turn": 1, "reason": old}))
    assert event["data"] == {"turn": 1, "reason": new}


def test_legacy_turn_trigger_is_dropped() -> None:
    (event,) = imported(wire("turn/start", 0, {"turn": 1, "trigger": {"kind": "message"}}))
    assert event["data"] == {"turn": 1}


@pytest.mark.parametrize(
    ("type_", "data", "what"),
    [
        ("mode/set", {}, "mode/set event"),
        ("request/header-delta", {}, "request/header-delta event"),
        ("request/header", header(reason="fallback"), 'request/header reason "fallback"'),
    ],
)
def test_legacy_shapes_that_cannot_be_read_are_refused(type_: str, data: Any, what: str) -> None:
    with pytest.raises(LegacyLogError) as caught:
        imported(wire("x", 0, {}), wire(type_, 1, data))
    assert str(caught.value) == f'session "s1" contains unsupported legacy {what} at seq 1'


def test_legacy_unknown_keys_of_a_header_are_kept_and_ignored() -> None:
    data = header(messagePrefix="old")
    session = Session("s1", seed=interpret_events("s1", stored(wire("request/header", 0, data))))
    assert session.events[0].data == data
