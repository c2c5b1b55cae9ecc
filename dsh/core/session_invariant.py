"""Companion that refuses a session append that would break the grammar of a log, before it is committed.

Mounted beside the invariants service, in tests and while chasing a fault. Turns are numbered 1, 2, 3… per session and
steps per turn; what belongs to a step must stand in it; a result needs its call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn
from weakref import WeakKeyDictionary

from dsh.cordis import Context
from dsh.core.invariants import Fail, Invariants
from dsh.core.repair import NOT_STARTED_CODE
from dsh.core.session import Session
from dsh.core.session_event import SessionEvent
from dsh.core.session_store import SessionAppended, SessionCreated, Sessions

PACKAGE = "@deepseek-ai/dsh-session"

_IN_STEP = frozenset({"assistant/chunk", "assistant/message", "tool/call"})
_IN_TURN = frozenset({"todo/write", "request/header", "request/context"})


class LogTrace:
    """Where a log stands: `check` judges the next event and changes nothing, `commit` takes it in."""

    __slots__ = ("_calls", "_fail", "_last_seq", "_step", "_steps", "_turn", "_turns")

    def __init__(self, fail: Callable[[str], NoReturn]) -> None:
        self._fail = fail
        self._last_seq = -1
        self._turns = 0
        self._turn: int | None = None
        self._steps = 0
        self._step: int | None = None
        self._calls: set[str] = set()

    @property
    def seen(self) -> int:
        """Number of events taken in."""
        return self._last_seq + 1

    def check(self, event: SessionEvent) -> None:
        """Call `fail` with the rule that `event` would break, if any."""
        type_, data = event.type, event.data
        if event.seq <= self._last_seq:
            self._fail(f"seq must strictly increase: saw {event.seq} after {self._last_seq}")
        if type_ == "turn/start":
            self._check_start("turn", data["turn"], self._turns + 1, self._turn)
        elif type_ == "turn/end":
            self._check_end("turn", data["turn"], self._turn)
            if self._step is not None:
                self._fail(f"turn/end {data['turn']} while step {self._step} is still open")
        elif type_ == "step/start":
            self._check_turn(type_, data["turn"])
            self._check_start("step", data["step"], self._steps + 1, self._step)
        elif type_ == "step/end":
            self._check_turn(type_, data["turn"])
            self._check_end("step", data["step"], self._step)
        elif type_ in _IN_STEP:
            self._check_place(type_, data)
        elif type_ == "tool/result":
            self._check_result(event)
        elif type_ in _IN_TURN and self._turn is None:
            self._fail(f"{type_} outside of a turn")

    def commit(self, event: SessionEvent) -> None:
        """Take in an event that `check` let pass."""
        self._last_seq = event.seq
        match event.type:
            case "turn/start":
                self._turns = self._turn = event.data["turn"]
                self._steps, self._step = 0, None
            case "turn/end":
                self._turn = None
            case "step/start":
                self._steps = self._step = event.data["step"]
                self._calls = set()
            case "step/end":
                self._step = None
                self._calls = set()
            case "tool/call":
                self._calls.add(event.data["callId"])

    def _check_start(self, what: str, number: object, expected: int, open_: int | None) -> None:
        if open_ is not None:
            self._fail(f"{what}/start {number} while {what} {open_} is still open")
        if not _same(number, expected):
            self._fail(f"{what}/start expected {what} {expected}, got {number}")

    def _check_end(self, what: str, number: object, open_: int | None) -> None:
        if not _same(number, open_):
            self._fail(f"{what}/end {number} does not match open {what} {_or_none(open_)}")

    def _check_turn(self, type_: str, turn: object) -> None:
        if not _same(turn, self._turn):
            self._fail(f"{type_} of turn {turn} does not match open turn {_or_none(self._turn)}")

    def _check_place(self, type_: str, data: Any) -> None:
        if not (_same(data["turn"], self._turn) and _same(data["step"], self._step)):
            self._fail(
                f"{type_} of turn {data['turn']} step {data['step']} does not match open turn "
                f"{_or_none(self._turn)} step {_or_none(self._step)}"
            )

    def _check_result(self, event: SessionEvent) -> None:
        if event.surface_op != "append":
            if self._turn is None:
                self._fail("tool/result replacement outside of a turn")
            return
        data = event.data
        self._check_place("tool/result", data)
        (block,) = data["message"]["content"]
        call_id = block["toolCallId"]
        not_started = block.get("isError") is True and (data.get("error") or {}).get("code") == NOT_STARTED_CODE
        if call_id not in self._calls and not not_started:
            self._fail(f'tool/result "{call_id}" has no tool/call in turn {data["turn"]} step {data["step"]}')


def apply(ctx: Context, config: object, invariants: Invariants) -> None:
    """Watch every session of the store, those that exist already included."""
    invariants.register(PACKAGE, _install, inject=[Sessions])


def _install(ctx: Context, fail: Fail) -> None:
    traces: WeakKeyDictionary[Session, LogTrace] = WeakKeyDictionary()

    def trace_of(session: Session) -> LogTrace:
        """The session's trace, caught up with its log."""
        trace = traces.get(session)
        if trace is None:
            trace = traces[session] = LogTrace(fail)
        if trace.seen != session.seq:
            for event in session.events[trace.seen :]:
                trace.check(event)
                trace.commit(event)
        return trace

    def guard(dispatch: Any) -> None:
        payload = dispatch.payload
        if isinstance(payload, SessionAppended):
            trace_of(payload.session).check(payload.event)

    def created(event: SessionCreated) -> None:
        trace_of(event.session)

    def appended(event: SessionAppended) -> None:
        trace_of(event.session)

    ctx.on("internal/dispatch", guard, global_=True)
    ctx.on(SessionCreated, created, global_=True)
    ctx.on(SessionAppended, appended, global_=True)
    for session in ctx[Sessions].list():
        trace_of(session)


def _same(number: object, expected: int | None) -> bool:
    """Whether it is that number: nothing is nothing, and true is not one."""
    return type(number) is int and number == expected


def _or_none(number: int | None) -> str:
    return "none" if number is None else str(number)
