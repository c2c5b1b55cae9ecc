"""Closing an interrupted turn."""

from __future__ import annotations

from dsh.core.repair import interrupted_turn_closers
from dsh.core.session import Session
from dsh.core.session_event import SessionEvent
from tests.core.session_helpers import assistant, called, chunk, finished_turn, result, say, text, tool_call

NOT_STARTED = "The tool call was interrupted before the Harness recorded it as started. Retry it if it is still needed."
UNKNOWN = (
    "The tool call was interrupted after it was recorded, but no result was durably recorded. Its outcome is unknown. "
    "Decide whether to retry from the tool semantics: retry only if the operation is read-only or idempotent; if it "
    "may have side effects, first verify external state or ask the user. Do not retry blindly."
)


def closers(session: Session) -> list[SessionEvent]:
    """The repair of a log, checked to continue it and to be complete."""
    found = interrupted_turn_closers(session.events)
    repaired = Session("r", seed=[*session.events, *found])
    assert interrupted_turn_closers(repaired.events) == []
    assert all(event.time == session.events[-1].time for event in found)
    return found


def shape(events: list[SessionEvent]) -> list[tuple[str, object]]:
    return [(event.type, event.data) for event in events]


INTERRUPTED = ("turn/end", {"turn": 2, "reason": {"kind": "interrupted"}})


def open_turn() -> Session:
    session = Session("s")
    finished_turn(session, 1)
    session.append("turn/start", {"turn": 2})
    return session


def test_b62_a_balanced_log_needs_nothing() -> None:
    session = Session("s")
    assert interrupted_turn_closers(session.events) == []
    say(session, "hello")
    assert interrupted_turn_closers(session.events) == []
    finished_turn(session)
    assert interrupted_turn_closers(session.events) == []
    session.append("session/title", {"title": "t"})
    assert interrupted_turn_closers(session.events) == []


def test_b63_an_open_turn_is_ended() -> None:
    session = open_turn()
    assert shape(closers(session)) == [INTERRUPTED]
    say(session, "input")
    assert shape(closers(session)) == [INTERRUPTED]


def test_b63_an_open_step_is_ended_first() -> None:
    session = open_turn()
    session.append("step/start", {"turn": 2, "step": 1})
    session.append("step/end", {"turn": 2, "step": 1})
    assert shape(closers(session)) == [INTERRUPTED]
    session.append("step/start", {"turn": 2, "step": 2})
    session.append("assistant/chunk", chunk(turn=2, step=2))
    assert shape(closers(session)) == [("step/end", {"turn": 2, "step": 2}), INTERRUPTED]


def test_b64_calls_without_a_result_get_one() -> None:
    session = open_turn()
    session.append("step/start", {"turn": 2, "step": 1})
    reply = assistant(text("x"), tool_call("never"), tool_call("ran"), turn=2)
    session.append("assistant/message", reply, "append")
    call = session.append("tool/call", called("ran", turn=2))
    first, second, *rest = closers(session)
    assert shape(rest) == [("step/end", {"turn": 2, "step": 1}), INTERRUPTED]

    next_seq = call.seq + 1
    for event, call_id, text_, error in (
        (first, "never", NOT_STARTED, {"name": "ToolNotStartedError", "code": "TOOL_NOT_STARTED"}),
        (second, "ran", UNKNOWN, {"name": "ToolOutcomeUnknownError", "code": "TOOL_OUTCOME_UNKNOWN"}),
    ):
        assert event.surface_op == "append"
        assert event.data == {
            "turn": 2,
            "step": 1,
            "message": {
                "id": f"interrupted-tool-result-{call_id}-{next_seq}",
                "role": "user",
                "source": {"kind": "tool", "callId": call_id},
                "content": [{"type": "tool-result", "toolCallId": call_id, "isError": True, "content": [text(text_)]}],
            },
            "error": error,
        }
        next_seq += 1
    assert first.source_event_seqs is None
    assert second.source_event_seqs == (call.seq,)


def test_b64_a_call_without_its_block_gets_no_result() -> None:
    session = open_turn()
    session.append("step/start", {"turn": 2, "step": 1})
    session.append("assistant/message", assistant(text("x"), turn=2), "append")
    session.append("tool/call", called("stray", turn=2))
    assert [event.type for event in closers(session)] == ["step/end", "turn/end"]


def test_b65_recorded_results_and_closed_steps_are_left_alone() -> None:
    session = open_turn()
    session.append("step/start", {"turn": 2, "step": 1})
    session.append("assistant/message", assistant(tool_call("a"), tool_call("b"), turn=2), "append")
    session.append("tool/call", called("a", turn=2))
    session.append("tool/result", result("a", turn=2), "append")
    assert [event.data["message"]["source"]["callId"] for event in closers(session)[:-2]] == ["b"]
    session.append("step/end", {"turn": 2, "step": 1})
    assert shape(closers(session)) == [INTERRUPTED]


def test_b65_earlier_turns_are_ignored() -> None:
    session = Session("s")
    session.append("turn/start", {"turn": 1})
    session.append("step/start", {"turn": 1, "step": 1})
    session.append("assistant/message", assistant(tool_call("lost")), "append")
    session.append("turn/end", {"turn": 1, "reason": {"kind": "error", "error": {"message": "x", "code": "UNKNOWN"}}})
    assert interrupted_turn_closers(session.events) == []
    session.append("turn/start", {"turn": 2})
    assert shape(closers(session)) == [INTERRUPTED]


def spliced(session: Session, target: str, *texts: str, claim: int = 0) -> None:
    """Put messages at the end of a list, or take some from its front for a step."""
    data: dict[str, object] = {"target": target, "start": 0}
    if claim:
        data["removedCount"] = claim
    data["inserted"] = [message_of(text) for text in texts]
    session.append("agent/inbox/spliced", data)


def message_of(text: str) -> dict[str, object]:
    source = {"kind": "user"}
    return {"id": text, "role": "user", "content": [{"type": "text", "text": text}], "source": source}


def test_input_that_was_claimed_for_a_step_that_never_started_goes_back_to_its_list() -> None:
    session = open_turn()
    spliced(session, "next-step", "joins", "too")
    spliced(session, "next-turn", "prompt")
    spliced(session, "next-step", claim=2)
    spliced(session, "next-turn", claim=1)
    assert shape(closers(session)) == [
        (
            "agent/inbox/spliced",
            {"target": "next-step", "start": 0, "inserted": [message_of("joins"), message_of("too")]},
        ),
        ("agent/inbox/spliced", {"target": "next-turn", "start": 0, "inserted": [message_of("prompt")]}),
        INTERRUPTED,
    ]


def test_input_that_went_back_before_the_crash_goes_back_once() -> None:
    session = open_turn()
    spliced(session, "next-turn", "prompt")
    spliced(session, "next-turn", claim=1)
    spliced(session, "next-turn", "prompt")
    assert shape(closers(session)) == [INTERRUPTED]


def test_input_that_had_not_entered_its_step_when_the_log_was_cut_goes_back() -> None:
    session = open_turn()
    spliced(session, "next-step", "joins", "too")
    spliced(session, "next-step", claim=2)
    session.append("step/start", {"turn": 2, "step": 1})
    session.append("user/message", message_of("joins"), "append")
    assert shape(closers(session)) == [
        ("step/end", {"turn": 2, "step": 1}),
        ("agent/inbox/spliced", {"target": "next-step", "start": 0, "inserted": [message_of("too")]}),
        INTERRUPTED,
    ]
    session.append("request/context", {"turn": 2, "step": 1, "context": {}})
    assert [event.type for event in closers(session)] == ["step/end", "turn/end"]  # a decision left it out


def test_what_was_canceled_or_waits_in_a_parent_does_not_go_back() -> None:
    session = open_turn()
    spliced(session, "next-step", "gone")
    session.append(
        "agent/inbox/spliced",
        {"target": "next-step", "start": 0, "removedCount": 1, "inserted": [], "outcome": "canceled"},
    )
    assert shape(closers(session)) == [INTERRUPTED]
    parent = Session("p")
    spliced(parent, "next-turn", "of the parent")
    length = parent.seq
    parent.append("turn/start", {"turn": 1})
    spliced(parent, "next-turn", "own")
    spliced(parent, "next-turn", claim=1)
    (back, _) = interrupted_turn_closers(parent.events, length)
    assert back.data["inserted"] == [message_of("own")]
