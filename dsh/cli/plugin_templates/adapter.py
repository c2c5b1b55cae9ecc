"""A model provider: the route ``my-plugin``, which says back what it was told.

Replace the body of ``stream`` by calls to a real model. An agent answers by it when its row, or a candidate of
``agent-default-model``, says ``provider: my-plugin`` and any ``model``.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from dsh.cordis import ConfigModel, Context, field
from dsh.llm.adapter import Adapter
from dsh.llm.content import text_of
from dsh.llm.service import Llm
from dsh.llm.types import LlmRequest, StreamChunk

ROUTE = "my-plugin"


class Config(ConfigModel):
    """What the row's ``config`` may hold; a field ``base_url`` would be the key ``baseUrl``."""

    prefix: str = field("You said:", live=True, description="Words before what is said back")


class MyPluginAdapter(Adapter):
    """Answers requests of the route. `dsh.llm.adapter.Adapter` has more to override: models, retries, usability."""

    def __init__(self, config: Config) -> None:
        self._config = config

    async def stream(self, request: LlmRequest) -> AsyncIterator[StreamChunk]:
        """Answer one request, chunk by chunk. What is raised here becomes the failure that the turn ends with."""
        prompts = [message for message in request.messages if message["source"]["kind"] == "user"]
        answer = f"{self._config.prefix} {text_of(prompts[-1]['content'])}" if prompts else "Nothing was said."
        yield {"type": "block-start", "index": 0, "blockType": "text"}
        for word in answer.split(" "):
            if request.signal is not None:
                request.signal.raise_if_aborted()
            yield {"type": "text-delta", "index": 0, "text": word + " "}
        yield {"type": "block-end", "index": 0, "block": {"type": "text", "text": answer}}
        yield {"type": "finish", "reason": {"kind": "stop"}}


def apply(ctx: Context, config: Config, llm: Llm) -> None:
    """Start. Whatever is registered in here is taken back when the plugin leaves."""
    llm.register_adapter([ROUTE], MyPluginAdapter(config))
