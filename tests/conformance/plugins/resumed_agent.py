"""`test:resumed-agent`: opens the stored session that the case names, and owns its agent."""

from __future__ import annotations

from dsh.cordis import ConfigModel, Context, field
from dsh.core.agent import AgentOptions, ResumeAgentOptions
from dsh.core.agent_loop import AgentLoop
from dsh.core.agents import Agents
from dsh.core.seams import SessionPersistence


class Config(ConfigModel):
    """Which session, on which route."""

    session_id: str = field(min=1)
    provider: str = field(min=1)
    model: str = field(min=1)


async def apply(ctx: Context, config: Config, agents: Agents, loop: AgentLoop, persistence: SessionPersistence) -> None:
    """Resume it."""
    options = AgentOptions(config.provider, config.model)
    await agents.resume(ResumeAgentOptions(config.session_id, options))
