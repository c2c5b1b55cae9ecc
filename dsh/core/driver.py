"""The agent loop: how input becomes turns, and turns become steps.

A *turn* takes one prompt (and whatever waits for the next step) to quiet; a *step* is one model reply with its tool
calls. Everything the model sees and says is appended to the session first, in this order::

    turn/start  inbox claim  step/start  user/message…  request/header?  assistant/chunk…  assistant/message
    (tool/call  tool/result)…  step/end  …next step…  turn/end
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from dsh.cordis import AbortController, AbortSignal, HarnessError, error_chain
from dsh.cordis.jsonio import FrozenDict, frozen_object
from dsh.cordis.waiting import awaiting
from dsh.llm.assembler import BlockAssembler
from dsh.llm.failure import LlmError, LlmFailure
from dsh.llm.message import create_assistant_message
from dsh.llm.waiting import reading

from .agent_events import (
    AgentError,
    AgentPreStep,
    AgentRequestError,
    AgentStatus,
    AgentTurnStopping,
    Enter,
    InboxDiscarded,
    Reject,
    notify,
)
from .inbox import Claim, Inbox
from .message_shape import whole_user_message
from .repair import interrupted_result, open_step
from .request_builder import BuiltRequest, RequestBuilder
from .runtime_context import RuntimeContext
from .system_prompt import AssembleContext, render_prompt
from .tasks import TaskOwner, stops_host
from .tool_batch import ToolBatch

if TYPE_CHECKING:
    from dsh.cordis import Context, Emit
    from dsh.llm.types import Block, Message

    from .agent import AbortCause, AgentOptions, AgentState, InboxTarget
    from .agent_loop import AgentLoop
    from .session import Session
    from .system_prompt import Assembly

T = TypeVar("T")
Phase = Literal["idle", "maintenance", "running"]

ABORT_GRACE = 5.0
"""Seconds that a model stream may run on after an abort before it is cut off."""

DISPOSED: dict[str, Any] = {"kind": "disposed"}
COMPLETED: dict[str, Any] = {"kind": "completed"}
MAX_TOKENS: dict[str, Any] = {"kind": "max-tokens"}
BLOCKED: dict[str, Any] = {"kind": "blocked"}
FAILED = frozenset({"error", "aborted"})
"""How a reply ends that is not one."""


@dataclass(slots=True)
class Turn:
    """One turn, and what stops it. ``claim`` holds input taken for a step that has not started yet.

    ``drops_claim``: a cancel cleared the inbox, and with it what was claimed.
    """

    number: int
    signal: AbortSignal
    step: int = 0
    claim: Claim = field(default_factory=Claim)
    drops_claim: bool = False
    opening_failure: BaseException | None = None

    @property
    def where(self) -> dict[str, int]:
        """Turn and step, as the events of the step name them."""
        return {"turn": self.number, "step": self.step}


class Driver:
    """The live driver of one session; see :class:`dsh.core.agent.Agent` for the public contract."""

    def __init__(self, loop: AgentLoop, session: Session, options: AgentOptions) -> None:
        self.id = session.id
        self.options = options
        self.session = session
        self.ctx: Context = loop.ctx  # replaced by the agent's own scope when it is constructed
        self.tasks = TaskOwner()
        self.retired = False
        self.closed = False
        self.inbox = Inbox(session, self, self._notify)
        self._loop = loop
        self._requests = RequestBuilder(loop, self)
        self._runtime_context = RuntimeContext(session)
        self._phase: Phase = "idle"
        self._abort = AbortController()
        last = next((event.data["turn"] for event in reversed(session.events) if event.type == "turn/start"), 0)
        self._turn = Turn(last, self._abort.signal)
        self._wake_requested = False
        self._activity: asyncio.Future[None] | None = None
        self._failed_once: set[str] = set()

    # -- input ----------------------------------------------------------------------------------------------------

    @property
    def status(self) -> AgentState:
        return "running" if self._phase == "running" else "idle"

    def send(self, message: Message, target: InboxTarget, wakeup: bool) -> None:
        if self.closed:
            raise HarnessError(f'agent "{self.id}" is disposed', code="AGENT_DISPOSED")
        late = wakeup and self._phase != "idle" and self._abort.signal.aborted
        self.inbox.append("next-turn" if late else target, message)
        if wakeup:
            self._wake(late)

    def followup(self, message: Message) -> None:
        self.send(message, "next-turn", True)

    def steer(self, message: Message) -> None:
        self.send(message, "next-step", True)

    def inject(self, message: Message) -> None:
        self.send(message, "next-step", False)

    def cancel(self, cause: AbortCause, keep_inbox: bool = False) -> None:
        if self._phase == "idle":
            return
        try:
            if not keep_inbox:
                self._wake_requested = False
                self._turn.drops_claim = True
                self.inbox.clear()
        finally:
            self._abort.abort(dict(cause))

    def retire(self) -> None:
        """Stop at the next step boundary and start nothing more; what is pending or still comes stays in the log."""
        self.retired = True

    async def when_idle(self) -> None:
        while self._activity is not None:
            await asyncio.shield(self._activity)

    def run_maintenance(self, job: Callable[[AbortSignal], Awaitable[T]]) -> Awaitable[T]:
        if self._phase != "idle" or self.retired:
            raise HarnessError(f'agent "{self.id}" already has active work', code="AGENT_BUSY")
        self._begin("maintenance")
        try:
            work = job(self._abort.signal)
        except BaseException:
            self._end_activity()
            raise

        task = self.tasks.start(awaiting(work), name=f"maintenance {self.id}")
        task.add_done_callback(lambda _: self._end_activity())  # also when it is cancelled before it ran
        return task

    # -- activity -------------------------------------------------------------------------------------------------

    def _wake(self, late: bool = False) -> None:
        if self.retired:
            return
        if self._phase == "idle":
            self._loop.agents.with_initiator(self, self._start)
        elif self._phase == "maintenance" or late:
            self._wake_requested |= (self._abort.signal.reason or {}).get("kind") != "disposed"

    def _start(self) -> asyncio.Task[None] | None:
        """Open the first turn at once; the rest of the activity runs in the driver's own task.

        The task is created inside this agent's initiator scope and so inherits it.
        """
        self._begin("running")
        turn = self._open_turn()
        if turn is None:
            self._end_activity()
            return None
        activity = self._activity
        task = self.tasks.start(self._drive(turn), name=f"agent {self.id}")

        def ended(_: object) -> None:
            if self._activity is activity:  # the host cancelled the task before it ran
                self._abort.abort(DISPOSED)
                self._close_turn(turn, {"kind": "aborted", "reason": turn.signal.reason})
                self._end_activity()

        task.add_done_callback(ended)
        return task

    def _begin(self, phase: Phase) -> None:
        self._activity = asyncio.get_running_loop().create_future()
        self._abort = AbortController()
        self._wake_requested = False
        self._phase = phase
        if phase == "running":
            self._notify(AgentStatus(agent=self, status="running"))

    def _end_activity(self) -> None:
        was, self._phase = self._phase, "idle"
        activity, self._activity = self._activity, None
        replay = self._wake_requested
        if was == "running":
            self._notify(AgentStatus(agent=self, status="idle"))
        if activity is not None:
            activity.set_result(None)
        if replay and self.inbox.has_pending:
            self._wake()

    async def _drive(self, turn: Turn | None) -> None:
        """Run turns until nothing is pending or one of them stops the driver."""
        try:
            while turn is not None and await self._run_turn(turn) and self.inbox.has_pending and not self.retired:
                self._abort = AbortController()
                turn = self._open_turn()
        finally:
            self._end_activity()

    # -- turn -----------------------------------------------------------------------------------------------------

    def _open_turn(self) -> Turn | None:
        """Log ``turn/start`` and claim the first input; ``None`` when the turn never began."""
        turn = Turn(self._turn.number + 1, self._abort.signal)
        if turn.signal.aborted or not self._attempt(turn, self.session.append, "turn/start", {"turn": turn.number}):
            return None
        self._turn = turn
        try:
            turn.signal.raise_if_aborted()
            self.inbox.claim("next-turn", turn.number, turn.claim)
        except Exception as error:
            turn.opening_failure = error
        return turn

    async def _run_turn(self, turn: Turn) -> bool:
        """Run one opened turn to its ``turn/end``; True when the driver may go on with the next one."""
        end: dict[str, Any] | None = None
        capped, go_on = False, True
        signal = turn.signal
        try:
            if turn.opening_failure is not None:
                raise turn.opening_failure
            while True:
                if self.retired:
                    self.cancel(DISPOSED, keep_inbox=True)
                signal.raise_if_aborted()
                assembly, decision = await self._decide_step(turn)
                if isinstance(decision, Reject):
                    end, go_on = BLOCKED, False
                    break
                if not decision.messages and end is not None:
                    break
                if not decision.messages and turn.step == 0:
                    end, go_on = COMPLETED, False
                    break
                with self._step_brackets(turn):
                    for message in decision.messages:
                        self._runtime_context.observe(self.session.append("user/message", message, "append"))
                    end = await self._run_step(assembly, turn)
                    capped |= end is MAX_TOKENS
                signal.raise_if_aborted()
                if end is not None and not self.inbox.has_next_step:
                    await self._loop.ctx.serial(AgentTurnStopping(agent=self, turn=turn.number, signal=signal))
                    signal.raise_if_aborted()
                    if not self.inbox.has_next_step:
                        break
                self.inbox.claim("next-step", turn.number, turn.claim)
        except BaseException as error:
            go_on = False
            if host_stops := stops_host(error):  # close the brackets, then let it
                self._abort.abort(DISPOSED)
            if signal.aborted:
                end = {"kind": "aborted", "reason": signal.reason}
            else:
                end = {"kind": "error", "error": _failure_of(error)}
                self._report(error, turn)
            if host_stops:
                raise
        finally:
            if capped and end is not None and end["kind"] == "completed":
                end = MAX_TOKENS
            go_on &= self._close_turn(turn, end)
        return go_on and not signal.aborted  # an observer of the end may have cancelled

    def _close_turn(self, turn: Turn, end: dict[str, Any] | None) -> bool:
        """Give back what no step took, then log ``turn/end``; whether that was possible."""
        self._give_back(turn)
        return self._attempt(turn, self.session.append, "turn/end", {"turn": turn.number, "reason": end})

    async def _decide_step(self, turn: Turn) -> tuple[Assembly, Enter | Reject]:
        """Assemble the prompt and let ``agent/pre-step`` decide what enters the next step."""
        signal = turn.signal
        assembly = await self._loop.system_prompt.assemble(AssembleContext(scope=self, signal=signal, agent=self))
        signal.raise_if_aborted()
        claimed = turn.claim.messages
        context = self._runtime_context.propose(assembly)
        proposed = claimed if context is None else (*claimed, context)
        event = AgentPreStep(agent=self, messages=claimed, turn=turn.number, step=turn.step + 1, signal=signal)

        decision = await self._loop.ctx.waterfall(event, lambda: Enter(proposed))
        signal.raise_if_aborted()
        if not isinstance(decision, (Enter, Reject)):
            raise TypeError(f"agent/pre-step must answer Enter or Reject, not {type(decision).__name__}")
        if isinstance(decision, Reject) or not decision.messages:
            turn.claim.settle()  # refused or emptied: a decision, not an accident
            return assembly, decision
        return assembly, Enter(tuple(whole_user_message(one, "agent/pre-step") for one in decision.messages))

    def _give_back(self, turn: Turn) -> None:
        """Return input claimed for a step that never started to the front of its list.

        Not what a cancel cleared with the inbox, and not what made a step fail for the second time: one message that
        always breaks must not block the queue.
        """
        failed = not turn.signal.aborted
        for target, messages in turn.claim.items():
            kept = []
            for message in messages:
                if not turn.drops_claim and not (failed and message["id"] in self._failed_once):
                    kept.append(message)
                    continue
                self._notify(InboxDiscarded(agent=self, message=message))
                if not turn.drops_claim:
                    text = f'message "{message["id"]}" was discarded: its step failed to start twice'
                    self._report(HarnessError(text, code="MESSAGE_DISCARDED"), turn)
            if failed:
                self._failed_once.update(message["id"] for message in kept)
            self._attempt(turn, self.inbox.splice, target, 0, 0, kept)
        turn.claim.settle()

    # -- step -----------------------------------------------------------------------------------------------------

    @contextmanager
    def _step_brackets(self, turn: Turn) -> Iterator[None]:
        """``step/start`` … ``step/end`` around one step, whatever happens inside."""
        where = {"turn": turn.number, "step": turn.step + 1}
        start = self.session.append("step/start", where).seq
        turn.step += 1
        turn.claim.settle()
        try:
            yield
        except BaseException:
            self._answer_open_calls(turn, start)
            raise
        finally:
            self.session.append("step/end", where)

    def _answer_open_calls(self, turn: Turn, step_start: int) -> None:
        """Give the calls of a step that broke off the result of a crash: without one no later request is valid."""
        session = self.session
        for call_id, call in open_step(session.events[step_start:])[1].items():
            data = interrupted_result(turn.number, turn.step, call_id, call is not None, session.seq)
            self._attempt(turn, session.append, "tool/result", data, "append", None if call is None else (call,))

    async def _run_step(self, assembly: Assembly, turn: Turn) -> dict[str, Any] | None:
        """One model reply and its tools; ``None`` when the model is owed their results."""
        system = render_prompt(assembly)
        while True:
            request = await self._requests.build(assembly, system, turn)
            reply = await self._receive(request, turn)
            finish = reply.finish
            if finish["kind"] not in FAILED:
                break
            await self._recover(request, LlmFailure.from_wire(finish["failure"]), turn)
        if finish["kind"] == "max-tokens":
            return MAX_TOKENS
        calls = reply.tool_calls()
        if not calls:
            return COMPLETED
        return COMPLETED if await ToolBatch(self._loop, self, turn).run(calls) else None

    async def _receive(self, request: BuiltRequest, turn: Turn) -> BlockAssembler:
        """Log one stream chunk by chunk and, unless it failed, the assembled message."""
        reply, sources = BlockAssembler(), []
        signal, where, append = turn.signal, turn.where, self.session.append
        try:
            async with reading(request.stream(), signal, ABORT_GRACE) as chunks:
                async for chunk in chunks:
                    if signal.aborted:
                        break
                    data: dict[str, Any] = {**where, "chunk": chunk}
                    if type(chunk) is FrozenDict:  # the adapter froze it: nothing is left to check
                        data = frozen_object(data)
                    event = append("assistant/chunk", data)
                    sources.append(event.seq)
                    reply.push(event.data["chunk"])
        except Exception:
            if not signal.aborted:
                raise
        if signal.aborted:
            if blocks := reply.interrupted_blocks():
                self._log_reply(request, turn, reply, blocks, sources, interrupted=True)
            signal.raise_if_aborted()
        if reply.finish["kind"] not in FAILED:
            self._log_reply(request, turn, reply, reply.blocks(), sources)
        return reply

    def _log_reply(
        self,
        request: BuiltRequest,
        turn: Turn,
        reply: BlockAssembler,
        blocks: list[Block],
        sources: list[int],
        interrupted: bool = False,
    ) -> None:
        config = request.request.config
        state = None if interrupted else reply.replay_state
        message = create_assistant_message(blocks, config.provider, config.model, state)
        data: dict[str, Any] = {**turn.where, "message": message}
        if reply.usage is not None:
            data["usage"] = reply.usage
        if interrupted:
            data["interrupted"] = True
        self.session.append("assistant/message", data, "append", tuple(sources))

    async def _recover(self, request: BuiltRequest, failure: LlmFailure, turn: Turn) -> None:
        """Ask ``agent/request-error`` whether to send the request again; raises the failure otherwise."""
        event = AgentRequestError(
            agent=self,
            turn=turn.number,
            step=turn.step,
            provider=request.request.config.provider,
            failure=failure,
            retry_policy=request.retry_policy,
            signal=turn.signal,
        )

        decision = await self._loop.ctx.waterfall(event, lambda: None)
        turn.signal.raise_if_aborted()
        if decision != "retry":
            raise LlmError(failure)

    # -- reporting ------------------------------------------------------------------------------------------------

    def _attempt(self, turn: Turn, change: Callable[..., object], *args: Any) -> bool:
        """Change the log; whether it let us. What it refuses is reported, and the turn still comes to its end."""
        try:
            change(*args)
        except Exception as error:
            self._report(error, turn)
            return False
        return True

    def _notify(self, event: Emit) -> None:
        notify(self._loop.ctx, event)

    def _report(self, error: BaseException, turn: Turn) -> None:
        self._notify(AgentError(agent=self, turn=turn.number, step=turn.step, error=error))


def _failure_of(error: BaseException) -> dict[str, Any]:
    """What ``turn/end`` says about ``error``: a model failure keeps its fields, anything else is UNKNOWN."""
    if isinstance(error, LlmError):
        return error.failure.to_wire()
    return {"message": error_chain(error), "code": "UNKNOWN"}
