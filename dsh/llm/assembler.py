"""Turning a stream of chunks into the blocks of a reply: one assembler for the loop, the meter and the replay."""

from __future__ import annotations

from typing import Any, cast

from dsh.llm.types import Block, FinishReason, ReplayEnvelope, StreamChunk, Usage

_DELTA_TYPES = {"text-delta": "text", "reasoning-delta": "reasoning", "tool-call-delta": "tool-call"}


class _Slot:
    """One block while it is being streamed; `block` is set once the provider has closed it."""

    __slots__ = ("block", "id", "name", "parts", "type")

    def __init__(self, block_type: str) -> None:
        self.type = block_type
        self.parts: list[str] = []
        self.id = ""
        self.name = ""
        self.block: Block | None = None


class BlockAssembler:
    """Collects one stream. Blocks stand in the order in which their index was first seen.

    Streams of deltas without starts or ends are fine; a repeated start and anything for a closed block is ignored, and
    the block of the first ``block-end`` is authoritative.
    """

    __slots__ = ("_finish", "_replay", "_slots", "usage")

    def __init__(self) -> None:
        self._slots: dict[int, _Slot] = {}
        self._finish: FinishReason | None = None
        self._replay: ReplayEnvelope | None = None
        self.usage: Usage | None = None
        """The last usage sample, or None when the provider reported none."""

    def push(self, chunk: StreamChunk) -> None:
        """Take the next chunk of the stream."""
        kind = chunk["type"]
        if kind in _DELTA_TYPES:
            slot = self._slots.get(chunk["index"])
            if slot is None:
                slot = self._slots[chunk["index"]] = _Slot(_DELTA_TYPES[kind])
            if slot.block is not None or slot.type != _DELTA_TYPES[kind]:
                return
            if kind != "tool-call-delta":
                slot.parts.append(chunk["text"])
                return
            slot.parts.append(chunk["argumentsDelta"])
            slot.id = slot.id or chunk.get("id") or ""
            slot.name = chunk.get("name") or slot.name
        elif kind == "block-start":
            self._slots.setdefault(chunk["index"], _Slot(chunk["blockType"]))
        elif kind == "block-end":
            slot = self._slots.setdefault(chunk["index"], _Slot(chunk["block"]["type"]))
            if slot.block is None:
                slot.block = chunk["block"]
        elif kind == "usage":
            self.usage = chunk["usage"]
        elif kind == "finish":
            self._finish = chunk["reason"]
            self._replay = chunk.get("replayState")

    @property
    def finish(self) -> FinishReason:
        """How the stream ended; a stream without a finish counts as a normal stop."""
        return self._finish or {"kind": "stop"}

    def blocks(self) -> list[Block]:
        """The blocks of the reply. A reply cut at its token limit holds no tool calls: their arguments may be halves.

        Raises ``ValueError`` for a block of an unknown type that was never closed.
        """
        every = self._all_blocks()
        if self.finish["kind"] != "max-tokens":
            return every
        return [block for block in every if block["type"] != "tool-call"]

    def tool_calls(self) -> list[Block]:
        """The tool-call blocks of the reply, in order."""
        return [block for block in self.blocks() if block["type"] == "tool-call"]

    def interrupted_blocks(self) -> list[Block]:
        """What a person saw of a stream that was cut: text and reasoning with something other than blanks."""
        kept: list[Block] = []
        for slot in self._slots.values():
            block = slot.block
            kind = _type(slot)
            if kind in ("text", "reasoning"):
                text = "".join(slot.parts) if block is None else block["text"]
                if text.strip():
                    kept.append(block if block is not None else {"type": kind, "text": text})
        return kept

    @property
    def replay_state(self) -> ReplayEnvelope | None:
        """The adapter's envelope, its entries aligned with `blocks`; None when it does not fit the reply."""
        envelope = self._replay
        if envelope is None or "blocks" not in envelope:
            return envelope
        entries = envelope["blocks"]
        if len(entries) != len(self._slots):
            return None
        if self.finish["kind"] != "max-tokens":
            return envelope
        kept = [entry for entry, slot in zip(entries, self._slots.values(), strict=True) if _type(slot) != "tool-call"]
        aligned: dict[str, Any] = {**envelope, "blocks": kept}
        return cast(ReplayEnvelope, aligned)

    def _all_blocks(self) -> list[Block]:
        return [slot.block or _from_deltas(index, slot) for index, slot in self._slots.items()]


def _type(slot: _Slot) -> str:
    return slot.type if slot.block is None else slot.block["type"]


def _from_deltas(index: int, slot: _Slot) -> Block:
    joined = "".join(slot.parts)
    if slot.type in ("text", "reasoning"):
        return {"type": slot.type, "text": joined}
    if slot.type == "tool-call":
        return {"type": "tool-call", "id": slot.id or f"call-{index}", "name": slot.name, "arguments": joined}
    raise ValueError(f'the stream ended inside a block of unknown type "{slot.type}" (index {index})')
