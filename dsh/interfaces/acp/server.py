"""The ACP connection: what a client may ask, and how its sessions come, work and go."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from dsh.cordis import AbortError, Context, HarnessError, describe_error
from dsh.core.agent import AgentOptions, CreateAgentOptions, ResumeAgentOptions
from dsh.core.agent_events import AgentDisposed
from dsh.core.agents import Agents
from dsh.core.seams import ApprovalOutcome, ApprovalRequest, SessionPersistence
from dsh.core.session_store import Sessions
from dsh.core.tools import Tools
from dsh.interfaces.model_route import route_of
from dsh.interfaces.stdio_jsonrpc import INVALID_REQUEST, METHOD_NOT_FOUND, JsonRpcPeer, RpcError
from dsh.interfaces.stdout import LineOutput
from dsh.llm.message import create_user_message
from dsh.llm.service import Llm
from dsh.llm.waiting import until_abort
from dsh.loader.boot import when_started

from .checks import RESOURCE_NOT_FOUND, cwd_in, internal_error, invalid_params, list_in, mapping_of, text_in
from .committed import CommittedView
from .editor import EditorView
from .images import keep_images, reads_images, store_of
from .listing import list_sessions
from .models import OPTION, chosen_route, model_state
from .outbox import Outbox
from .outcome import stop_reason
from .permission import ask_client
from .prompt_content import PromptContent, read_prompt
from .session import AcpSession, Prompt, View

if TYPE_CHECKING:
    from dsh.core.agent import Agent
    from dsh.core.tools import ToolDefinition
    from dsh.llm.types import Block

    from . import Config

PROTOCOL_VERSION = 1
GRACE_SECONDS = 1.0
"""How long requests that came before the end of the input may take to be answered."""

DISPOSED = {"kind": "disposed"}
PARENT = {"kind": "parent"}

Answer = Callable[[Mapping[str, Any]], Awaitable[Mapping[str, Any]]]


class AcpServer:
    """One client on one byte input and one line output."""

    def __init__(
        self,
        ctx: Context,
        config: Config,
        agents: Agents,
        sessions: Sessions,
        llm: Llm,
        output: LineOutput,
        source: AsyncIterable[bytes],
    ) -> None:
        self._ctx = ctx
        self._editor = config.presentation == "editor"
        self._options = AgentOptions(config.provider, config.model)
        self._agents = agents
        self._store = sessions
        self._llm = llm
        self._source = source
        self._peer = JsonRpcPeer(output, self._handle, on_notification=self._notified, answer_malformed=True)
        self._sessions: dict[str, AcpSession] = {}
        self._leaving = False
        self._closing = False
        # What the client has done outlives a restart of this row: it knows nothing of rows.
        remembered: dict[str, Any] | None = ctx.get("acpConnection")
        self._remembered: dict[str, Any] = {} if remembered is None else remembered
        self._methods: dict[str, Answer] = {"session/new": self._new, "session/prompt": self._prompt}
        if self._editor:
            self._methods |= {
                "session/load": self._load,
                "session/resume": self._resume,
                "session/list": self._list,
                "session/close": self._close_one,
                "session/set_model": self._set_model,
                "session/set_config_option": self._set_option,
            }
        ctx.on(AgentDisposed, self._agent_disposed)
        ctx.on(ApprovalRequest, self._approve)

    async def serve(self) -> None:
        """Answer until the client closes its side; then end what it left."""
        await when_started(self._ctx)
        await self._peer.serve(self._incoming(), grace=GRACE_SECONDS)
        await self.close()

    async def _incoming(self) -> AsyncIterator[bytes]:
        """What the client writes. What comes while this row is being unloaded is kept for the server that follows."""
        if left := self._remembered.pop("unread", b""):
            yield left
        async for chunk in self._source:
            if self._ctx.stack.is_open:
                yield chunk
            else:
                self._remembered["unread"] = self._remembered.get("unread", b"") + chunk
        self._stop()  # what else it asked for may still be answered

    async def close(self) -> None:
        """Take nothing more, answer what is in flight as cancelled, end this connection's agents and theirs."""
        self._closing = True
        open_sessions = list(self._sessions.values())
        answers = [session.prompt.answered for session in open_sessions if session.prompt is not None]
        handles = [session.handle for session in open_sessions if session.handle is not None]
        children = self._stop()
        await asyncio.gather(
            *answers,
            *(child.when_idle() for child in children),
            *(handle.dispose() for handle in handles),
            return_exceptions=True,
        )
        self._sessions.clear()

    def _stop(self) -> list[Agent]:
        """Cancel every prompt and whatever the agents do, and admit no more; the agents that they created."""
        self._leaving = True
        agents = []
        for session in self._sessions.values():
            if session.prompt is not None:
                session.prompt.cancel()
            if session.agent is not None:
                agents.append(session.agent)
        children = self._descendants(agents)
        for agent in agents:
            agent.cancel(DISPOSED, keep_inbox=True)
        for child in children:
            child.cancel(PARENT)
        return children

    # -- incoming -------------------------------------------------------------------------------------------------

    async def _handle(self, method: str, params: Any) -> Any:
        try:
            if method == "initialize":
                return await self._initialize(mapping_of(params))
            if method == "authenticate":
                return {}
            answer = self._methods.get(method)
            if answer is None:
                raise RpcError(METHOD_NOT_FOUND, f"Method not found: {method}")
            if "client" not in self._remembered:
                raise RpcError(INVALID_REQUEST, "Invalid request: initialize must come first")
            if self._closing:
                raise internal_error("the connection is closing")
            return await answer(mapping_of(params))
        except RpcError:
            raise
        except Exception as error:
            raise internal_error(describe_error(error)) from error

    def _notified(self, method: str, params: Any) -> None:
        if method == "session/cancel" and isinstance(params, Mapping):
            session = self._sessions.get(str(params.get("sessionId")))
            if session is not None:
                session.cancel()

    async def _initialize(self, params: Mapping[str, Any]) -> dict[str, Any]:
        version = params.get("protocolVersion")
        if type(version) is not int:
            raise invalid_params("protocolVersion must be an integer")
        capabilities = params.get("clientCapabilities")
        self._remembered["client"] = {} if capabilities is None else mapping_of(capabilities, "clientCapabilities")
        images = store_of(self._ctx) is not None
        images = images and await reads_images(self._llm, route_of(self._ctx, self._options))
        offered: dict[str, Any] = {"image": images, "audio": False, "embeddedContext": self._editor}
        agent: dict[str, Any] = {"promptCapabilities": offered}
        if self._editor:
            stored = self._ctx.get(SessionPersistence) is not None
            agent["loadSession"] = stored
            agent["sessionCapabilities"] = {"list": {}, "resume": {}, "close": {}} if stored else {"close": {}}
        return {
            "protocolVersion": PROTOCOL_VERSION,
            "agentInfo": {"name": "deepseek-harness-acp", "version": "0.0.1"},
            "agentCapabilities": agent,
            "authMethods": [],
        }

    # -- sessions -------------------------------------------------------------------------------------------------

    async def _new(self, params: Mapping[str, Any]) -> dict[str, Any]:
        cwd = self._workspace(params)
        if not os.path.isdir(cwd):
            raise invalid_params(f"cwd is not a folder: {cwd}")
        session = self._open(str(uuid4()), cwd)
        await self._create(session)
        return {"sessionId": session.id, **await self._about(session)}

    async def _load(self, params: Mapping[str, Any]) -> dict[str, Any]:
        session = await self._reopen(params)
        assert session.agent is not None and isinstance(session.view, EditorView)
        session.view.replay(session.agent.session.events)
        await session.outbox.drained()
        return await self._about(session)

    async def _resume(self, params: Mapping[str, Any]) -> dict[str, Any]:
        return await self._about(await self._reopen(params))

    async def _close_one(self, params: Mapping[str, Any]) -> dict[str, Any]:
        session = self._session(params)
        self._sessions.pop(session.id, None)
        self._known_ids().pop(session.id, None)
        if session.prompt is not None:
            session.prompt.cancel()
        if session.handle is not None:
            await session.handle.dispose()
        return {}

    async def _list(self, params: Mapping[str, Any]) -> dict[str, Any]:
        return await list_sessions(self._ctx, params)

    async def _set_model(self, params: Mapping[str, Any]) -> dict[str, Any]:
        session = self._session(params)
        session.choose(chosen_route(self._llm, text_in(params, "modelId"), session.options))
        return {}

    async def _set_option(self, params: Mapping[str, Any]) -> dict[str, Any]:
        session = self._session(params)
        if text_in(params, "configId") != OPTION:
            raise invalid_params(f"unknown configuration option: {params['configId']}")
        session.choose(chosen_route(self._llm, text_in(params, "value"), session.options))
        return {"configOptions": (await self._about(session)).get("configOptions", [])}

    async def _about(self, session: AcpSession) -> dict[str, Any]:
        """What an opened session says about itself besides its id."""
        return await model_state(self._ctx, self._llm, session.options) if self._editor else {}

    def _workspace(self, params: Mapping[str, Any]) -> str:
        cwd = cwd_in(params)
        if list_in(params, "additionalDirectories", required=False):
            raise invalid_params("additionalDirectories is not supported")
        if list_in(params, "mcpServers", required=not self._editor):
            if not self._editor:
                raise invalid_params("mcpServers is not supported")
            self._ctx.logger.warning("the client's MCP servers are left out: this composition has no MCP client")
        return cwd

    def _open(self, session_id: str, cwd: str | None) -> AcpSession:
        outbox = Outbox(self._ctx, self._peer, session_id)
        view: View
        if self._editor:
            view = EditorView(self._ctx, outbox, cwd, lambda name: self._find_tool(session_id, name))
        else:
            view = CommittedView(self._ctx, outbox)
        return AcpSession(session_id, cwd, self._options, outbox, view)

    def _find_tool(self, session_id: str, name: str) -> ToolDefinition | None:
        tools = self._ctx.get(Tools)
        return None if tools is None else tools.get(name, self._agents.get(session_id))

    async def _create(self, session: AcpSession) -> None:
        options = CreateAgentOptions(
            session.id, {"cwd": session.cwd}, agent_options=session.options, setup=session.watch
        )
        session.handle = await self._agents.create(options)
        await self._entered(session)

    async def _bring_back(self, session: AcpSession) -> None:
        """Give a session its agent from the log."""
        options = ResumeAgentOptions(session.id, session.options, setup=session.watch, restore_route=True)
        session.handle = await self._agents.resume(options)
        agent = session.handle.agent
        session.cwd, session.options = agent.session.header.cwd, agent.options
        await self._entered(session)

    async def _entered(self, session: AcpSession) -> None:
        if self._closing:
            assert session.handle is not None
            await session.handle.dispose()
            raise internal_error("the connection is closing")
        self._sessions[session.id] = session
        self._known_ids()[session.id] = session.cwd

    async def _reopen(self, params: Mapping[str, Any]) -> AcpSession:
        """The stored session a client names, open in this connection."""
        session_id = text_in(params, "sessionId")
        cwd = self._workspace(params)
        session = self._sessions.get(session_id)
        if session is not None and session.prompt is not None:
            raise invalid_params("a prompt is already in flight for this session")
        if session is None or session.agent is None:
            if self._agents.get(session_id) is not None:
                raise internal_error(f'session "{session_id}" is open elsewhere in this process')
            session = self._open(session_id, cwd)
            try:
                await self._bring_back(session)
            except HarnessError as error:
                if error.code in ("SESSION_NOT_FOUND", "NO_PERSISTENCE"):
                    raise RpcError(RESOURCE_NOT_FOUND, f"Resource not found: {session_id}") from error
                raise
        return session

    def _session(self, params: Mapping[str, Any]) -> AcpSession:
        """The session a client names: open now, or opened before this row was restarted."""
        session_id = text_in(params, "sessionId")
        session = self._sessions.get(session_id)
        if session is None:
            if session_id not in self._known_ids():
                raise invalid_params(f"unknown session: {session_id}")
            session = self._sessions[session_id] = self._open(session_id, self._known_ids()[session_id])
        return session

    def _known_ids(self) -> dict[str, str | None]:
        """Ids and workspaces of the sessions this client opened."""
        known: dict[str, str | None] = self._remembered.setdefault("sessions", {})
        return known

    def _agent_disposed(self, event: AgentDisposed) -> None:
        session = self._sessions.get(event.agent.id)
        if session is not None and session.agent is event.agent:
            session.lost()

    def _descendants(self, parents: list[Agent]) -> list[Agent]:
        """The live agents that ``parents`` created, and theirs."""
        found: list[Agent] = []
        pending = list(parents)
        while pending:
            parent = pending.pop()
            mine = [one for one in self._agents.list() if self._agents.is_owned_by(one.id, parent)]
            found += mine
            pending += mine
        return found

    # -- prompts --------------------------------------------------------------------------------------------------

    async def _prompt(self, params: Mapping[str, Any]) -> dict[str, Any]:
        session = self._session(params)
        if session.prompt is not None:
            raise invalid_params("a prompt is already in flight for this session")
        if self._leaving:
            return {"stopReason": "cancelled"}
        prompt = session.prompt = Prompt()
        try:
            return {"stopReason": await self._run(session, prompt, params)}
        finally:
            session.prompt = None
            prompt.answered.set_result(None)

    async def _run(self, session: AcpSession, prompt: Prompt, params: Mapping[str, Any]) -> str:
        """Admit the prompt, wait until the agent is quiet and all it said is delivered; the stop reason."""
        images = store_of(self._ctx) is not None
        content = read_prompt(list_in(params, "prompt"), images=images, embedded=self._editor)
        try:
            blocks = await until_abort(self._admit(session, content), prompt.admission.signal)
        except AbortError:
            if prompt.cancelled:
                return "cancelled"
            raise
        agent = session.agent
        if prompt.cancelled or agent is None:
            return "cancelled"
        prompt.admitted = True
        message = create_user_message(blocks)
        session.view.sent(message["id"])
        agent.followup(message)
        await agent.when_idle()
        await session.outbox.drained()
        if self._store.get(session.id) is agent.session:
            await self._store.flush(agent.session)
        return stop_reason(prompt, session.outbox.take_failure(), editor=self._editor)

    async def _admit(self, session: AcpSession, content: PromptContent) -> list[Block]:
        """See to it that there is an agent and that the prompt's images are kept; the message's blocks."""
        if session.agent is None:
            await self._revive(session)
        if not content.images:
            return content.blocks(())
        store = store_of(self._ctx)
        if store is None or not await reads_images(self._llm, route_of(self._ctx, session.options)):
            raise invalid_params("the session's model does not read images")
        return content.blocks(await keep_images(store, content.images))

    async def _revive(self, session: AcpSession) -> None:
        """Another agent for a session whose agent went with the row that ran it."""
        try:
            await self._bring_back(session)
        except HarnessError as error:
            if error.code not in ("SESSION_NOT_FOUND", "NO_PERSISTENCE"):
                raise
            await self._create(session)

    # -- permissions ----------------------------------------------------------------------------------------------

    async def _approve(
        self, event: ApprovalRequest, proceed: Callable[[], Awaitable[ApprovalOutcome]]
    ) -> ApprovalOutcome:
        """Let the client decide about calls of its own sessions; others are not its business."""
        session = self._sessions.get(getattr(event.agent, "id", ""))
        if session is None or session.agent is not event.agent or event.call_id is None:
            return await proceed()
        return await ask_client(self._peer, session, event, event.call_id)
