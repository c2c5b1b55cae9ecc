"""The row ``llm-demo``: scripted replies under the provider name ``demo``, clearly labelled, without any set-up.

Useful to see the machine run before a model is configured. A prompt ``call NAME {…}`` makes the demo call that tool, so
that tools, policies and logs can be tried without a model.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from uuid import uuid4

from dsh.cordis import AbortSignal, ConfigModel, Context, field
from dsh.llm.adapter import Adapter, ModelInfo, ProviderInfo
from dsh.llm.content import text_of
from dsh.llm.service import Llm
from dsh.llm.types import LlmRequest, Message, StreamChunk

ROUTE = "demo"
MODEL = "demo"
LABEL = "[demo reply, no model involved]"
HOW_TO = (
    "To talk to a model: store a key with `dsh credentials set DEEPSEEK_API_KEY`, or fetch a small local model with "
    "`dsh local pull`, or set baseURL of the llm-deepseek row to a local server such as http://127.0.0.1:8080/v1."
)
_CALL = re.compile(r"\s*call\s+([A-Za-z0-9_-]+)\s*(\{.*\})?\s*", re.DOTALL)
_WORDS = re.compile(r"\S+\s*|\s+")

name = "llm-demo"


class Config(ConfigModel):
    """How the demo answers."""

    replies: list[str] = field(default_factory=list, description="Texts to answer with, in turn; empty: built-in ones")
    pace_ms: float = field(15, min=0, max=10_000, unit="ms", description="Pause before each word")


def apply(ctx: Context, config: Config, llm: Llm) -> None:
    """Serve the route for as long as the row is mounted."""
    llm.register_adapter([ROUTE], DemoAdapter(config))


class DemoAdapter(Adapter):
    """Replies computed from the conversation alone: the same prompt always gets the same answer."""

    def __init__(self, config: Config) -> None:
        self._config = config

    def provider_info(self, provider: str) -> ProviderInfo:
        return {"id": provider, "name": "Demo (scripted replies)"}

    async def list_models(self, provider: str) -> Sequence[ModelInfo]:
        return [await self.resolve_model(provider, MODEL)]

    async def resolve_model(self, provider: str, model: str, signal: AbortSignal | None = None) -> ModelInfo:
        return {"provider": provider, "id": model, "name": "Demo", "inputModalities": ["text"]}

    async def stream(self, request: LlmRequest) -> AsyncIterator[StreamChunk]:
        prompts = [message for message in request.messages if message["source"]["kind"] == "user"]
        prompt = text_of(prompts[-1]["content"]) if prompts else ""
        result = _tool_result(request.messages)
        wanted = _CALL.fullmatch(prompt)
        offered = {tool["name"] for tool in request.tools or ()}
        if result is None and wanted is not None and wanted[1] in offered:
            for chunk in _call(wanted[1], wanted[2] or "{}"):
                yield chunk
            return
        text = f"The tool answered:\n{result}" if result is not None else self._reply(prompt, len(prompts))
        yield {"type": "block-start", "index": 0, "blockType": "text"}
        said = f"{LABEL} {text}"
        for word in _WORDS.findall(said):
            await asyncio.sleep(self._config.pace_ms / 1000)
            if request.signal is not None:
                request.signal.raise_if_aborted()
            yield {"type": "text-delta", "index": 0, "text": word}
        yield {"type": "block-end", "index": 0, "block": {"type": "text", "text": said}}
        yield {"type": "finish", "reason": {"kind": "stop"}}

    def _reply(self, prompt: str, number: int) -> str:
        replies = self._config.replies
        if replies:
            return replies[(number - 1) % len(replies)]
        shown = prompt if len(prompt) <= 200 else prompt[:199] + "…"
        return f"You said: {shown}\n{HOW_TO}"


def _tool_result(messages: Sequence[Message]) -> str | None:
    """The text of the tool result that waits for an answer; injected context may stand behind it."""
    for message in reversed(messages):
        if message["source"]["kind"] == "tool":
            blocks = message["content"]
            return "".join(text_of(block["content"]) for block in blocks if block["type"] == "tool-result")
        if message["source"]["kind"] != "plugin":
            return None
    return None


def _call(tool: str, arguments: str) -> list[StreamChunk]:
    call_id = f"call_{uuid4()}"
    return [
        {"type": "block-start", "index": 0, "blockType": "tool-call"},
        {"type": "tool-call-delta", "index": 0, "id": call_id, "name": tool, "argumentsDelta": arguments},
        {
            "type": "block-end",
            "index": 0,
            "block": {"type": "tool-call", "id": call_id, "name": tool, "arguments": arguments},
        },
        {"type": "finish", "reason": {"kind": "tool-calls"}},
    ]
