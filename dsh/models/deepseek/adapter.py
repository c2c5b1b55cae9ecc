"""The adapter of the DeepSeek route: one attempt at the service for each call."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import NamedTuple
from urllib.parse import urlsplit

import orjson

from dsh.cordis import AbortSignal, Context
from dsh.cordis.jsonio import JsonDecodeError, decode
from dsh.llm.adapter import Adapter, AdapterCall, ModelInfo, ProviderInfo
from dsh.llm.failure import LlmError
from dsh.llm.prices import Prices
from dsh.llm.retry_policy import RetryPolicy
from dsh.llm.transport.deadline import StreamDeadline
from dsh.llm.transport.http import USER_AGENT, HttpClient, Reply, encode_body, host_of
from dsh.llm.types import LlmRequest, StreamChunk
from dsh.loader.environment import home_of, launch_environment_of
from dsh.models.deepseek.anonymous_id import anonymous_id
from dsh.models.deepseek.config import EFFORTS, OFFICIAL_URL, OPTIONAL_FIELDS, Config
from dsh.models.deepseek.history import EncodedHistory
from dsh.models.deepseek.request import request_body, text_size
from dsh.models.deepseek.response import CompletionReader, in_band_error, malformed
from dsh.models.local_pull import model_file
from dsh.settings.service import Credentials

ROUTE = "deepseek-official"
_KEY = re.compile(r"[\x21-\x7E]+")
_HEADER_SAFE = re.compile(r"[\x20-\x7E]+")
MAX_REPLY = 64 * 1024 * 1024
"""Longest reply, in what a `CompletionReader` counts as held: room for a million pieces, so no real one meets it."""
_EFFORT_NAMES = {"off": "Off", "low": "Low", "high": "High", "max": "Max"}


class DeepSeekAdapter(Adapter):
    """Reads its configuration once per operation; a running stream keeps what it started with."""

    def __init__(self, ctx: Context, read: Callable[[], Config]) -> None:
        self._ctx = ctx
        self._read = read
        self._client = HttpClient()
        self._history = EncodedHistory()
        self._user_id: str | None = None

    async def close(self) -> None:
        """Close all connections."""
        await self._client.close()

    def forget(self, session_id: str) -> None:
        """A session is closed: nothing of its conversation is kept."""
        self._history.forget(session_id)

    async def warm(self) -> None:
        """Do the slow imports and the TLS set-up before the first request needs them."""
        await self._client.warm(self._base_url(self._read()))

    def provider_info(self, provider: str) -> ProviderInfo:
        return {"id": provider, "name": "DeepSeek"}

    def provider_retry_policy(self, provider: str) -> RetryPolicy:
        # A copy: a live edit of the row changes its config objects in place.
        return RetryPolicy.validate(self._read().retry_policy.to_wire())

    async def list_models(self, provider: str) -> Sequence[ModelInfo]:
        config = self._read()
        return [_model_info(config, provider, entry.id) for entry in config.catalog]

    async def resolve_model(self, provider: str, model: str, signal: AbortSignal | None = None) -> ModelInfo:
        return _model_info(self._read(), provider, model)

    def prices(self, provider: str) -> Mapping[str, Prices]:
        return {entry.id: entry.prices for entry in self._read().catalog if entry.prices is not None}

    async def prepare_call(self, provider: str, model: str, signal: AbortSignal | None = None) -> AdapterCall:
        config = self._read()
        return AdapterCall(_model_info(config, provider, model), partial(self._attempt, config))

    def usable(self, provider: str) -> str | None:
        config = self._read()
        credentials = self._ctx.get(Credentials)
        if credentials is not None:
            configured = credentials.describe(config.api_key_env).configured
        else:
            configured = bool(self._environment(config.api_key_env))
        if configured or _needs_no_key(self._base_url(config)):
            return None
        return self._missing_key(config.api_key_env)

    def stream(self, request: LlmRequest) -> AsyncIterator[StreamChunk]:
        return self._attempt(self._read(), request)

    def _attempt(self, config: Config, request: LlmRequest) -> AsyncIterator[StreamChunk]:
        return _chunks(self._exchange(config, request))

    @asynccontextmanager
    async def _exchange(self, config: Config, request: LlmRequest) -> AsyncIterator[tuple[Reply, _Peer]]:
        """Send the request; the reply, whose status is fine, and whom it came from."""
        base_url = self._base_url(config)
        where = host_of(base_url)
        idle, progress = config.stream_idle_timeout_ms, config.stream_progress_timeout_ms
        with StreamDeadline(where, idle, progress, request.signal) as deadline:
            key = await deadline.wait(self._key(config, base_url))
            headers = await deadline.wait(self._headers(config, base_url, key, request))
            payload = await deadline.wait(self._payload(config, request))
            peer = _Peer(where, key, config.api_key_env, self._check(config))
            try:
                reply = await self._client.post(
                    f"{base_url}/chat/completions",
                    headers,
                    payload,
                    deadline,
                    connect_timeout_ms=config.connect_timeout_ms,
                )
            except LlmError as error:
                if error.code != "TRANSPORT":
                    raise
                raise LlmError.of(error.code, f"{error.failure.message}; {self._check(config)}") from error.__cause__
            try:
                if not 200 <= reply.status < 300:
                    raise await _refusal(reply, peer)
                yield reply, peer
            finally:
                await reply.aclose()

    async def _payload(self, config: Config, request: LlmRequest) -> list[bytes]:
        locked = config.thinking == "disabled" or request.purpose == "session-title"
        effort = "off" if locked else request.config.reasoning_effort or config.effort
        cap = request.config.max_tokens or config.model(request.model).max_tokens or config.max_tokens
        encoded = await self._history.encode(request, effort, cap, config.omit_fields)
        if encoded is not None:
            return encoded
        body = request_body(request, effort, cap, omit=config.omit_fields)
        return [await encode_body(body, text_size(body))]

    def _base_url(self, config: Config) -> str:
        url = config.base_url or self._environment("DEEPSEEK_BASE_URL") or OFFICIAL_URL
        return url.rstrip("/")

    def _check(self, config: Config) -> str:
        """What to look at when the service cannot be reached."""
        if config.base_url:
            return "check that the server runs and that baseURL of the llm-deepseek row is right"
        if self._environment("DEEPSEEK_BASE_URL"):
            return "check that the server runs and that $DEEPSEEK_BASE_URL is right"
        return "check the network and the proxy settings"

    def _environment(self, name: str) -> str:
        found = launch_environment_of(self._ctx).get(name)
        return "" if found is None else found.value.strip()

    async def _key(self, config: Config, base_url: str) -> str | None:
        """The key to send; None for a server on this machine that has none."""
        credentials = self._ctx.get(Credentials)
        if credentials is not None:
            found = await credentials.resolve(config.api_key_env)
            key = "" if found is None else found.value.reveal().strip()
        else:
            key = self._environment(config.api_key_env)
        if not key:
            if _needs_no_key(base_url):
                return None
            raise LlmError.of("MISSING_CREDENTIAL", self._missing_key(config.api_key_env))
        if not _KEY.fullmatch(key):
            text = f"the value of {config.api_key_env} is no API key: it holds characters no key can have"
            raise LlmError.of("INVALID_CREDENTIAL", text)
        return key

    def _missing_key(self, name: str) -> str:
        local = "fetch a small local model with `dsh local pull`"
        if model_file(home_of(self._ctx)).is_file():
            local = (
                "use the local model, which is here, with a composition that has a row llm-local, as `dsh init` makes"
            )
        return (
            f"no key for DeepSeek: {name} is not set. Store one with `dsh credentials set {name}` (or export it); "
            f"or {local}; or set baseURL of the llm-deepseek row to a local server, such as http://127.0.0.1:8080/v1"
        )

    async def _headers(self, config: Config, base_url: str, key: str | None, request: LlmRequest) -> dict[str, str]:
        headers = {"Content-Type": "application/json", "Accept": "text/event-stream", "User-Agent": USER_AGENT}
        if key is not None:
            headers["Authorization"] = f"Bearer {key}"
        if config.send_user_id == "always" or urlsplit(base_url).hostname == urlsplit(OFFICIAL_URL).hostname:
            headers["x-deepseek-harness-user-id"] = await self._anonymous_id()
        if request.session_id and _HEADER_SAFE.fullmatch(request.session_id):
            headers["x-deepseek-harness-session-id"] = request.session_id
        if request.purpose == "compaction":
            headers["x-deepseek-harness-compact"] = "1"
        return headers

    async def _anonymous_id(self) -> str:
        if self._user_id is None:
            self._user_id = await asyncio.to_thread(anonymous_id, home_of(self._ctx))
        return self._user_id


class _Peer(NamedTuple):
    """Whom a request went to: its address, the key sent, the name under which that key is kept, what to check."""

    where: str
    key: str | None
    key_name: str
    check: str

    def malformed(self, data: bytes) -> LlmError:
        """The error for a payload nobody can read; for the page of a login or a proxy it says where to look."""
        page = data.lstrip()[:1] == b"<"
        return malformed(data, f"{self.where} sent a web page; {self.check}" if page else "")

    def explain(self, error: LlmError) -> LlmError:
        """The same failure; one about the key or about an optional field says what to do."""
        failure = error.failure
        if failure.code == "AUTH" and self.key is None:
            hint = f"{self.where} wants a key: store it with `dsh credentials set {self.key_name}`"
        elif failure.code == "AUTH":
            hint = (
                f"{self.where} refused the key {self.key_name}: "
                f"store another with `dsh credentials set {self.key_name}`, or check baseURL"
            )
        elif failure.code == "INVALID_REQUEST" and (named := _optional_fields(failure.message)):
            hint = f"to send none, add {', '.join(named)} to omitFields of the llm-deepseek row"
        else:
            return error
        explained = LlmError(replace(failure, message=f"{failure.message} ({hint})"))
        explained.__cause__ = error.__cause__
        return explained


async def _chunks(exchange: AbstractAsyncContextManager[tuple[Reply, _Peer]]) -> AsyncGenerator[StreamChunk, None]:
    """The chunks of a reply to its finish. Raises `LlmError` for everything that is no reply."""
    reader = CompletionReader()
    async with exchange as (reply, peer):
        whole = await reply.read_unless_events()
        if whole is not None:
            if not whole:
                raise LlmError.of("EMPTY_RESPONSE", f"{peer.where} answered without a body")
            for chunk in [*_read(reader, "", whole, reply, peer), *reader.close()]:
                yield chunk
            return
        async with aclosing(reply.batches()) as batches:
            while True:
                try:
                    events = await anext(batches, None)
                except LlmError as error:
                    raise _cut(error, reader) from error.__cause__
                if events is None:
                    break
                for name, data in events:
                    if data[:6] == b"[DONE]":
                        for chunk in reader.close():
                            yield chunk
                        await reply.drain()
                        return
                    if chunks := _read(reader, name, data, reply, peer):
                        reply.progressed()
                        for chunk in chunks:
                            yield chunk
        if not reader.finish_word:
            raise _cut(LlmError.of("STREAM_CLOSED", f"{peer.where} closed the stream before its end"), reader)
        for chunk in reader.close():
            yield chunk


def _cut(error: LlmError, reader: CompletionReader) -> LlmError:
    """The same failure, saying how much of the reply had arrived."""
    return LlmError.of(error.code, f"{error.failure.message} (after {reader.received} characters of output)")


def _read(reader: CompletionReader, name: str, data: bytes, reply: Reply, peer: _Peer) -> list[StreamChunk]:
    try:
        payload = orjson.loads(data)
    except orjson.JSONDecodeError:
        try:
            payload = decode(data)
        except (JsonDecodeError, UnicodeDecodeError):
            raise peer.malformed(data) from None
    error = in_band_error(name, payload)
    if error is not None:
        from dsh.llm.transport.classify import classify_in_band_error

        raise peer.explain(classify_in_band_error(error, reply.headers, where=peer.where, secret=peer.key))
    try:
        chunks = reader.push(payload)
    except ValueError:
        raise peer.malformed(data) from None
    if reader.held > MAX_REPLY:
        text = f"{peer.where} sent {reader.received} characters of output and no end of its reply"
        raise LlmError.of("MALFORMED_RESPONSE", text)
    return chunks


async def _refusal(reply: Reply, peer: _Peer) -> LlmError:
    from dsh.llm.transport.classify import MAX_BODY_BYTES, classify_http_error

    try:
        body = await reply.read(MAX_BODY_BYTES)
    except LlmError:
        body = b""  # the status alone says enough
    return peer.explain(classify_http_error(reply.status, body, reply.headers, where=peer.where, secret=peer.key))


def _optional_fields(message: str) -> list[str]:
    """The optional fields of a request that a refusal names."""
    words = set(re.findall(r"\w+", message))
    return [name for name in OPTIONAL_FIELDS if name in words]


def _model_info(config: Config, provider: str, model_id: str) -> ModelInfo:
    entry = config.model(model_id)
    offered = ("off",) if config.thinking == "disabled" else EFFORTS
    info: ModelInfo = {
        "provider": provider,
        "id": model_id,
        "name": entry.name or model_id,
        # Images are not sent by this adapter yet, whatever the model could read.
        "inputModalities": ["text"],
        "context": {"contextWindow": entry.context_window or config.default_context_window},
        "defaultMaxTokens": entry.max_tokens or config.max_tokens,
        "reasoning": {
            "efforts": [{"id": effort, "name": _EFFORT_NAMES[effort]} for effort in offered],
            "defaultEffort": config.effort,
        },
    }
    if entry.description:
        info["description"] = entry.description
    return info


def _needs_no_key(base_url: str) -> bool:
    """A server on this machine is usually one's own and asks for no key."""
    return urlsplit(base_url).hostname in ("localhost", "127.0.0.1", "::1")
