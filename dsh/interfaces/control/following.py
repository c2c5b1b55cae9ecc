"""What comes of one prompt, told from the events of its session."""

from __future__ import annotations

from typing import Any

from ..outcome import text_of
from ..prompt_trace import PromptTrace


class PromptWatch:
    """Follows a prompt from the queue to the end of the turn that took it; fed with the frames from before it on."""

    def __init__(self, message_id: str) -> None:
        self._trace = PromptTrace(message_id)
        self._idle_since: int | None = None
        self._seen = -1
        self.output = ""

    @property
    def status(self) -> str | None:
        """What came of it, as in `PromptTrace`; None until that is known."""
        return self._trace.status

    @property
    def error(self) -> dict[str, Any] | None:
        """Why its turn failed, or the one that left it in the queue."""
        return self._trace.error

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
                self._trace.idle()
        return self.status is not None

    def _judge(self) -> None:
        if self._idle_since is not None and self._seen >= self._idle_since:
            self._trace.idle()

    def _event(self, kind: str, data: Any) -> None:
        self._trace.event(kind, data)
        if kind == "assistant/message" and self._trace.in_its_turn:
            self.output = text_of(data["message"]["content"]) or self.output
