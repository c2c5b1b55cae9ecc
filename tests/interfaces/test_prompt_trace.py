"""Where one prompt is, whatever else its session does."""

from __future__ import annotations

from typing import Any

from dsh.core.session_event import SessionEvent
from dsh.interfaces.prompt_trace import PromptTrace, trace_in


def splice(target: str, start: int, inserted: tuple[str, ...] = (), removed: int = 0, **more: Any) -> Any:
    data = {"target": target, "start": start, "inserted": [{"id": each} for each in inserted], **more}
    return "agent/inbox/spliced", {**data, "removedCount": removed} if removed else data


def begins(turn: int) -> Any:
    return "turn/start", {"turn": turn}


def ends(turn: int, kind: str = "completed", **more: Any) -> Any:
    return "turn/end", {"turn": turn, "reason": {"kind": kind, **more}}


def traced(*events: Any) -> PromptTrace:
    trace = PromptTrace("mine")
    for kind, data in events:
        trace.event(kind, data)
    return trace


QUEUED = splice("next-turn", 0, ("mine",))
TAKEN = splice("next-turn", 0, removed=1)


def test_a_prompt_waits_is_taken_and_ends_with_its_turn_and_no_other() -> None:
    assert traced().state == "unknown"
    before = begins(1), splice("next-turn", 0, ("other", "mine")), splice("next-turn", 0, removed=1), ends(1)
    assert (traced(*before).state, traced(*before).status) == ("queued", None)
    taken = traced(*before, begins(2), TAKEN)
    assert (taken.state, taken.turn, taken.in_its_turn) == ("taken", 2, True)
    over = traced(*before, begins(2), TAKEN, ends(2, "max-tokens"))
    assert (over.state, over.status, over.in_its_turn) == ("over", "max-tokens", False)


def test_a_prompt_that_is_blocked_was_taken() -> None:
    trace = traced(begins(1), QUEUED, TAKEN, ends(1, "blocked"))
    trace.idle()
    assert trace.status == "blocked"


def test_a_steering_prompt_ends_with_the_turn_it_joins_also_one_whose_beginning_was_not_seen() -> None:
    joining = splice("next-step", 0, ("mine",)), splice("next-step", 0, removed=1)
    assert traced(begins(7), *joining, ends(7)).turn == 7
    trace = traced(*joining)
    assert trace.in_its_turn
    trace.event(*ends(7, "error", error={"code": "AUTH"}))
    assert (trace.status, trace.error) == ("error", {"code": "AUTH"})


def test_a_prompt_that_is_given_back_is_parked_with_the_reason_and_may_be_taken_later() -> None:
    trace = traced(begins(1), QUEUED, TAKEN, QUEUED, ends(1, "error", error={"code": "UNKNOWN"}))
    assert (trace.state, trace.error) == ("queued", {"code": "UNKNOWN"})
    trace.idle()
    assert trace.status == "parked"
    later = traced(begins(1), QUEUED, TAKEN, QUEUED, ends(1, "aborted"), begins(2), TAKEN, ends(2))
    assert (later.turn, later.status, later.error) == (2, "completed", None)


def test_whatever_happens_to_the_agent_ends_the_wait() -> None:
    for events, end, status in (
        ((QUEUED,), PromptTrace.gone, "disposed"),
        ((begins(1), QUEUED, TAKEN), PromptTrace.idle, "unended"),
        ((begins(1), QUEUED, TAKEN, ends(1)), PromptTrace.gone, "completed"),
        ((splice("next-turn", 0, ("mine",)), splice("next-turn", 0, removed=1, outcome="canceled")), None, "discarded"),
    ):
        trace = traced(*events)
        if end is not None:
            end(trace)
        assert trace.status == status


def test_a_whole_log_is_looked_through_from_the_last_time_the_prompt_was_put_into_the_queue() -> None:
    told = [begins(1), QUEUED, TAKEN, QUEUED, ends(1, "aborted"), begins(2), TAKEN]
    log = [SessionEvent(kind, seq, 0, data) for seq, (kind, data) in enumerate(told)]
    states = [trace_in(log[:count], "mine").state for count in range(len(log) + 1)]
    assert states == ["unknown", "unknown", "queued", "taken", "queued", "queued", "queued", "taken"]
    assert trace_in(log, "another").state == "unknown"
