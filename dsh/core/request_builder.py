"""From an open step to a frozen model request, with its header in the log."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from dsh.cordis import HarnessError
from dsh.cordis.records import identity_struct, record
from dsh.llm.call_config import CallConfig
from dsh.llm.service import mark_agent_loop_request
from dsh.llm.types import LlmRequest

from .agent_events import AgentRequest
from .request_header import canonical_header, headers_equal
from .texts import no_route

if TYPE_CHECKING:
    from dsh.cordis import AbortSignal
    from dsh.llm.retry_policy import RetryPolicy
    from dsh.llm.service import PreparedCall
    from dsh.llm.types import StreamChunk

    from .agent_loop import AgentLoop
    from .driver import Driver, Turn
    from .system_prompt import Assembly


@record
class BuiltRequest:
    """A request ready to be sent once."""

    request: LlmRequest
    stream: Callable[[], AsyncIterator[StreamChunk]]
    """Sends it."""
    retry_policy: RetryPolicy | None


@identity_struct
class RequestBuilder:
    """Builds the requests of one driver and keeps the log's header in step with them."""

    _loop: AgentLoop
    _agent: Driver
    _header_logged: bool = False
    _turn_route: tuple[int, Mapping[str, Any]] | None = None

    async def build(self, assembly: Assembly, system: str, turn: Turn) -> BuiltRequest:
        """Derive messages, settle the route, log the header if it changed, freeze the request.

        Raises ``HarnessError`` when no route is known and whatever request listeners or model lookup raise.
        """
        agent, session, signal = self._agent, self._agent.session, turn.signal
        messages = tuple(session.derive_messages())
        seed = self._seed(turn.number)
        event = AgentRequest(agent=agent, turn=turn.number, step=turn.step, signal=signal)

        config = await self._loop.ctx.waterfall(event, lambda: seed)
        signal.raise_if_aborted()
        if not config.provider or not config.model:
            raise HarnessError(no_route(agent.id), code="NO_ROUTE")
        prepared = await self._prepare(config, signal)
        signal.raise_if_aborted()
        if prepared is not None:
            config = prepared.config
        self._log_header(config, prepared, system, assembly)
        request = LlmRequest(
            config=config,
            messages=messages,
            system=system or None,
            tools=tuple(assembly.tools) or None,
            session_id=session.id,
            signal=signal,
        )
        mark_agent_loop_request(request)
        signal.raise_if_aborted()
        if prepared is None:
            return BuiltRequest(request, partial(self._loop.llm.stream, request), None)
        return BuiltRequest(request, partial(prepared.stream, request), prepared.retry_policy)

    def _seed(self, turn: int) -> CallConfig:
        """The proposal that ``agent/request`` listeners start from."""
        options, header = self._agent.options, self._agent.session.request_header()
        if not self._header_logged:
            config = CallConfig(options.provider or "", options.model or "", max_tokens=options.max_tokens)
            if header is not None and "reasoningEffort" not in header.get("adapterDefaults", ()):
                stored = header["config"]
                if (stored["provider"], stored["model"]) == (config.provider, config.model):
                    config = replace(config, reasoning_effort=stored.get("reasoningEffort"))
        else:
            assert header is not None
            defaults = header.get("adapterDefaults", ())
            config = CallConfig.from_wire({k: v for k, v in header["config"].items() if k not in defaults})
        if options.provider is None and options.model is None:
            config = self._default_route(config, turn)
        return config

    def _default_route(self, config: CallConfig, turn: int) -> CallConfig:
        """The deployment's default model, read once a turn, for agents that name no route."""
        if self._turn_route is None or self._turn_route[0] != turn:
            self._turn_route = (turn, self._loop.default_selection() or {})
        _, route = self._turn_route
        if not route:
            return config
        effort = route.get("reasoningEffort")
        if (route["provider"], route["model"]) == (config.provider, config.model) and effort is None:
            return config
        return replace(config, provider=route["provider"], model=route["model"], reasoning_effort=effort)

    async def _prepare(self, config: CallConfig, signal: AbortSignal) -> PreparedCall | None:
        try:
            return await self._loop.llm.prepare_call(config, signal)
        except HarnessError as error:
            if error.code == "NO_ADAPTER":  # stream middleware may serve the route
                return None
            raise

    def _log_header(self, config: CallConfig, prepared: PreparedCall | None, system: str, assembly: Assembly) -> None:
        session = self._agent.session
        defaults = dict.fromkeys(sorted(prepared.adapter_defaults), True) if prepared is not None else {}
        header = canonical_header(
            {"config": config.to_wire(), "adapterDefaults": defaults, "system": system, "tools": list(assembly.tools)}
        )
        current = session.request_header()
        if not self._header_logged:
            reason = "initial" if current is None else "resume"
            session.append("request/header", {"header": header, "reason": reason})
            self._header_logged = True
        elif current is None or not headers_equal(current, header):
            session.append("request/header", {"header": header, "reason": "change"})
        context: dict[str, Any] = {"provider": config.provider, "model": config.model}
        if prepared is not None and prepared.context is not None:
            context["contextWindow"] = prepared.context["contextWindow"]
        if session.request_context() != context:
            session.append("request/context", context)
