"""What can be asked of the daemon itself: its state, its end, models, plugins and configuration."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any

from dsh.cordis import describe_error
from dsh.core.agent_loop import AgentLoop
from dsh.core.agents import Agents
from dsh.llm.service import Llm

from ..catalog import catalog
from ..model_route import route_of
from .messages import ApiError, Request, Response, only_fields, text_field
from .run_folder import working_folder

if TYPE_CHECKING:
    from dsh.core.agent import Agent

    from .routes import Api


async def status(api: Api, request: Request) -> Response:
    """Who this is and what its agents do. Never waits."""
    control = api.control
    started: asyncio.Event | None = api.ctx.get("bootAudited")
    state = "draining" if api.draining else "running" if started is None or started.is_set() else "starting"
    data = {
        "pid": os.getpid(),
        "runId": control.run_id,
        "state": state,
        "config": control.config_path,
        "home": str(api.ctx.get("dshHomePath")),
        "cwd": working_folder(),
        "startedAt": control.started_at,
        "agents": agents_of(api),
    }
    return Response(body=data)


def agents_of(api: Api) -> list[dict[str, Any]]:
    """Every open agent, configured ones first and with their label; a configured one that did not start says why."""
    loop, agents = api.ctx.get(AgentLoop), api.ctx.get(Agents)
    found: dict[str, dict[str, Any]] = {}
    if loop is not None:
        failures, waiting = dict(loop.configured.failures()), dict(loop.configured.waiting())
        for label, session_id in loop.configured.sessions():
            found[session_id] = {"label": label, "sessionId": session_id, "status": "starting"}
            if label in failures:
                found[session_id] |= {"status": "failed", "error": describe_error(failures[label])}
            elif label in waiting:
                found[session_id] |= {"status": "waiting", "error": describe_error(waiting[label])}
    for agent in agents.list() if agents is not None else ():
        entry = found.setdefault(agent.id, {"label": None, "sessionId": agent.id})
        entry |= describe_agent(api, agent)
    return list(found.values())


def describe_agent(api: Api, agent: Agent) -> dict[str, Any]:
    """The state of one open agent."""
    inbox = agent.inbox
    route = route_of(api.ctx, agent.options)
    titles = api.ctx.get("sessionTitle")
    title = titles.get(agent.session) if titles is not None else None
    return {
        "status": agent.status,
        "model": None if route is None else "/".join(route),
        "title": title.title if title is not None else None,
        "cwd": agent.session.header.cwd,
        "queued": len(inbox.next_turn) + len(inbox.next_step),
        "lastSeq": agent.session.seq - 1,
    }


async def stop(api: Api, request: Request) -> Response:
    """End the daemon: `mode` "now" ends running turns, "drain" lets all accepted work finish and takes no more."""
    body = request.json()
    only_fields(body, "mode")
    mode = body.get("mode", "now")
    if mode not in ("now", "drain"):
        raise ApiError(400, "BAD_REQUEST", f"mode must be now or drain, not {mode!r}")
    if mode == "now":
        asyncio.get_running_loop().call_soon(api.ctx.get("appExit"), 0)
    elif not api.draining:
        api.draining = True
        api.ctx.spawn(_drain, api, name="control drain")
    return Response(202, {"stopping": mode})


async def _drain(api: Api) -> None:
    agents = api.ctx.get(Agents)
    while agents is not None and (busy := [agent for agent in agents.list() if agent.status == "running"]):
        for agent in busy:
            await agent.when_idle()
    api.ctx.get("appExit")(0)


async def models(api: Api, request: Request) -> Response:
    """Every model route with its catalog, what is missing for its use, and the default route."""
    return Response(body=await catalog(api.ctx, api.service(Llm)))


async def plugins(api: Api, request: Request) -> Response:
    """The rows and everything that runs: fibers, services, events, tasks, agents."""
    from .picture import picture

    return Response(body={**picture(api.ctx), "agents": agents_of(api)})


async def respond(api: Api, request: Request) -> Response:
    """Answer an approval or a question: `{requestId, answer}`; the first answer wins."""
    body = request.json()
    only_fields(body, "requestId", "answer")
    request_id = text_field(body, "requestId", required=True)
    asked = False
    for name in ("approval", "userQuestions"):
        service = api.ctx.get(name)
        answer = getattr(service, "respond", None)
        if answer is None:
            continue
        asked = True
        if await answer(request_id, body.get("answer")):
            return Response(body={})
    if not asked:
        raise ApiError(501, "NOBODY_ASKS", "no row of this composition asks for approvals or questions")
    raise ApiError(409, "NOT_PENDING", f'the request "{request_id}" is not waiting for an answer (any more)')


async def config(api: Api, request: Request) -> Response:
    """The composed rows that run as YAML, with their origins and without secrets, and the files they come from.

    `launcher` names the rows that the command which started the run brought along.
    """
    from dsh.interfaces.offline import show
    from dsh.loader.raw_rows import identified_rows

    from ..config_text import running_rows

    loader = api.service("loader")
    source = loader.root_source
    running = running_rows(loader)
    text, warnings = show(source, reading=running)
    files = [str(path) for path in source.files() if path.exists()]
    layers = {layer.name for layer in source.inline}
    own = [
        row_id
        for _, _, row, row_id in identified_rows(running.composition.rows)
        if (origin := running.composition.origin(row)) is not None and origin.source in layers
    ]
    body = {"path": str(source.path), "files": files, "text": text, "warnings": [*map(str, warnings)], "launcher": own}
    return Response(body=body)


async def config_keys(api: Api, request: Request) -> Response:
    """The keys of the rows: `{key, value, layer, about, allowed}`, secrets as `"***"`."""
    from ..setting_names import config_lines

    keys = [
        {"key": line.key, "value": line.value, "layer": line.layer, "about": line.about, "allowed": list(line.allowed)}
        for line in config_lines(api.service("loader"))
    ]
    return Response(body={"keys": keys})


async def change_config(api: Api, request: Request) -> Response:
    """Change keys of rows in the composition's file: `{set: {"row.key": value}, unset: ["row.key"]}`.

    Comments and order stay. The edit is applied as a whole before this answers; a refused one is taken back.
    """
    from .config_edit import edit_config, own_file

    body = request.json()
    only_fields(body, "set", "unset")
    wanted, unwanted = body.get("set", {}), body.get("unset", [])
    if not isinstance(wanted, dict) or not isinstance(unwanted, list) or not (wanted or unwanted):
        raise ApiError(400, "BAD_REQUEST", 'send {"set": {"row.key": value}} or {"unset": ["row.key"]}')
    loader = api.service("loader")
    path = own_file(loader)
    warnings = await edit_config(loader, wanted, [str(each) for each in unwanted])
    return Response(body={"path": str(path), "warnings": warnings})
