"""Event data in wire shape, and small logs made of it."""

from __future__ import annotations

from typing import Any

from dsh.core.session import Session


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


def user(value: str = "hi", id: str = "u1", source: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"id": id, "role": "user", "content": [text(value)], "source": source or {"kind": "user"}}


def assistant(
    *content: dict[str, Any], turn: int = 1, step: int = 1, id: str = "a1", usage: dict[str, Any] | None = None
) -> dict[str, Any]:
    source = {"kind": "model", "provider": "p", "model": "m"}
    message = {"id": id, "role": "assistant", "content": list(content), "source": source}
    data: dict[str, Any] = {"turn": turn, "step": step, "message": message}
    if usage is not None:
        data["usage"] = usage
    return data


def tool_call(call_id: str, name: str = "bash", arguments: str = "{}") -> dict[str, Any]:
    return {"type": "tool-call", "id": call_id, "name": name, "arguments": arguments}


def result(
    call_id: str, value: str = "ok", turn: int = 1, step: int = 1, is_error: bool = False, **more: Any
) -> dict[str, Any]:
    block = {"type": "tool-result", "toolCallId": call_id, "content": [text(value)], "isError": is_error}
    source = {"kind": "tool", "callId": call_id}
    message = {"id": f"r-{call_id}", "role": "user", "content": [block], "source": source}
    return {"turn": turn, "step": step, "message": message, **more}


def called(call_id: str, turn: int = 1, step: int = 1, name: str = "bash") -> dict[str, Any]:
    return {"turn": turn, "step": step, "callId": call_id, "name": name, "arguments": "{}"}


def chunk(value: str = "x", turn: int = 1, step: int = 1, index: int = 0) -> dict[str, Any]:
    return {"turn": turn, "step": step, "chunk": {"type": "text-delta", "index": index, "text": value}}


def header(provider: str = "p", model: str = "m", reason: str = "initial", **more: Any) -> dict[str, Any]:
    return {"header": {"config": {"provider": provider, "model": model}, **more}, "reason": reason}


def wire(type: str, seq: int, data: Any, **envelope: Any) -> dict[str, Any]:
    return {"type": type, "seq": seq, "time": 1000 + seq, "data": data, **envelope}


def replace(start: int, end: int) -> dict[str, Any]:
    return {"op": "replace", "start": start, "end": end}


def say(session: Session, *values: str) -> None:
    """Append user messages."""
    for value in values:
        session.append("user/message", user(value, id=f"u-{session.seq}"), "append")


def finished_turn(session: Session, turn: int = 1) -> None:
    """Append a whole turn with one call and its result."""
    session.append("turn/start", {"turn": turn})
    session.append("step/start", {"turn": turn, "step": 1})
    say(session, f"prompt {turn}")
    session.append("request/header", header())
    session.append("assistant/chunk", chunk("hel", turn))
    session.append(
        "assistant/message", assistant(text("hello"), tool_call("c1"), turn=turn), "append", [session.seq - 1]
    )
    session.append("tool/call", called("c1", turn))
    session.append("tool/result", result("c1", turn=turn), "append", [session.seq - 1])
    session.append("step/end", {"turn": turn, "step": 1})
    session.append("turn/end", {"turn": turn, "reason": {"kind": "completed"}})
