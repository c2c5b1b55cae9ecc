"""Forking a session."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from dsh.cordis import Context
from dsh.core.fork import SessionForkError
from dsh.core.session import Session
from dsh.core.session_store import Sessions
from tests.core.session_helpers import finished_turn, say


@pytest.fixture
async def sessions() -> AsyncIterator[Sessions]:
    async with Context() as root:
        await root.plugin(Sessions)
        yield root[Sessions]


def refused(sessions: Sessions, code: str, message: str, *args: Any) -> None:
    before = sessions.list()
    with pytest.raises(SessionForkError) as caught:
        sessions.fork(*args)
    assert (caught.value.code, str(caught.value)) == (code, message)
    assert sessions.list() == before


async def test_b52_a_fork_copies_the_whole_log(sessions: Sessions) -> None:
    source = sessions.create("source", meta={"cwd": "/w", "agentPreset": "x"})
    finished_turn(source)
    length = source.seq
    child = sessions.fork(source)
    assert child.id == "session-1"
    assert sessions.list() == [source, child]
    assert child.header.to_wire() == {
        "version": 0,
        "id": "session-1",
        "createdAt": child.header.created_at,
        "cwd": "/w",
        "parentSession": "source",
        "seedLength": length,
        "delegationDepth": 0,
    }
    assert list(child.events)[:length] == list(source.events)
    assert [event.type for event in child.events][length:] == ["session/end-seed"]
    assert child.first_live_seq == length
    assert child.derive_messages() == source.derive_messages()
    assert child.request_header() == source.request_header()

    say(child, "only in the child")
    assert source.seq == length
    assert len(child.derive_messages()) == len(source.derive_messages()) + 1


async def test_b53_an_earlier_boundary_works_mid_turn(sessions: Sessions) -> None:
    source = sessions.create("source")
    finished_turn(source, 1)
    closed = source.seq - 1
    source.append("session/title", {"title": "t"})
    source.append("turn/start", {"turn": 2})
    say(source, "unfinished")
    for boundary in (closed, closed + 1):
        child = sessions.fork("source", boundary)
        assert child.header.seed_length == boundary + 1
    message = 'fork boundary {} in session "source" ends inside open turn {}'
    for boundary, turn in ((closed + 2, 2), (closed + 3, 2), (3, 1)):
        refused(sessions, "OPEN_TURN", message.format(boundary, turn), source, boundary)
    refused(sessions, "OPEN_TURN", message.format(source.seq - 1, 2), source)


async def test_b53_any_turn_end_is_a_fine_boundary(sessions: Sessions) -> None:
    source = sessions.create("source")
    source.append("turn/start", {"turn": 1})
    source.append("turn/end", {"turn": 1, "reason": {"kind": "error", "error": {"message": "m", "code": "X"}}})
    assert sessions.fork(source).header.seed_length == 2


@pytest.mark.parametrize(
    ("boundary", "message"),
    [
        (-1, 'fork boundary for session "source" must be a non-negative safe integer, got -1'),
        (1.5, 'fork boundary for session "source" must be a non-negative safe integer, got 1.5'),
        (True, 'fork boundary for session "source" must be a non-negative safe integer, got true'),
        (2**53, 'fork boundary for session "source" must be a non-negative safe integer, got 9007199254740992'),
        ("3", 'fork boundary for session "source" must be a non-negative safe integer, got "3"'),
        (10, 'fork boundary 10 does not exist in session "source" (last seq: 9)'),
    ],
)
async def test_b54_an_invalid_boundary_is_explained(sessions: Sessions, boundary: Any, message: str) -> None:
    source = sessions.create("source")
    finished_turn(source)
    refused(sessions, "INVALID_BOUNDARY", message, source, boundary)
    refused(sessions, "SESSION_ALREADY_EXISTS", 'session "source" already exists', source, boundary, "source")


async def test_b54_an_empty_session_has_no_boundary(sessions: Sessions) -> None:
    sessions.create("empty")
    refused(
        sessions,
        "INVALID_BOUNDARY",
        'fork boundary 0 does not exist in session "empty" (last seq: none)',
        "empty",
        0,
    )


async def test_b55_the_source_must_be_the_live_instance(sessions: Sessions) -> None:
    refused(sessions, "SESSION_NOT_FOUND", 'session "nobody" not found', "nobody")
    detached = Session("gone")
    refused(sessions, "SESSION_NOT_FOUND", 'session "gone" not found', detached)
    sessions.create("gone")
    refused(sessions, "SESSION_NOT_LIVE", 'session "gone" is not the live store instance', detached)


async def test_b56_an_open_bracket_of_the_parent_lies_before_the_end_of_the_seed(sessions: Sessions) -> None:
    source = sessions.create("source")
    finished_turn(source)
    bracket = source.append("compaction/start", {"compactionId": "c", "turn": None})
    child = sessions.fork(source, child_id="child")
    border = max(event.seq for event in child.events if event.type == "session/end-seed")
    assert border > bracket.seq
    again = Session("again", seed=child.events)
    assert list(again.events) == list(child.events)


async def test_b57_an_empty_session_forks_into_an_empty_one(sessions: Sessions) -> None:
    child = sessions.fork(sessions.create("empty"), child_id="child")
    assert child.header.seed_length == 0
    assert [event.type for event in child.events] == ["session/end-seed"]
    assert child.derive_messages() == []


async def test_b52_child_turns_continue_from_the_prefix(sessions: Sessions) -> None:
    source = sessions.create("source")
    finished_turn(source, 1)
    child = sessions.fork(source, child_id="child")
    finished_turn(child, 2)
    grandchild = sessions.fork(child, child_id="grandchild")
    turns = [event.data["turn"] for event in grandchild.events if event.type == "turn/start"]
    assert turns == [1, 2]
    assert grandchild.header.parent_session == "child"
