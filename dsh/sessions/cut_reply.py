"""What a log holds of a reply whose message never came, because its process ended or its stream broke for good."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class CutReply:
    """Follows events in their order."""

    def __init__(self) -> None:
        self._pieces: list[str] = []

    def event(self, kind: str, data: Mapping[str, Any]) -> None:
        """Take the text of a chunk; a message has it all, and a repeated request begins anew."""
        if kind == "assistant/chunk":
            if data["chunk"]["type"] == "text-delta":
                self._pieces.append(data["chunk"]["text"])
        elif kind in ("assistant/message", "step/start", "llm/retry"):
            self._pieces.clear()

    def take(self) -> str:
        """The text that no message has, once: asked for where a turn or the log ends."""
        text = "".join(self._pieces)
        self._pieces.clear()
        return text
