"""What can be asked of open sessions: prompts, cancelling, the queue, live events."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from dsh.cordis.errors import describe_error
from dsh.core.session_event import SessionError
from dsh.llm.message import create_user_message

from .frames import parse_position, queue_of
from .messages import ApiError, EventStream, Request, Response, only_fields
from .refused_prompt import take_back_unwritten
from .subscription import Subscription

if TYPE_CHECKING:
    from .routes import Api

MODES = ("next-turn", "steer")


async def prompt(api: Api, request: Request, session_id: str) -> Response:
    """Queue a prompt, or steer the running turn; answers once it is on disk: `{messageId, seq}`.

    seq: the log's length before the prompt, so that a stream from `seq - 1` on tells all that comes of it.
    """
    body = request.json()
    only_fields(body, "content", "mode")
    mode = body.get("mode", "next-turn")
    if mode not in MODES:
        raise ApiError(400, "BAD_REQUEST", f"mode must be one of {', '.join(MODES)}, not {mode!r}")
    content = _content(body.get("content"))
    api.refuse_while_draining()
    agent = await api.agent(session_id)
    if getattr(agent, "retired", False):
        text = f'the agent of session "{session_id}" is about to end and takes up nothing more'
        raise ApiError(409, "LEAVING", text)
    before = agent.session.seq
    try:
        message = create_user_message(content)
        agent.steer(message) if mode == "steer" else agent.followup(message)
    except SessionError as error:
        raise ApiError(400, "BAD_CONTENT", str(error)) from None
    try:
        await api.sessions.flush(agent.session)
    except Exception as error:
        if await take_back_unwritten(api, agent, message["id"], before):
            raise
        text = f"{describe_error(error)}; the agent works on the prompt all the same"
        raise ApiError(500, "INTERNAL", text) from error
    return Response(202, {"messageId": message["id"], "seq": before})


def _content(given: Any) -> Any:
    """The blocks of a prompt; a text stands for one text block."""
    if isinstance(given, str):
        given = [{"type": "text", "text": given}]
    if not isinstance(given, list) or not given:
        raise ApiError(400, "BAD_CONTENT", "content must be a text or a list of blocks")
    for block in given:
        kind = block.get("type") if isinstance(block, dict) else None
        if kind != "text" or not isinstance(block.get("text"), str):
            raise ApiError(400, "BAD_CONTENT", 'each block of content must be {"type": "text", "text": "…"}')
    if not any(block["text"].strip() for block in given):
        raise ApiError(400, "EMPTY_PROMPT", "the prompt is empty")
    return given


async def cancel(api: Api, request: Request, session_id: str) -> Response:
    """Stop the running turn: `{cancelled, waiting}`. keepQueue: prompts that wait stay; else they go, also when no
    turn runs."""
    body = request.json()
    only_fields(body, "keepQueue")
    keep = body.get("keepQueue", True)
    if not isinstance(keep, bool):
        raise ApiError(400, "BAD_REQUEST", "keepQueue must be true or false")
    agent = await api.agent(session_id)
    running = agent.status == "running"
    agent.cancel({"kind": "user"}, keep_inbox=keep)
    if not keep:
        agent.inbox.clear()
    waiting = len(agent.inbox.next_turn) + len(agent.inbox.next_step)
    return Response(body={"cancelled": running, "waiting": waiting})


async def queue(api: Api, request: Request, session_id: str) -> Response:
    """What waits: `{nextTurn, nextStep}`, messages in order."""
    return Response(body=queue_of(await api.agent(session_id)))


async def take_back(api: Api, request: Request, session_id: str, message_id: str) -> Response:
    """Take a waiting prompt out of the queue."""
    agent = await api.agent(session_id)
    if not agent.inbox.remove(message_id):
        raise ApiError(404, "NOT_WAITING", f'no message "{message_id}" is waiting (any more)')
    return Response(body={})


async def stream(api: Api, request: Request) -> EventStream:
    """Live frames as server-sent events.

    `sessions`: ids separated by commas, all without it. `after`: `<session id>:<seq>`, repeatable: send what came after
    that event first. A `Last-Event-ID` header does the same for whoever comes back. In both an id is percent-encoded
    once more, so that it may hold anything. `host=true`: tell of the process, too (`host/config-applied {rows}`,
    `host/code-reloaded {rows}`, `host/warning {message}`).
    """
    given = request.value("sessions")
    wanted = None if given in (None, "", "*") else [unquote(each) for each in str(given).split(",") if each]
    positions = dict(parse_position(text) for text in request.query.get("after", ()))
    returning = request.headers.get("last-event-id")
    last = parse_position(returning) if returning else None
    for session_id in wanted or ():
        if api.feed.live(session_id) is None:
            await api.persistence.read_from(session_id, 2**53 - 1)  # raises when there is none
    subscription = Subscription(api.feed, wanted, positions, last, request.value("host") == "true")
    return EventStream(subscription.chunks(), subscription.leave)
