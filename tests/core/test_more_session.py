"""Corners of the session log: whose failure an append is, and that true is never one."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from dsh.cordis import Context, InvariantError
from dsh.core import invariants, session_invariant
from dsh.core.session_event import SessionError
from dsh.core.session_store import SessionAppended, SessionCreated, SessionDisposed, Sessions
from tests.core.session_helpers import called, replace, result, say, user


async def test_b30_a_nested_append_is_logged_as_the_failure_of_its_observer(caplog: pytest.LogCaptureFixture) -> None:
    async with Context() as root:
        await root.plugin(Sessions)
        session = root[Sessions].create("s")
        heard: list[int] = []

        def nested(event: SessionAppended) -> None:
            session.append("nested", {})

        root.on(SessionAppended, nested)
        root.on(SessionAppended, lambda e: heard.append(e.event.seq))
        with caplog.at_level(logging.ERROR):
            session.append("one", {})
            session.append("two", {})
        assert [event.type for event in session.events] == ["one", "two"] and heard == [0, 1]
        assert len(caplog.records) == 2
        for record in caplog.records:
            assert record.exc_info is not None and isinstance(record.exc_info[1], SessionError)
            assert "cannot reenter" in str(record.exc_info[1])


async def test_b41_a_detach_during_the_announcement_waits_for_its_end() -> None:
    async with Context() as root:
        await root.plugin(Sessions)
        sessions = root[Sessions]
        session = sessions.prepare("s").session
        detach = sessions.enter(session)
        trail: list[str] = []

        def leave(event: SessionCreated) -> None:
            detach()
            trail.append("live" if sessions.get("s") is session else "gone")

        root.on(SessionCreated, leave)
        root.on(SessionCreated, lambda e: trail.append("later listener"))
        root.on(SessionDisposed, lambda e: trail.append("disposed"))
        sessions.announce(session)
        assert trail == ["live", "later listener", "disposed"]
        assert sessions.get("s") is None and sessions.create("s").id == "s"


@pytest.mark.parametrize(
    ("type_", "data"),
    [
        ("turn/end", {"turn": True, "reason": {"kind": "completed"}}),
        ("step/start", {"turn": True, "step": 1}),
        ("step/start", {"turn": 1, "step": True}),
    ],
    ids=repr,
)
async def test_b07_true_is_no_number_of_a_turn_or_step(type_: str, data: Any) -> None:
    async with Context() as root:
        await root.plugin(Sessions)
        await root.plugin(invariants)
        await root.plugin(session_invariant)
        await root.settle()
        session = root[Sessions].create("s")
        with pytest.raises(InvariantError):
            session.append("turn/start", {"turn": True})
        session.append("turn/start", {"turn": 1})
        with pytest.raises(InvariantError):
            session.append(type_, data)
        assert session.seq == 1


async def test_b69_a_result_outside_of_its_step_and_a_rewrite_outside_of_a_turn_leave_the_surface() -> None:
    async with Context() as root:
        await root.plugin(Sessions)
        await root.plugin(invariants)
        await root.plugin(session_invariant)
        await root.settle()
        session = root[Sessions].create("s")
        say(session, "a")
        nodes = session.surface.nodes
        for append in (
            lambda: session.append("tool/result", result("c1"), "append"),
            lambda: session.append("tool/call", called("c1")),
        ):
            with pytest.raises(InvariantError):
                append()
        assert session.surface.nodes == nodes and session.seq == 1
        session.append("user/message", user("sum"), replace(0, 0), [0])
        assert session.surface.nodes == (1,)
