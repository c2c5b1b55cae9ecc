"""The agent loop as a plugin: the factory of agents, their shared limits, and the agents a composition names.

Row ``agent-loop``. Prompt variables ``provider``, ``model`` and ``cwd`` describe the agent being prompted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dsh.cordis import ConfigModel, Context, HarnessError, Service, field, owned
from dsh.llm.service import Llm

from .agent import MAX_SAFE_INTEGER, Agent, AgentHandle, AgentOptions, CreateAgentOptions, ResumeAgentOptions
from .agents import Agents
from .configured_agents import AgentRow, ConfiguredAgents, check_rows, missing_workspace
from .creation import Lifecycle, create_agent, create_now, resume_agent
from .seams import AgentDefaultModel, SessionPersistence, install_settings_section
from .session_store import SessionDisposed, Sessions
from .system_prompt import SystemPrompt
from .tasks import TaskOwner
from .texts import LOOP_INACTIVE
from .tools import Tools
from .working_directory import working_directory

if TYPE_CHECKING:
    from .system_prompt import AssembleContext


class LoopSettings(ConfigModel):
    """The part of the row that a user may set live: section ``agent-loop``."""

    max_parallel_tool_calls: int = field(
        10, min=1, max=MAX_SAFE_INTEGER, live=True, description="Tool calls of one step that may run at once, per agent"
    )


class Config(LoopSettings):
    """Row config of the agent loop."""

    agents: list[AgentRow] = field(default_factory=list, description="Agents started with this row")

    def cross_check(self) -> Iterable[tuple[str, str]]:
        try:
            check_rows(self.agents)
        except HarnessError as error:
            yield "agents", str(error)

    def check_surroundings(self, base_dir: Path) -> Iterable[tuple[tuple[str | int, ...], str]]:
        for index, row in enumerate(self.agents):
            if problem := missing_workspace(row, base_dir):
                yield ("agents", index, "cwd"), problem


class AgentLoop(Service, name="agentLoop"):
    """Creates and drives agents. Everything else reaches them through ``ctx.agents``."""

    def __init__(
        self,
        ctx: Context,
        config: Config,
        agents: Agents,
        sessions: Sessions,
        llm: Llm,
        tools: Tools,
        system_prompt: SystemPrompt,
    ) -> None:
        self.agents = agents
        self.sessions = sessions
        self.llm = llm
        self.tools = tools
        self.system_prompt = system_prompt
        self.tasks = TaskOwner()
        self.scopes = ctx.group("agents")  # what agents register outlives their last turn: undone after `_close`
        self.lifecycles: set[Lifecycle] = set()
        self.abandoned: dict[asyncio.Future[Any], str] = {}
        self.closing = False
        self._closed = False
        limits = LoopSettings.validate({"maxParallelToolCalls": config.max_parallel_tool_calls})
        self._limits = install_settings_section(ctx, "agent-loop", LoopSettings, limits)
        self.configured = ConfiguredAgents(self, config.agents)
        agents.set_factory(self)
        system_prompt.variable("provider", lambda scope: self._route_of(scope, "provider"))
        system_prompt.variable("model", lambda scope: self._route_of(scope, "model"))
        system_prompt.variable("cwd", lambda scope: scope.agent and working_directory(scope.agent.session))
        ctx.on(SessionDisposed, lambda event: llm.forget_session(event.session.id), global_=True)
        ctx.defer(self._close)
        ctx.inject([SessionPersistence], self._outlast_by_persistence)

    async def start(self) -> None:
        """Start the agents that the row names."""
        self.configured.start()

    @property
    def max_parallel_tool_calls(self) -> int:
        """The cap in force for the next tool group."""
        return self._limits.get().max_parallel_tool_calls

    def on_update(self, new: Config, old: Config, changed: object) -> bool:
        """Take an edited row in place: the cap for the next group, agents by label."""
        self.configured.update(new.agents)
        self._limits.rebase(LoopSettings.validate({"maxParallelToolCalls": new.max_parallel_tool_calls}))
        return True

    def default_selection(self) -> Mapping[str, Any] | None:
        """The deployment's default route, if one is usable now."""
        service = self.ctx.get(AgentDefaultModel)
        return None if service is None else service.current_selection()

    async def create_agent(self, owner: Context, options: CreateAgentOptions) -> AgentHandle:
        """See :func:`dsh.core.creation.create_agent`."""
        return _handle(await create_agent(self, owner, options))

    async def resume(self, owner: Context, options: ResumeAgentOptions) -> AgentHandle:
        """See :func:`dsh.core.creation.resume_agent`."""
        return _handle(await resume_agent(self, owner, options))

    @owned
    def create(
        self, caller: Context, agent_id: str, options: AgentOptions | None = None, meta: Mapping[str, Any] | None = None
    ) -> Agent:
        """Create an agent under exactly this id at once, owned by the calling fiber."""
        return _handle(create_now(self, caller, agent_id, options or AgentOptions(), dict(meta or {}))).agent

    def abandon(self, session_id: str, work: asyncio.Future[Any]) -> None:
        """Remember work on a session that nobody waits for any more: the next one who opens it does."""
        self.abandoned[work] = session_id
        work.add_done_callback(lambda done: self.abandoned.pop(done, None))

    def _outlast_by_persistence(self, child: Context) -> None:
        """When both leave together, persistence waits for the agents, so that their last events reach the disk.

        While the loop stays, a persistence that leaves or is replaced ends nobody.
        """

        async def end() -> None:
            if not self.ctx.stack.is_open:
                await self._close()

        child.defer(end)

    async def _close(self) -> None:
        """End every agent, and every creation under way, together; once, even if that had to be given up."""
        if self._closed:
            return
        self.closing = True
        self.configured.close()
        inactive = HarnessError(LOOP_INACTIVE, code="LOOP_INACTIVE")
        for lifecycle in list(self.lifecycles):
            lifecycle.dispose_soon(inactive)
        try:
            await self.tasks.join()
        finally:
            self._closed = True

    def _route_of(self, scope: AssembleContext, key: str) -> str | None:
        agent = scope.agent
        if agent is None:
            return None
        options: AgentOptions = agent.options
        if options.provider is None and options.model is None:
            selection = self.default_selection()
            return None if selection is None else selection[key]
        value: str | None = getattr(options, key)
        return value


def _handle(lifecycle: Lifecycle) -> AgentHandle:
    assert lifecycle.agent is not None
    return AgentHandle(lifecycle.agent, lifecycle.dispose)
