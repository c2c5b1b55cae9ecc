"""What comes of one prompt, told from the events of its session."""

from __future__ import annotations

from typing import Any


class PromptWatch:
    """Follows a prompt from the queue to the end of the turn that took it up; fed with the frames from before it on.

    status: the kind of that turn's end, `discarded`, or `parked` when the agent went idle without it; None until then.
    """

    def __init__(self, message_id: str) -> None:
        self._message_id = message_id
        self._place: tuple[str, int] | None = None
        """The list it waits in, and its index there."""
        self._taken_up = False
        self._idle_since: int | None = None
        self._seen = -1
        self.output = ""
        self.status: str | None = None
        self.error: dict[str, Any] | None = None

    def see(self, frame: dict[str, Any]) -> bool:
        """Take one frame; True when it is known what came of the prompt."""
        kind = frame["type"]
        if kind == "session/event":
            event = frame["event"]
            self._event(event["type"], event["data"])
            self._seen = event["seq"]
            self._judge()
        elif kind == "session/subscribed":
            self._idle_since = frame.get("lastSeq") if frame.get("status") != "running" else None
            self._judge()
        elif kind == "host/session-status":
            self._idle_since = None
            if frame["status"] != "running":
                self._parked()
        return self.status is not None

    def _judge(self) -> None:
        if self._idle_since is not None and self._seen >= self._idle_since:
            self._parked()

    def _parked(self) -> None:
        if self.status is None and not self._taken_up:
            self.status = "parked"

    def _event(self, kind: str, data: Any) -> None:
        if kind == "agent/inbox/spliced":
            self._spliced(data)
        elif kind == "user/message" and data["id"] == self._message_id:
            self._taken_up = True
        elif kind == "assistant/message" and self._taken_up:
            text = "".join(block["text"] for block in data["message"]["content"] if block["type"] == "text")
            self.output = text or self.output
        elif kind == "turn/end" and self._taken_up:
            reason = data["reason"]
            disposed = reason["kind"] == "aborted" and (reason.get("reason") or {}).get("kind") == "disposed"
            self.status = "disposed" if disposed else reason["kind"]
            self.error = reason.get("error")

    def _spliced(self, data: Any) -> None:
        """Keep track of the prompt's place while others come and go around it."""
        start, removed = data["start"], data.get("removedCount", 0)
        if self._place is not None and self._place[0] == data["target"]:
            index = self._place[1]
            if start <= index < start + removed:
                self._place = None
                if data.get("outcome") == "canceled":
                    self.status = "discarded"
            elif start <= index:
                self._place = data["target"], index - removed + len(data["inserted"])
        for offset, message in enumerate(data["inserted"]):
            if message["id"] == self._message_id:
                self._place = data["target"], start + offset
                self.status = None
