"""Making messages: each constructor mints the id once and returns a deep-frozen value detached from its input."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast
from uuid import uuid4

from dsh.cordis.jsonio import snapshot_json
from dsh.llm.content import text_block
from dsh.llm.types import Block, Message, Role

__all__ = [
    "create_assistant_message",
    "create_message",
    "create_tool_result_message",
    "create_user_message",
    "freeze_message",
    "text_block",
]

SUMMARY_LIMIT = 120
"""Longest summary of a ``notice`` source, in characters."""


def create_message(role: Role, content: Sequence[Block], source: Mapping[str, Any]) -> Message:
    """A new message with a fresh id. Raises ``NotJsonError`` when content or source is not JSON data."""
    return freeze_message({"id": str(uuid4()), "role": role, "content": content, "source": _short(source)})


def create_user_message(content: str | Sequence[Block], source: Mapping[str, Any] | None = None) -> Message:
    """A user message; plain text becomes one text block, and without a source it came from the user."""
    blocks = [text_block(content)] if isinstance(content, str) else content
    return create_message("user", blocks, source or {"kind": "user"})


def create_assistant_message(
    content: Sequence[Block], provider: str, model: str, replay_state: Mapping[str, Any] | None = None
) -> Message:
    """A model's reply; `replay_state` is the adapter's private note, kept in the source."""
    source: dict[str, Any] = {"kind": "model", "provider": provider, "model": model}
    if replay_state is not None:
        source["replayState"] = replay_state
    return create_message("assistant", content, source)


def create_tool_result_message(call_id: str, content: Sequence[Block], is_error: bool = False) -> Message:
    """The user-role message that answers tool call `call_id`."""
    block: Block = {"type": "tool-result", "toolCallId": call_id, "content": content, "isError": is_error}
    return create_message("user", [block], {"kind": "tool", "callId": call_id})


def freeze_message(message: Message | Mapping[str, Any]) -> Message:
    """The message, detached and deep-frozen, under its existing id. A frozen message is returned as it is."""
    return cast(Message, snapshot_json(message))


def _short(source: Mapping[str, Any]) -> Mapping[str, Any]:
    summary = source.get("summary")
    if source.get("form") != "notice" or not isinstance(summary, str) or len(summary) <= SUMMARY_LIMIT:
        return source
    return {**source, "summary": summary[: SUMMARY_LIMIT - 1] + "…"}
