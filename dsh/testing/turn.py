"""A turn of an agent as a test looks at it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dsh.cordis.records import record
from dsh.core.session_event import SessionEvent
from dsh.core.tools import ToolResult


@record
class Turn:
    """What one prompt led to: the events of the log from the prompt on."""

    events: Sequence[SessionEvent]

    @property
    def status(self) -> str:
        """How it ended: ``completed``, ``aborted``, ``error``, ``max-tokens``, …"""
        return str(self.reason["kind"])

    @property
    def reason(self) -> Any:
        """Why it ended, as the log says it; of the last turn if there were several."""
        return self.of_type("turn/end")[-1]["reason"]

    @property
    def text(self) -> str:
        """The last thing the agent said."""
        said = [_text(data["message"]["content"]) for data in self.of_type("assistant/message")]
        return next((text for text in reversed(said) if text), "")

    @property
    def calls(self) -> list[tuple[str, str]]:
        """Each tool call with its arguments, as the model wrote them."""
        return [(data["name"], data["arguments"]) for data in self.of_type("tool/call")]

    @property
    def results(self) -> list[str]:
        """What the model read of each tool result, in order."""
        return [
            _text(block["content"])
            for data in self.of_type("tool/result")
            for block in data["message"]["content"]
            if block["type"] == "tool-result"
        ]

    def of_type(self, kind: str) -> list[Any]:
        """The data of all events of one type."""
        return [event.data for event in self.events if event.type == kind]


def result_text(result: ToolResult) -> str:
    """What a model reads of a tool result: its texts line by line, other blocks by their type."""
    return _text(result.content)


def _text(blocks: Any) -> str:
    shown = [block.get("text", f"[{block['type']}]") for block in blocks if block["type"] not in _SILENT]
    return "\n".join(shown)


_SILENT = frozenset({"tool-call", "reasoning"})
