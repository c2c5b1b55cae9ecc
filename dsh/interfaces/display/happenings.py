"""Events beside the conversation, each as one quiet line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def told(kind: str, data: Mapping[str, Any]) -> str | None:
    """What to say about an event; None for what is not for people, or shown by something else."""
    match kind:
        case "approval/asked":
            return f"{data['toolName']} asks for approval: {_first(data.get('reason'))}"
        case "approval/decided":
            return f"approval: {data['outcome']}"
        case "compaction/start":
            return "making the conversation shorter"
        case "compaction/end":
            return "the conversation was made shorter"
        case "command/done":
            return _first(data.get("text")) or None
        case "hook/result" if data.get("decision") == "block":
            return "a hook refused it"
        case "plan/mode":
            return f"plan mode {'on' if data['active'] else 'off'}"
        case "sandbox/mode":
            return f"sandbox: {data['mode']}"
        case "permission/preset":
            return f"permissions: {data['preset']}"
        case "todo/write":
            return _todo(data["todos"])
        case "goal/change":
            return f"goal {data['operation']}: {_first(data['goal'].get('objective'))}"
        case "tool-workflow/agent-start":
            return f"workflow agent: {_first(data.get('label'))}"
    return None


def _todo(todos: Any) -> str | None:
    """How far a list has come, and what is being done."""
    if not todos:
        return None
    done = sum(1 for todo in todos if todo.get("status") == "completed")
    doing = next((todo for todo in todos if todo.get("status") == "in_progress"), None)
    return f"todo {done}/{len(todos)}" + ("" if doing is None else f": {_first(doing['content'])}")


def _first(text: Any) -> str:
    return str(text or "").strip().split("\n", 1)[0]
