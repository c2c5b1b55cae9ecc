"""The rules a stream of chunks obeys, as a checker that reads along."""

from __future__ import annotations

from dsh.llm.types import StreamChunk

_DELTAS = {"text-delta": "text", "reasoning-delta": "reasoning", "tool-call-delta": "tool-call"}


class StreamGrammar:
    """Feed every chunk to `check` and call `end` after the last; both return what is wrong, or None."""

    __slots__ = ("_finished", "_open", "_seen", "_usage")

    def __init__(self) -> None:
        self._open: dict[int, str] = {}
        self._seen: set[int] = set()
        self._usage = False
        self._finished = False

    def check(self, chunk: StreamChunk) -> str | None:
        """What is wrong with `chunk` at this place of the stream."""
        kind = chunk["type"]
        if self._finished:
            return f"{kind} after finish"
        if kind == "usage":
            repeated, self._usage = self._usage, True
            return "more than one usage" if repeated else None
        if kind == "finish":
            self._finished = True
            failed = chunk["reason"]["kind"] in ("error", "aborted")
            return None if failed or not self._open else f"finish while blocks {sorted(self._open)} are open"
        return self._check_block(kind, chunk)

    def end(self) -> str | None:
        """What is wrong with the stream ending here."""
        return None if self._finished else "the stream ended without finish"

    def _check_block(self, kind: str, chunk: StreamChunk) -> str | None:
        index = chunk["index"]
        if kind == "block-start":
            if index < 0 or index in self._seen:
                return f"block-start with negative or repeated index {index}"
            self._seen.add(index)
            self._open[index] = chunk["blockType"]
            return None
        expected = chunk["block"]["type"] if kind == "block-end" else _DELTAS.get(kind)
        if expected is None:
            return f"unknown chunk type {kind}"
        if self._open.get(index) != expected:
            return f"{kind} of type {expected} for index {index}, where {self._open.get(index, 'nothing')} is open"
        if kind == "block-end":
            del self._open[index]
        return None
