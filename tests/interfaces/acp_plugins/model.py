"""A model that does what the prompt says: the prompt is a JSON list of replies, one a step, each a list of parts.

Parts: ``{"think"}``, ``{"text"}`` (a list streams it in pieces), ``{"whole"}`` (text without deltas), ``{"call", "id",
"arguments"}``, ``{"half_call", "id"}``, ``{"image": reference}``, ``{"touch": path}``, ``{"hang": true}``,
``{"pause": seconds}``, ``{"fail": code}``, ``{"fail_once": code}``, ``{"finish": kind}``. Any other prompt
is answered by its own text.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from dsh.cordis import ConfigModel, Context, field
from dsh.llm.adapter import Adapter, ModelInfo
from dsh.llm.failure import LlmError
from dsh.llm.retry_policy import RetryPolicy
from dsh.llm.service import Llm
from dsh.llm.types import LlmRequest, StreamChunk


class Config(ConfigModel):
    provider: str = field("scripted")


def apply(ctx: Context, config: Config, llm: Llm) -> None:
    llm.register_adapter([config.provider], Scripted())


class Scripted(Adapter):
    def __init__(self) -> None:
        self._failed: set[tuple[str, int]] = set()

    def provider_retry_policy(self, provider: str) -> RetryPolicy:
        return RetryPolicy.validate({"maxRetries": 2, "backoff": {"initialDelayMs": 1, "jitterRatio": 0}})

    async def list_models(self, provider: str) -> list[ModelInfo]:
        return [await self.resolve_model(provider, model) for model in ("blind", "eyes")]

    async def resolve_model(self, provider: str, model: str, signal: Any = None) -> ModelInfo:
        modalities = ["text", "image"] if model == "eyes" else ["text"]
        info: ModelInfo = {"provider": provider, "id": model, "name": model.title(), "inputModalities": modalities}
        return {**info, "context": {"contextWindow": 1000}}

    async def stream(self, request: LlmRequest) -> AsyncIterator[StreamChunk]:
        at = max(n for n, one in enumerate(request.messages) if one["source"]["kind"] == "user")
        prompt = request.messages[at]
        text = "".join(block.get("text", "") for block in prompt["content"])
        step = sum(one["role"] == "assistant" for one in request.messages[at:])
        try:
            replies = json.loads(text)
            parts = replies[step]
        except (ValueError, TypeError, IndexError, KeyError):
            parts = [{"text": f"{request.model} heard: {text}"}]
        finish = "stop"
        index = 0
        for part in parts:
            async for chunk in self._part(part, index, (prompt["id"], step), request):
                yield chunk
            index += 1
            if "call" in part:
                finish = "tool-calls"
            finish = part.get("finish", finish)
        yield {"type": "usage", "usage": {"inputTokens": 1, "outputTokens": 1}}
        yield {"type": "finish", "reason": {"kind": finish}}

    async def _part(
        self, part: dict[str, Any], index: int, where: tuple[str, int], request: LlmRequest
    ) -> AsyncIterator[StreamChunk]:
        assert request.signal is not None
        if "touch" in part:
            Path(part["touch"]).touch()
        elif "hang" in part:
            await request.signal.wait()
            request.signal.raise_if_aborted()
        elif "pause" in part:
            await asyncio.sleep(part["pause"])
        elif "fail" in part:
            raise LlmError.of(part["fail"], f"scripted {part['fail']}")
        elif "fail_once" in part:
            if where not in self._failed:
                self._failed.add(where)
                raise LlmError.of(part["fail_once"], f"scripted {part['fail_once']}")
        elif "think" in part or "text" in part:
            kind = "text" if "text" in part else "reasoning"
            given = part.get("text", part.get("think"))
            pieces = given if isinstance(given, list) else [given]
            yield {"type": "block-start", "index": index, "blockType": kind}
            for piece in pieces:
                yield {"type": f"{kind}-delta", "index": index, "text": piece}  # type: ignore[typeddict-item]
            yield {"type": "block-end", "index": index, "block": {"type": kind, "text": "".join(pieces)}}
        elif "whole" in part:
            yield {"type": "block-start", "index": index, "blockType": "text"}
            yield {"type": "block-end", "index": index, "block": {"type": "text", "text": part["whole"]}}
        elif "image" in part:
            yield {"type": "block-start", "index": index, "blockType": "image"}
            yield {"type": "block-end", "index": index, "block": {"type": "image", "attachment": part["image"]}}
        elif "half_call" in part:
            yield {"type": "block-start", "index": index, "blockType": "tool-call"}
            yield {
                "type": "tool-call-delta",
                "index": index,
                "id": part["id"],
                "name": part["half_call"],
                "argumentsDelta": "{",
            }
        elif "call" in part:
            arguments = json.dumps(part["arguments"])
            call = {"id": part["id"], "name": part["call"]}
            yield {"type": "block-start", "index": index, "blockType": "tool-call"}
            yield {"type": "tool-call-delta", "index": index, **call, "argumentsDelta": arguments[:5]}  # type: ignore[typeddict-item]
            yield {"type": "tool-call-delta", "index": index, "id": part["id"], "argumentsDelta": arguments[5:]}
            yield {"type": "block-end", "index": index, "block": {"type": "tool-call", **call, "arguments": arguments}}  # type: ignore[typeddict-item]
