"""The one-shot runner: give one task to one agent, wait until it is quiet, report, leave.

Row ``headless``. Mounted by ``dsh exec`` and ``dsh resume <session> TASK``; not part of a standing composition.
"""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

from dsh.cordis import ConfigModel, Context, HarnessError, field
from dsh.core.agent import AgentOptions, CreateAgentOptions, ResumeAgentOptions
from dsh.core.agents import Agents
from dsh.core.session_store import SessionAppended, Sessions
from dsh.llm.message import create_user_message
from dsh.loader.boot import when_started

from .outcome import Outcome, outcome_of, report, report_failure, unended, write_event
from .stdout import LineOutput, say

if TYPE_CHECKING:
    from dsh.core.agent import AgentHandle
    from dsh.core.session import Session


OutputFormat = Literal["text", "json", "stream-json"]

CANCEL_SECONDS = 12.0
"""How long a turn that ran into the time limit may take to end: a little more than a tool that does not listen gets."""


class Config(ConfigModel):
    """What to run and how to report it."""

    task: str = field(min=1, description="The prompt")
    session_id: str | None = field(None, description="Stored session to continue; a fresh one otherwise")
    provider: str | None = field(None, description="Model provider; the default model otherwise")
    model: str | None = field(None, description="Model id at that provider")
    cwd: str | None = field(None, description="Workspace of a fresh session; the current directory otherwise")
    output: OutputFormat = field("text", description="Form of the result on standard output")
    timeout_seconds: float | None = field(None, min=0, description="Cancel the run after this long")


def apply(ctx: Context, config: Config, agents: Agents, sessions: Sessions) -> None:
    """Start the run; its end asks the launcher to exit with the outcome's code."""
    ctx.spawn(Run(ctx, config, agents, sessions).main, name="headless run", critical=True)


class Run:
    """One task from start to exit code."""

    def __init__(self, ctx: Context, config: Config, agents: Agents, sessions: Sessions) -> None:
        self._ctx = ctx
        self._config = config
        self._agents = agents
        self._sessions = sessions
        out: LineOutput | None = ctx.get("stdout")
        if out is None:
            raise HarnessError("the one-shot runner needs the launcher's standard output", code="NO_STDOUT")
        self._out = out
        self._exit: Callable[[int], None] = ctx.get("appExit")
        self._begun: tuple[Session, int] | None = None

    async def main(self) -> None:
        """Run, report, ask the launcher to exit."""
        code = 1
        try:
            outcome = await self._run()
            report(self._out, self._config.output, outcome)
            code = outcome.exit_code
        except asyncio.CancelledError:
            if self._begun is not None:  # a signal: the agent has ended its turn before we leave
                report(self._out, self._config.output, outcome_of(*self._begun))
            raise
        except Exception as error:
            report_failure(self._out, self._config.output, error, outcome_of(*self._begun) if self._begun else None)
        self._exit(code)

    async def _run(self) -> Outcome:
        await when_started(self._ctx)
        handle = await self._agent()
        agent = handle.agent
        start = len(agent.session.events)
        self._begun = agent.session, start
        if self._config.output == "stream-json":
            self._stream(agent.id)
        queue = (*agent.inbox.next_step, *agent.inbox.next_turn)
        if waiting := sum(message["source"]["kind"] == "user" for message in queue):
            say(f"{waiting} prompt{'s' * (waiting > 1)} left waiting in this session will run first")
        agent.followup(create_user_message(self._config.task))
        await self._sessions.flush(agent.session)
        try:
            async with asyncio.timeout(self._config.timeout_seconds):
                await agent.when_idle()
        except TimeoutError:
            why = f"timeout after {self._config.timeout_seconds:g} s"
            agent.cancel({"kind": "hook", "reason": why})
            try:
                async with asyncio.timeout(CANCEL_SECONDS):
                    await agent.when_idle()
            except TimeoutError:  # a tool that does not listen must not hold the run for ever
                await self._sessions.flush(agent.session)
                return unended(agent.session, start, why)
        await self._sessions.flush(agent.session)
        return outcome_of(agent.session, start)

    async def _agent(self) -> AgentHandle:
        config = self._config
        options = AgentOptions(config.provider, config.model)
        if config.session_id is not None:
            live = self._agents.get(config.session_id)
            if live is not None:
                raise HarnessError(f'session "{config.session_id}" is already running here', code="SESSION_LIVE")
            return await self._agents.resume(ResumeAgentOptions(config.session_id, options, restore_route=True))
        meta: dict[str, Any] = {"cwd": os.path.abspath(config.cwd or os.getcwd())}
        return await self._agents.create(CreateAgentOptions(f"session-{uuid.uuid4()}", meta, agent_options=options))

    def _stream(self, session_id: str) -> None:
        @self._ctx.on(SessionAppended)
        def forward(event: SessionAppended) -> None:
            if event.session.id == session_id:
                write_event(self._out, session_id, event.event)
