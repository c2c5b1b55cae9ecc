"""Session events as typed objects.

    async for event in session.prompt("What time is it?"):
        match event:
            case TextDelta(text=text):
                print(text, end="")
            case ToolStart(name=name, arguments=arguments):
                print(f"[{name} {arguments}]")
            case TurnEnd(status=status):
                print(status)

The logged event itself is always there as ``raw``; one that has no class of its own is a plain ``Event``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dsh.cordis.records import record
from dsh.core.session_event import SessionEvent
from dsh.core.tool_batch import parse_arguments
from dsh.interfaces.outcome import end_name
from dsh.llm.content import text_of


@record
class Event:
    """An event without a class of its own. ``raw``: type, seq, time (ms since the epoch) and frozen data as logged."""

    session_id: str
    raw: SessionEvent

    @property
    def type(self) -> str:
        """The event's type in the log, such as ``turn/start``."""
        return self.raw.type


@record
class TurnStart(Event):
    """A turn begins: one prompt, worked on until the agent has nothing more to do about it."""

    turn: int


@record
class StepStart(Event):
    """A step begins: one reply of the model and the tools it calls."""

    turn: int
    step: int


@record
class UserMessage(Event):
    """A message the model will see. ``source``: ``user`` for a prompt, ``plugin`` for what a plugin added."""

    message_id: str
    text: str
    source: str


@record
class TextDelta(Event):
    """A piece of the answer as it streams."""

    text: str


@record
class ReasoningDelta(Event):
    """A piece of the model's reasoning as it streams."""

    text: str


@record
class AssistantMessage(Event):
    """A whole reply. ``usage``: token counts by name; ``interrupted``: cut off by a cancel."""

    text: str
    usage: Mapping[str, int]
    interrupted: bool


@record
class ToolStart(Event):
    """A tool is called. ``arguments``: the value the model wrote, a text if it was no JSON."""

    call_id: str
    name: str
    arguments: Any


@record
class ToolEnd(Event):
    """The result of a call, in the order of the calls. ``error_code`` is that of a failure with one."""

    call_id: str
    name: str
    text: str
    is_error: bool
    error_code: str | None


@record
class Retry(Event):
    """A request to the model failed and is sent again after ``delay_ms``. ``retry`` counts from 1."""

    retry: int
    delay_ms: float
    code: str
    message: str


@record
class StepEnd(Event):
    """A step ended."""

    turn: int
    step: int


@record
class TurnEnd(Event):
    """A turn ended: ``completed``, ``max-tokens``, ``error``, ``aborted``, ``blocked``, ``interrupted``, ``disposed``.

    ``error``: ``{message, code, …}`` of a failed turn.
    """

    turn: int
    status: str
    error: Mapping[str, Any] | None


class EventReader:
    """Makes typed events of one session's log."""

    def __init__(self, session_id: str) -> None:
        self._session_id = session_id
        self._tools: dict[str, str] = {}

    def read(self, raw: SessionEvent) -> Event:
        """The typed form of the session's next event; one that does not have the fields of its type stays untyped."""
        make = _MAKE.get(raw.type)
        if make is not None:
            try:
                return make(self, self._session_id, raw, raw.data)
            except (KeyError, TypeError, IndexError, AttributeError):  # a log of an older or another writer
                pass
        return Event(self._session_id, raw)

    def _chunk(self, session_id: str, raw: SessionEvent, data: Any) -> Event:
        chunk = data["chunk"]
        if chunk["type"] == "text-delta":
            return TextDelta(session_id, raw, chunk["text"])
        if chunk["type"] == "reasoning-delta":
            return ReasoningDelta(session_id, raw, chunk["text"])
        return Event(session_id, raw)

    def _user(self, session_id: str, raw: SessionEvent, data: Any) -> Event:
        return UserMessage(session_id, raw, data["id"], text_of(data["content"]), data["source"]["kind"])

    def _assistant(self, session_id: str, raw: SessionEvent, data: Any) -> Event:
        text = text_of(data["message"]["content"])
        return AssistantMessage(session_id, raw, text, data.get("usage", {}), data.get("interrupted", False))

    def _call(self, session_id: str, raw: SessionEvent, data: Any) -> Event:
        self._tools[data["callId"]] = data["name"]
        return ToolStart(session_id, raw, data["callId"], data["name"], parse_arguments(data["arguments"]))

    def _result(self, session_id: str, raw: SessionEvent, data: Any) -> Event:
        block = data["message"]["content"][0]
        call_id = block["toolCallId"]
        code = (data.get("error") or {}).get("code")
        name = self._tools.pop(call_id, "")
        return ToolEnd(session_id, raw, call_id, name, text_of(block["content"]), bool(block.get("isError")), code)

    def _retry(self, session_id: str, raw: SessionEvent, data: Any) -> Event:
        failure = data["failure"]
        return Retry(session_id, raw, data["retry"], data["delayMs"], failure["code"], failure["message"])

    def _turn_end(self, session_id: str, raw: SessionEvent, data: Any) -> Event:
        reason = data["reason"]
        return TurnEnd(session_id, raw, data["turn"], end_name(reason), reason.get("error"))


_MAKE: Mapping[str, Callable[[EventReader, str, SessionEvent, Any], Event]] = {
    "assistant/chunk": EventReader._chunk,
    "user/message": EventReader._user,
    "assistant/message": EventReader._assistant,
    "tool/call": EventReader._call,
    "tool/result": EventReader._result,
    "llm/retry": EventReader._retry,
    "turn/start": lambda reader, session_id, raw, data: TurnStart(session_id, raw, data["turn"]),
    "step/start": lambda reader, session_id, raw, data: StepStart(session_id, raw, data["turn"], data["step"]),
    "step/end": lambda reader, session_id, raw, data: StepEnd(session_id, raw, data["turn"], data["step"]),
    "turn/end": EventReader._turn_end,
}
