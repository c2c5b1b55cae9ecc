"""The tool calls of one step: groups, overlap, results in the model's order.

Consecutive calls that are safe to overlap form a pool with at most ``cap`` bodies running; any other call runs alone.
Policies never overlap. Whatever finishes first, results reach the log in the order the model asked, and every call
gets exactly one.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any

from dsh.cordis.jsonio import JsonValue, decode
from dsh.cordis.records import identity_struct
from dsh.llm.message import create_tool_result_message

from .tasks import stops_host
from .tools import ABORTED_BEFORE_DISPATCH, ToolInput

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dsh.llm.types import Block

    from .agent_loop import AgentLoop
    from .driver import Driver, Turn
    from .session_event import SessionEvent
    from .tools import ToolExecution, ToolResult


@identity_struct
class _Started:
    """A call that is in the log and on its way."""

    event: SessionEvent
    execution: ToolExecution
    body: asyncio.Task[None] | None = None

    @property
    def settled(self) -> bool:
        return self.body is None or self.body.done()


class ToolBatch:
    """Runs the calls of one assistant message. ``cap`` bodies at most run at once, read anew for each group."""

    def __init__(self, loop: AgentLoop, agent: Driver, turn: Turn) -> None:
        self._loop = loop
        self._tools = loop.tools
        self._agent = agent
        self._where = turn.where
        self._signal = turn.signal
        self._waiting: deque[tuple[ToolInput, str]] = deque()
        self._started: deque[_Started] = deque()
        self._concluded = False

    async def run(self, blocks: Sequence[Block]) -> bool:
        """Run all calls; True when one of them concluded the turn.

        Raises ``AbortError`` after an abort, once every call has its result, and the first internal failure
        once every started body has ended.
        """
        for block in blocks:
            call = ToolInput(
                call_id=block["id"],
                name=block["name"],
                arguments=parse_arguments(block["arguments"]),
                agent=self._loop.agents.current_initiator(),
                signal=self._signal,
            )
            self._waiting.append((call, block["arguments"]))
        try:
            while self._waiting and not self._signal.aborted:
                await self._run_group()
            for call, raw in self._waiting:
                self._skip(call, raw)
        except BaseException as error:
            if stops_host(error):
                # Else the bodies would not hear of it, and never be quiet.
                self._agent.cancel({"kind": "disposed"}, keep_inbox=True)
            await self._quiet()
            raise
        self._signal.raise_if_aborted()
        return self._concluded

    async def _run_group(self) -> None:
        """One exclusive call, or a pool of safe ones up to the next call that is not."""
        cap = self._loop.max_parallel_tool_calls if self._next_is_parallel() else 0
        await self._start()
        while True:
            while self._started and self._started[0].settled:
                await self._commit(self._started.popleft())
            running = [one.body for one in self._started if one.body is not None and not one.body.done()]
            if self._waiting and not self._signal.aborted and len(running) < cap and self._next_is_parallel():
                await self._start()
            elif running:
                await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            elif not self._started:
                return

    def _next_is_parallel(self) -> bool:
        return self._tools.execution_mode(self._waiting[0][0]) == "parallel"

    async def _start(self) -> None:
        call, raw = self._waiting.popleft()
        started = _Started(self._log_call(call, raw), self._tools.start(call))
        self._started.append(started)
        if await started.execution.prepare():
            name = f"tool {call.name} {call.call_id}"
            started.body = self._agent.tasks.start(started.execution.dispatch(), name=name)

    async def _commit(self, started: _Started) -> None:
        if started.body is not None:
            started.body.result()
        result = await started.execution.commit()
        self._log_result(started.event, result)
        if result.additional_contexts:
            inbox = self._agent.inbox
            inbox.splice("next-step", len(inbox.next_step), 0, result.additional_contexts)
        self._concluded |= result.concludes_turn

    def _skip(self, call: ToolInput, raw: str) -> None:
        """Answer a call that will never start, without telling result observers."""
        self._log_result(self._log_call(call, raw), ABORTED_BEFORE_DISPATCH)

    def _log_call(self, call: ToolInput, raw: str) -> SessionEvent:
        data = {**self._where, "callId": call.call_id, "name": call.name, "arguments": raw}
        return self._agent.session.append("tool/call", data)

    def _log_result(self, called: SessionEvent, result: ToolResult) -> None:
        message = create_tool_result_message(called.data["callId"], result.content, result.is_error)
        data: dict[str, Any] = {**self._where, "message": message}
        if result.error is not None and result.error.info is not None:
            data["error"] = result.error.info
        if result.meta is not None:
            data["meta"] = result.meta
        self._agent.session.append("tool/result", data, "append", (called.seq,))

    async def _quiet(self) -> None:
        """Wait for every started body after a failure, and tell observers that the calls are over."""
        stopped: asyncio.CancelledError | None = None
        while bodies := [one.body for one in self._started if one.body is not None and not one.body.done()]:
            try:
                await asyncio.wait(bodies)
            except asyncio.CancelledError as error:
                stopped = error  # raised once all is quiet, however often it comes
                self._agent.cancel({"kind": "disposed"}, keep_inbox=True)
        for one in self._started:
            one.execution.abandon()
        if stopped is not None:
            raise stopped


def parse_arguments(raw: str) -> JsonValue:
    """A model's argument text as a value: empty or null means no arguments, invalid JSON stays text."""
    if not raw.strip():
        return {}
    try:
        value = decode(raw)
    except ValueError:
        return raw
    return {} if value is None else value
