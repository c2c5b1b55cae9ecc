"""Companion that checks every request of an agent loop against the log it claims to come from.

Model, parameters, system text and tools must be those of the logged header, the messages those the log derives; both
are rebuilt here from the events alone, so that a stale cache cannot vouch for itself.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

from dsh.cordis import Context
from dsh.cordis.jsonio import FrozenDict, encode, json_equal
from dsh.core.derivation import derive_event_message
from dsh.core.invariants import Fail, Invariants
from dsh.core.request_header import canonical_header
from dsh.core.session_event import SessionEvent
from dsh.core.session_store import Sessions
from dsh.core.surface import fold_surface
from dsh.llm.service import LlmStream
from dsh.llm.types import LlmRequest, StreamChunk, is_agent_loop_request

PACKAGE = "@deepseek-ai/dsh-agent-loop"


def apply(ctx: Context, config: object, invariants: Invariants) -> None:
    """Check every marked request, before any other listener can answer it."""
    invariants.register(PACKAGE, _install, inject=[Sessions])


def _install(ctx: Context, fail: Fail) -> None:
    sessions = ctx[Sessions]

    def check(event: LlmStream, next: Callable[[], AsyncIterator[StreamChunk]]) -> AsyncIterator[StreamChunk]:
        if is_agent_loop_request(event.request):
            check_request(event.request, sessions, fail)
        return next()

    ctx.on(LlmStream, check, prepend=True, global_=True)


def check_request(request: LlmRequest, sessions: Sessions, fail: Fail) -> None:
    """Call `fail` with the first difference between a loop-built request and its session's log."""
    session = sessions.get(request.session_id) if request.session_id is not None else None
    if session is None:
        fail(f'request names session "{request.session_id}", which is not live')
    if not isinstance(request.messages, tuple) or not all(type(item) is FrozenDict for item in request.messages):
        fail("request messages are not frozen")
    if request.tools is not None and not isinstance(request.tools, tuple):
        fail("request tools are not frozen")
    events = session.events
    if not any(event.type == "step/start" for event in reversed(events)):
        fail("request without a step/start in the log")
    header = next((event.data["header"] for event in reversed(events) if event.type == "request/header"), None)
    if header is None:
        fail("request without a request/header in the log")
    _check_header(request, header, fail)
    _check_messages(request, events, fail)


def _check_header(request: LlmRequest, header: Any, fail: Fail) -> None:
    sent: dict[str, Any] = {"config": request.config.to_wire()}
    if request.system is not None:
        sent["system"] = request.system
    if request.tools is not None:
        sent["tools"] = list(request.tools)
    sent, logged = canonical_header(sent), canonical_header(header)
    for key in ("config", "system", "tools"):
        if not json_equal(sent.get(key), logged.get(key)):
            fail(f"request {key} differs from the logged header")


def _check_messages(request: LlmRequest, events: Any, fail: Fail) -> None:
    log: list[SessionEvent] = list(events)
    derived = [message for seq in fold_surface(log)[0] if (message := derive_event_message(log[seq])) is not None]
    if len(derived) != len(request.messages):
        fail(f"request holds {len(request.messages)} messages, the log derives {len(derived)}")
    for index, (sent, logged) in enumerate(zip(request.messages, derived, strict=True)):
        if sent is not logged and encode(sent) != encode(logged):
            fail(f"request message {index} differs from the one the log derives")
