"""What comes of one prompt, told from the events of its session."""

from __future__ import annotations

from typing import Any


class PromptWatch:
    """Follows a prompt from the queue to the end of the turn that took it up.

    status: the kind of that turn's end, `discarded`, or `parked` when the agent went idle without it; None until then.
    """

    def __init__(self, message_id: str) -> None:
        self._message_id = message_id
        self._taken_up = False
        self.output = ""
        self.status: str | None = None
        self.error: dict[str, Any] | None = None

    def see(self, frame: dict[str, Any]) -> bool:
        """Take one frame; True when it is known what came of the prompt."""
        kind = frame["type"]
        if kind == "session/event":
            self._event(frame["event"]["type"], frame["event"]["data"])
        elif kind == "session/discarded" and frame["messageId"] == self._message_id:
            self.status = "discarded"
        elif kind == "host/session-status" and not self._taken_up and frame["status"] != "running":
            self.status = "parked"
        return self.status is not None

    def _event(self, kind: str, data: Any) -> None:
        if kind == "user/message" and data["id"] == self._message_id:
            self._taken_up = True
        elif kind == "assistant/message" and self._taken_up:
            text = "".join(block["text"] for block in data["message"]["content"] if block["type"] == "text")
            self.output = text or self.output
        elif kind == "turn/end" and self._taken_up:
            reason = data["reason"]
            disposed = reason["kind"] == "aborted" and (reason.get("reason") or {}).get("kind") == "disposed"
            self.status = "disposed" if disposed else reason["kind"]
            self.error = reason.get("error")
