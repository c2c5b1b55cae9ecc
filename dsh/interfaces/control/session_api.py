"""What can be asked of sessions, open or stored: list, open, look, change, read, fork, delete."""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from dsh.cordis import HarnessError
from dsh.core.agent import AgentOptions, CreateAgentOptions, ResumeAgentOptions
from dsh.core.agents import Agents
from dsh.core.fork import closed_prefix, fork_prefix
from dsh.core.seams import SessionPersistence
from dsh.core.session import EventsView, Session
from dsh.llm.service import Llm
from dsh.loader.boot import when_started

from ..context_use import totals
from ..stored_log import stored_log, stored_title
from .frames import queue_of
from .host_api import agents_of
from .messages import ApiError, Request, Response, only_fields, text_field
from .run_folder import working_folder

if TYPE_CHECKING:
    from dsh.core.session_event import SessionEvent
    from dsh.core.session_header import SessionHeader

    from .routes import Api

PAGE: Final = 100
LARGEST_PAGE: Final = 1000
LARGEST_EVENT_PAGE: Final = 5000


async def listing(api: Api, request: Request) -> Response:
    """Sessions, open ones first, then the stored ones with the latest activity first; a page at a time.

    `cwd`: of that workspace. `q`: id, label, title or workspace hold this text. `cursor`: the `next` of the page
    before; refused when that session is gone, for then nobody can tell where the next page begins.
    """
    limit = request.number("limit", PAGE, LARGEST_PAGE) or PAGE
    cwd, text, cursor = request.value("cwd"), (request.value("q") or "").lower(), request.value("cursor")
    persistence = api.ctx.get(SessionPersistence)
    headers: dict[str, SessionHeader] = {session.id: session.header for session in api.sessions.list()}
    for header in await persistence.list() if persistence is not None else ():
        headers.setdefault(header.id, header)
    known = {agent["sessionId"]: agent for agent in agents_of(api)}
    rows = [_row(header, known.get(session_id)) for session_id, header in headers.items()]
    rows = [row for row in rows if cwd is None or row["cwd"] == cwd]
    if text:
        rows = await asyncio.to_thread(_search, persistence, rows, headers, text)
    ids = [row["sessionId"] for row in rows]
    if cursor is not None and cursor not in ids:
        raise ApiError(400, "BAD_CURSOR", "the session that this cursor names is gone; begin again without a cursor")
    start = 0 if cursor is None else ids.index(cursor) + 1
    page = rows[start : start + limit]
    return Response(body={"sessions": page, "next": ids[start + limit - 1] if len(rows) > start + limit else None})


def _row(header: SessionHeader, agent: Mapping[str, Any] | None) -> dict[str, Any]:
    row = {"sessionId": header.id, "createdAt": header.created_at, "cwd": header.cwd, "origin": header.origin}
    row |= {"parentSession": header.parent_session, "live": agent is not None}
    if agent is not None:
        row |= {name: agent.get(name) for name in ("label", "status", "title", "model", "queued", "lastSeq")}
    return row


def _search(
    persistence: SessionPersistence | None, rows: list[dict[str, Any]], headers: Mapping[str, SessionHeader], text: str
) -> list[dict[str, Any]]:
    """The rows that hold a text. The title of a stored session stands in its log, read from the end."""
    found = []
    for row in rows:
        matches = any(text in str(row.get(name) or "").lower() for name in ("sessionId", "title", "cwd", "label"))
        if not matches and persistence is not None and not row["live"]:
            header = headers[row["sessionId"]]
            log = stored_log(header, persistence.locate(header))
            row["title"] = None if log is None else stored_title(log)
            matches = text in (row["title"] or "").lower()
        if matches:
            found.append(row)
    return found


async def create(api: Api, request: Request) -> Response:
    """Open a session: a fresh one `{cwd?, model?}`, or a stored one `{resume}`."""
    body = request.json()
    only_fields(body, "cwd", "model", "resume", "preset")
    if body.get("preset") is not None:
        raise ApiError(501, "NO_PRESETS", "no row of this composition provides agent presets")
    api.refuse_while_draining()
    await when_started(api.ctx)
    options = _route(api, body.get("model"))
    resume = text_field(body, "resume")
    loop = api.loop
    if resume is not None:
        if api.agents.get(resume) is not None:
            raise ApiError(409, "ALREADY_OPEN", f'session "{resume}" is open in this daemon already')
        await loop.resume(loop.ctx, ResumeAgentOptions(resume, options, restore_route=True))
        return Response(201, {"sessionId": resume})
    cwd = text_field(body, "cwd") or working_folder()
    if not os.path.isabs(cwd) or not os.path.isdir(cwd):
        raise ApiError(400, "BAD_CWD", f"cwd must be the absolute path of a folder, not {cwd}")
    session_id = f"session-{uuid.uuid4()}"
    await loop.create_agent(loop.ctx, CreateAgentOptions(session_id, {"cwd": cwd}, agent_options=options))
    return Response(201, {"sessionId": session_id})


def _route(api: Api, model: Any) -> AgentOptions:
    """The route of a request's `model`, written "provider/model"; the default one without it."""
    if model is None:
        return AgentOptions()
    provider, _, name = model.partition("/") if isinstance(model, str) else ("", "", "")
    if not provider or not name:
        raise ApiError(400, "BAD_MODEL", f'model must be written "provider/model", not {model!r}')
    llm: Llm = api.service(Llm)
    reason = llm.usable(provider)
    if reason is not None:
        raise ApiError(422, "UNUSABLE_MODEL", reason)
    return AgentOptions(provider, name)


async def show(api: Api, request: Request, session_id: str) -> Response:
    """One session: header, state, queue, folded values, and the seq all of that is as of."""
    agents = api.ctx.get(Agents)
    agent = None if agents is None else agents.get(session_id)
    header, events = await _log(api, session_id)
    described = next((each for each in agents_of(api) if each["sessionId"] == session_id), None)
    data = {**_row(header, described), "header": header.to_wire(), "asOfSeq": len(events) - 1, "projections": {}}
    if agent is not None:
        data["queue"] = queue_of(agent)
        data["maxParallelToolCalls"] = api.loop.max_parallel_tool_calls
        data["prices"] = {route: prices.to_wire() for route, prices in api.service(Llm).prices().items()}
        if (projections := api.ctx.get("sessionProjections")) is not None:
            snapshot = projections.snapshot(agent.session)
            data["projections"], data["asOfSeq"] = snapshot.values, snapshot.as_of_seq
    return Response(body=data)


async def change(api: Api, request: Request, session_id: str) -> Response:
    """Change an open session: `{title?, model?, mode?}`; a model of null means the default one again."""
    body = request.json()
    only_fields(body, "title", "model", "mode")
    if "mode" in body:
        raise ApiError(501, "NO_MODES", "no row of this composition provides permission modes")
    agent = await api.agent(session_id)
    title = text_field(body, "title")
    titles = api.ctx.get("sessionTitle")
    if title is not None and titles is None:
        raise ApiError(501, "NO_TITLES", "no row of this composition provides titles (session-title)")
    route = _route(api, body["model"]) if "model" in body else None
    if title is not None:  # the last that can be refused, so that all of it happens or nothing
        titles.rename(agent.session, title)
    if route is not None:
        agent.options = AgentOptions(route.provider, route.model, agent.options.max_tokens)
    return await show(api, request, session_id)


async def delete(api: Api, request: Request, session_id: str) -> Response:
    """Remove a session and its log. One that belongs to an agent of the composition stays."""
    loop = api.loop
    if any(session_id == configured for _, configured in loop.configured.sessions()):
        text = f'session "{session_id}" belongs to an agent of the composition; take that out of the file first'
        raise ApiError(409, "CONFIGURED", text)
    found = False
    for lifecycle in list(loop.lifecycles):
        if lifecycle.session_id == session_id:
            await lifecycle.dispose()
            found = True
    try:
        await api.persistence.delete(session_id)
    except (ApiError, HarnessError) as error:
        if not (found and error.code in ("NO_SERVICE", "SESSION_NOT_FOUND")):  # an open one without a log is gone now
            raise
    return Response(body={})


async def events(api: Api, request: Request, session_id: str) -> Response:
    """A page of the log: `from` (seq), `limit`, `view` "all" or "surface" (what the model's conversation holds)."""
    start, limit = request.number("from", 0), request.number("limit", PAGE * 5, LARGEST_EVENT_PAGE) or 1
    view = request.value("view") or "all"
    if view not in ("all", "surface"):
        raise ApiError(400, "BAD_REQUEST", f"view must be surface or all, not {view!r}")
    header, log = await _log(api, session_id)
    if view == "surface":
        live = api.sessions.get(session_id)
        session = live or Session(session_id, header=header, seed=list(log), seed_source="persistence")
        chosen: Sequence[SessionEvent] = [log[seq] for seq in session.surface.nodes if start <= seq < len(log)]
        page = chosen[:limit]
        following = chosen[limit].seq if len(chosen) > limit else None
    else:
        page = log[start : start + limit]
        following = start + limit if start + limit < len(log) else None
    data = {"sessionId": session_id, "events": [event.to_wire() for event in page], "next": following}
    return Response(body={**data, "lastSeq": len(log) - 1})


async def usage(api: Api, request: Request, session_id: str) -> Response:
    """What the session has used before the event `before`, or in all: see `context_use.totals`."""
    _, log = await _log(api, session_id)
    told = ((event.type, event.data) for event in islice(log, request.number("before", len(log))))
    return Response(body=await asyncio.to_thread(totals, told))


async def fork(api: Api, request: Request, session_id: str) -> Response:
    """Open a session that begins with this one's events up to `boundary`: a seq outside of any turn, or "closed" for
    the end of the last turn that has ended while another one runs; default: all."""
    body = request.json()
    only_fields(body, "boundary")
    api.refuse_while_draining()
    header, log = await _log(api, session_id)
    view = log if isinstance(log, EventsView) else EventsView(list(log))
    cut = False
    if body.get("boundary") == "closed":
        prefix, cut = closed_prefix(session_id, view)
    else:
        prefix = fork_prefix(session_id, view, body.get("boundary"))
    child = f"session-{uuid.uuid4()}"
    meta = {"cwd": header.cwd, "parentSession": session_id, "seedLength": len(prefix)}
    agent = api.agents.get(session_id)
    options = agent.options if agent is not None else AgentOptions()
    loop = api.loop
    await loop.create_agent(loop.ctx, CreateAgentOptions(child, meta, seed=prefix, agent_options=options))
    return Response(201, {"sessionId": child, "seedLength": len(prefix), "cut": cut})


async def _log(api: Api, session_id: str) -> tuple[SessionHeader, Sequence[SessionEvent]]:
    """Header and events of a session, from memory if it is open. Raises what the store raises."""
    live = api.sessions.get(session_id)
    if live is not None:
        return live.header, live.events
    return await api.persistence.inspect(session_id)
