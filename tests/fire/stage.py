"""A scripted turn that uses everything a turn can use, and the checks of what is left of it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from dsh.core.agent import Agent, AgentHandle, AgentOptions, CreateAgentOptions
from dsh.core.agent_events import (
    AgentError,
    AgentPreStep,
    AgentRequest,
    AgentRequestError,
    AgentTurnStopping,
    Enter,
    InboxDiscarded,
)
from dsh.core.session_store import SessionAppended
from dsh.core.tools import Accept, Deny, ToolRun, ToolsExecute, ToolsPostExecute, ToolsPreExecute
from dsh.llm.adapter import Adapter
from dsh.llm.message import create_user_message
from dsh.llm.types import LlmRequest, StreamChunk
from dsh.sessions import checkpoint_policy, jsonl
from tests.core.kit import Spine, error_reply, reasoning_reply, spine, text_reply, tool_reply
from tests.fire.judge import discarded_ids, entered_ids, judge_log, judge_messages, pending_ids, wire

ROUTE = AgentOptions("fire", "m")

LIMIT = 20.0
"""Seconds; only against a hang."""

TURN: list[Any] = [
    error_reply("busy", "SERVER"),
    tool_reply(
        ("slow", "{}", "s1"),
        ("quick", "{}", "q1"),
        ("raising", "{}", "r1"),
        ("alone", "{}", "x1"),
        ("denied", "{}", "d1"),
        ("nobody", "{}", "n1"),
        ("closing", "{}", "g1"),
    ),
    tool_reply(("child", "{}", "c1"), ("telling", "{}", "t1")),
    reasoning_reply("hm", "nearly"),
    text_reply("done"),
    text_reply("second turn"),
]


async def breathe(times: int = 2) -> None:
    """A few moments in which anything may happen."""
    for _ in range(times):
        await asyncio.sleep(0)


def say(text: str) -> Any:
    return create_user_message(text)


class Model(Adapter):
    """Plays a script per session, then answers calmly for ever; judges each request."""

    def __init__(self, script: list[Any]) -> None:
        self.script = script
        self.played: dict[str | None, int] = {}
        self.calm: set[str | None] = set()

    async def stream(self, request: LlmRequest) -> AsyncIterator[StreamChunk]:
        judge_messages(request.messages)
        at = self.played.get(request.session_id, 0)
        self.played[request.session_id] = at + 1
        scripted = request.session_id not in self.calm and at < len(self.script)
        for chunk in self.script[at] if scripted else text_reply("calm"):
            await asyncio.sleep(0)
            yield chunk


class Stage:
    """A spine with every kind of tool; agents on it come one after another."""

    def __init__(self, s: Spine, model: Model) -> None:
        self.s = s
        self.model = model
        self.errors: list[BaseException] = []
        self._made = 0
        self.standing_tasks = asyncio.all_tasks()
        """Tasks that are there without any agent."""
        s.root.on(AgentError, lambda e: self.errors.append(e.error), global_=True)
        for name, body in self._bodies().items():
            safe = name not in ("alone", "child")
            s.tools.tool(name=name, description=f"{name}.", is_concurrency_safe=safe)(body)

    def _bodies(self) -> dict[str, Callable[..., Any]]:
        async def slow(run: ToolRun) -> str:
            for _ in range(12):
                if run.signal.aborted:
                    break
                await asyncio.sleep(0)
            return "slow"

        async def quick() -> str:
            return "quick"

        async def raising() -> str:
            await asyncio.sleep(0)
            raise ValueError("no")

        async def alone() -> str:
            await breathe()
            return "alone"

        async def denied() -> str:
            raise AssertionError("it was denied")

        async def closing() -> str:
            await asyncio.sleep(0)
            raise GeneratorExit

        async def telling(run: ToolRun) -> str:
            await asyncio.sleep(0)
            run.defer_context(say("by the way"))
            return "told"

        async def child(run: ToolRun) -> str:
            """An agent of the agent: it runs a turn of its own and must not outlive its parent."""
            parent = run.agent
            options = CreateAgentOptions(f"{parent.id}-child", {"cwd": "/tmp"}, agent_options=parent.options)
            async with await parent.ctx["agents"].create(options) as agent:
                self.model.calm.add(agent.id)
                undo = run.signal.on_abort(lambda: agent.cancel({"kind": "parent"}))
                agent.followup(say("work"))
                await agent.when_idle()
                undo()
            return "child"

        return {body.__name__: body for body in (slow, quick, raising, alone, denied, closing, telling, child)}

    async def agent(self, prefix: str = "a", **more: Any) -> Actor:
        """A fresh agent with hooks around everything it does."""
        self._made += 1
        options = CreateAgentOptions(f"{prefix}{self._made}", {"cwd": "/tmp"}, agent_options=ROUTE, **more)
        return Actor(self, await self.s.agents.create(options))

    async def judge_left(self, before: Any) -> None:
        """Without agents all is as `before`, a census: no task, no registration, and no invariant was hurt."""
        await asyncio.sleep(0)
        assert asyncio.all_tasks() <= self.standing_tasks, asyncio.all_tasks()
        assert self.census() == before
        assert not [e for e in self.errors if type(e).__name__ == "InvariantError"], self.errors
        self.errors.clear()

    def census(self) -> Any:
        """What must be the same before an agent came and after it went."""
        picture = self.s.root.inspect()
        return (
            {each["name"]: each["listeners"] for each in picture["events"]},
            [each["name"] for each in picture["services"]],
            sum(_effects(fiber) for fiber in picture["fibers"]["children"]),
            picture["tasks"],
            len(self.s.loop.lifecycles),
            len(self.s.loop.tasks),
        )


def _effects(fiber: dict[str, Any]) -> int:
    return len(fiber["effects"]) + sum(_effects(child) for child in fiber["children"])


class Actor:
    """One agent on the stage and all messages it was given."""

    def __init__(self, stage: Stage, handle: AgentHandle, *, calm: bool = False) -> None:
        self.stage = stage
        self.handle = handle
        self.sent: list[str] = []
        self.discarded: list[str] = []
        self.injected: list[str] = []
        self._adds_one = not calm
        self._bodies = 0
        self._outlived: list[str] = []
        self._hook(handle.agent)

    @property
    def agent(self) -> Agent:
        return self.handle.agent

    @property
    def rows(self) -> list[dict[str, Any]]:
        return wire(self.agent.session.events)

    def note(self, message: Any) -> Any:
        self.sent.append(message["id"])
        return message

    def _hook(self, agent: Agent) -> None:
        ctx = agent.ctx

        async def pre_step(event: AgentPreStep, proceed: Any) -> Any:
            await breathe()
            decision = await proceed()
            await breathe(1)
            return Enter(decision.messages) if isinstance(decision, Enter) else decision

        async def request(event: AgentRequest, proceed: Any) -> Any:
            await breathe(1)
            return await proceed()

        async def retry(event: AgentRequestError, proceed: Any) -> Any:
            await breathe()
            return "retry"

        async def before(event: ToolsPreExecute, proceed: Any) -> Any:
            await breathe(1)
            return Deny("not this one") if event.exec.name == "denied" else await proceed()

        async def around(event: ToolsExecute, proceed: Any) -> Any:
            self._bodies += 1
            try:
                await breathe(1)
                result = await proceed()
                await breathe(1)
                return result
            finally:
                self._bodies -= 1

        def appended(event: SessionAppended) -> None:
            if event.event.type in ("step/end", "turn/end") and self._bodies:
                self._outlived.append(f"{self._bodies} tool bodies outlived {event.event.type} {event.event.data}")

        async def after(event: ToolsPostExecute, proceed: Any) -> Any:
            await breathe(1)
            decision = await proceed()
            return Accept(additional_contexts=(say("seen"),)) if event.exec.name == "quick" else decision

        async def stopping(event: AgentTurnStopping) -> None:
            await breathe()
            if self._adds_one and not self.injected and not event.signal.aborted:
                message = self.note(say("one more thing"))
                self.injected.append(message["id"])
                agent.inject(message)
            await breathe(1)

        ctx.on(AgentPreStep, pre_step)
        ctx.on(AgentRequest, request)
        ctx.on(AgentRequestError, retry)
        ctx.on(ToolsPreExecute, before)
        ctx.on(ToolsExecute, around)
        ctx.on(ToolsPostExecute, after)
        ctx.on(AgentTurnStopping, stopping)
        ctx.on(SessionAppended, appended)
        ctx.on(InboxDiscarded, lambda e: self.discarded.append(e.message["id"]))

    def start(self) -> None:
        """A prompt, something to join it, and a second prompt behind them."""
        self.agent.inject(self.note(say("context")))
        self.agent.followup(self.note(say("first")))
        self.agent.followup(self.note(say("second")))

    def judge(self) -> None:
        """The log is closed, no tool ran on behind it, and every message has exactly one fate."""
        rows = self.rows
        judge_log(rows)
        assert not self._outlived, self._outlived
        pending = [each for ids in pending_ids(rows).values() for each in ids]
        fates = [*entered_ids(rows), *pending, *discarded_ids(rows), *self._dropped(rows)]
        for message in self.sent:
            assert fates.count(message) == 1, f"{message} has {fates.count(message)} fates"
        assert [m["id"] for m in (*self.agent.inbox.next_turn, *self.agent.inbox.next_step)] == pending
        prompts = [each for each in self.sent if each not in self.injected]
        order = [each for each in entered_ids(rows) if each in prompts]
        assert order == [each for each in prompts if each in order], "the order was not kept"

    def _dropped(self, rows: list[dict[str, Any]]) -> list[str]:
        """Claimed messages that a cancel dropped with the rest of the inbox: only their observers hear of it."""
        spliced = set(discarded_ids(rows))
        return [each for each in self.discarded if each not in spliced]


@asynccontextmanager
async def stage(disk: Path | None = None, **config: Any) -> AsyncIterator[Stage]:
    """A stage whose model plays `TURN`; with persistence and checkpoints in `disk`."""
    async with spine(**config) as s:
        model = Model(list(TURN))
        s.llm.register_adapter(["fire"], model)
        if disk is not None:
            await s.root.plugin(jsonl, {"root": str(disk), "durability": "os", "writeBatchMaxDelayMs": 1})
            await s.root.plugin(checkpoint_policy)
        yield Stage(s, model)


@contextlib.asynccontextmanager
async def within(what: str) -> AsyncIterator[None]:
    """Fail instead of hanging, with the names of the tasks that are left."""
    try:
        async with asyncio.timeout(LIMIT):
            yield
    except TimeoutError:
        names = sorted(task.get_name() for task in asyncio.all_tasks())
        raise AssertionError(f"{what}: not over within {LIMIT:g} s; tasks: {names}") from None


__all__ = ["Actor", "Model", "Stage", "breathe", "say", "stage", "within"]
