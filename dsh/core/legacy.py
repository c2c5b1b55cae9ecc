"""Older shapes of stored events, read as today's.

Only exact old shapes are translated; a half-old one is left to the ordinary validation, or refused where nothing later
would notice. Files are never rewritten.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from dsh.cordis.jsonio import snapshot_json
from dsh.core.session_event import SessionError, SessionEvent

_STEERING: Final = "steering/message"
_FLAT_ASSISTANT: Final = frozenset({"turn", "step", "content", "provenance"})
_FLAT_RESULT: Final = frozenset({"turn", "step", "callId", "content", "isError"})


class LegacyLogError(SessionError):
    """A stored log in a form so old that it cannot be read any more."""

    code = "SESSION_LEGACY"


def import_legacy(session_id: str, events: Sequence[SessionEvent]) -> list[SessionEvent]:
    """The events with old shapes translated; untouched ones are the same objects. Raises LegacyLogError.

    A result rewrite takes the message id of the result it replaces, so `events` must be the whole log for that.
    """
    out: list[SessionEvent] = []
    base = events[0].seq if events else 0

    def message_at(seq: object) -> Any:
        index = seq - base if type(seq) is int else -1
        data = out[index].data if 0 <= index < len(out) else None
        return data.get("message") if isinstance(data, Mapping) else None

    for event in events:
        reader = _READERS.get(event.type)
        out.append(event if reader is None else reader(session_id, event, message_at))
    return out


_MessageAt = Callable[[object], Any]


def _with(event: SessionEvent, data: Any, type_: str | None = None) -> SessionEvent:
    return SessionEvent(
        type_ or event.type,
        event.seq,
        event.time,
        snapshot_json(data),
        event.surface_op,
        event.source_event_seqs,
        event.ignorable,
    )


def _derived_id(session_id: str, seq: int) -> str:
    return f"legacy-message:{session_id}:{seq}"


def _refused(session_id: str, event: SessionEvent, what: str) -> LegacyLogError:
    return LegacyLogError(f'session "{session_id}" contains unsupported legacy {what} at seq {event.seq}')


def _unsupported(session_id: str, event: SessionEvent, _: _MessageAt) -> SessionEvent:
    raise _refused(session_id, event, f"{event.type} event")


def _header(session_id: str, event: SessionEvent, _: _MessageAt) -> SessionEvent:
    if isinstance(event.data, Mapping) and event.data.get("reason") == "fallback":
        raise _refused(session_id, event, 'request/header reason "fallback"')
    return event


def _turn_start(_: str, event: SessionEvent, __: _MessageAt) -> SessionEvent:
    if isinstance(event.data, Mapping) and "trigger" in event.data:
        return _with(event, {key: value for key, value in event.data.items() if key != "trigger"})
    return event


def _turn_end(_: str, event: SessionEvent, __: _MessageAt) -> SessionEvent:
    reason = event.data.get("reason") if isinstance(event.data, Mapping) else None
    if not isinstance(reason, Mapping):
        return event
    kind = reason.get("kind")
    if kind == "aborted" and "reason" not in reason:
        return _with(event, {**event.data, "reason": {"kind": "aborted", "reason": {"kind": "legacy"}}})
    if kind == "disposed":
        return _with(event, {**event.data, "reason": {"kind": "aborted", "reason": {"kind": "disposed"}}})
    if kind == "error" and "error" not in reason:
        failure = reason.get("failure")
        if not isinstance(failure, Mapping):
            failure = {"message": reason.get("message", ""), "code": reason.get("code", "UNKNOWN")}
        return _with(event, {**event.data, "reason": {"kind": "error", "error": failure}})
    return event


def _user_message(session_id: str, event: SessionEvent, _: _MessageAt) -> SessionEvent:
    message = _identified_user(session_id, event, event.data)
    return event if message is event.data else _with(event, message)


def _identified_user(session_id: str, event: SessionEvent, message: Any) -> Any:
    if not isinstance(message, Mapping) or "id" in message or not message.keys() >= {"content", "source"}:
        return message
    return {**message, "role": message.get("role", "user"), "id": _derived_id(session_id, event.seq)}


def _steering(session_id: str, event: SessionEvent, _: _MessageAt) -> SessionEvent:
    data = event.data
    keys = data.keys() if isinstance(data, Mapping) else frozenset()
    if keys == {"turn", "message"} and isinstance(data["message"], Mapping):
        message = _identified_user(session_id, event, data["message"])
    elif keys == {"turn", "content", "source"}:
        message = _identified_user(session_id, event, {"content": data["content"], "source": data["source"]})
    else:
        raise LegacyLogError(
            f'session "{session_id}" contains malformed pre-react-loop {event.type} at seq {event.seq}'
        )
    return _with(event, message, "user/message")


def _assistant_message(session_id: str, event: SessionEvent, _: _MessageAt) -> SessionEvent:
    data = event.data
    if not isinstance(data, Mapping):
        return event
    if "message" not in data and data.keys() >= _FLAT_ASSISTANT and isinstance(data["provenance"], Mapping):
        message = {
            "id": _derived_id(session_id, event.seq),
            "role": "assistant",
            "content": data["content"],
            "source": {**data["provenance"], "kind": "model"},
        }
        return _nested(event, message, ("content", "provenance"))
    return _with_message_id(session_id, event)


def _tool_result(session_id: str, event: SessionEvent, message_at: _MessageAt) -> SessionEvent:
    data = event.data
    if not isinstance(data, Mapping):
        return event
    if "message" not in data and data.keys() >= _FLAT_RESULT:
        id_ = _derived_id(session_id, event.seq)
        if isinstance(event.surface_op, Mapping):
            replaced = message_at(event.surface_op.get("start"))
            if isinstance(replaced, Mapping):
                id_ = replaced.get("id", id_)
        block = {
            "type": "tool-result",
            "toolCallId": data["callId"],
            "content": data["content"],
            "isError": data["isError"],
        }
        message = {
            "id": id_,
            "role": "user",
            "content": [block],
            "source": {"kind": "tool", "callId": data["callId"]},
        }
        return _nested(event, message, ("callId", "content", "isError"))
    return _with_message_id(session_id, event)


def _with_message_id(session_id: str, event: SessionEvent) -> SessionEvent:
    message = event.data.get("message")
    if isinstance(message, Mapping) and "id" not in message:
        return _with(event, {**event.data, "message": {**message, "id": _derived_id(session_id, event.seq)}})
    return event


def _nested(event: SessionEvent, message: dict[str, Any], gone: tuple[str, ...]) -> SessionEvent:
    """The event with `message` right after turn and step, and the keys it was made of taken out."""
    data = event.data
    rest = {key: value for key, value in data.items() if key not in gone and key not in ("turn", "step")}
    return _with(event, {"turn": data["turn"], "step": data["step"], "message": message, **rest})


_READERS: Final[Mapping[str, Callable[[str, SessionEvent, _MessageAt], SessionEvent]]] = {
    "request/header-delta": _unsupported,
    "mode/set": _unsupported,
    "request/header": _header,
    "turn/start": _turn_start,
    "turn/end": _turn_end,
    "user/message": _user_message,
    _STEERING: _steering,
    "assistant/message": _assistant_message,
    "tool/result": _tool_result,
}
