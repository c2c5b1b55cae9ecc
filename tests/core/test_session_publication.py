"""What an append tells its observers, and what they can do about it."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest

from dsh.cordis import Context
from dsh.core.session import Session
from dsh.core.session_event import SessionError, SessionEvent
from dsh.core.session_store import SessionAppended, SessionDisposed, Sessions
from tests.core.session_helpers import replace, say, user


@pytest.fixture
async def root() -> AsyncIterator[Context]:
    async with Context() as context:
        await context.plugin(Sessions)
        yield context


async def test_b28_observers_get_the_stored_event_after_the_commit(root: Context) -> None:
    session = root[Sessions].create("s")
    heard: list[tuple[SessionEvent, int, int]] = []
    root.on(SessionAppended, lambda e: heard.append((e.event, e.session.seq, len(e.session.derive_messages()))))
    event = session.append("user/message", user(), "append")
    assert heard == [(event, 1, 1)]
    assert heard[0][0] is event is session.events[0]


async def test_b28_seed_events_are_not_published(root: Context) -> None:
    heard: list[str] = []
    root.on(SessionAppended, lambda e: heard.append(e.event.type))
    session = root[Sessions].create("s", seed=[])
    assert [event.type for event in session.events] == ["session/end-seed"]
    assert heard == []


async def test_b29_one_failing_observer_starves_nobody(root: Context, caplog: pytest.LogCaptureFixture) -> None:
    session = root[Sessions].create("s")
    ran: list[str] = []

    def first(e: SessionAppended) -> None:
        ran.append("first")
        raise RuntimeError("sync failure")

    async def second(e: SessionAppended) -> None:
        ran.append("second")
        raise RuntimeError("async failure")

    root.on(SessionAppended, first)
    root.on(SessionAppended, second)
    root.on(SessionAppended, lambda e: ran.append("third"))
    with caplog.at_level(logging.ERROR):
        session.append("x", {})
        await root.settle()
    assert sorted(ran) == ["first", "second", "third"]
    assert session.seq == 1
    logged = [record.getMessage() + str(record.exc_info and record.exc_info[1]) for record in caplog.records]
    assert len(logged) == 2
    assert any("sync failure" in line for line in logged)
    assert any("async failure" in line for line in logged)
    assert all("session/event" in line for line in logged)


async def test_b30_an_observer_cannot_append_to_the_same_session(root: Context) -> None:
    session, other = root[Sessions].create("s"), root[Sessions].create("other")
    failures: list[Exception] = []
    heard: list[str] = []

    def reentrant(e: SessionAppended) -> None:
        if e.session is not session:
            return
        other.append("copied", {})
        try:
            session.append("nested", {})
        except SessionError as error:
            failures.append(error)
            raise

    root.on(SessionAppended, reentrant)
    root.on(SessionAppended, lambda e: heard.append(e.event.type))
    session.append("outer", {})
    session.append("after", {})
    assert [event.type for event in session.events] == ["outer", "after"]
    assert heard == ["copied", "outer", "copied", "after"]
    assert [str(error) for error in failures] == [
        "session append cannot reenter while another append is being published"
    ] * 2


async def test_b31_a_veto_leaves_nothing_behind(root: Context) -> None:
    session = root[Sessions].create("s")
    session.append("x", {})
    heard: list[int] = []
    root.on(SessionAppended, lambda e: heard.append(e.event.seq))

    def guard(dispatch: Any) -> None:
        if isinstance(dispatch.payload, SessionAppended) and dispatch.payload.event.type == "forbidden":
            assert dispatch.payload.session.seq == dispatch.payload.event.seq
            raise PermissionError("vetoed")

    undo = root.on("internal/dispatch", guard)
    view = session.events
    with pytest.raises(PermissionError, match="vetoed"):
        session.append("forbidden", {})
    assert session.events is view
    assert heard == []
    assert session.append("allowed", {}).seq == 1
    undo()
    assert session.append("forbidden", {}).seq == 2
    assert heard == [1, 2]


async def test_b32_a_vetoed_replacement_leaves_the_surface(root: Context) -> None:
    session = root[Sessions].create("s")
    say(session, "a", "b")
    before = session.derive_messages()

    def guard(dispatch: Any) -> None:
        if isinstance(dispatch.payload, SessionAppended):
            raise PermissionError("vetoed")

    undo = root.on("internal/dispatch", guard)
    with pytest.raises(PermissionError):
        session.append("user/message", user("sum"), replace(0, 1), [0, 1])
    undo()
    assert session.surface.nodes == (0, 1)
    assert session.surface.replace_generation == 0
    assert session.derive_messages() == before
    session.append("user/message", user("sum"), replace(0, 1), [0, 1])
    assert session.surface.nodes == (2,)


async def test_b33_a_detach_inside_an_observer_waits_for_the_publication(root: Context) -> None:
    sessions = root[Sessions]
    session = sessions.prepare("s").session
    detach = sessions.enter(session)
    sessions.announce(session)
    trail: list[str] = []

    def leave(e: SessionAppended) -> None:
        detach()
        detach()
        trail.append("live" if sessions.get("s") is session else "gone")

    root.on(SessionAppended, leave)
    root.on(SessionAppended, lambda e: trail.append("later observer"))
    root.on(SessionDisposed, lambda e: trail.append("disposed"))
    session.append("x", {})
    assert trail == ["live", "later observer", "disposed"]
    assert sessions.get("s") is None
    session.append("y", {})
    assert trail == ["live", "later observer", "disposed"]


async def test_b34_a_bare_session_publishes_nothing(root: Context) -> None:
    heard: list[str] = []
    root.on(SessionAppended, lambda e: heard.append(e.event.type))
    bare, live = Session("bare"), root[Sessions].create("live")
    for session in (bare, live):
        say(session, "a", "b")
        session.append("user/message", user("sum"), replace(0, 0), [0])
    assert len(heard) == 3
    assert [e.type for e in bare.events] == [e.type for e in live.events]
    assert bare.derive_messages() == live.derive_messages()
    assert bare.surface.nodes == live.surface.nodes
