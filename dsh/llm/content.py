"""Small questions about blocks and chunks that several places ask."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from dsh.cordis.jsonio import FrozenDict, freeze_json
from dsh.llm.types import Block, Message, StreamChunk


def text_block(text: str) -> Block:
    """A text block."""
    return {"type": "text", "text": text}


def text_of(blocks: Iterable[Block]) -> str:
    """The text blocks joined without a separator; other kinds contribute nothing."""
    return "".join(block["text"] for block in blocks if block["type"] == "text")


def is_token_delta(chunk: StreamChunk) -> bool:
    """Whether the chunk carries model output: visible text, reasoning, or a piece of a tool call."""
    kind = chunk["type"]
    if kind in ("text-delta", "reasoning-delta"):
        return bool(chunk["text"])
    return kind == "tool-call-delta" and bool(chunk["argumentsDelta"] or chunk.get("name"))


def has_image(blocks: Sequence[Block]) -> bool:
    """Whether an image stands anywhere in these blocks, nested ones included."""
    return any(
        block["type"] == "image" or (block["type"] == "tool-result" and has_image(block["content"])) for block in blocks
    )


def without_image(message: Message) -> Message:
    """The message with each image replaced by a line that says what was left out; the same object without an image.

    The line depends on the attachment alone, so the request prefix stays the same from call to call.
    """
    content = message["content"]
    return _like(message, {**message, "content": _omit_images(content)}) if has_image(content) else message


def with_source(message: Message, source: Mapping[str, Any]) -> Message:
    """The same message (same id) with another source; frozen if the message was."""
    return _like(message, {**message, "source": source})


def _like(message: Message, changed: dict[str, Any]) -> Message:
    value = freeze_json(changed) if isinstance(message, FrozenDict) else changed
    return cast(Message, value)


def _omit_images(blocks: Sequence[Block]) -> list[Block]:
    kept: list[Block] = []
    for block in blocks:
        if block["type"] == "image":
            digest = str(block["attachment"].get("attachmentId", "")).removeprefix("sha256:")[:8]
            kept.append(text_block(f"[image omitted because this model accepts text only; attachment sha256:{digest}]"))
        elif block["type"] == "tool-result" and has_image(block["content"]):
            kept.append({**block, "content": _omit_images(block["content"])})
        else:
            kept.append(block)
    return kept
