"""Which turn last did something."""

from __future__ import annotations

from dsh.core.consumed_work import fold_consumed_work
from dsh.core.session import Session
from dsh.core.session_event import SessionEvent
from tests.core.session_helpers import finished_turn, user


def turn(session: Session, number: int, kind: str, *, claim: bool = False, step: bool = False) -> SessionEvent:
    session.append("turn/start", {"turn": number})
    if claim:
        session.append("agent/inbox/spliced", {"target": "next-turn", "start": 0, "removedCount": 1, "inserted": []})
    if step:
        session.append("step/start", {"turn": number, "step": 1})
        session.append("step/end", {"turn": number, "step": 1})
    return session.append("turn/end", {"turn": number, "reason": {"kind": kind}})


def cancel(session: Session, *inserted: object) -> None:
    session.append(
        "agent/inbox/spliced",
        {"target": "next-turn", "start": 0, "removedCount": 1, "inserted": list(inserted), "outcome": "canceled"},
    )


def test_b71_a_turn_that_entered_a_step_counts() -> None:
    session = Session("s")
    assert fold_consumed_work(session.events).end is None
    finished_turn(session)
    work = fold_consumed_work(session.events)
    assert work.end is session.events[-1]
    assert not work.dropped_unrun


def test_b71_a_claim_that_ended_badly_counts() -> None:
    session = Session("s")
    end = turn(session, 1, "aborted", claim=True)
    assert fold_consumed_work(session.events).end is end
    blocked = turn(session, 2, "blocked", claim=True)
    assert fold_consumed_work(session.events).end is blocked


def test_b71_a_completed_turn_without_a_step_does_not_count() -> None:
    session = Session("s")
    end = turn(session, 1, "completed", step=True)
    turn(session, 2, "completed", claim=True)
    turn(session, 3, "aborted")
    assert fold_consumed_work(session.events).end is end


def test_b71_input_canceled_afterwards_was_dropped() -> None:
    session = Session("s")
    cancel(session)
    end = turn(session, 1, "completed", step=True)
    assert not fold_consumed_work(session.events).dropped_unrun
    session.append("agent/inbox/spliced", {"target": "next-turn", "start": 0, "inserted": [user()]})
    cancel(session, user("replacement"))
    assert not fold_consumed_work(session.events).dropped_unrun
    cancel(session)
    work = fold_consumed_work(session.events)
    assert work.end is end
    assert work.dropped_unrun
    turn(session, 2, "completed", step=True)
    assert not fold_consumed_work(session.events).dropped_unrun
