"""Inbox, wake latch and driver against a reference model, under random interleavings.

Commands gather and are given in one tick; then the loop runs for some ticks. The model follows what observers see and
judges each of it: what was claimed, what entered, what went back, whether the agent may be idle.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, Literal

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from dsh.cordis import AbortSignal, HarnessError
from dsh.core.agent import Agent, AgentHandle, AgentOptions, CreateAgentOptions
from dsh.core.agent_events import AgentPreStep, AgentStatus, InboxClaimed, InboxDiscarded, Reject
from dsh.core.inbox import Inbox
from dsh.core.session import Session
from dsh.core.session_store import SessionAppended
from dsh.llm.adapter import Adapter
from dsh.llm.types import LlmRequest, StreamChunk
from tests.core.kit import error_reply, spine, text_reply, tool_reply
from tests.fire.judge import judge_log, judge_messages, wire
from tests.fire.stage import breathe, say
from tests.fire.stepping import LONG, count

Target = Literal["next-turn", "next-step"]
REPLIES: dict[str, Any] = {
    "text": text_reply("ok"),
    "tools": tool_reply(("work", "{}", "w1"), ("work", "{}", "w2")),
    "error": error_reply("no", "SERVER"),
}


class Reference:
    """What the inbox holds and what the agent may be doing, by the rules alone."""

    def __init__(self) -> None:
        self.lists: dict[Target, list[str]] = {"next-turn": [], "next-step": []}
        self.claimed: dict[Target, list[str]] = {"next-turn": [], "next-step": []}
        self.entered: list[str] = []
        self.refused: list[str] = []
        self.discarded: list[str] = []
        """What observers must have been told is gone."""
        self.failed_once: set[str] = set()
        self.phase: Literal["idle", "running", "maintenance"] = "idle"
        self.aborted = False
        self.cleared = False
        self.latched = False
        self.turn_open = False
        self.stepped = False
        self.first_claim = False
        self.retired = False
        self.last_end = "completed"

    @property
    def pending(self) -> bool:
        return bool(self.lists["next-turn"] or self.lists["next-step"])

    # -- commands

    def send(self, message: str, target: Target, wakes: bool) -> None:
        late = wakes and self.phase != "idle" and self.aborted
        self.lists["next-turn" if late else target].append(message)
        if wakes and not self.retired:
            if self.phase == "idle":
                self.begin("running")
            elif self.phase == "maintenance" or late:
                self.latched = True

    def cancel(self, keep: bool) -> None:
        if self.phase == "idle":
            return
        if not keep:
            self.latched = False
            self.cleared = True
            for target in self.lists:
                self.discarded += self.lists[target]
                self.lists[target] = []
        self.aborted = True

    def begin(self, phase: Literal["running", "maintenance"]) -> None:
        self.phase = phase
        self.aborted = self.cleared = self.latched = False

    # -- what observers see

    def turn_started(self) -> None:
        assert self.phase == "running" and not self.turn_open
        assert not self.retired, "an agent that is to leave opened a turn"
        assert not self.aborted, "an aborted driver opened a turn"
        self.turn_open, self.stepped, self.first_claim = True, False, True

    def was_claimed(self, message: str) -> None:
        source: Target = "next-step" if self.lists["next-step"] else "next-turn"
        assert self.lists[source] and self.lists[source][0] == message, f"{message} was claimed out of order"
        if source == "next-turn":
            assert self.first_claim and not self.claimed["next-turn"], "a second prompt in one turn"
        self.lists[source].pop(0)
        self.claimed[source].append(message)

    def step_started(self) -> None:
        self.first_claim = False
        self.stepped = True

    def has_entered(self, message: str) -> None:
        expected = [*self.claimed["next-step"], *self.claimed["next-turn"]]
        assert expected and expected[0] == message, f"{message} entered, {expected[:1]} was next"
        self.claimed["next-step" if self.claimed["next-step"] else "next-turn"].pop(0)
        self.entered.append(message)

    def turn_ended(self, reason: str) -> None:
        for target, messages in self.claimed.items():
            if reason == "blocked":
                self.refused += messages
            elif self.cleared:
                self.discarded += messages
            else:
                kept = [m for m in messages if self.aborted or m not in self.failed_once]
                self.discarded += [m for m in messages if m not in kept]
                if not self.aborted:
                    self.failed_once.update(kept)
                self.lists[target][:0] = kept
            self.claimed[target] = []
        self.turn_open, self.last_end = False, reason
        if reason == "completed" and not self.aborted and self.pending and not self.retired:
            self.begin("running")  # the next turn of the same activity

    def went_idle(self) -> None:
        assert self.phase == "running" and not self.turn_open
        replay = self.latched and self.pending and not self.retired
        if self.last_end == "completed" and not self.aborted and not self.retired:
            assert not self.pending, "went idle with claimable input"
        self.phase = "idle"
        if replay:
            self.begin("running")

    def maintenance_over(self) -> None:
        replay = self.latched and self.pending and not self.retired
        self.phase = "idle"
        if replay:
            self.begin("running")


class Replies(Adapter):
    """Answers as the trial wants, one tick a chunk."""

    def __init__(self) -> None:
        self.next: list[str] = []

    async def stream(self, request: LlmRequest) -> AsyncIterator[StreamChunk]:
        judge_messages(request.messages)
        for chunk in REPLIES[self.next.pop(0) if self.next else "text"]:
            await asyncio.sleep(0)
            yield chunk


class InboxMachine(RuleBasedStateMachine):
    """One agent from its creation to its disposal."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.model = Reference()
        self.replies = Replies()
        self.sent: list[str] = []
        self.by_list: dict[Target, list[str]] = {"next-turn": [], "next-step": []}
        self.discarded: list[str] = []
        self.faults: list[BaseException] = []
        self.failing = 0
        self.rejecting = 0
        self.batch: list[Callable[[], None]] = []
        self.waiters: list[asyncio.Task[None]] = []
        self.jobs: list[asyncio.Task[Any]] = []
        self.disposal: asyncio.Future[None] | None = None
        self.ready = self.loop.create_future()
        self.over = self.loop.create_future()
        self.host = self.loop.create_task(self._host())
        self.loop.run_until_complete(self.ready)

    async def _host(self) -> None:
        async with spine() as self.s:
            await self._set_up()
            self.ready.set_result(None)
            await self.over

    async def _set_up(self) -> None:
        self.s.llm.register_adapter(["fire"], self.replies)

        async def work() -> str:
            await breathe(3)
            return "worked"

        self.s.tools.tool(name="work", description="Work.", is_concurrency_safe=True)(work)
        options = CreateAgentOptions("a", {"cwd": "/tmp"}, agent_options=AgentOptions("fire", "m"))
        self.handle: AgentHandle = await self.s.agents.create(options)
        self.agent: Agent = self.handle.agent
        ctx = self.s.root
        ctx.on(AgentStatus, self._seen(self._on_status), global_=True)
        ctx.on(InboxClaimed, self._seen(lambda e: self.model.was_claimed(e.message["id"])), global_=True)
        ctx.on(InboxDiscarded, self._seen(lambda e: self.discarded.append(e.message["id"])), global_=True)
        ctx.on(SessionAppended, self._seen(self._on_event), global_=True)

        async def pre_step(event: AgentPreStep, proceed: Any) -> Any:
            await breathe(2)
            if self.failing:
                self.failing -= 1
                raise ValueError("not now")
            if self.rejecting:
                self.rejecting -= 1
                return Reject()
            return await proceed()

        ctx.on(AgentPreStep, pre_step, global_=True)

    def _seen(self, judge: Callable[[Any], None]) -> Callable[[Any], None]:
        def hear(event: Any) -> None:
            try:
                judge(event)
            except BaseException as error:  # observers are contained: what they found is raised by the invariant
                self.faults.append(error)

        return hear

    def _on_status(self, event: AgentStatus) -> None:
        self._follow_retirement()
        if event.status == "idle":
            self.model.went_idle()
            return
        if self.model.phase == "maintenance":
            self.model.maintenance_over()
        assert self.model.phase == "running", "the agent runs though nothing woke it"

    def _on_event(self, event: SessionAppended) -> None:
        self._follow_retirement()
        data = event.event.data
        match event.event.type:
            case "turn/start":
                if self.model.phase == "idle":  # a replayed or a fresh wake
                    self.model.begin("running")
                self.model.turn_started()
            case "step/start":
                self.model.step_started()
            case "user/message":
                self.model.has_entered(data["id"])
            case "turn/end":
                if data["reason"]["kind"] == "aborted":
                    assert self.model.aborted, "nobody asked for an end of this turn"
                self.model.turn_ended(data["reason"]["kind"])

    # -- commands: they gather until the next tick

    def _send(self, how: str, target: Target) -> None:
        message = say(how)
        message_id: str = message["id"]

        def act() -> None:
            if self.agent.closed:  # type: ignore[attr-defined]
                with pytest.raises(HarnessError, match="disposed"):
                    getattr(self.agent, how)(message)
                return
            self.sent.append(message_id)
            wakes = how != "inject"
            late = wakes and self.model.phase != "idle" and self.model.aborted
            self.by_list["next-turn" if late else target].append(message_id)
            # The model hears of it first: the prologue of a turn runs inside the call.
            self.model.send(message_id, target, wakes)
            getattr(self.agent, how)(message)

        self.batch.append(act)

    @rule(how=st.sampled_from(["followup", "steer", "inject"]))
    def send(self, how: str) -> None:
        self._send(how, "next-turn" if how == "followup" else "next-step")

    @rule(keep=st.booleans())
    def cancel(self, keep: bool) -> None:
        def act() -> None:
            before = self.model.phase, self._pending()
            self.model.cancel(keep)
            self.agent.cancel({"kind": "user"}, keep_inbox=keep)
            if before[0] == "idle":
                assert self._pending() == before[1], "a cancel of an idle agent did something"

        self.batch.append(act)

    @rule(ticks=st.integers(0, 6), fails=st.booleans())
    def maintain(self, ticks: int, fails: bool) -> None:
        async def job(signal: AbortSignal) -> None:
            for _ in range(ticks):
                if signal.aborted:
                    break
                await asyncio.sleep(0)
            if fails:
                raise ValueError("maintenance failed")

        def act() -> None:
            if self.model.phase != "idle" or self.model.retired:
                with pytest.raises(HarnessError, match="active work"):
                    self.agent.run_maintenance(job)
                return
            self.model.begin("maintenance")
            task: Any = self.agent.run_maintenance(job)
            self.jobs.append(task)

        self.batch.append(act)

    @rule(count=st.integers(1, 2))
    def fail_pre_step(self, count: int) -> None:
        self.failing = count

    @rule()
    def reject_pre_step(self) -> None:
        self.rejecting = 1

    @rule(replies=st.lists(st.sampled_from(sorted(REPLIES)), max_size=3))
    def answer(self, replies: list[str]) -> None:
        self.replies.next = list(replies)

    @rule(cap=st.integers(1, 3))
    def change_setting(self, cap: int) -> None:
        async def change() -> None:
            await self.s.loop.ctx.fiber.update({"maxParallelToolCalls": cap})

        self.batch.append(lambda: self.jobs.append(asyncio.ensure_future(change())))

    @rule()
    def wait(self) -> None:
        async def until_idle() -> None:
            await self.agent.when_idle()
            assert self.agent.status == "idle"

        self.batch.append(lambda: self.waiters.append(asyncio.ensure_future(until_idle())))

    @precondition(lambda self: self.disposal is None and len(self.sent) > 6)
    @rule(drain=st.booleans())
    def dispose(self, drain: bool) -> None:
        def act() -> None:
            lifecycle: Any = next(iter(self.s.loop.lifecycles))
            self.disposal = asyncio.ensure_future(lifecycle.drain(10) if drain else self.handle.dispose())

        self.batch.append(act)

    # -- time

    @rule(ticks=st.integers(0, 12))
    def run(self, ticks: int) -> None:
        self.loop.run_until_complete(self._run(ticks))

    @rule()
    def drain(self) -> None:
        self.loop.run_until_complete(self._drain())

    async def _run(self, ticks: int) -> None:
        batch, self.batch = self.batch, []
        for act in batch:
            self._follow()
            act()
            self._follow()
        for _ in range(ticks):
            await asyncio.sleep(0)
            self._follow()

    def _follow(self) -> None:
        """Take over what no observer tells: the end of maintenance, and that a teardown has begun."""
        self._follow_retirement()
        driver: Any = self.agent
        if self.model.phase == "maintenance" and driver._phase != "maintenance":
            self.model.maintenance_over()
        if self.faults:
            raise self.faults[0]

    def _follow_retirement(self) -> None:
        """An agent that is to leave ends its turn at the next step boundary, or at once when it is disposed."""
        driver: Any = self.agent
        if driver.retired:
            self.model.retired = True
            if self.model.phase != "idle" and driver._abort.signal.aborted:
                self.model.aborted = True

    async def _drain(self) -> None:
        await self._run(0)
        async with asyncio.timeout(10):
            await self.agent.when_idle()
            for _ in range(20):
                await asyncio.sleep(0)
                self._follow()
            await self.agent.when_idle()
            if self.disposal is not None:
                await self.disposal
        self._follow()
        assert self.model.phase == "idle"
        assert all(waiter.done() for waiter in self.waiters)
        for waiter in self.waiters:
            waiter.result()
        judge_log(wire(self.agent.session.events))

    def _pending(self) -> dict[Target, list[str]]:
        inbox = self.agent.inbox
        return {"next-turn": [m["id"] for m in inbox.next_turn], "next-step": [m["id"] for m in inbox.next_step]}

    @invariant()
    def the_model_agrees(self) -> None:
        if self.faults:
            raise self.faults[0]
        if self.batch:
            return
        assert self._pending() == self.model.lists
        assert self.agent.status == ("running" if self.model.phase == "running" else "idle")
        held = [each for messages in self.model.claimed.values() for each in messages]
        pending = [each for messages in self.model.lists.values() for each in messages]
        fates = sorted([*held, *pending, *self.model.entered, *self.model.refused, *self.model.discarded])
        assert fates == sorted(self.sent), "a message was lost or doubled"
        assert sorted(self.discarded) == sorted(self.model.discarded), "who watches was told something else"
        if self.model.phase == "idle" and not self.model.retired:
            assert not (self.model.latched and self.model.pending), "a wake was lost"

    def teardown(self) -> None:
        try:
            if not self.faults:
                self.failing = self.rejecting = 0
                self.replies.next = []
                self.loop.run_until_complete(self._end())
        finally:
            self.over.set_result(None)
            self.loop.run_until_complete(self.host)
            self.loop.close()

    async def _end(self) -> None:
        await self._drain()
        if self.disposal is None:
            self._send("followup", "next-turn")
            await self._drain()
            assert not self.model.pending, "a wake left something behind"
            self.the_model_agrees()
        for target, sent in self.by_list.items():
            order = [each for each in self.model.entered if each in sent]
            assert order == [each for each in sent if each in order], f"{target}: the order was not kept"
        log = self.agent.session
        again = Session("a", header=log.header, seed=list(log.events), seed_source="persistence")
        inbox = Inbox(again, self.agent, lambda _: None)
        assert [m["id"] for m in (*inbox.next_turn, *inbox.next_step)] == [
            each for messages in self._pending().values() for each in messages
        ]
        await asyncio.gather(*self.jobs, return_exceptions=True)


@pytest.mark.timeout(3600 if LONG else 180)
def test_nothing_is_lost_doubled_reordered_or_left_asleep() -> None:
    profile = settings(
        max_examples=count(120),
        stateful_step_count=40,
        deadline=None,
        derandomize=not LONG,
        suppress_health_check=list(HealthCheck),
        print_blob=True,
    )
    run_state_machine_as_test(InboxMachine, settings=profile)  # type: ignore[no-untyped-call]
