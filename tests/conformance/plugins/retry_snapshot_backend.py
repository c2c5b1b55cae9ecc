"""`test:retry-snapshot-backend`: a model that is busy once, then answers the very same request."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from dsh.cordis import AbortSignal, Context
from dsh.llm.adapter import Adapter, ModelInfo
from dsh.llm.failure import LlmError, LlmFailure
from dsh.llm.retry_policy import RetryPolicy
from dsh.llm.service import Llm
from dsh.llm.types import LlmRequest, Message, StreamChunk

ROUTE = "deepseek-official"
POLICY = {
    "mode": "normal",
    "maxRetries": 1,
    "retryableCodes": ["RATE_LIMIT"],
    "backoff": {"initialDelayMs": 1, "maxDelayMs": 1, "jitterRatio": 0},
}


def apply(ctx: Context, llm: Llm) -> None:
    """Serve the route."""
    llm.register_adapter([ROUTE], BusyOnce())


class BusyOnce(Adapter):
    """Fails the first call, checks that later ones ask the same, and answers."""

    def __init__(self) -> None:
        self._asked: list[Message] | None = None

    def provider_retry_policy(self, provider: str) -> RetryPolicy | None:
        return RetryPolicy.validate(POLICY)

    async def resolve_model(self, provider: str, model: str, signal: AbortSignal | None = None) -> ModelInfo:
        return {"provider": provider, "id": model, "name": model}

    async def list_models(self, provider: str) -> Sequence[ModelInfo]:
        return []

    async def stream(self, request: LlmRequest) -> AsyncIterator[StreamChunk]:
        messages = list(request.messages)
        if self._asked is None:
            self._asked = messages
            raise LlmError(LlmFailure("snapshot transient failure", "RATE_LIMIT", status=429))
        if messages != self._asked:
            raise AssertionError("the retry changed the messages")
        yield {"type": "block-start", "index": 0, "blockType": "text"}
        yield {"type": "text-delta", "index": 0, "text": "RETRY_OK"}
        yield {"type": "block-end", "index": 0, "block": {"type": "text", "text": "RETRY_OK"}}
        yield {"type": "usage", "usage": {"inputTokens": 4, "outputTokens": 2}}
        yield {"type": "finish", "reason": {"kind": "stop"}}
