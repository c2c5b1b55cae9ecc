"""What a scripted model answers in tests of the spine, chunk by chunk: also what no provider should send."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

from dsh.cordis import AbortError
from dsh.llm.adapter import Adapter
from dsh.llm.types import LlmRequest, StreamChunk
from dsh.testing import Reply
from dsh.testing.replies import Chunks, ToolCall

Entry = Chunks | Callable[[LlmRequest], Any] | str | tuple[Chunks, str]
"""What `ScriptedAdapter` plays for one request."""

USAGE = {"inputTokens": 10, "outputTokens": 5}


def text_reply(text: str, usage: Mapping[str, int] | None = None, finish: str = "stop") -> Chunks:
    """The chunks of one text block in two deltas, with its usage."""
    return Reply(text, usage=usage or USAGE, finish=finish).chunks()


def reasoning_reply(reasoning: str, text: str) -> Chunks:
    """The chunks of a reply that thinks first; the text comes in one delta."""
    said = [
        {"type": "block-start", "index": 1, "blockType": "text"},
        {"type": "text-delta", "index": 1, "text": text},
        {"type": "block-end", "index": 1, "block": {"type": "text", "text": text}},
    ]
    return [*Reply(reasoning=reasoning).chunks()[:-1], *said, {"type": "finish", "reason": {"kind": "stop"}}]


def tool_reply(*calls: ToolCall, finish: str = "tool-calls") -> Chunks:
    """The chunks of a reply that calls tools."""
    return Reply(calls=calls, finish=finish).chunks()


def error_reply(message: str = "boom", code: str = "SERVER", kind: str = "error", **more: Any) -> Chunks:
    """The chunks of a reply that the provider ends with a failure."""
    return [{"type": "finish", "reason": {"kind": kind, "failure": {"message": message, "code": code, **more}}}]


class ScriptedAdapter(Adapter):
    """Plays one entry a request and records every request.

    An entry is a chunk list; a function of the request giving one; ``"hang"`` (one text delta, then wait for the
    abort); ``"hang-slow"`` (notices the abort 50 ms late); or ``(chunks, "hang")``.
    """

    def __init__(self, script: Sequence[Entry]) -> None:
        self.script = list(script)
        self.requests: list[LlmRequest] = []
        self.hanging = asyncio.Event()

    async def stream(self, request: LlmRequest) -> AsyncIterator[StreamChunk]:
        self.requests.append(request)
        if not self.script:
            raise AssertionError("the scripted model has no entry left")
        entry: Any = self.script.pop(0)
        if callable(entry):
            entry = entry(request)
            if inspect.isawaitable(entry):
                entry = await entry
        hang = None
        if isinstance(entry, tuple):
            entry, hang = entry
        elif isinstance(entry, str):
            hang = entry
            entry = [
                {"type": "block-start", "index": 0, "blockType": "text"},
                {"type": "text-delta", "index": 0, "text": "partial"},
            ]
        for chunk in entry:
            await asyncio.sleep(0)
            yield chunk
        if hang is not None:
            self.hanging.set()
            assert request.signal is not None
            await request.signal.wait()
            if hang == "hang-slow":
                await asyncio.sleep(0.05)
            raise AbortError("stream aborted")
