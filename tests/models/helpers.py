"""The DeepSeek route against the mock server over real HTTP, alone and under a real agent loop."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from dsh.cordis import Context
from dsh.core import agent_loop, agents, session_store, system_prompt, tools
from dsh.core.agent import Agent, AgentOptions
from dsh.core.agent_loop import AgentLoop
from dsh.core.session import Session
from dsh.core.tools import Tools
from dsh.llm.assembler import BlockAssembler
from dsh.llm.call_config import CallConfig
from dsh.llm.message import create_user_message
from dsh.llm.service import Llm
from dsh.llm.types import LlmRequest
from dsh.loader.environment import EnvLayer, LaunchEnvironment
from dsh.models import deepseek, retry, stream_invariant
from dsh.models.mock_server import Entry, MockLlmServer
from dsh.testing.parts import mount_companions
from tests.llm.helpers import collect

KEY = "sk-test-0123456789"
ROUTE = "deepseek-official"
MODEL = "deepseek-v4-flash"
FAST = {"backoff": {"initialDelayMs": 1, "maxDelayMs": 2000, "jitterRatio": 0}}


@dataclass
class Stack:
    """Handles to everything a test touches."""

    root: Context
    llm: Llm
    server: MockLlmServer
    row: Any

    def request(self, text: str = "hi", **more: Any) -> LlmRequest:
        """A one-message request of the route; `config` fields may be given by name."""
        fields = {
            key: more.pop(key) for key in ("reasoning_effort", "temperature", "max_tokens", "stop") if key in more
        }
        config = CallConfig(ROUTE, more.pop("model", MODEL), **fields)
        messages = more.pop("messages", None) or [create_user_message(text)]
        return LlmRequest(config, messages, **more)

    def request_like(self, config: CallConfig) -> LlmRequest:
        """A one-message request with exactly this config."""
        return LlmRequest(config, [create_user_message("hi")])

    async def reply(self, text: str = "hi", **more: Any) -> BlockAssembler:
        """The assembled reply to one request."""
        reply = BlockAssembler()
        for chunk in await collect(self.llm.stream(self.request(text, **more))):
            reply.push(chunk)
        return reply


def environment(**values: str) -> LaunchEnvironment:
    """A launch environment of exactly these variables."""
    return LaunchEnvironment([EnvLayer("process", values)])


@asynccontextmanager
async def stack(script: Sequence[Entry] = (), *, key: str | None = KEY, **config: Any) -> AsyncIterator[Stack]:
    """Service, row and server; `config` goes to the row. Loopback needs no key, so the server asks for it itself."""
    options = config.pop("server", {})
    async with MockLlmServer(script, **options) as server, Context() as root:
        root.provide("launchEnvironment", environment(**({"DEEPSEEK_API_KEY": key} if key else {})))
        await root.plugin(Llm)
        row = await root.plugin(deepseek, {"baseURL": server.url, **config})
        yield Stack(root, root[Llm], server, row)


@dataclass
class AgentStack(Stack):
    """A stack with an agent on it."""

    agent: Agent
    tools: Tools
    calls: list[Any]

    @property
    def session(self) -> Session:
        """The agent's log."""
        return self.agent.session

    async def prompt(self, text: str) -> dict[str, Any]:
        """Run one turn and return its end reason."""
        self.agent.followup(create_user_message(text))
        await self.agent.when_idle()
        return self.of_type("turn/end")[-1]["reason"]  # type: ignore[no-any-return]

    def of_type(self, kind: str) -> list[Any]:
        """The data of all events of one type."""
        return [event.data for event in self.session.events if event.type == kind]


@asynccontextmanager
async def agent_stack(script: Sequence[Entry] = (), **config: Any) -> AsyncIterator[AgentStack]:
    """The spine with the DeepSeek row, the retry row, the companions and one tool ``bash(command)``."""
    config.setdefault("retryPolicy", FAST)
    async with stack(script, **config) as base:
        root = base.root
        for module in (session_store, system_prompt, tools, agents):
            await root.plugin(module)
        await mount_companions(root)
        await root.plugin(stream_invariant)
        await root.plugin(retry)
        await root.plugin(agent_loop, {})
        registry = root[Tools]
        calls: list[Any] = []

        @registry.tool
        async def bash(command: str = "none") -> str:
            """Run a command."""
            calls.append(command)
            return f"ran {command}"

        agent = root[AgentLoop].create("a", AgentOptions(ROUTE, MODEL), {"cwd": "/tmp"})
        yield AgentStack(root, base.llm, base.server, base.row, agent, registry, calls)
