"""The loop companion: a request must be what its log says."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import replace as changed
from typing import Any

import pytest

from dsh.cordis import Context, InvariantError
from dsh.cordis.jsonio import snapshot_json
from dsh.core import invariants, loop_invariant
from dsh.core.session import Session
from dsh.core.session_store import Sessions
from dsh.llm.call_config import CallConfig
from dsh.llm.service import LlmStream
from dsh.llm.types import LlmRequest, StreamChunk, mark_agent_loop_request
from tests.core.session_helpers import finished_turn, header, replace, say, user

TOOL = {"name": "t", "description": "d", "parameters": {"type": "object"}}


@pytest.fixture
async def root() -> AsyncIterator[Context]:
    async with Context() as context:
        await context.plugin(Sessions)
        await context.plugin(invariants)
        # A listener that answers itself must not hide a breach: the companion stands before it.
        context.on(LlmStream, lambda e, next: answer())
        await context.plugin(loop_invariant)
        await context.settle()
        yield context


async def answer() -> AsyncIterator[StreamChunk]:
    return
    yield


def send(root: Context, request: LlmRequest) -> AsyncIterator[StreamChunk]:
    return root.waterfall_sync(LlmStream(request), answer)


def stepped(root: Context) -> Session:
    """A session in the middle of a step, after a compaction, about to send a request."""
    session = root[Sessions].create("s")
    finished_turn(session)
    say(session, "x")
    nodes = session.surface.nodes
    session.append("user/message", user("summary", "sum"), replace(nodes[0], nodes[1]), nodes[:2])
    session.append("turn/start", {"turn": 2})
    session.append("step/start", {"turn": 2, "step": 1})
    session.append("request/header", header(system="sys", tools=[TOOL], reason="change"))
    return session


def request_of(session: Session) -> LlmRequest:
    return LlmRequest(
        config=CallConfig(provider="p", model="m"),
        messages=tuple(session.derive_messages()),
        system="sys",
        tools=(snapshot_json(TOOL),),  # type: ignore[arg-type]
        session_id=session.id,
    )


async def test_a_faithful_request_passes(root: Context) -> None:
    send(root, mark_agent_loop_request(request_of(stepped(root))))


async def test_equal_bytes_are_as_good_as_the_same_objects(root: Context) -> None:
    request = request_of(stepped(root))
    copies = tuple(snapshot_json({**message}) for message in request.messages)
    send(root, mark_agent_loop_request(changed(request, messages=copies)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda r: {"session_id": "other"}, 'request names session "other", which is not live'),
        (lambda r: {"session_id": None}, 'request names session "None", which is not live'),
        (lambda r: {"messages": list(r.messages)}, "request messages are not frozen"),
        (lambda r: {"messages": (dict(r.messages[0]), *r.messages[1:])}, "request messages are not frozen"),
        (lambda r: {"tools": list(r.tools)}, "request tools are not frozen"),
        (lambda r: {"messages": r.messages[1:]}, "request holds 2 messages, the log derives 3"),
        (
            lambda r: {"messages": (snapshot_json({**r.messages[0], "id": "x"}), *r.messages[1:])},
            "request message 0 differs from the one the log derives",
        ),
        (lambda r: {"config": CallConfig(provider="p", model="n")}, "request config differs from the logged header"),
        (
            lambda r: {"config": CallConfig(provider="p", model="m", temperature=0.5)},
            "request config differs from the logged header",
        ),
        (lambda r: {"system": "other"}, "request system differs from the logged header"),
        (lambda r: {"system": None}, "request system differs from the logged header"),
        (lambda r: {"tools": None}, "request tools differs from the logged header"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_a_request_that_differs_is_refused(
    root: Context, change: Callable[[LlmRequest], dict[str, Any]], message: str
) -> None:
    request = request_of(stepped(root))
    with pytest.raises(InvariantError) as caught:
        send(root, mark_agent_loop_request(changed(request, **change(request))))
    assert str(caught.value) == f'invariant violated by "@deepseek-ai/dsh-agent-loop": {message}'


async def test_a_request_needs_a_step_and_a_header(root: Context) -> None:
    session = root[Sessions].create("s")
    request = mark_agent_loop_request(LlmRequest(CallConfig("p", "m"), (), session_id="s"))
    with pytest.raises(InvariantError, match="request without a step/start in the log"):
        send(root, request)
    session.append("step/start", {"turn": 1, "step": 1})
    with pytest.raises(InvariantError, match="request without a request/header in the log"):
        send(root, request)
    session.append("request/header", header())
    send(root, request)


async def test_other_requests_are_not_looked_at(root: Context) -> None:
    session = stepped(root)
    send(root, LlmRequest(CallConfig("p", "m"), (), session_id=session.id))
