"""The row ``llm-replay``: answers model calls from recorded sessions, for tests without network and key.

With ``providers`` it serves those routes; without, it answers every model call before any adapter is looked up. The
first call of a session claims the next script: the parent's, then the children's in the order they were created.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dsh.cordis import AbortSignal, ConfigModel, Context, field
from dsh.cordis.jsonio import decode, freeze_json
from dsh.llm.adapter import Adapter, ModelInfo, ProviderInfo
from dsh.llm.failure import LlmError, failed_finish
from dsh.llm.retry_policy import RetryPolicy
from dsh.llm.service import Llm, LlmStream
from dsh.llm.types import LlmRequest, StreamChunk
from dsh.loader.environment import launch_environment_of
from dsh.models.replay_script import (
    ReplayError,
    Script,
    derive_script,
    fill,
    override_entries,
    read_recording,
    resolve_placeholders,
)

name = "llm-replay"


class ReplayModel(ConfigModel):
    """A model the replay pretends to have."""

    id: str = field(min=1, description="Model id")
    name: str | None = field(None, description="Display name")
    context_window: int | None = field(None, min=1, unit="tokens", description="Window")
    input_modalities: list[str] | None = field(None, description="What the model reads")
    default_max_tokens: int | None = field(None, min=1, unit="tokens", description="Output cap")
    reasoning_efforts: list[str | dict[str, Any]] | None = field(None, description="Efforts it takes")
    default_reasoning_effort: str | None = field(None, description="Effort when none is asked for")


class ReplayProvider(ConfigModel):
    """A route the replay serves."""

    id: str = field(min=1, description="Provider name")
    name: str | None = field(None, description="Display name")
    models: list[ReplayModel] = field(default_factory=list, description="Its catalog")
    retry_policy: RetryPolicy | None = field(None, description="How failed calls repeat")


class Config(ConfigModel):
    """Which recordings to play. Paths are relative to the working directory."""

    file: str | None = field(None, description="The parent's log; else $DSH_SNAPSHOT_FILE")
    override_file: str | None = field(None, description="Override of its script; else $DSH_SNAPSHOT_OVERRIDE")
    child_files: list[str] | None = field(None, description="Children's logs; else $DSH_SNAPSHOT_CHILD_FILES")
    providers: list[ReplayProvider] = field(default_factory=list, description="Routes to serve; empty: all calls")
    pace_ms: int = field(0, min=0, unit="ms", description="Delay before each chunk")


def apply(ctx: Context, config: Config, llm: Llm) -> None:
    """Replay for as long as the row is mounted."""
    mount(ctx, config, llm)


def mount(ctx: Context, config: Config, llm: Llm) -> Replay:
    """As `apply`, for tests that want to ask the replay afterwards."""
    replay = Replay(load_scripts(ctx, config), config.pace_ms)
    if config.providers:
        llm.register_adapter([provider.id for provider in config.providers], ReplayAdapter(config, replay))
    else:

        def answer(event: LlmStream, _next: Callable[[], AsyncIterator[StreamChunk]]) -> AsyncIterator[StreamChunk]:
            return replay.answer(event.request)

        ctx.on(LlmStream, answer, global_=True)
    return replay


def load_scripts(ctx: Context, config: Config) -> list[Script]:
    """The scripts in binding order. Raises `ReplayError`, ``ValueError`` or ``OSError`` naming the file at fault."""
    cwd = os.getcwd()
    file = config.file or _environment(ctx, "DSH_SNAPSHOT_FILE")
    override = config.override_file or _environment(ctx, "DSH_SNAPSHOT_OVERRIDE")
    children = config.child_files
    if children is None:
        children = [path for path in _environment(ctx, "DSH_SNAPSHOT_CHILD_FILES").split(os.pathsep) if path]
    # An override that does not exist is none: a row names one to opt out of the environment's.
    overriding = Path(override) if override and Path(override).exists() else None
    if not file and overriding is None:
        raise ReplayError("llm-replay has nothing to play: set file or overrideFile, or $DSH_SNAPSHOT_FILE")
    replaced: Any = None if overriding is None else fill(decode(overriding.read_text("utf-8")), "{{cwd}}", cwd)
    if isinstance(replaced, list):
        # The log itself may then be a stub, or end in a call that was cut.
        parent = Script(str(overriding), override_entries(replaced, []))
    else:
        parent = derive_script(read_recording(Path(file), cwd)) if file else Script(str(overriding), [])
        if replaced is not None:
            parent.entries = override_entries(replaced, parent.entries)
    recordings = [read_recording(Path(path), cwd) for path in children]
    recordings.sort(key=lambda recording: (recording.header.get("createdAt", 0), str(recording.header.get("id"))))
    return [parent, *map(derive_script, recordings)]


class Replay:
    """Hands scripts to sessions and plays them."""

    def __init__(self, scripts: Sequence[Script], pace_ms: float = 0) -> None:
        self._scripts = list(scripts)
        self._bound: dict[str | None, Script] = {}
        self._pace = pace_ms / 1000
        self._failures: list[Exception] = []

    async def play(self, request: LlmRequest) -> AsyncIterator[StreamChunk]:
        """The next recorded call of the request's session. Raises as the recording says, and `ReplayError`."""
        try:
            entry = resolve_placeholders(self._script(request.session_id).next(), request.messages)
        except ReplayError as error:
            self._failures.append(error)
            raise
        if entry["kind"] == "hang":
            async for chunk in _hang(entry, request.signal):
                yield chunk
        for chunk in entry["chunks"]:
            if self._pace:
                await asyncio.sleep(self._pace)
            if request.signal is not None:
                request.signal.raise_if_aborted()
            yield freeze_json(chunk)  # type: ignore[misc]
        if entry["kind"] == "throw":
            raise LlmError.of(entry["code"], entry["message"])

    async def answer(self, request: LlmRequest) -> AsyncIterator[StreamChunk]:
        """As `play`, with failures as the last chunk, the way an adapter's failures arrive."""
        played = self.play(request)
        failed: StreamChunk | None = None
        while failed is None:
            try:
                chunk = await anext(played)
            except StopAsyncIteration:
                return
            except Exception as error:
                failed = failed_finish(error, aborted=request.signal is not None and request.signal.aborted)
            else:
                yield chunk
        yield failed

    def assert_consumed(self) -> None:
        """Raise `ReplayError` unless every recorded call was made and no other."""
        if self._failures:
            raise self._failures[0]
        for script in self._scripts:
            if script.used < len(script.entries):
                raise ReplayError(f"{script.name}: {len(script.entries) - script.used} recorded calls were not made")

    def _script(self, session_id: str | None) -> Script:
        script = self._bound.get(session_id)
        if script is None:
            if len(self._bound) >= len(self._scripts):
                raise ReplayError(f'session "{session_id}" has no recording: all {len(self._scripts)} are taken')
            script = self._bound[session_id] = self._scripts[len(self._bound)]
        return script


class ReplayAdapter(Adapter):
    """The routes a replay serves."""

    def __init__(self, config: Config, replay: Replay) -> None:
        self._providers = {provider.id: provider for provider in config.providers}
        self._replay = replay

    def provider_info(self, provider: str) -> ProviderInfo:
        return {"id": provider, "name": self._providers[provider].name or provider}

    def provider_retry_policy(self, provider: str) -> RetryPolicy | None:
        return self._providers[provider].retry_policy

    async def list_models(self, provider: str) -> Sequence[ModelInfo]:
        return [_model_info(provider, model) for model in self._providers[provider].models]

    async def resolve_model(self, provider: str, model: str, signal: AbortSignal | None = None) -> ModelInfo:
        entries = self._providers[provider].models
        return _model_info(provider, next((entry for entry in entries if entry.id == model), ReplayModel(id=model)))

    def stream(self, request: LlmRequest) -> AsyncIterator[StreamChunk]:
        return self._replay.play(request)


async def _hang(entry: Mapping[str, Any], signal: AbortSignal | None) -> AsyncIterator[StreamChunk]:
    """A reply that stops halfway, until somebody cancels it."""
    yield {"type": "block-start", "index": 0, "blockType": "text"}
    yield {"type": "text-delta", "index": 0, "text": "partial"}
    if "readyFile" in entry:
        Path(entry["readyFile"]).touch()
    if signal is None:
        raise ReplayError("a hanging call needs an abort signal")
    await signal.wait()
    signal.raise_if_aborted()


def _model_info(provider: str, model: ReplayModel) -> ModelInfo:
    info: ModelInfo = {"provider": provider, "id": model.id, "name": model.name or model.id}
    if model.input_modalities is not None:
        info["inputModalities"] = model.input_modalities
    if model.context_window is not None:
        info["context"] = {"contextWindow": model.context_window}
    if model.default_max_tokens is not None:
        info["defaultMaxTokens"] = model.default_max_tokens
    if model.reasoning_efforts:
        efforts = [
            {"id": e, "name": e} if isinstance(e, str) else {"name": e.get("id"), **e} for e in model.reasoning_efforts
        ]
        info["reasoning"] = {"efforts": efforts}  # type: ignore[typeddict-item]
        if model.default_reasoning_effort is not None:
            info["reasoning"]["defaultEffort"] = model.default_reasoning_effort
    return info


def _environment(ctx: Context, variable: str) -> str:
    found = launch_environment_of(ctx).get(variable)
    return "" if found is None else found.value
