"""The log companion: what it refuses before the commit."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, NoReturn

import pytest

from dsh.cordis import Context, InvariantError
from dsh.core import invariants, session_invariant
from dsh.core.session import Session
from dsh.core.session_event import SessionEvent
from dsh.core.session_invariant import LogTrace
from dsh.core.session_store import Sessions
from tests.core.session_helpers import assistant, called, chunk, finished_turn, header, replace, result, say, wire


@pytest.fixture
async def root() -> AsyncIterator[Context]:
    async with Context() as context:
        await context.plugin(Sessions)
        await context.plugin(invariants)
        await context.plugin(session_invariant)
        await context.settle()
        yield context


@pytest.fixture
def session(root: Context) -> Session:
    return root[Sessions].create("s")


def vetoed(session: Session, message: str, type_: str, data: Any, *surface: Any) -> None:
    before = list(session.events)
    with pytest.raises(InvariantError) as caught:
        session.append(type_, data, *surface)
    assert str(caught.value) == f'invariant violated by "@deepseek-ai/dsh-session": {message}'
    assert caught.value.code == "INVARIANT"
    assert list(session.events) == before


def end(turn: int) -> dict[str, Any]:
    return {"turn": turn, "reason": {"kind": "completed"}}


async def test_b69_a_regular_log_passes(root: Context, session: Session) -> None:
    finished_turn(session, 1)
    say(session, "between turns")
    session.append("session/title", {"title": "x"})
    session.append("my/event", {"turn": 99}, ignorable=True)
    finished_turn(session, 2)
    child = root[Sessions].fork(session, child_id="child")
    finished_turn(child, 3)


async def test_b69_turn_numbers(session: Session) -> None:
    vetoed(session, "turn/start expected turn 1, got 2", "turn/start", {"turn": 2})
    vetoed(session, "turn/end 1 does not match open turn none", "turn/end", end(1))
    session.append("turn/start", {"turn": 1})
    vetoed(session, "turn/start 2 while turn 1 is still open", "turn/start", {"turn": 2})
    vetoed(session, "turn/end 2 does not match open turn 1", "turn/end", end(2))
    session.append("step/start", {"turn": 1, "step": 1})
    vetoed(session, "turn/end 1 while step 1 is still open", "turn/end", end(1))
    session.append("step/end", {"turn": 1, "step": 1})
    session.append("turn/end", end(1))
    vetoed(session, "turn/start expected turn 2, got 1", "turn/start", {"turn": 1})


async def test_b69_step_numbers(session: Session) -> None:
    vetoed(session, "step/start of turn 1 does not match open turn none", "step/start", {"turn": 1, "step": 1})
    session.append("turn/start", {"turn": 1})
    vetoed(session, "step/start of turn 2 does not match open turn 1", "step/start", {"turn": 2, "step": 1})
    vetoed(session, "step/start expected step 1, got 2", "step/start", {"turn": 1, "step": 2})
    vetoed(session, "step/end 1 does not match open step none", "step/end", {"turn": 1, "step": 1})
    session.append("step/start", {"turn": 1, "step": 1})
    vetoed(session, "step/start 2 while step 1 is still open", "step/start", {"turn": 1, "step": 2})
    vetoed(session, "step/end 2 does not match open step 1", "step/end", {"turn": 1, "step": 2})
    session.append("step/end", {"turn": 1, "step": 1})
    session.append("step/start", {"turn": 1, "step": 2})
    session.append("step/end", {"turn": 1, "step": 2})
    session.append("turn/end", end(1))
    session.append("turn/start", {"turn": 2})
    session.append("step/start", {"turn": 2, "step": 1})


@pytest.mark.parametrize(
    ("type_", "data", "surface"),
    [
        ("assistant/chunk", chunk(step=2), ()),
        ("assistant/message", assistant(step=2), ("append",)),
        ("tool/call", called("c", step=2), ()),
        ("tool/result", result("c", step=2), ("append",)),
    ],
)
async def test_b69_what_belongs_to_a_step_names_it(session: Session, type_: str, data: Any, surface: Any) -> None:
    vetoed(session, f"{type_} of turn 1 step 2 does not match open turn none step none", type_, data, *surface)
    session.append("turn/start", {"turn": 1})
    vetoed(session, f"{type_} of turn 1 step 2 does not match open turn 1 step none", type_, data, *surface)
    session.append("step/start", {"turn": 1, "step": 1})
    vetoed(session, f"{type_} of turn 1 step 2 does not match open turn 1 step 1", type_, data, *surface)


async def test_b69_a_result_needs_its_call(session: Session) -> None:
    session.append("turn/start", {"turn": 1})
    session.append("step/start", {"turn": 1, "step": 1})
    session.append("tool/call", called("a"))
    session.append("tool/result", result("a"), "append")
    vetoed(session, 'tool/result "b" has no tool/call in turn 1 step 1', "tool/result", result("b"), "append")
    failed = result("b", is_error=True, error={"name": "X", "code": "OTHER"})
    vetoed(session, 'tool/result "b" has no tool/call in turn 1 step 1', "tool/result", failed, "append")
    repaired = result("b", is_error=True, error={"name": "ToolNotStartedError", "code": "TOOL_NOT_STARTED"})
    session.append("tool/result", repaired, "append")
    session.append("tool/call", called("open at the end"))
    session.append("step/end", {"turn": 1, "step": 1})
    session.append("step/start", {"turn": 1, "step": 2})
    vetoed(session, 'tool/result "a" has no tool/call in turn 1 step 2', "tool/result", result("a", step=2), "append")


async def test_b69_a_result_is_rewritten_inside_a_turn(session: Session) -> None:
    finished_turn(session)
    (seq,) = [event.seq for event in session.events if event.type == "tool/result"]
    rewrite = ("tool/result", result("c1", "short"), replace(seq, seq), [seq])
    vetoed(session, "tool/result replacement outside of a turn", *rewrite)
    session.append("turn/start", {"turn": 2})
    session.append(*rewrite)


@pytest.mark.parametrize(
    ("type_", "data"),
    [
        ("todo/write", {"todos": []}),
        ("request/header", header()),
        ("request/context", {"provider": "p", "model": "m"}),
    ],
)
async def test_b69_what_belongs_to_a_turn(session: Session, type_: str, data: Any) -> None:
    vetoed(session, f"{type_} outside of a turn", type_, data)
    session.append("turn/start", {"turn": 1})
    session.append(type_, data)


def test_b69_sequence_numbers_must_increase() -> None:
    def fail(message: str) -> NoReturn:
        raise AssertionError(message)

    trace = LogTrace(fail)
    trace.check(SessionEvent("x", 0, 0, {}))
    trace.commit(SessionEvent("x", 0, 0, {}))
    with pytest.raises(AssertionError, match="^seq must strictly increase: saw 0 after 0$"):
        trace.check(SessionEvent("x", 0, 0, {}))


async def test_b69_a_broken_log_cannot_be_announced(root: Context) -> None:
    with pytest.raises(InvariantError, match="turn/start expected turn 1, got 7"):
        root[Sessions].create("broken", seed=[wire("turn/start", 0, {"turn": 7})])
    assert root[Sessions].get("broken") is None


async def test_b69_sessions_from_before_are_watched_too() -> None:
    async with Context() as root:
        await root.plugin(Sessions)
        await root.plugin(invariants)
        session = root[Sessions].create("s")
        finished_turn(session)
        await root.plugin(session_invariant)
        await root.settle()
        vetoed(session, "turn/start expected turn 2, got 1", "turn/start", {"turn": 1})
        finished_turn(session, 2)


async def test_b69_scoped_sessions_are_watched_too(root: Context) -> None:
    scoped = root.scope(object()).ctx[Sessions].create("scoped")
    vetoed(scoped, "turn/start expected turn 1, got 2", "turn/start", {"turn": 2})


async def test_b69_without_the_companion_nothing_is_refused() -> None:
    async with Context() as root:
        await root.plugin(Sessions)
        await root.plugin(invariants)
        fiber = await root.plugin(session_invariant)
        await root.settle()
        session = root[Sessions].create("s")
        vetoed(session, "turn/start expected turn 1, got 2", "turn/start", {"turn": 2})
        await fiber.dispose()
        assert session.append("turn/start", {"turn": 2}).seq == 0
