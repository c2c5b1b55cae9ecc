"""Where one prompt is, told from the events of its session: in the queue, in a turn, or over."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from .outcome import end_name

if TYPE_CHECKING:
    from dsh.core.session_event import SessionEvent

PromptState = Literal["unknown", "queued", "taken", "over"]


class PromptTrace:
    """Follows a prompt from the queue to the end of the turn that took it; fed with the events from before it on.

    turn: number of the turn that took it last, 0 for one that was open before the first event. status: how it ended,
    once it is `over`: the kind of that turn's end, `discarded` (taken out of the queue unread), `parked` (the agent
    went idle with it in the queue; the next prompt starts with it), `unended` (the log could not take the turn's end)
    or `disposed`. error: why, if that turn or the one that left it in the queue failed.
    """

    def __init__(self, message_id: str) -> None:
        self.message_id = message_id
        self.state: PromptState = "unknown"
        self.turn: int | None = None
        self.status: str | None = None
        self.error: dict[str, Any] | None = None
        self._open_turn: int | None = 0  # of a turn that began before the first event it is fed, the number is unknown
        self._place: tuple[str, int] | None = None
        """The list it waits in, and its index there."""

    @property
    def in_its_turn(self) -> bool:
        """Whether the turn that is open now took the prompt, even if it gave it back since."""
        return self.turn is not None and self.turn == self._open_turn

    def event(self, kind: str, data: Any) -> None:
        """Take the next event of the session."""
        if kind == "agent/inbox/spliced":
            self._spliced(data)
        elif kind == "turn/start":
            self._open_turn = data["turn"]
        elif kind == "turn/end":
            ours, self._open_turn = self._open_turn == self.turn, None
            if ours and self.state in ("queued", "taken"):
                self.error = data["reason"].get("error")
                if self.state == "taken":
                    self._over(end_name(data["reason"]))

    def idle(self) -> None:
        """The agent works no more, and nothing wakes it for what is in its queue."""
        if self.state == "queued":
            self._over("parked")
        elif self.state == "taken":
            self._over("unended")

    def gone(self) -> None:
        """The agent was disposed."""
        if self.state != "over":
            self._over("disposed")

    def _over(self, status: str) -> None:
        self.state, self.status = "over", status

    def _spliced(self, data: Any) -> None:
        """Keep track of the prompt's place while others come and go around it."""
        start, removed = data["start"], data.get("removedCount", 0)
        if self._place is not None and self._place[0] == data["target"]:
            index = self._place[1]
            if start <= index < start + removed:
                self._place = None
                if data.get("outcome") == "canceled":
                    self._over("discarded")
                else:
                    self.state, self.turn = "taken", self._open_turn
            elif start <= index:
                self._place = data["target"], index - removed + len(data["inserted"])
        for offset, message in enumerate(data["inserted"]):
            if message["id"] == self.message_id:
                self._place = data["target"], start + offset
                self.state, self.status = "queued", None


def trace_in(events: Sequence[SessionEvent], message_id: str) -> PromptTrace:
    """What a log says of a prompt; nothing of events before the last one that put it into the queue."""
    trace = PromptTrace(message_id)
    start = len(events)
    for seq in range(len(events) - 1, -1, -1):
        event = events[seq]
        if event.type == "agent/inbox/spliced" and any(one["id"] == message_id for one in event.data["inserted"]):
            start = seq
            break
    for seq in range(start, len(events)):
        trace.event(events[seq].type, events[seq].data)
    return trace
