"""The registry of live agents, the slot for the factory that makes them, and the initiator scope."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from dsh.cordis import Context, Disposer, HarnessError, Service, owned
from dsh.cordis.records import identity_struct

from .agent_events import AgentCreated, AgentDisposed, notify
from .initiator import InitiatorScope
from .texts import NO_FACTORY

if TYPE_CHECKING:
    from .agent import Agent, AgentFactory, AgentHandle, CreateAgentOptions, ResumeAgentOptions

T = TypeVar("T")


@identity_struct
class _Entry:
    agent: Agent
    owner: Agent | None
    announced: bool = False
    announcing: bool = False
    detach_requested: bool = False


class Agents(Service, name="agents"):
    """Finds, creates and resumes agents. Row ``agent``."""

    def __init__(self, ctx: Context, config: object = None) -> None:
        self._entries: dict[str, _Entry] = {}
        self._factory: AgentFactory | None = None
        self._initiators = InitiatorScope()
        ctx.defer(self._initiators.drain)
        ctx.on("internal/plugin", self._on_plugin, global_=True)

    def get(self, agent_id: str) -> Agent | None:
        """The live agent with this id."""
        entry = self._entries.get(agent_id)
        return None if entry is None else entry.agent

    def list(self) -> builtins.list[Agent]:
        """All live agents in order of entry."""
        return [entry.agent for entry in self._entries.values()]

    def roots(self) -> builtins.list[Agent]:
        """Live agents that no other agent created."""
        return [entry.agent for entry in self._entries.values() if entry.owner is None]

    def is_owned_by(self, agent_id: str, agent: Agent) -> bool:
        """Whether ``agent`` created the live agent ``agent_id``."""
        entry = self._entries.get(agent_id)
        return entry is not None and entry.owner is agent

    @owned
    def register(self, caller: Context, agent: Agent) -> Disposer:
        """Enter and announce ``agent`` for as long as the calling fiber lives."""

        def setup() -> Callable[[], None]:
            detach = self.enter(agent, caller.agent)
            try:
                self.announce(agent)
            except BaseException:
                detach()
                raise
            return detach

        return caller.effect(setup, f"agents.register({agent.id})")

    def enter(self, agent: Agent, owner: Agent | None) -> Callable[[], None]:
        """Make ``agent`` findable; returns an idempotent detach bound to this very entry.

        Raises ``HarnessError`` when the id differs from the session's or is taken.
        """
        if agent.id != agent.session.id:
            text = f'agent id "{agent.id}" does not match session id "{agent.session.id}"'
            raise HarnessError(text, code="AGENT_ID_MISMATCH")
        if agent.id in self._entries:
            raise HarnessError(f'agent "{agent.id}" is already registered', code="DUPLICATE_AGENT")
        entry = self._entries[agent.id] = _Entry(agent, owner)
        return lambda: self._detach(entry)

    def announce(self, agent: Agent) -> None:
        """Tell listeners that ``agent`` exists; a raising listener reaches the caller."""
        entry = self._entries.get(agent.id)
        if entry is None or entry.agent is not agent:
            raise HarnessError(f'agent "{agent.id}" is not live in this registry', code="AGENT_NOT_LIVE")
        if entry.announced:
            raise HarnessError(f'agent "{agent.id}" was already announced', code="AGENT_ANNOUNCED")
        entry.announced = entry.announcing = True
        try:
            self.ctx.emit(AgentCreated(agent=agent))
        finally:
            entry.announcing = False
            if entry.detach_requested:
                self._detach(entry)

    def _detach(self, entry: _Entry) -> None:
        if entry.announcing:
            entry.detach_requested = True
            return
        if self._entries.get(entry.agent.id) is not entry:
            return
        del self._entries[entry.agent.id]
        if entry.announced:
            notify(self.ctx, AgentDisposed(agent=entry.agent))

    @owned
    def set_factory(self, caller: Context, factory: AgentFactory) -> Disposer:
        """Install the one factory; it leaves with the calling fiber."""

        if self._factory is not None:
            raise HarnessError("an agent factory is already registered", code="DUPLICATE_FACTORY")

        def leave() -> None:
            self._factory = None

        disposer = caller.defer(leave, "agents.set_factory")
        self._factory = factory
        return disposer

    @owned
    async def create(self, caller: Context, options: CreateAgentOptions) -> AgentHandle:
        """Create an agent that lives no longer than the calling fiber."""
        return await self._require_factory().create_agent(caller, options)

    @owned
    async def resume(self, caller: Context, options: ResumeAgentOptions) -> AgentHandle:
        """Resume a stored session as an agent that lives no longer than the calling fiber."""
        return await self._require_factory().resume(caller, options)

    def _require_factory(self) -> AgentFactory:
        if self._factory is None:
            raise HarnessError(NO_FACTORY, code="NO_FACTORY")
        return self._factory

    def current_initiator(self) -> Agent | None:
        """The agent on whose behalf the calling code runs."""
        return self._initiators.current()

    def require_initiator(self) -> Agent:
        """Like :meth:`current_initiator`; raises ``HarnessError`` (``NO_INITIATOR``) outside of any."""
        agent = self._initiators.current()
        if agent is None:
            raise HarnessError("no initiating agent is active", code="NO_INITIATOR")
        return agent

    def with_initiator(self, agent: Agent, operation: Callable[[], T]) -> T:
        """Run ``operation`` on behalf of ``agent``; awaitables it returns keep that identity."""
        return self._initiators.enter(agent, operation)

    def _on_plugin(self, event: Any) -> None:
        """Whoever disposes this service, or what it lives in, is not waited for by that disposal."""
        if event.fiber.uid is None and event.fiber in self.ctx.fiber.lineage():
            self._initiators.exempt_current()

    def without_initiator(self, operation: Callable[[], T]) -> T:
        """Run ``operation`` on nobody's behalf."""
        return self._initiators.enter(None, operation)
