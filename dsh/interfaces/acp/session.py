"""One session of the connection: its agent, what the client sees of it, the prompt in flight."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from dsh.cordis import AbortController
from dsh.core.agent import AgentOptions
from dsh.core.agent_events import AgentError, AgentRequest
from dsh.core.session_store import SessionAppended

from .outbox import Outbox

if TYPE_CHECKING:
    from dsh.cordis import Context
    from dsh.core.agent import Agent, AgentHandle
    from dsh.core.session_event import SessionEvent
    from dsh.llm.call_config import CallConfig

USER = {"kind": "user"}


class View(Protocol):
    """What a client is shown of a session's events."""

    def session_event(self, event: SessionEvent) -> None:
        """Take one event of the session as it is appended."""

    def sent(self, message_id: str) -> None:
        """The client itself gave the message of this id."""

    def permission(self, call_id: str) -> tuple[dict[str, Any], list[dict[str, str]]]:
        """How to ask about a call: the call as the client knows it, and the answers it may give."""

    def remembered(self, tool_name: str, call_id: str) -> str | None:
        """An answer that was given for good: ``allow`` or ``reject``."""

    def remember(self, tool_name: str, call_id: str, answer: str) -> None:
        """Keep an answer for the rest of the session."""


class Prompt:
    """A prompt from its arrival to its answer."""

    def __init__(self) -> None:
        self.admission = AbortController()
        """Aborted when the prompt is cancelled before the agent has it."""
        self.admitted = False
        self.cancelled = False
        """By this client, or because the connection or the agent ends."""
        self.error: BaseException | None = None
        """The first failure of the agent since then."""
        self.end: Mapping[str, Any] | None = None
        """Why the last turn since then ended."""
        self.answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def cancel(self) -> None:
        """Answer it as cancelled, whatever still happens."""
        self.cancelled = True
        self.admission.abort("the prompt was cancelled")


class AcpSession:
    """A session that this connection opened; it outlives its agent when that is restarted."""

    def __init__(self, session_id: str, cwd: str | None, options: AgentOptions, outbox: Outbox, view: View) -> None:
        self.id = session_id
        self.cwd = cwd
        self.options = options
        self.outbox = outbox
        self.view = view
        self.handle: AgentHandle | None = None
        self.chosen: tuple[str, str] | None = None
        """Provider and model that the client asked for."""
        self.prompt: Prompt | None = None

    @property
    def agent(self) -> Agent | None:
        """The live agent."""
        return None if self.handle is None else self.handle.agent

    def watch(self, agent_ctx: Context) -> None:
        """Follow the agent that is being made in ``agent_ctx``."""
        agent_ctx.on(SessionAppended, self._appended)
        agent_ctx.on(AgentError, self._failed)
        agent_ctx.on(AgentRequest, self._route)

    def choose(self, options: AgentOptions) -> None:
        """Use the model of ``options`` from the next request on."""
        assert options.provider is not None and options.model is not None
        self.options = options
        self.chosen = options.provider, options.model

    def cancel(self) -> None:
        """The client wants the present activity to stop: its prompt, or what the agent does of its own accord."""
        prompt = self.prompt
        if prompt is not None:
            prompt.cancel()
            if not prompt.admitted:
                return
        if self.agent is not None:
            self.agent.cancel(USER)

    def lost(self) -> None:
        """The agent was ended by somebody else; the session may come back with another one."""
        self.handle = None
        if self.prompt is not None:
            self.prompt.cancel()

    def _appended(self, event: SessionAppended) -> None:
        if self.prompt is not None and event.event.type == "turn/end":
            self.prompt.end = event.event.data["reason"]
        self.view.session_event(event.event)

    async def _route(self, event: AgentRequest, proceed: Callable[[], Awaitable[CallConfig]]) -> CallConfig:
        config = await proceed()
        if self.chosen is None or self.chosen == (config.provider, config.model):
            return config
        provider, model = self.chosen
        return replace(config, provider=provider, model=model, reasoning_effort=None)

    def _failed(self, event: AgentError) -> None:
        if self.prompt is not None and self.prompt.error is None:
            self.prompt.error = event.error
