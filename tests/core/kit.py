"""The spine in a test: real services, a scripted model in place of a provider."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from dsh.cordis import Context
from dsh.core import agent_loop, agents, session_store, system_prompt, tools
from dsh.core.agent import Agent
from dsh.core.agent_loop import AgentLoop
from dsh.core.agents import Agents
from dsh.core.session import Session
from dsh.core.session_store import Sessions
from dsh.core.system_prompt import SystemPrompt
from dsh.core.tools import Tools
from dsh.llm import service
from dsh.llm.service import Llm
from dsh.testing import nothing_left
from dsh.testing.parts import mount_companions

from .scripted import USAGE, Entry, ScriptedAdapter, error_reply, reasoning_reply, text_reply, tool_reply

__all__ = [
    "USAGE",
    "Entry",
    "ScriptedAdapter",
    "Spine",
    "deaf",
    "error_reply",
    "mount_companions",
    "of_type",
    "reasoning_reply",
    "spine",
    "text_reply",
    "tool_reply",
    "types",
]


@dataclass
class Spine:
    """Handles to everything a loop test touches."""

    root: Context
    llm: Llm
    sessions: Sessions
    prompt: SystemPrompt
    tools: Tools
    agents: Agents
    loop: AgentLoop
    model: ScriptedAdapter

    def agent(self, agent_id: str = "a", **options: Any) -> Agent:
        """A fresh agent on the scripted model."""
        from dsh.core.agent import AgentOptions

        given = {"provider": "test", "model": "m", **options}
        return self.loop.create(agent_id, AgentOptions(**given), {"cwd": "/tmp"})


@asynccontextmanager
async def spine(
    script: Sequence[Entry] = (), *, companions: bool = True, dispose_timeout: float = 10.0, **config: Any
) -> AsyncIterator[Spine]:
    """Mount the spine on a fresh root; ``config`` goes to the loop's row."""
    async with nothing_left(), Context(dispose_timeout=dispose_timeout) as root:
        for module in (service, session_store, system_prompt, tools, agents):
            await root.plugin(module)
        if companions:
            await mount_companions(root)
        await root.plugin(agent_loop, config)
        model = ScriptedAdapter(script)
        llm = root[Llm]
        llm.register_adapter(["test"], model)
        yield Spine(root, llm, root[Sessions], root[SystemPrompt], root[Tools], root[Agents], root[AgentLoop], model)


async def deaf(event: asyncio.Event) -> None:
    """Wait for the event, whatever else happens: a body that listens neither to its signal nor to a cancellation."""
    while not event.is_set():
        try:
            await event.wait()
        except asyncio.CancelledError:
            pass


def types(session: Session, *, chunks: bool = False) -> list[str]:
    """The event types of a log in order, chunks left out unless asked for."""
    return [event.type for event in session.events if chunks or event.type != "assistant/chunk"]


def of_type(session: Session, kind: str) -> list[Any]:
    """The data of all events of one type."""
    return [event.data for event in session.events if event.type == kind]
