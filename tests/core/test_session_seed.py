"""Headers and seeds of a session built in memory."""

from __future__ import annotations

from typing import Any

import pytest

from dsh.cordis.jsonio import FrozenDict, decode, encode, freeze_json
from dsh.core.session import Session
from dsh.core.session_event import SessionError, SessionEvent
from dsh.core.session_header import SessionHeader, SessionHeaderError
from tests.core.session_helpers import assistant, finished_turn, header, result, text, user, wire

HEADER = {"version": 0, "id": "s", "createdAt": 5}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"cwd": "relative/x"}, 'session header cwd must be an absolute path, got "relative/x"'),
        ({"cwd": 3}, "session header cwd must be a string"),
        ({"cwd": None}, "session header cwd must be a string"),
        ({"createdAt": -1}, "session header createdAt must be a non-negative safe integer"),
        ({"createdAt": True}, "session header createdAt must be a non-negative safe integer"),
        ({"createdAt": 1.5}, "session header createdAt must be a non-negative safe integer"),
        ({"createdAt": 2**53}, "session header createdAt must be a non-negative safe integer"),
        ({"seedLength": -1}, "session header seedLength must be a non-negative safe integer"),
        ({"seedLength": None}, "session header seedLength must be a non-negative safe integer"),
        ({"delegationDepth": "1"}, "session header delegationDepth must be a non-negative safe integer"),
        ({"id": "other"}, 'session header id "other" does not match session id "s"'),
        ({"version": 1}, "session header version must be 0, got 1"),
        ({"version": "0"}, 'session header version must be 0, got "0"'),
        ({"version": False}, "session header version must be 0, got false"),
        ({"parentSession": 1}, "session header parentSession must be a string"),
        ({"agentPreset": []}, "session header agentPreset must be a string"),
        ({"origin": "fork"}, 'session header origin must be "subagent"'),
        ({"origin": None}, 'session header origin must be "subagent"'),
        ({"cwd": b"/x"}, "session header is not losslessly JSON-serializable"),
    ],
    ids=lambda value: repr(value) if isinstance(value, dict) else "",
)
def test_b45_a_wrong_header_field_is_named(change: dict[str, Any], message: str) -> None:
    with pytest.raises(SessionHeaderError) as caught:
        Session("s", header={**HEADER, **change})
    assert str(caught.value) == message


def test_b45_a_header_is_an_object() -> None:
    with pytest.raises(SessionHeaderError, match="^session header is not a plain JSON record$"):
        Session("s", header=[1])  # type: ignore[arg-type]


def test_b45_a_full_header_round_trips_in_storage_order() -> None:
    record = {
        **HEADER,
        "cwd": "/w",
        "parentSession": "p",
        "seedLength": 4,
        "origin": "subagent",
        "delegationDepth": 1,
        "agentPreset": "x",
    }
    parsed = Session("s", header=record).header
    assert list(parsed.to_wire().items()) == list(record.items())
    assert Session("s", header=parsed).header == parsed
    with pytest.raises(AttributeError):
        parsed.cwd = "/other"  # type: ignore[misc]


def test_b45_without_a_header_one_is_made() -> None:
    made = Session("s").header
    assert made == SessionHeader(id="s", created_at=made.created_at)
    assert made.created_at > 1_600_000_000_000


def test_b46_the_end_of_a_seed_is_marked() -> None:
    assert Session("s").seq == 0
    assert Session("s").first_live_seq == 0

    empty = Session("s", seed=[])
    assert [(event.type, event.seq, event.data) for event in empty.events] == [("session/end-seed", 0, {})]
    assert empty.first_live_seq == 0

    one = Session("s", seed=[wire("x", 0, {})])
    assert [event.type for event in one.events] == ["x", "session/end-seed"]
    assert one.first_live_seq == 1

    again = Session("s", seed=one.events)
    assert list(again.events) == list(one.events)
    assert again.first_live_seq == 2


def test_b47_a_gap_names_index_found_and_expected() -> None:
    message = r"^seed event at index 1 has seq 2 \(expected 1\); seed must be contiguous from 0$"
    for seed in ([wire("x", 0, {}), wire("x", 2, {})], [SessionEvent("x", n, 0, FrozenDict()) for n in (0, 2)]):
        with pytest.raises(SessionError, match=message):
            Session("s", seed=seed)
    with pytest.raises(SessionError, match=r"^seed event at index 0 has seq 5 \(expected 0\)"):
        Session("s", seed=[wire("x", 5, {})], seed_source="persistence")


@pytest.mark.parametrize("source", ["create", "persistence"])
def test_b48_retired_headers_are_refused_in_a_seed(source: Any) -> None:
    with pytest.raises(
        SessionError, match="^seed event at index 1 uses unsupported legacy request/header-delta format$"
    ):
        Session("s", seed=[wire("x", 0, {}), wire("request/header-delta", 1, {})], seed_source=source)
    with pytest.raises(
        SessionError, match='^seed event at index 0 uses unsupported legacy request/header reason "fallback"$'
    ):
        Session("s", seed=[wire("request/header", 0, header(reason="fallback"))], seed_source=source)


def test_b48_retired_headers_are_refused_on_append() -> None:
    session = Session("s")
    with pytest.raises(
        SessionError, match='^session event "request/header-delta" uses unsupported legacy request/header-delta format$'
    ):
        session.append("request/header-delta", {})
    with pytest.raises(
        SessionError, match='^session event "request/header" uses unsupported legacy request/header reason "fallback"$'
    ):
        session.append("request/header", header(reason="fallback"))
    assert session.seq == 0


def refused_seed(record: dict[str, Any], message: str) -> None:
    for source in ("create", "persistence"):
        with pytest.raises(SessionError) as caught:
            Session("s", seed=[decode(encode(record))], seed_source=source)
        assert str(caught.value) == message


@pytest.mark.parametrize(
    ("data", "why"),
    [
        ({"header": {"config": {"model": "m"}}}, "lacks provider/model"),
        ({"header": {"config": {"provider": "p"}}}, "lacks provider/model"),
        ({"header": {"config": {"provider": "", "model": "m"}}}, "lacks provider/model"),
        ({"header": {}}, "lacks provider/model"),
        ({}, "lacks provider/model"),
        (
            {"header": {"config": {"provider": "p", "model": "m", "reasoningEffort": ""}}},
            "has an invalid reasoningEffort",
        ),
        (
            {"header": {"config": {"provider": "p", "model": "m", "reasoningEffort": None}}},
            "has an invalid reasoningEffort",
        ),
        (header(adapterDefaults={"maxTokens": True}), "has invalid adapterDefaults"),
        (header(adapterDefaults={"unknown": True}), "has invalid adapterDefaults"),
        (header(adapterDefaults=[]), "has invalid adapterDefaults"),
        (
            {
                "header": {
                    "config": {"provider": "p", "model": "m", "maxTokens": 4},
                    "adapterDefaults": {"maxTokens": 1},
                }
            },
            "has invalid adapterDefaults",
        ),
    ],
    ids=repr,
)
def test_b49_a_malformed_request_header_is_refused(data: dict[str, Any], why: str) -> None:
    refused_seed(wire("request/header", 0, data), f"seed request/header at index 0 {why}")


def test_b49_a_marker_with_its_value_is_accepted() -> None:
    data = header()
    data["header"]["config"] |= {"maxTokens": 4, "reasoningEffort": "high"}
    data["header"]["adapterDefaults"] = {"maxTokens": True, "reasoningEffort": True}
    assert Session("s", seed=[wire("request/header", 0, data)]).request_header() == data["header"]


def changed(record: dict[str, Any], **change: Any) -> dict[str, Any]:
    return {key: value for key, value in {**record, **change}.items() if value is not ...}


REPLY = assistant(text("x"))["message"]
ANSWER = result("c1")["message"]


@pytest.mark.parametrize(
    ("type_", "message", "why"),
    [
        ("user/message", None, "lacks an identified message"),
        ("user/message", changed(user(), id=""), "lacks an identified message"),
        ("user/message", changed(user(), id=...), "lacks an identified message"),
        ("user/message", changed(user(), role="assistant"), 'message must have role "user"'),
        ("user/message", changed(user(), source={"kind": ""}), "message has invalid source"),
        ("user/message", changed(user(), source="user"), "message has invalid source"),
        ("user/message", changed(user(), content="hi"), "message has invalid content"),
        ("assistant/message", None, "lacks an identified message"),
        ("assistant/message", changed(REPLY, id=7), "lacks an identified message"),
        ("assistant/message", changed(REPLY, role="user"), 'message must have role "assistant"'),
        ("assistant/message", changed(REPLY, content=...), "message has invalid content"),
        ("assistant/message", changed(REPLY, source={"kind": "user"}), "message must have model source"),
        (
            "assistant/message",
            changed(REPLY, source={"kind": "model", "provider": "p"}),
            "message must have model source",
        ),
        ("tool/result", None, "lacks an identified message"),
        ("tool/result", changed(ANSWER, role="tool"), 'message must have role "user"'),
        ("tool/result", changed(ANSWER, source={"kind": "user"}), "message must have tool source"),
        ("tool/result", changed(ANSWER, source={"kind": "tool", "callId": ""}), "message must have tool source"),
        ("tool/result", changed(ANSWER, content=[]), "message must contain one tool-result block"),
        ("tool/result", changed(ANSWER, content=ANSWER["content"] * 2), "message must contain one tool-result block"),
        ("tool/result", changed(ANSWER, content=[text("x")]), "message must contain one tool-result block"),
        (
            "tool/result",
            changed(ANSWER, content=[changed(ANSWER["content"][0], content="x")]),
            "message must contain one tool-result block",
        ),
        (
            "tool/result",
            changed(ANSWER, content=[changed(ANSWER["content"][0], toolCallId="c2")]),
            "message has mismatched tool call ids",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_b50_a_malformed_message_is_refused(type_: str, message: Any, why: str) -> None:
    data = message if type_ == "user/message" else {"turn": 1, "step": 1, "message": message}
    refused_seed(wire(type_, 0, data, surfaceOp="append"), f"seed {type_} at index 0 {why}")


def test_b50_open_details_are_carried() -> None:
    odd = user(source={"kind": "plugin", "plugin": "", "form": "never-seen", "more": [1]})
    odd["content"] = [{"type": "hologram", "x": None}, 3]
    session = Session("s", seed=[wire("user/message", 0, odd, surfaceOp="append")])
    assert session.derive_messages() == [odd]


def test_b50_the_surface_is_checked_in_a_seed() -> None:
    refused_seed(
        wire("user/message", 0, user()),
        'invalid seed event at index 0: session event "user/message" is surface-eligible and requires a surfaceOp '
        "marker",
    )
    refused_seed(
        wire("turn/start", 0, {"turn": 1}, sourceEventSeqs=[]),
        'invalid seed event at index 0: session event "turn/start" is not surface-eligible and cannot carry '
        "sourceEventSeqs",
    )


def test_b51_a_seed_held_by_its_caller_is_copied() -> None:
    record = wire("todo/write", 0, {"todos": [{"content": "a"}]})
    session = Session("s", seed=[record])
    record["data"]["todos"][0]["content"] = "changed"
    record["type"] = "other"
    assert session.events[0].to_wire() == wire("todo/write", 0, {"todos": [{"content": "a"}]})

    event = SessionEvent("todo/write", 0, 1, {"todos": []})
    session = Session("s", seed=[event])
    event.data["todos"].append("later")
    assert session.events[0].data == {"todos": []}


def test_b51_restored_events_are_adopted_and_frozen() -> None:
    frozen = SessionEvent("x", 0, 1, freeze_json({"a": [1]}))
    session = Session("s", seed=[frozen, wire("y", 1, {"b": [1]})], seed_source="persistence")
    assert session.events[0] is frozen
    for event in session.events:
        with pytest.raises(TypeError):
            event.data["a"] = 2
    with pytest.raises(TypeError):
        session.events[1].data["b"].append(2)


def test_b51_a_whole_log_survives_storage() -> None:
    session = Session("s", header={**HEADER, "cwd": "/w"})
    finished_turn(session)
    rows = [decode(encode(event.to_wire())) for event in session.events]
    restored = Session("s", header=session.header, seed=rows, seed_source="persistence")
    assert list(restored.events)[:-1] == list(session.events)
    assert restored.derive_messages() == session.derive_messages()
    assert restored.request_header() == session.request_header()
    assert restored.first_live_seq == session.seq
