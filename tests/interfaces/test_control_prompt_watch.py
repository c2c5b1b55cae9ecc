"""Knowing what came of a prompt, whatever happens around it in the queue."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from dsh.interfaces.control.prompt_watch import PromptWatch


def event(seq: int, kind: str, data: Any) -> dict[str, Any]:
    return {"type": "session/event", "sessionId": "s", "event": {"type": kind, "seq": seq, "data": data}}


def splice(seq: int, start: int, removed: int = 0, inserted: tuple[str, ...] = (), *, canceled: bool = False) -> Any:
    data: dict[str, Any] = {"target": "next-turn", "start": start, "inserted": [{"id": each} for each in inserted]}
    data |= {"removedCount": removed} if removed else {}
    return event(seq, "agent/inbox/spliced", {**data, "outcome": "canceled"} if canceled else data)


@given(st.data())
def test_a_prompt_that_is_taken_out_is_known_among_any_changes_of_the_queue(data: st.DataObject) -> None:
    """Given random splices around the prompt, then it counts as discarded exactly when it was removed as canceled."""
    queue = [f"old-{n}" for n in range(data.draw(st.integers(0, 3)))]
    watch = PromptWatch("mine")
    start = data.draw(st.integers(0, len(queue)))
    queue[start:start] = ["mine"]
    assert not watch.see(splice(0, start, 0, ("mine",)))
    for seq in range(1, data.draw(st.integers(1, 8))):
        start = data.draw(st.integers(0, len(queue)))
        removed = data.draw(st.integers(0, len(queue) - start))
        inserted = tuple(f"new-{seq}-{n}" for n in range(data.draw(st.integers(0, 2))))
        gone = "mine" in queue[start : start + removed]
        queue[start : start + removed] = inserted
        settled = watch.see(splice(seq, start, removed, inserted, canceled=True))
        assert settled == gone
        if gone:
            assert watch.status == "discarded"
            return


def test_a_prompt_that_is_taken_up_ends_with_its_turn() -> None:
    watch = PromptWatch("mine")
    assert not watch.see({"type": "session/subscribed", "sessionId": "s", "status": "idle", "lastSeq": 5})
    assert not watch.see(splice(1, 0, 0, ("mine",)))
    assert not watch.see(splice(2, 0, 1))
    assert not watch.see(event(3, "user/message", {"id": "mine"}))
    message = {"content": [{"type": "text", "text": "done"}]}
    assert not watch.see(event(4, "assistant/message", {"message": message}))
    assert watch.see(event(5, "turn/end", {"turn": 1, "reason": {"kind": "completed"}}))
    assert (watch.status, watch.output, watch.error) == ("completed", "done", None)


def test_a_prompt_that_goes_back_to_the_queue_of_an_idle_agent_is_parked() -> None:
    watch = PromptWatch("mine")
    for frame in (splice(1, 0, 0, ("mine",)), splice(2, 0, 1), splice(3, 0, 0, ("mine",))):
        assert not watch.see(frame)
    assert not watch.see({"type": "host/session-status", "sessionId": "s", "status": "running"})
    assert watch.see({"type": "host/session-status", "sessionId": "s", "status": "idle"})
    assert watch.status == "parked"


def test_an_agent_that_was_idle_before_anybody_looked_has_parked_the_prompt() -> None:
    watch = PromptWatch("mine")
    assert not watch.see({"type": "session/subscribed", "sessionId": "s", "status": "idle", "lastSeq": 2})
    assert not watch.see(splice(1, 0, 0, ("mine",)))
    assert watch.see(event(2, "turn/end", {"turn": 1, "reason": {"kind": "aborted"}}))
    assert watch.status == "parked"


def test_an_agent_that_went_idle_while_the_stream_was_cut_has_parked_the_prompt() -> None:
    watch = PromptWatch("mine")
    assert not watch.see({"type": "session/subscribed", "sessionId": "s", "status": "running", "lastSeq": 0})
    for frame in (splice(1, 0, 0, ("mine",)), event(2, "turn/end", {"turn": 1, "reason": {"kind": "aborted"}})):
        assert not watch.see(frame)
    assert watch.see({"type": "session/subscribed", "sessionId": "s", "status": "idle", "lastSeq": 2})
    assert watch.status == "parked"
