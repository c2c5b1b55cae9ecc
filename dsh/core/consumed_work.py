"""Which turn last did something, and whether queued input was thrown away after it."""

from __future__ import annotations

from collections.abc import Iterable

from dsh.cordis.records import record
from dsh.core.session_event import SessionEvent


@record
class ConsumedWork:
    """end: the `turn/end` of the latest turn that counts, if any. dropped_unrun: input was canceled after it."""

    end: SessionEvent | None
    dropped_unrun: bool


def fold_consumed_work(events: Iterable[SessionEvent]) -> ConsumedWork:
    """Fold a log. A turn counts if it entered a step, or took input from the inbox and did not end `completed`."""
    end: SessionEvent | None = None
    dropped = False
    in_turn = stepped = claimed = False
    for event in events:
        match event.type:
            case "turn/start":
                in_turn, stepped, claimed = True, False, False
            case "step/start":
                stepped = True
            case "agent/inbox/spliced":
                if event.data.get("outcome") == "canceled":
                    dropped = dropped or not event.data["inserted"]
                elif in_turn and event.data.get("removedCount") and not event.data["inserted"]:
                    claimed = True
            case "turn/end":
                if stepped or (claimed and event.data["reason"]["kind"] != "completed"):
                    end, dropped = event, False
                in_turn = stepped = claimed = False
    return ConsumedWork(end, dropped)
