"""`test:cli-mock-llm`: a model for one tool round trip through the command line, or a failure when asked for one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

from dsh.cordis import AbortSignal, Context
from dsh.core.agent_events import AgentRequest
from dsh.llm.adapter import Adapter, ModelInfo
from dsh.llm.call_config import CallConfig
from dsh.llm.failure import LlmFailure
from dsh.llm.service import Llm
from dsh.llm.types import LlmRequest, StreamChunk
from dsh.loader.environment import launch_environment_of

ROUTE = "cli-mock"
ARGUMENTS = '{"command":"printf CLI_TOOL_ROUND_TRIP","description":"Prove the CLI tool round trip."}'
CALL = {"id": "cli-smoke-call", "name": "bash"}


def apply(ctx: Context, llm: Llm) -> None:
    """Serve the route; the second step thinks no more."""
    failing = launch_environment_of(ctx).get("DSH_CLI_MOCK_FAILURE")
    llm.register_adapter([ROUTE], CliMock(failing is not None and failing.value == "1"))

    async def think_less(event: AgentRequest, following: Callable[[], Awaitable[CallConfig]]) -> CallConfig:
        config = await following()
        return replace(config, reasoning_effort="off") if event.step == 2 else config

    ctx.on(AgentRequest, think_less)


class CliMock(Adapter):
    """Calls `bash` once and reports what it said."""

    def __init__(self, failing: bool) -> None:
        self._failing = failing

    async def resolve_model(self, provider: str, model: str, signal: AbortSignal | None = None) -> ModelInfo:
        efforts = [{"id": effort, "name": effort} for effort in ("off", "high")]
        reasoning: Any = {"efforts": efforts, "defaultEffort": "high"}
        return {"provider": provider, "id": model, "name": model, "reasoning": reasoning}

    async def list_models(self, provider: str) -> Sequence[ModelInfo]:
        return [await self.resolve_model(provider, ROUTE)]

    async def stream(self, request: LlmRequest) -> AsyncIterator[StreamChunk]:
        if self._failing:
            failure = LlmFailure("CLI mock provider failed", "SERVER")
            yield {"type": "finish", "reason": {"kind": "error", "failure": failure.to_wire()}}
            return
        result = _tool_text(request.messages[-1])
        if result is None:
            yield {"type": "block-start", "index": 0, "blockType": "tool-call"}
            yield {"type": "tool-call-delta", "index": 0, **CALL, "argumentsDelta": ARGUMENTS}  # type: ignore[typeddict-item]
            block = {"type": "tool-call", **CALL, "arguments": ARGUMENTS}
            yield {"type": "block-end", "index": 0, "block": block}  # type: ignore[typeddict-item]
            yield {"type": "usage", "usage": {"inputTokens": 11, "outputTokens": 3, "cacheReadTokens": 2}}
            yield {"type": "finish", "reason": {"kind": "tool-calls"}}
            return
        text = f"CLI tool round trip complete: {result}"
        yield {"type": "block-start", "index": 0, "blockType": "text"}
        yield {"type": "text-delta", "index": 0, "text": text}
        yield {"type": "block-end", "index": 0, "block": {"type": "text", "text": text}}
        yield {"type": "usage", "usage": {"inputTokens": 7, "outputTokens": 5, "reasoningTokens": 1}}
        yield {"type": "finish", "reason": {"kind": "stop"}}


def _tool_text(message: Any) -> str | None:
    for block in message["content"]:
        if block["type"] == "tool-result":
            return "".join(part["text"] for part in block["content"] if part["type"] == "text")
    return None
