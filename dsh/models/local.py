"""The row ``llm-local``: a model that runs on this machine, under the provider name ``local``.

Needs the extra ``dsh[local]`` and a model file (``dsh local pull`` fetches a small one); without them the row mounts
and its route says what is missing. The small model is for demonstrations and smoke tests: it usually gets a single
action right and rarely a sequence. Any larger instruct model in GGUF form can be named instead.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any, Literal

import orjson

from dsh.cordis import AbortSignal, ConfigModel, Context, field
from dsh.llm.adapter import Adapter, ModelInfo, ProviderInfo
from dsh.llm.failure import LlmError
from dsh.llm.prices import Prices
from dsh.llm.retry_policy import RetryPolicy
from dsh.llm.service import Llm
from dsh.llm.transport.deadline import StreamDeadline
from dsh.llm.transport.http import HttpClient, Reply, encode_body
from dsh.llm.types import LlmRequest, StreamChunk
from dsh.loader.environment import home_of
from dsh.loader.home import Home
from dsh.models.deepseek.request import wire_messages
from dsh.models.deepseek.response import CompletionReader, malformed, read_usage
from dsh.models.local_prompt import MAX_TOOLS, ActionReader, action_prompt, calls_since_prompt, output_schema
from dsh.models.local_pull import model_file
from dsh.models.local_server import Endpoint, LocalServer

ROUTE = "local"
FETCHED_MODEL = "smollm2-135m"
INSTALL = 'pip install "dsh[local]"'
name = "llm-local"


class LocalModel(ConfigModel):
    """One model file."""

    id: str = field(min=1, description="Model id within the route")
    name: str | None = field(None, description="Display name")
    model_path: str = field(min=1, description="Path of the GGUF file")
    context_window: int | None = field(None, min=256, unit="tokens", description="Window; the row's if absent")


class Config(ConfigModel):
    """Which models run here, and how."""

    model_path: str | None = field(None, description="GGUF file of the default model; the one of `dsh local pull`")
    models: list[LocalModel] = field(default_factory=list, description="Further models by id")
    context_window: int = field(8192, min=256, unit="tokens", description="Window given to a model")
    threads: int = field(
        default_factory=lambda: max(1, (os.cpu_count() or 2) // 2), min=1, description="Worker threads; half the cores"
    )
    tool_mode: Literal["constrained", "native", "none"] = field(
        "constrained", description="constrained: schema-bound actions; native: the model's own tool calls; none"
    )
    max_tool_steps: int = field(3, min=1, description="Tool calls in a row before an answer is due (constrained)")
    idle_stop_seconds: float = field(600, min=1, unit="s", description="Stop the server after this long without use")
    max_tokens: int = field(512, min=1, unit="tokens", description="Output cap when nothing else says")

    def cross_check(self) -> Iterable[tuple[str, str]]:
        ids = [self.default_model, *(model.id for model in self.models)]
        for index, model in enumerate(self.models):
            if model.id in ids[: index + 1]:
                yield f"models[{index}].id", f'stands twice: "{model.id}"'

    @property
    def default_model(self) -> str:
        """Id of the model at `modelPath`: the file's name, or the one that is fetched."""
        return Path(self.model_path).stem if self.model_path else FETCHED_MODEL


def apply(ctx: Context, config: Config, llm: Llm) -> None:
    """Serve the route for as long as the row is mounted."""
    adapter = LocalAdapter(ctx, config, home_of(ctx))
    ctx.defer(adapter.close)
    llm.register_adapter([ROUTE], adapter)


class LocalAdapter(Adapter):
    """Runs one server a model file and talks HTTP to it."""

    def __init__(self, ctx: Context, config: Config, home: Home) -> None:
        self._ctx = ctx
        self._config = config
        self._home = home
        self._client = HttpClient()
        self._servers: dict[str, LocalServer] = {}

    async def close(self) -> None:
        """Close connections and end every server process."""
        await self._client.close()
        for server in self._servers.values():
            await server.close()

    def provider_info(self, provider: str) -> ProviderInfo:
        return {"id": provider, "name": "Local model"}

    def provider_retry_policy(self, provider: str) -> RetryPolicy:
        return RetryPolicy(max_retries=1)

    async def list_models(self, provider: str) -> Sequence[ModelInfo]:
        return [self._info(provider, model_id) for model_id in self._models()]

    async def resolve_model(self, provider: str, model: str, signal: AbortSignal | None = None) -> ModelInfo:
        return self._info(provider, model)

    def prices(self, provider: str) -> Mapping[str, Prices]:
        return dict.fromkeys(
            self._models(), Prices(input=0, cached_input=0, output=0)
        )  # one's own machine sends no bill

    def usable(self, provider: str) -> str | None:
        missing = self._missing()
        return None if missing is None else missing.failure.message

    async def stream(self, request: LlmRequest) -> AsyncIterator[StreamChunk]:
        missing = self._missing(request.model)
        if missing is not None:
            raise missing
        constrained = bool(request.tools) and self._config.tool_mode == "constrained"
        server = self._server(request.model)
        with StreamDeadline("the local model", 600_000, 900_000, request.signal) as deadline:
            entering = server.use()
            endpoint = await deadline.wait(entering.__aenter__())
            chunks = self._act(request, endpoint, deadline) if constrained else self._chat(request, endpoint, deadline)
            try:
                async with aclosing(chunks):
                    async for chunk in chunks:
                        yield chunk
            except LlmError as error:
                if error.code == "TRANSPORT":
                    await server.close()  # dead or deaf: the next call starts another
                raise
            finally:
                await entering.__aexit__(None, None, None)

    async def _act(
        self, request: LlmRequest, endpoint: Endpoint, deadline: StreamDeadline
    ) -> AsyncGenerator[StreamChunk, None]:
        """A reply bound to one action: a tool call or an answer."""
        tools = list(request.tools or ())[:MAX_TOOLS]
        due = calls_since_prompt(request.messages) >= self._config.max_tool_steps
        body = {
            "temperature": 0,
            **self._options(request),
            "prompt": action_prompt(request.messages, tools),
            "json_schema": output_schema([] if due else tools),
        }
        reply = await self._post(endpoint, "/v1/completions", body, deadline)
        reader = ActionReader()
        usage = None
        cut = False
        payloads = _payloads(reply)
        try:
            async for payload in payloads:
                usage = read_usage(payload.get("usage")) or usage
                for choice in payload.get("choices") or ():
                    cut = cut or choice.get("finish_reason") == "length"
                    for chunk in reader.push(choice.get("text") or ""):
                        yield chunk
            for chunk in reader.close(cut=cut):
                yield chunk
        except ValueError as error:
            raise malformed(str(error).encode()) from None
        finally:
            await payloads.aclose()
            await reply.aclose()
        if usage is not None:
            yield {"type": "usage", "usage": usage}
        yield {
            "type": "finish",
            "reason": {"kind": "max-tokens" if cut else "tool-calls" if reader.is_call else "stop"},
        }

    async def _chat(
        self, request: LlmRequest, endpoint: Endpoint, deadline: StreamDeadline
    ) -> AsyncGenerator[StreamChunk, None]:
        """A reply by the model's own chat template."""
        body: dict[str, Any] = {
            **self._options(request),
            "messages": wire_messages(request.system, request.messages, thinking=False),
        }
        if request.tools and self._config.tool_mode == "native":
            body["tools"] = [{"type": "function", "function": dict(tool)} for tool in request.tools]
        reply = await self._post(endpoint, "/v1/chat/completions", body, deadline)
        reader = CompletionReader()
        payloads = _payloads(reply)
        try:
            async for payload in payloads:
                try:
                    chunks = reader.push(payload)
                except ValueError:
                    raise malformed(orjson.dumps(payload)) from None
                for chunk in chunks:
                    yield chunk
        finally:
            await payloads.aclose()
            await reply.aclose()
        for chunk in reader.close():
            yield chunk

    def _options(self, request: LlmRequest) -> dict[str, Any]:
        config = request.config
        options: dict[str, Any] = {
            "stream": True,
            "stream_options": {"include_usage": True},
            "cache_prompt": True,
            "max_tokens": config.max_tokens or self._config.max_tokens,
        }
        if config.temperature is not None:
            options["temperature"] = config.temperature
        if config.stop is not None:
            options["stop"] = list(config.stop)
        return options

    async def _post(self, endpoint: Endpoint, path: str, body: dict[str, Any], deadline: StreamDeadline) -> Reply:
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {endpoint.api_key}"}
        payload = await deadline.wait(encode_body(body))
        reply = await self._client.post(f"{endpoint.url}{path}", headers, [payload], deadline)
        if reply.status != 200:
            from dsh.llm.transport.classify import MAX_BODY_BYTES, classify_http_error

            try:
                said = await reply.read(MAX_BODY_BYTES)
            finally:
                await reply.aclose()
            raise classify_http_error(reply.status, said, reply.headers, where="the local model server")
        return reply

    def _server(self, model: str) -> LocalServer:
        path, window = self._models()[model]
        if model not in self._servers:
            self._servers[model] = LocalServer(
                self._ctx,
                path,
                context_window=window,
                threads=self._config.threads,
                idle_seconds=self._config.idle_stop_seconds,
            )
        return self._servers[model]

    def _models(self) -> dict[str, tuple[Path, int]]:
        """Path and window of each model by its id."""
        config = self._config
        default = Path(config.model_path).expanduser() if config.model_path else model_file(self._home)
        models = {config.default_model: (default, config.context_window)}
        for entry in config.models:
            models[entry.id] = (Path(entry.model_path).expanduser(), entry.context_window or config.context_window)
        return models

    def _missing(self, model: str | None = None) -> LlmError | None:
        """What a call of `model` (or of the default one) lacks."""
        models = self._models()
        model = model or self._config.default_model
        if model not in models:
            text = f'the local route has no model "{model}"; it has {", ".join(models)}'
            return LlmError.of("UNKNOWN_MODEL", text)
        if importlib.util.find_spec("xllamacpp") is None:
            return LlmError.of("LOCAL_MODEL", f"the local model needs an extra: {INSTALL}, then `dsh local pull`")
        path = models[model][0]
        if not path.is_file():
            shown = self._home.show(path)
            hint = "fetch it with `dsh local pull`" if path == model_file(self._home) else "correct modelPath"
            return LlmError.of("LOCAL_MODEL", f"there is no local model at {shown}: {hint}")
        return None

    def _info(self, provider: str, model: str) -> ModelInfo:
        entry = next((entry for entry in self._config.models if entry.id == model), None)
        window = entry.context_window if entry is not None else None
        return {
            "provider": provider,
            "id": model,
            "name": (entry.name if entry is not None else None) or f"Local model ({model})",
            "inputModalities": ["text"],
            "context": {"contextWindow": window or self._config.context_window},
            "defaultMaxTokens": self._config.max_tokens,
        }


async def _payloads(reply: Reply) -> AsyncGenerator[dict[str, Any], None]:
    """The objects of a stream. Raises `LlmError` for an error among them, bad JSON and an early end."""
    async for events in reply.batches():
        for _, data in events:
            if data[:6] == b"[DONE]":
                return
            try:
                payload = orjson.loads(data)
            except orjson.JSONDecodeError:
                raise malformed(data) from None
            if not isinstance(payload, dict):
                raise malformed(data)
            if payload.get("error"):
                raise LlmError.of("SERVER", f"the local model server failed: {payload['error']}")
            reply.progressed()
            yield payload
    raise LlmError.of("TRANSPORT", "the local model server ended in the middle of a reply")
