"""Closing what a crash left open: the events that bring an interrupted turn to a defined end."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from dsh.cordis.jsonio import JsonObject, snapshot_json
from dsh.core import texts
from dsh.core.session_event import SessionEvent

NOT_STARTED_CODE = "TOOL_NOT_STARTED"


def interrupted_turn_closers(events: Sequence[SessionEvent], seed_length: int = 0) -> list[SessionEvent]:
    """The events to append after a whole log that ends inside a turn; empty for an empty or balanced one.

    Every tool call of the open step that has no result gets one, then the step ends, then input that was taken for a
    step and did not enter it goes back to the front of its list, then the turn ends (`interrupted`).
    Numbers continue, the time is that of the last event. seed_length: events inherited from a parent.
    """
    start = open_turn(events)
    if start is None:
        return []
    turn = start.data["turn"]
    step, pending = open_step(events[start.seq :])
    last = events[-1]
    closers: list[SessionEvent] = []

    def close(type_: str, data: JsonObject, **surface: Any) -> None:
        seq = last.seq + 1 + len(closers)
        closers.append(SessionEvent(type_, seq, last.time, snapshot_json(data), **surface))

    for call_id, call_seq in pending.items():
        data = interrupted_result(turn, step, call_id, call_seq is not None, last.seq + 1 + len(closers))
        sources = None if call_seq is None else (call_seq,)
        close("tool/result", data, surface_op="append", source_event_seqs=sources)
    if step is not None:
        close("step/end", {"turn": turn, "step": step})
    for target, messages in _claimed_in_vain(events, max(start.seq, seed_length), seed_length).items():
        close("agent/inbox/spliced", {"target": target, "start": 0, "inserted": messages})
    close("turn/end", {"turn": turn, "reason": {"kind": "interrupted"}})
    return closers


def open_turn(events: Sequence[SessionEvent]) -> SessionEvent | None:
    """The `turn/start` of the turn that is open at the end of `events`."""
    for event in reversed(events):
        if event.type in ("turn/start", "turn/end"):
            return event if event.type == "turn/start" else None
    return None


def open_step(events: Iterable[SessionEvent]) -> tuple[int | None, dict[str, int | None]]:
    """The step that is open at the end of `events`, which begin in its turn, and its tool calls without a result.

    The calls come in transcript order, each with the seq of its `tool/call` if there is one.
    """
    step: int | None = None
    pending: dict[str, int | None] = {}
    for event in events:
        data = event.data
        match event.type:
            case "step/start":
                step, pending = data["step"], {}
            case "step/end":
                step, pending = None, {}
            case "assistant/message" if step is not None:
                for block in data["message"]["content"]:
                    if block.get("type") == "tool-call":
                        pending.setdefault(block["id"], None)
            case "tool/call" if data["callId"] in pending:
                pending[data["callId"]] = event.seq
            case "tool/result":
                pending.pop(data["message"]["source"]["callId"], None)
    return step, pending


def _claimed_in_vain(events: Sequence[SessionEvent], turn_start: int, seed_length: int) -> dict[str, list[Any]]:
    """Messages that the open turn took from the inbox and that a crash kept out of their step, by list.

    A step takes messages over in one go: `step/start`, then one `user/message` each. What of that the log does not
    hold was lost if the log ends right there; else somebody decided to leave it out.
    """
    pending: dict[str, list[Any]] = {"next-step": [], "next-turn": []}
    taken: dict[str, list[Any]] = {}
    entering = False

    def settle(ids: set[str]) -> None:
        for target, messages in taken.items():
            taken[target] = [message for message in messages if message["id"] not in ids]

    for event in events[seed_length:]:
        data = event.data
        match event.type:
            case "agent/inbox/spliced":
                span = slice(data["start"], data["start"] + data.get("removedCount", 0))
                removed = pending[data["target"]][span]
                pending[data["target"]][span] = data["inserted"]
                settle({message["id"] for message in data["inserted"]})  # given back already
                if event.seq >= turn_start and removed and not data["inserted"] and "outcome" not in data:
                    taken[data["target"]] = removed
            case "step/start":
                entering = True
            case "user/message" if entering:
                settle({data["id"]})
            case _ if entering:
                taken, entering = {}, False
    return {target: messages for target, messages in taken.items() if messages}


def interrupted_result(turn: int, step: int | None, call_id: str, started: bool, seq: int) -> JsonObject:
    """The data of the `tool/result` with number `seq` that answers a call whose own result was lost.

    started: whether its `tool/call` was recorded.
    """
    if started:
        text, name, code = texts.OUTCOME_UNKNOWN, "ToolOutcomeUnknownError", "TOOL_OUTCOME_UNKNOWN"
    else:
        text, name, code = texts.NOT_STARTED, "ToolNotStartedError", NOT_STARTED_CODE
    block = {
        "type": "tool-result",
        "toolCallId": call_id,
        "isError": True,
        "content": [{"type": "text", "text": text}],
    }
    message = {
        "id": f"interrupted-tool-result-{call_id}-{seq}",
        "role": "user",
        "source": {"kind": "tool", "callId": call_id},
        "content": [block],
    }
    return {"turn": turn, "step": step, "message": message, "error": {"name": name, "code": code}}
