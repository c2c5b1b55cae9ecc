"""The spine in a test: real services, a scripted model in place of a provider."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from dsh.cordis import AbortError, Context
from dsh.core import agent_loop, agents, session_store, system_prompt, tools
from dsh.core.agent import Agent
from dsh.core.agent_loop import AgentLoop
from dsh.core.agents import Agents
from dsh.core.session import Session
from dsh.core.session_store import Sessions
from dsh.core.system_prompt import SystemPrompt
from dsh.core.tools import Tools
from dsh.llm import service
from dsh.llm.adapter import Adapter
from dsh.llm.service import Llm
from dsh.llm.types import LlmRequest, StreamChunk

Chunks = list[dict[str, Any]]
Entry = Chunks | Callable[[LlmRequest], Any] | str | tuple[Chunks, str]

USAGE = {"inputTokens": 10, "outputTokens": 5}


def text_reply(text: str, usage: dict[str, int] | None = None, finish: str = "stop") -> Chunks:
    """A reply of one text block, in two deltas."""
    cut = max(1, len(text) // 2)
    return [
        {"type": "block-start", "index": 0, "blockType": "text"},
        {"type": "text-delta", "index": 0, "text": text[:cut]},
        *([{"type": "text-delta", "index": 0, "text": text[cut:]}] if text[cut:] else []),
        {"type": "block-end", "index": 0, "block": {"type": "text", "text": text}},
        {"type": "usage", "usage": usage or USAGE},
        {"type": "finish", "reason": {"kind": finish}},
    ]


def reasoning_reply(reasoning: str, text: str) -> Chunks:
    """A reply that thinks first."""
    return [
        {"type": "block-start", "index": 0, "blockType": "reasoning"},
        {"type": "reasoning-delta", "index": 0, "text": reasoning},
        {"type": "block-end", "index": 0, "block": {"type": "reasoning", "text": reasoning}},
        {"type": "block-start", "index": 1, "blockType": "text"},
        {"type": "text-delta", "index": 1, "text": text},
        {"type": "block-end", "index": 1, "block": {"type": "text", "text": text}},
        {"type": "finish", "reason": {"kind": "stop"}},
    ]


def tool_reply(*calls: tuple[str, str] | tuple[str, str, str], finish: str = "tool-calls") -> Chunks:
    """A reply that calls tools: ``(name, arguments)`` or ``(name, arguments, id)`` each."""
    chunks: Chunks = []
    for index, call in enumerate(calls):
        name, arguments = call[0], call[1]
        call_id = call[2] if len(call) > 2 else f"call-{index + 1}"
        chunks += [
            {"type": "block-start", "index": index, "blockType": "tool-call"},
            {"type": "tool-call-delta", "index": index, "id": call_id, "name": name, "argumentsDelta": arguments},
            {
                "type": "block-end",
                "index": index,
                "block": {"type": "tool-call", "id": call_id, "name": name, "arguments": arguments},
            },
        ]
    chunks.append({"type": "finish", "reason": {"kind": finish}})
    return chunks


def error_reply(message: str = "boom", code: str = "SERVER", kind: str = "error", **more: Any) -> Chunks:
    """A reply that the provider ends with a failure."""
    return [{"type": "finish", "reason": {"kind": kind, "failure": {"message": message, "code": code, **more}}}]


class ScriptedAdapter(Adapter):
    """Plays one entry a request and records every request.

    An entry is a chunk list; a function of the request giving one; ``"hang"`` (one text delta, then wait for the
    abort); ``"hang-slow"`` (notices the abort 50 ms late); or ``(chunks, "hang")``.
    """

    def __init__(self, script: Sequence[Entry]) -> None:
        self.script = list(script)
        self.requests: list[LlmRequest] = []
        self.hanging = asyncio.Event()

    async def stream(self, request: LlmRequest) -> AsyncIterator[StreamChunk]:
        self.requests.append(request)
        if not self.script:
            raise AssertionError("the scripted model has no entry left")
        entry: Any = self.script.pop(0)
        if callable(entry):
            entry = entry(request)
            if asyncio.iscoroutine(entry):
                entry = await entry
        hang = None
        if isinstance(entry, tuple):
            entry, hang = entry
        elif isinstance(entry, str):
            hang = entry
            entry = [
                {"type": "block-start", "index": 0, "blockType": "text"},
                {"type": "text-delta", "index": 0, "text": "partial"},
            ]
        for chunk in entry:
            await asyncio.sleep(0)
            yield chunk
        if hang is not None:
            self.hanging.set()
            assert request.signal is not None
            await request.signal.wait()
            if hang == "hang-slow":
                await asyncio.sleep(0.05)
            raise AbortError("stream aborted")


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
    async with no_task_left(), Context(dispose_timeout=dispose_timeout) as root:
        for module in (service, session_store, system_prompt, tools, agents):
            await root.plugin(module)
        if companions:
            await mount_companions(root)
        await root.plugin(agent_loop, config)
        model = ScriptedAdapter(script)
        llm = root[Llm]
        llm.register_adapter(["test"], model)
        yield Spine(root, llm, root[Sessions], root[SystemPrompt], root[Tools], root[Agents], root[AgentLoop], model)


@asynccontextmanager
async def no_task_left() -> AsyncIterator[None]:
    """Every task that the block started has ended with it."""
    before = asyncio.all_tasks()
    yield
    await asyncio.sleep(0)
    survivors = asyncio.all_tasks() - before
    assert not survivors, survivors


async def deaf(event: asyncio.Event) -> None:
    """Wait for the event, whatever else happens: a body that listens neither to its signal nor to a cancellation."""
    while not event.is_set():
        try:
            await event.wait()
        except asyncio.CancelledError:
            pass


async def mount_companions(root: Context) -> None:
    """The invariant companions: log rules, agent states, and each request rebuilt from the log."""
    from dsh.core import agent_invariant, invariants, loop_invariant, session_invariant

    for module in (invariants, session_invariant, agent_invariant, loop_invariant):
        await root.plugin(module)


def types(session: Session, *, chunks: bool = False) -> list[str]:
    """The event types of a log in order, chunks left out unless asked for."""
    return [event.type for event in session.events if chunks or event.type != "assistant/chunk"]


def of_type(session: Session, kind: str) -> list[Any]:
    """The data of all events of one type."""
    return [event.data for event in session.events if event.type == kind]
