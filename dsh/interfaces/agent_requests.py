"""What programs ask of the agents of a composition, whether they run in this process or drive it over a pipe.

A request is a name and JSON parameters, so that both ways have one meaning and one list of mistakes.
"""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from dsh.cordis import HarnessError
from dsh.cordis.errors import describe_error
from dsh.cordis.nearest import did_you_mean
from dsh.core.agent import AgentOptions, CreateAgentOptions, ResumeAgentOptions
from dsh.core.agents import Agents
from dsh.core.message_shape import whole_user_message
from dsh.core.seams import SessionPersistence, Settings
from dsh.core.session_store import Sessions

from .params import Params, count, invalid, optional_text, text
from .prompt_trace import trace_in

if TYPE_CHECKING:
    from dsh.cordis import Context
    from dsh.core.agent import Agent, AgentHandle

READ_LIMIT: Final = 10_000
"""Most events in one answer of ``read``."""


class AgentRequests:
    """Answers requests by name; agents that it makes end with ``ctx``. cwd: where new sessions work.

    ``send``, ``cancel`` and ``status`` are done when they return, the others when they are awaited.
    """

    def __init__(self, ctx: Context, cwd: str) -> None:
        self._ctx = ctx
        self._cwd = cwd
        self._handles: dict[str, AgentHandle] = {}
        self._resuming = asyncio.Lock()
        self.methods: Mapping[str, Callable[[Params], Any]] = {
            "agents": self.agents,
            "open": self.open,
            "resume": self.resume,
            "send": self.send,
            "cancel": self.cancel,
            "close": self.close,
            "status": self.status,
            "read": self.read,
            "flush": self.flush,
            "settings": self.settings,
            "change-setting": self.change_setting,
        }

    # -- agents -----------------------------------------------------------------------------------------------------

    async def agents(self, params: Params) -> dict[str, Any]:
        """``{agents: [{sessionId, label, status}], failed: {label: why}}``, those of the composition first.

        Answers once each agent of the composition has started or failed.
        """
        labels: dict[str, str] = {}
        failed: dict[str, str] = {}
        loop = self._ctx.get("agentLoop")
        if loop is not None:
            await loop.configured.settled()
            labels = {session_id: label for label, session_id in loop.configured.sessions()}
            problems = [*loop.configured.failures(), *loop.configured.waiting()]
            failed = {label: describe_error(error) for label, error in problems}
        live = [{"sessionId": one.id, "label": labels.get(one.id), "status": one.status} for one in self._agents.list()]
        return {"agents": sorted(live, key=lambda one: one["label"] is None), "failed": failed}

    async def open(self, params: Params) -> dict[str, Any]:
        """``{sessionId?, cwd?, provider?, model?}`` → ``{sessionId}``: an agent on a fresh session."""
        wanted = optional_text(params, "open", "sessionId")
        cwd = os.path.abspath(os.path.join(self._cwd, optional_text(params, "open", "cwd") or ""))
        if not os.path.isdir(cwd):
            raise HarnessError(f"there is no folder {cwd} to work in", code="NO_FOLDER")
        route = AgentOptions(optional_text(params, "open", "provider"), optional_text(params, "open", "model"))
        session_id = wanted or f"session-{uuid.uuid4()}"
        options = CreateAgentOptions(session_id, {"cwd": cwd}, agent_options=route, reserve=wanted is not None)
        self._handles[session_id] = await self._agents.create(options)
        return {"sessionId": session_id}

    async def resume(self, params: Params) -> dict[str, Any]:
        """``{sessionId}`` → ``{sessionId}``: the session of that id, or of the only one that begins so, live."""
        async with self._resuming:
            session_id = await self._meant(text(params, "resume", "sessionId"))
            if self._agents.get(session_id) is None:
                options = ResumeAgentOptions(session_id, restore_route=True)
                self._handles[session_id] = await self._agents.resume(options)
            return {"sessionId": session_id}

    async def _meant(self, reference: str) -> str:
        persistence = self._ctx.get(SessionPersistence)
        known = [one.id for one in self._agents.list()]
        if persistence is not None and reference not in known:
            known += [header.id for header in await persistence.list()]
        meant = {one for one in known if one.startswith(reference)}
        if reference in meant or not meant:
            return reference
        if len(meant) > 1:
            raise HarnessError(f'"{reference}" begins the ids of {", ".join(sorted(meant))}', code="AMBIGUOUS")
        return meant.pop()

    async def close(self, params: Params) -> dict[str, Any]:
        """``{sessionId}``: end an agent that was opened here; its log stays."""
        session_id = text(params, "close", "sessionId")
        handle = self._handles.pop(session_id, None)
        if handle is None:
            self._agent(session_id)
            raise HarnessError(f"{session_id} was not opened here and ends with whoever made it", code="NOT_OURS")
        await handle.dispose()
        return {}

    @property
    def _agents(self) -> Agents:
        return self._ctx[Agents]

    def _agent(self, session_id: str) -> Agent:
        agent = self._agents.get(session_id)
        if agent is None:
            raise HarnessError(f"no live session: {session_id}", code="NO_SESSION")
        return agent

    # -- work -------------------------------------------------------------------------------------------------------

    def send(self, params: Params) -> dict[str, Any]:
        """``{sessionId, message, steer?}``: put a user message into the inbox, into the next turn or the next step."""
        message = params.get("message")
        if not isinstance(message, Mapping):
            raise invalid("send message must be an object")
        target = self._agent(text(params, "send", "sessionId"))
        target.send(whole_user_message(message, "send"), "next-step" if params.get("steer") else "next-turn", True)
        return {}

    def cancel(self, params: Params) -> dict[str, Any]:
        """``{sessionId, messageId?}``: stop what the agent does and empty its queue; nothing when it is idle or gone.

        With a message: only if its turn runs; one that waits is taken out of the queue alone.
        """
        agent = self._agents.get(text(params, "cancel", "sessionId"))
        if agent is None:
            return {}
        message_id = optional_text(params, "cancel", "messageId")
        state = "taken" if message_id is None else trace_in(agent.session.events, message_id).state
        if state == "taken":
            agent.cancel({"kind": "user"})
        elif state == "queued" and message_id is not None:
            agent.inbox.remove(message_id)
        return {}

    def status(self, params: Params) -> dict[str, Any]:
        """``{sessionId}`` → ``{status}``: idle, running, or gone when the agent is, or is about to be."""
        agent = self._agents.get(text(params, "status", "sessionId"))
        return {"status": "gone" if agent is None or getattr(agent, "retired", False) else agent.status}

    # -- logs -------------------------------------------------------------------------------------------------------

    async def read(self, params: Params) -> dict[str, Any]:
        """Events from ``fromSeq`` on; ``nextSeq`` is where the next page starts, absent on the last one."""
        method = "session/read"
        session_id = text(params, method, "sessionId")
        start = count(params, method, "fromSeq", 0)
        limit = min(count(params, method, "limit", READ_LIMIT), READ_LIMIT)
        session = self._ctx[Sessions].get(session_id)
        if session is not None:
            events = session.events[start : start + limit + 1]
        else:
            persistence = self._ctx.get(SessionPersistence)
            if persistence is None:
                raise HarnessError(f"no live session: {session_id}", code="NO_SESSION")
            events = (await persistence.read_from(session_id, start))[: limit + 1]
        page: dict[str, Any] = {"events": [event.to_wire() for event in events[:limit]]}
        if len(events) > limit:
            page["nextSeq"] = start + limit
        return page

    async def flush(self, params: Params) -> dict[str, Any]:
        """``{sessionId}``: answers once the events of a live session are on disk."""
        sessions = self._ctx.get(Sessions)
        session = None if sessions is None else sessions.get(text(params, "flush", "sessionId"))
        if sessions is not None and session is not None:
            await sessions.flush(session)
        return {}

    # -- settings ---------------------------------------------------------------------------------------------------

    async def settings(self, params: Params) -> dict[str, Any]:
        """``{sections}``: the values in force, without secrets."""
        service = self._ctx.get(Settings)
        described = {} if service is None else service.describe(redact_secrets=True)
        return {"sections": {ns: info["value"] for ns, info in described.items()}}

    def setting(self, section: str) -> Any:
        """The value of one section, without secrets; None once nobody has it any more."""
        service = self._ctx.get(Settings)
        described = {} if service is None else service.describe(redact_secrets=True)
        return described[section]["value"] if section in described else None

    async def change_setting(self, params: Params) -> dict[str, Any]:
        """``{section, op: "set"|"unset", path, value?}``: store one value of the user's section; only a known key."""
        service = self._ctx.get(Settings)
        if service is None:
            raise HarnessError("the composition has no settings service (row settings)", code="NO_SETTINGS")
        section = text(params, "change-setting", "section")
        known = service.describe()
        if section not in known:
            hint = did_you_mean(section, known)
            raise HarnessError(f'no settings section "{section}"{hint}', code="NO_SETTING")
        operation = {key: params[key] for key in ("op", "path", "value") if key in params}
        await service.mutate(section, [{**operation, "known": True}])
        return {}
