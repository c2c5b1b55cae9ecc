"""The model service: adapters register here, everybody who needs a model calls here.

A call passes the ``llm/stream`` waterfall first, where listeners observe, replace or reroute it, and then exactly one
adapter attempt. Whatever goes wrong in that attempt reaches the consumer as the last chunk of the stream.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dsh.cordis import AbortController, AbortSignal, Context, Disposer, Emit, Service, Waterfall, owned
from dsh.cordis.records import identity_record, record
from dsh.llm.adapter import Adapter, AdapterCall, ModelInfo, ProviderInfo
from dsh.llm.call_config import CallConfig
from dsh.llm.directory import ConfigurableProvider, Directory, DiscoveredModel, Discovery, DiscoveryQuery
from dsh.llm.failure import LlmError, failed_finish
from dsh.llm.model_info import check_catalog, check_model_info
from dsh.llm.outgoing import OutgoingHistory
from dsh.llm.retry_policy import RetryPolicy
from dsh.llm.types import LlmRequest, StreamChunk, is_agent_loop_request, mark_agent_loop_request
from dsh.llm.waiting import until_abort

if TYPE_CHECKING:
    from dsh.llm.prices import Prices

__all__ = [
    "Adapter",
    "AdapterHandle",
    "AdaptersUpdated",
    "DirectoryHandle",
    "DiscoveryQuery",
    "Llm",
    "LlmStream",
    "PreparedCall",
    "is_agent_loop_request",
    "mark_agent_loop_request",
]


class LlmStream(Waterfall[AsyncIterator[StreamChunk]], name="llm/stream", sync=True):
    """Around every model call. A listener wraps the stream, answers itself, or changes `request` before the lookup."""

    request: LlmRequest


class AdaptersUpdated(Emit, name="llm/adapters-updated"):
    """Routes appeared, changed or went; ask the service for the current ones."""


@record
class _Route:
    """One provider name and what was captured for it when it was registered."""

    info: ProviderInfo
    retry_policy: RetryPolicy | None


class _Registration:
    """The routes of one adapter; `unloaded` fires when the registration goes, ending the streams that still run."""

    __slots__ = ("adapter", "history", "routes", "unloaded")

    def __init__(self, adapter: Adapter, history: OutgoingHistory) -> None:
        self.adapter = adapter
        self.history = history
        self.routes: dict[str, _Route] = {}
        self.unloaded = AbortController()


class AdapterHandle:
    """The registration of one adapter, held by the plugin that made it."""

    def __init__(self, service: Llm, registration: _Registration) -> None:
        self._service = service
        self._registration = registration
        self._disposer: Disposer | None = None

    def replace(self, providers: Sequence[str]) -> None:
        """Serve exactly these providers from now on, in one step; an empty list parks the adapter.

        Names and retry policies are read again. Raises `LlmError` and changes nothing when a name is invalid or taken,
        and ``REGISTRATION_DISPOSED`` once the registration is gone.
        """
        self._service._replace(self._registration, providers)

    def dispose(self) -> Any:
        """Withdraw the registration; running streams end as a transport failure. Repeating it does nothing."""
        return self._disposer() if self._disposer is not None else None


class DirectoryHandle:
    """One plugin's entries of the directory of configurable providers."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._disposer: Disposer | None = None
        self._gone = False

    def replace(self, entries: Sequence[ConfigurableProvider]) -> None:
        """Offer exactly these from now on. Raises as the registration does, then ``REGISTRATION_DISPOSED``."""
        if self._gone:
            raise LlmError.of("REGISTRATION_DISPOSED", "this directory registration was disposed")
        self._directory.put(self, entries)

    def dispose(self) -> Any:
        """Withdraw the entries. Repeating it does nothing."""
        return self._disposer() if self._disposer is not None else None

    def _leave(self) -> None:
        self._gone = True
        self._directory.remove(self)


@identity_record
class PreparedCall:
    """A call bound to one adapter and the facts it had at that moment; good for one `stream`.

    `adapter_defaults` names (in wire form) the options the adapter filled in because the caller gave none.
    """

    config: CallConfig
    adapter_defaults: frozenset[str]
    retry_policy: RetryPolicy | None
    context: dict[str, int] | None
    input_modalities: tuple[str, ...] | None
    _open: Callable[[LlmRequest], AsyncIterator[StreamChunk]]

    def stream(self, request: LlmRequest) -> AsyncIterator[StreamChunk]:
        """The chunks of the reply. Raises ``INVALID_PREPARED_CALL`` on a second use or when `request.config` differs
        from `config`.
        """
        return self._open(request)


@record
class _Bound:
    """Everything an attempt needs once its route is resolved."""

    registration: _Registration
    retry_policy: RetryPolicy | None
    call: AdapterCall
    config: CallConfig
    defaults: frozenset[str]


class Llm(Service, name="llm"):
    """The broker between callers and provider adapters."""

    def __init__(self, ctx: Context, config: object = None) -> None:
        super().__init__(ctx)
        self._registrations: list[_Registration] = []
        self._owners: dict[str, _Registration] = {}
        self._directory = Directory(self._announce)

    # Registration

    @owned
    def register_adapter(self, caller: Context, providers: Sequence[str], adapter: Adapter) -> AdapterHandle:
        """Serve `providers` with `adapter` until the calling plugin unloads or the handle is disposed.

        All or nothing. Raises ``INVALID_ADAPTER`` for an empty list or name, ``DUPLICATE_ADAPTER`` for a repeated or
        taken name.
        """
        if not providers:
            raise LlmError.of("INVALID_ADAPTER", "an adapter must be registered for at least one provider")
        registration = _Registration(adapter, OutgoingHistory(lambda provider: self._serves(adapter, provider)))
        routes = self._checked(registration, providers)
        handle = AdapterHandle(self, registration)

        def enter() -> Callable[[], None]:
            self._registrations.append(registration)
            self._commit(registration, routes)
            return leave

        def leave() -> None:
            self._registrations.remove(registration)
            self._commit(registration, {})
            registration.unloaded.abort("adapter unloaded")

        handle._disposer = caller.effect(enter, f"llm.register_adapter({', '.join(routes)})")
        return handle

    def _replace(self, registration: _Registration, providers: Sequence[str]) -> None:
        if registration not in self._registrations:
            raise LlmError.of("REGISTRATION_DISPOSED", "this adapter registration was disposed")
        self._commit(registration, self._checked(registration, providers))

    def _checked(self, registration: _Registration, providers: Sequence[str]) -> dict[str, _Route]:
        routes: dict[str, _Route] = {}
        for provider in providers:
            if not isinstance(provider, str) or not provider:
                raise LlmError.of("INVALID_ADAPTER", "an adapter's provider name must be a non-empty string")
            holder = self._owners.get(provider, registration)
            if provider in routes or holder is not registration:
                raise LlmError.of("DUPLICATE_ADAPTER", f'an adapter for provider "{provider}" is already registered')
            info = registration.adapter.provider_info(provider)
            if info.get("id") != provider or not info.get("name"):
                raise LlmError.of("INVALID_ADAPTER", f'provider "{provider}" needs display data with its own id')
            policy = registration.adapter.provider_retry_policy(provider)
            routes[provider] = _Route({"id": provider, "name": info["name"]}, policy)
        return routes

    def _commit(self, registration: _Registration, routes: dict[str, _Route]) -> None:
        """Swap the routes in one step, then say so."""
        registration.routes = routes
        self._owners = {provider: entry for entry in self._registrations for provider in entry.routes}
        for entry in self._registrations:
            entry.history.clear()
        self._announce()

    def _announce(self) -> None:
        self.ctx.emit(AdaptersUpdated())

    # What could be configured

    @owned
    def register_configurable_providers(
        self, caller: Context, entries: Sequence[ConfigurableProvider]
    ) -> DirectoryHandle:
        """Offer providers for configuration until the calling plugin unloads or the handle is disposed.

        Raises ``INVALID_DIRECTORY`` or ``DUPLICATE_DIRECTORY`` and changes nothing.
        """
        handle = DirectoryHandle(self._directory)

        def enter() -> Callable[[], None]:
            self._directory.put(handle, entries)
            return lambda: handle._leave()

        handle._disposer = caller.effect(enter, "llm.register_configurable_providers")
        return handle

    def list_configurable_providers(self) -> list[ConfigurableProvider]:
        """What could run, whether it does or not, in registration order."""
        return self._directory.entries()

    @owned
    def register_model_discovery(self, caller: Context, ns: str, discovery: Discovery) -> Disposer:
        """Answer `discover_models` for namespace `ns`. Raises ``INVALID_DISCOVERY``, ``DUPLICATE_DISCOVERY``."""
        return caller.effect(lambda: self._directory.add_discovery(ns, discovery), f"llm.model_discovery({ns})")

    async def discover_models(self, ns: str, query: DiscoveryQuery) -> list[DiscoveredModel]:
        """The models of an endpoint that is not configured yet. Raises ``NO_DISCOVERY``, ``INVALID_DISCOVERY``."""
        return await self._directory.discover(ns, query)

    # Questions

    def list_providers(self) -> list[ProviderInfo]:
        """The routes that can be called now, in registration order."""
        return [{**route.info} for entry in self._registrations for route in entry.routes.values()]

    def provider_retry_policy(self, provider: str) -> RetryPolicy | None:
        """How failed calls of `provider` are repeated; None means they are not. Raises ``NO_ADAPTER``."""
        return self._owner(provider).routes[provider].retry_policy

    def usable(self, provider: str) -> str | None:
        """None when a call of `provider` has a chance now, else a sentence that says what is missing."""
        entry = self._owners.get(provider)
        if entry is None:
            return _no_adapter(provider)
        return entry.adapter.usable(provider)

    def prices(self) -> dict[str, Prices]:
        """The prices that are stated now, by route, written ``provider/model``."""
        return {
            f"{provider}/{model}": prices
            for provider, entry in self._owners.items()
            for model, prices in entry.adapter.prices(provider).items()
        }

    async def list_models(self, provider: str) -> list[ModelInfo]:
        """The catalog of `provider`: advice, never a list of what is allowed.

        Raises ``NO_ADAPTER``, or ``INVALID_CATALOG`` when the adapter's answer is malformed.
        """
        return check_catalog(provider, await self._owner(provider).adapter.list_models(provider))

    async def resolve_model_info(self, provider: str, model: str, signal: AbortSignal | None = None) -> ModelInfo:
        """The facts about one model. Raises `LlmError`: ``NO_ADAPTER``, what the adapter raised, or ``INVALID_MODEL_*``
        when its answer is malformed.
        """
        adapter = self._owner(provider).adapter
        return check_model_info(
            provider, model, await until_abort(adapter.resolve_model(provider, model, signal), signal)
        )

    # Calls

    async def prepare_call(self, config: CallConfig, signal: AbortSignal | None = None) -> PreparedCall:
        """Look the model up once, fill in the adapter's defaults and bind the call to the present registration.

        The prepared call keeps its adapter and facts while settings change or plugins reload. Raises `LlmError`
        (``NO_ADAPTER``, ``UNSUPPORTED_REASONING_EFFORT``, …) and ``AbortError``.
        """
        bound = await self._bind(config, signal)
        used = False

        def open_stream(request: LlmRequest) -> AsyncIterator[StreamChunk]:
            nonlocal used
            if used:
                raise LlmError.of("INVALID_PREPARED_CALL", "a prepared model call can be streamed once")
            if request.config != bound.config:
                raise LlmError.of("INVALID_PREPARED_CALL", "the request differs from the prepared model call")
            used = True
            return self._open(request, bound)

        info = bound.call.info
        modalities = info.get("inputModalities")
        context = info.get("context")
        return PreparedCall(
            config=bound.config,
            adapter_defaults=bound.defaults,
            retry_policy=bound.retry_policy,
            context=None if context is None else {"contextWindow": context["contextWindow"]},
            input_modalities=None if modalities is None else tuple(modalities),
            _open=open_stream,
        )

    async def resolve_call_config(self, config: CallConfig, signal: AbortSignal | None = None) -> CallConfig:
        """`config` with the adapter's defaults filled in, bound to nothing."""
        return (await self._bind(config, signal)).config

    def stream(self, request: LlmRequest) -> AsyncIterator[StreamChunk]:
        """One attempt, as chunks. Close it with ``contextlib.aclosing``: leaving early frees the connection.

        Failures of the lookup and the adapter arrive as the last chunk (``finish`` with ``error`` or ``aborted``);
        errors of ``llm/stream`` listeners are raised.
        """
        return self._open(request, None)

    def forget_session(self, session_id: str) -> None:
        """A session is closed: let go of what was kept of its requests for the next one."""
        for registration in self._registrations:
            registration.history.forget(session_id)

    def _open(self, request: LlmRequest, bound: _Bound | None) -> AsyncIterator[StreamChunk]:
        event = LlmStream(request=request)

        def attempt() -> AsyncIterator[StreamChunk]:
            rerouted = bound is not None and event.request.config != bound.config
            return self._attempt(event.request, None if rerouted else bound)

        return self.ctx.waterfall_sync(event, attempt)

    async def _bind(self, config: CallConfig, signal: AbortSignal | None) -> _Bound:
        registration = self._owner(config.provider)
        policy = registration.routes[config.provider].retry_policy
        call = await until_abort(registration.adapter.prepare_call(config.provider, config.model, signal), signal)
        info = check_model_info(config.provider, config.model, call.info)
        filled, defaults = _with_defaults(config, info)
        return _Bound(registration, policy, AdapterCall(info, call.stream), filled, defaults)

    async def _attempt(self, request: LlmRequest, bound: _Bound | None) -> AsyncIterator[StreamChunk]:
        """One adapter attempt behind the boundary that turns its failures into a finish chunk."""
        source: AsyncIterator[StreamChunk] | None = None
        failed: StreamChunk | None = None
        unloaded: AbortSignal | None = None
        try:
            try:
                if bound is None:
                    bound = await self._bind(request.config, request.signal)
                if bound.registration in self._registrations:
                    unloaded = bound.registration.unloaded.signal
                source = bound.call.stream(self._outgoing(request, bound, unloaded)).__aiter__()
            except Exception as error:
                failed = self._failed(error, request, unloaded)
            while failed is None and source is not None:
                try:
                    chunk = await source.__anext__()
                except StopAsyncIteration:
                    return
                except Exception as error:
                    failed = self._failed(error, request, unloaded)
                    break
                yield chunk
            if failed is not None:
                yield failed
        finally:
            close = getattr(source, "aclose", None)
            if close is not None:
                await close()

    def _outgoing(self, request: LlmRequest, bound: _Bound, unloaded: AbortSignal | None) -> LlmRequest:
        """The request as the adapter gets it: defaults filled in, foreign notes and refused images taken out."""
        modalities = bound.call.info.get("inputModalities")
        messages = bound.registration.history.prepare(request, images=modalities is None or "image" in modalities)
        signal = request.signal
        if unloaded is not None:
            signal = AbortSignal.any(signal, unloaded)
        return replace(request, config=bound.config, messages=messages, signal=signal)

    def _serves(self, adapter: Adapter, provider: str) -> bool:
        owner = self._owners.get(provider)
        return owner is not None and owner.adapter is adapter

    def _failed(self, error: Exception, request: LlmRequest, unloaded: AbortSignal | None) -> StreamChunk:
        aborted = request.signal is not None and request.signal.aborted
        if not aborted and unloaded is not None and unloaded.aborted:
            text = f'the model adapter of provider "{request.provider}" was unloaded while streaming'
            error = LlmError.of("TRANSPORT", text)
        return failed_finish(error, aborted=aborted)

    def _owner(self, provider: str) -> _Registration:
        entry = self._owners.get(provider)
        if entry is None:
            raise LlmError.of("NO_ADAPTER", _no_adapter(provider))
        return entry


def _no_adapter(provider: str) -> str:
    return f'no adapter registered for provider "{provider}"'


def _with_defaults(config: CallConfig, info: ModelInfo) -> tuple[CallConfig, frozenset[str]]:
    """Fill what the caller left open; an effort the caller names must be one the model offers, and is never changed."""
    defaults: set[str] = set()
    reasoning = info.get("reasoning")
    effort = config.reasoning_effort
    if effort is not None:
        offered = [entry["id"] for entry in reasoning["efforts"]] if reasoning is not None else []
        if effort not in offered:
            known = f"it offers {', '.join(offered)}" if offered else "it offers none"
            raise LlmError.of(
                "UNSUPPORTED_REASONING_EFFORT",
                f'model "{config.model}" of provider "{config.provider}" has no reasoning effort "{effort}": {known}',
            )
    elif reasoning is not None and "defaultEffort" in reasoning:
        effort = reasoning["defaultEffort"]
        defaults.add("reasoningEffort")
    max_tokens = config.max_tokens
    if max_tokens is None and "defaultMaxTokens" in info:
        max_tokens = info["defaultMaxTokens"]
        defaults.add("maxTokens")
    if not defaults:
        return config, frozenset()
    return replace(config, reasoning_effort=effort, max_tokens=max_tokens), frozenset(defaults)
