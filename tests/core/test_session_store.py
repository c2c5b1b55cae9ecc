"""The store of live sessions."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest

from dsh.cordis import Context
from dsh.core.session import Session
from dsh.core.session_event import SessionError
from dsh.core.session_store import (
    SessionAppended,
    SessionCreated,
    SessionDisposed,
    SessionFlush,
    SessionPreparation,
    Sessions,
)
from tests.core.session_helpers import wire


@pytest.fixture
async def root() -> AsyncIterator[Context]:
    async with Context() as context:
        await context.plugin(Sessions)
        yield context


@pytest.fixture
def sessions(root: Context) -> Sessions:
    return root[Sessions]


def ids(sessions: Sessions) -> list[str]:
    return [session.id for session in sessions.list()]


async def test_b35_an_id_is_live_once(sessions: Sessions) -> None:
    first = sessions.create("s")
    with pytest.raises(SessionError, match='^session "s" already exists$'):
        sessions.create("s")
    with pytest.raises(SessionError, match='^session "s" already exists$'):
        sessions.prepare("s")
    assert sessions.list() == [first]


async def test_b35_a_session_lives_in_one_store(sessions: Sessions) -> None:
    session = sessions.create("s")
    async with Context() as other:
        await other.plugin(Sessions)
        with pytest.raises(SessionError, match='^session "s" is already attached to a store$'):
            other[Sessions].enter(session)
        assert other[Sessions].list() == []
    assert sessions.get("s") is session


async def test_b35_minted_ids_skip_those_in_use(sessions: Sessions) -> None:
    sessions.create("session-2")
    assert [sessions.create().id for _ in range(3)] == ["session-1", "session-3", "session-4"]
    assert ids(sessions) == ["session-2", "session-1", "session-3", "session-4"]
    assert sessions.get("missing") is None


async def test_b36_the_second_of_two_prepared_sessions_is_refused(sessions: Sessions) -> None:
    one, two = sessions.prepare("s").session, sessions.prepare("s").session
    sessions.enter(one)
    with pytest.raises(SessionError, match='^session "s" already exists$'):
        sessions.enter(two)
    assert sessions.get("s") is one
    assert two.publication is None


async def test_b37_a_refused_creation_is_rolled_back(root: Context, sessions: Sessions) -> None:
    trail: list[str] = []
    root.on(SessionCreated, lambda e: trail.append(f"created {e.session.id}"))

    @root.on(SessionCreated)
    def refuse(e: SessionCreated) -> None:
        if len(trail) == 1:
            raise RuntimeError("no")

    root.on(SessionCreated, lambda e: trail.append("later listener"))
    root.on(SessionDisposed, lambda e: trail.append(f"disposed {e.session.id}"))
    with pytest.raises(RuntimeError, match="^no$"):
        sessions.create("s")
    assert trail == ["created s", "disposed s"]
    assert sessions.list() == []
    assert sessions.create("s").id == "s"
    assert trail[2:] == ["created s", "later listener"]


async def test_b38_a_session_is_announced_once(root: Context, sessions: Sessions) -> None:
    failures: list[str] = []

    @root.on(SessionCreated)
    def again(e: SessionCreated) -> None:
        try:
            sessions.announce(e.session)
        except SessionError as error:
            failures.append(str(error))

    session = sessions.create("s")
    assert failures == ['session "s" was already announced']
    with pytest.raises(SessionError, match='^session "s" was already announced$'):
        sessions.announce(session)
    with pytest.raises(SessionError, match='^session "t" is not live in this store$'):
        sessions.announce(sessions.prepare("t").session)


async def test_b39_an_async_refusal_is_only_logged(
    root: Context, sessions: Sessions, caplog: pytest.LogCaptureFixture
) -> None:
    @root.on(SessionCreated)
    async def late(e: SessionCreated) -> None:
        await asyncio.sleep(0)
        raise RuntimeError("too late")

    with caplog.at_level(logging.ERROR):
        session = sessions.create("s")
        await root.settle()
    assert sessions.get("s") is session
    assert len(caplog.records) == 1


async def test_b40_a_session_leaves_with_the_plugin_that_created_it(root: Context, sessions: Sessions) -> None:
    disposed: list[str] = []
    root.on(SessionDisposed, lambda e: disposed.append(e.session.id))

    def owner(ctx: Context, config: object, sessions: Sessions) -> None:
        sessions.create("owned")

    sessions.create("kept")
    fiber = await root.plugin(owner)
    assert ids(sessions) == ["kept", "owned"]
    await fiber.dispose()
    assert ids(sessions) == ["kept"]
    assert disposed == ["owned"]


async def test_b40_unloading_from_inside_created_detaches_too(root: Context, sessions: Sessions) -> None:
    trail: list[Any] = []
    root.on(SessionDisposed, lambda e: trail.append("disposed"))

    def owner(ctx: Context, config: object, sessions: Sessions) -> None:
        def created(e: SessionCreated) -> None:
            ctx.fiber.dispose()
            trail.append(sessions.get("owned") is e.session)

        ctx.on(SessionCreated, created)
        sessions.create("owned")

    fiber = root.plugin(owner)
    await root.settle()
    await fiber.dispose()
    assert trail == [True, "disposed"]
    assert sessions.list() == []


async def test_b41_no_goodbye_without_a_hello(root: Context, sessions: Sessions) -> None:
    disposed: list[str] = []
    root.on(SessionDisposed, lambda e: disposed.append(e.session.id))
    detach = sessions.enter(sessions.prepare("s").session)
    detach()
    detach()
    assert sessions.list() == []
    assert disposed == []


async def test_b41_disposed_listeners_are_contained(
    root: Context, sessions: Sessions, caplog: pytest.LogCaptureFixture
) -> None:
    ran: list[str] = []

    @root.on(SessionDisposed)
    def broken(e: SessionDisposed) -> None:
        ran.append("broken")
        raise RuntimeError("x")

    root.on(SessionDisposed, lambda e: ran.append("fine"))
    session = sessions.prepare("s").session
    detach = sessions.enter(session)
    sessions.announce(session)
    with caplog.at_level(logging.ERROR):
        detach()
    assert ran == ["broken", "fine"]
    assert len(caplog.records) == 1


async def test_b41_a_failing_dispatch_step_of_disposed_is_contained(root: Context, sessions: Sessions) -> None:
    session = sessions.prepare("s").session
    detach = sessions.enter(session)
    sessions.announce(session)

    def guard(dispatch: Any) -> None:
        if isinstance(dispatch.payload, SessionDisposed):
            raise RuntimeError("guard")

    root.on("internal/dispatch", guard)
    detach()
    assert sessions.list() == []


async def test_b41_an_old_detach_does_not_remove_a_successor(sessions: Sessions) -> None:
    detach = sessions.enter(sessions.prepare("s").session)
    detach()
    successor = sessions.create("s")
    detach()
    assert sessions.get("s") is successor


async def test_b42_flush_tells_whether_anybody_listens(root: Context, sessions: Sessions) -> None:
    session = sessions.create("s")
    assert await sessions.flush(session) is False
    undo = root.on(SessionFlush, lambda e: None)
    assert await sessions.flush(session) is True
    undo()
    assert await sessions.flush(session) is False


async def test_b42_only_a_live_session_can_be_flushed(sessions: Sessions) -> None:
    prepared = sessions.prepare("s").session
    with pytest.raises(SessionError, match='^session "s" is not live in this store$'):
        await sessions.flush(prepared)
    detach = sessions.enter(prepared)
    assert await sessions.flush(prepared) is False
    detach()
    with pytest.raises(SessionError, match='^session "s" is not live in this store$'):
        await sessions.flush(prepared)


async def test_b43_flush_waits_for_all_and_raises_the_first_failure(root: Context, sessions: Sessions) -> None:
    session = sessions.create("s")
    gate = asyncio.Event()
    done: list[str] = []

    @root.on(SessionFlush)
    async def slow(e: SessionFlush) -> None:
        await gate.wait()
        done.append("slow")
        raise OSError("slow disk")

    @root.on(SessionFlush)
    async def quick(e: SessionFlush) -> None:
        done.append("quick")
        gate.set()
        raise ValueError("quick failure")

    with pytest.raises(OSError, match="^slow disk$"):
        await sessions.flush(session)
    assert done == ["quick", "slow"]


async def test_b43_a_sync_raise_does_not_starve_the_others(root: Context, sessions: Sessions) -> None:
    session = sessions.create("s")
    done: list[str] = []

    @root.on(SessionFlush)
    def broken(e: SessionFlush) -> None:
        raise ValueError("at once")

    @root.on(SessionFlush)
    async def other(e: SessionFlush) -> None:
        await asyncio.sleep(0)
        done.append("other")

    with pytest.raises(ValueError, match="^at once$"):
        await sessions.flush(session)
    assert done == ["other"]


async def test_b44_events_go_to_the_scope_a_session_was_created_in(root: Context, sessions: Sessions) -> None:
    mine, other = root.scope(object()), root.scope(object())
    heard: list[str] = []
    for label, ctx in (("global", root), ("mine", mine.ctx), ("other", other.ctx)):
        for event in (SessionCreated, SessionAppended, SessionDisposed):
            name = event.__name__.removeprefix("Session")
            ctx.on(event, lambda e, label=label, name=name: heard.append(f"{label} {name} {e.session.id}"))

    scoped = mine.ctx[Sessions].prepare("scoped").session
    detach = mine.ctx[Sessions].enter(scoped)
    sessions.announce(scoped)
    scoped.append("x", {})
    detach()
    assert heard == [
        f"{who} {what} scoped" for what in ("Created", "Appended", "Disposed") for who in ("global", "mine")
    ]

    heard.clear()
    sessions.create("bare").append("x", {})
    assert heard == ["global Created bare", "global Appended bare"]


async def test_b44_flush_reaches_the_captured_scope(root: Context, sessions: Sessions) -> None:
    mine, other = root.scope(object()), root.scope(object())
    heard: list[str] = []
    mine.ctx.on(SessionFlush, lambda e: heard.append("mine"))
    other.ctx.on(SessionFlush, lambda e: heard.append("other"))
    scoped = mine.ctx[Sessions].create("scoped")
    assert await sessions.flush(scoped) is True
    assert await sessions.flush(sessions.create("bare")) is False
    assert heard == ["mine"]


async def test_b36_a_preparation_is_released_once(sessions: Sessions) -> None:
    released: list[str] = []
    with sessions.prepare("s", release=lambda: released.append("s")) as preparation:
        assert isinstance(preparation, SessionPreparation)
        assert isinstance(preparation.session, Session)
        assert released == []
    preparation.release()
    assert released == ["s"]
    with pytest.raises(RuntimeError), sessions.prepare("t", release=lambda: released.append("t")):
        raise RuntimeError
    assert released == ["s", "t"]
    sessions.prepare("u").release()


async def test_b45_meta_becomes_the_header(sessions: Sessions) -> None:
    meta = {"cwd": "/w", "parentSession": "p", "delegationDepth": 2, "origin": "subagent", "agentPreset": None}
    header = sessions.create("s", meta=meta).header
    assert (header.id, header.cwd, header.parent_session, header.delegation_depth) == ("s", "/w", "p", 2)
    assert (header.origin, header.agent_preset, header.seed_length) == ("subagent", None, None)
    with pytest.raises(SessionError, match="must be an absolute path"):
        sessions.create("t", meta={"cwd": "w"})
    assert ids(sessions) == ["s"]


async def test_b51_a_restored_session_takes_its_header_and_events(sessions: Sessions) -> None:
    header = {"version": 0, "id": "old", "createdAt": 7, "cwd": "/w"}
    prepared = sessions.prepare(header=header, seed=[wire("turn/start", 0, {"turn": 1})], seed_source="persistence")
    assert prepared.session.id == "old"
    assert prepared.session.header.created_at == 7
    assert prepared.session.first_live_seq == 1
    with pytest.raises(SessionError, match='^session header id "old" does not match session id "new"$'):
        sessions.prepare("new", header=header)


async def test_b68_registered_types_come_and_go_with_their_plugin(root: Context, sessions: Sessions) -> None:
    def owner(ctx: Context, config: object, sessions: Sessions) -> None:
        sessions.register_event_type("my/thing")

    one, two = await root.plugin(owner), await root.plugin(owner)
    assert "my/thing" in sessions.event_types()
    assert "turn/start" in sessions.event_types()
    await one.dispose()
    assert "my/thing" in sessions.event_types()
    await two.dispose()
    assert "my/thing" not in sessions.event_types()
