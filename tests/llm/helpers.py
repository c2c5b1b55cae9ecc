"""A scripted adapter and small builders for tests of the model service."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing
from typing import Any

from dsh.llm.adapter import Adapter, ModelInfo
from dsh.llm.call_config import CallConfig
from dsh.llm.message import create_user_message
from dsh.llm.retry_policy import RetryPolicy
from dsh.llm.service import Llm
from dsh.llm.types import LlmRequest, StreamChunk

HELLO: list[StreamChunk] = [
    {"type": "block-start", "index": 0, "blockType": "text"},
    {"type": "text-delta", "index": 0, "text": "hello"},
    {"type": "block-end", "index": 0, "block": {"type": "text", "text": "hello"}},
    {"type": "finish", "reason": {"kind": "stop"}},
]


class FakeAdapter(Adapter):
    """Streams what it is given and keeps the requests; `info` adds to what it says about every model."""

    def __init__(self, chunks: Sequence[StreamChunk] | Callable[[LlmRequest], Any] = HELLO, **info: Any) -> None:
        self.chunks = chunks
        self.info = info
        self.policy: RetryPolicy | None = None
        self.requests: list[LlmRequest] = []
        self.closed = 0

    def provider_retry_policy(self, provider: str) -> RetryPolicy | None:
        return self.policy

    async def resolve_model(self, provider: str, model: str, signal: Any = None) -> ModelInfo:
        return {"provider": provider, "id": model, "name": model, **self.info}  # type: ignore[typeddict-item]

    async def stream(self, request: LlmRequest) -> AsyncIterator[StreamChunk]:
        self.requests.append(request)
        try:
            source = self.chunks(request) if callable(self.chunks) else self.chunks
            if hasattr(source, "__aiter__"):
                async for chunk in source:
                    yield chunk
            else:
                for chunk in source:
                    yield chunk
        finally:
            self.closed += 1


def request(provider: str = "p", model: str = "m", text: str = "hi", **more: Any) -> LlmRequest:
    """A one-message request."""
    config = more.pop("config", None) or CallConfig(provider, model)
    messages = more.pop("messages", None) or [create_user_message(text)]
    return LlmRequest(config, messages, **more)


async def collect(stream: AsyncIterator[StreamChunk]) -> list[StreamChunk]:
    """All chunks of a stream, which is closed afterwards."""
    async with aclosing(stream) as chunks:  # type: ignore[type-var]
        return [chunk async for chunk in chunks]


async def failure_code(llm: Llm, sent: LlmRequest) -> tuple[str, str]:
    """Kind and failure code of the last chunk."""
    last = (await collect(llm.stream(sent)))[-1]
    return last["reason"]["kind"], last["reason"]["failure"]["code"]
