"""An ACP server inside a process that does other things too: it ends its own, and only its own."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from dsh.cordis import Context
from dsh.cordis.inspection import walk
from dsh.core.agent import AgentOptions, CreateAgentOptions
from dsh.core.agents import Agents
from dsh.core.seams import ApprovalRequest
from dsh.interfaces.stdout import LineOutput
from dsh.llm.message import create_user_message
from dsh.loader.boot import App, boot
from dsh.loader.home import resolve_home
from tests.cli.kit import Place

from .acp_kit import Frame, appears, compose, plugin, script

OPTIONS = AgentOptions("scripted", "blind")


class Pipes:
    """Both pipes of a server that runs in this very process."""

    def __init__(self) -> None:
        self._incoming: asyncio.Queue[bytes] = asyncio.Queue()
        read, write = os.pipe()
        self.output = LineOutput(write)
        self._read, self._write = os.fdopen(read, "rb", buffering=0), write
        self.frames: list[Frame] = []

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while chunk := await self._incoming.get():
            yield chunk

    def send(self, method: str, request_id: int | None = None, **params: Any) -> None:
        self.send_together((method, request_id, params))

    def send_together(self, *frames: tuple[str, int | None, dict[str, Any]]) -> None:
        """Several frames that arrive as one piece."""
        lines = []
        for method, request_id, params in frames:
            given = {} if request_id is None else {"id": request_id}
            lines.append(json.dumps({"jsonrpc": "2.0", **given, "method": method, "params": params}).encode() + b"\n")
        self._incoming.put_nowait(b"".join(lines))

    def leave(self) -> None:
        """The client closes its side."""
        self._incoming.put_nowait(b"")

    async def ask(self, method: str, request_id: int, **params: Any) -> Any:
        self.send(method, request_id, **params)
        while True:
            frame = await self.next()
            if frame.get("id") == request_id and "method" not in frame:
                assert "result" in frame, frame
                return frame["result"]

    async def next(self) -> Frame:
        """The next frame of the server."""
        line = await asyncio.wait_for(asyncio.to_thread(self._read.readline), 30)
        self.frames.append(json.loads(line))
        return self.frames[-1]

    def close(self) -> None:
        self.output.close()
        os.close(self._write)
        self._read.close()


@asynccontextmanager
async def served(place: Place, *extra: Any) -> AsyncIterator[tuple[App, Pipes, str]]:
    """A composition with an ACP server, and a session that its client opened."""
    pipes = Pipes()

    def prepare(root: Context) -> None:
        root.provide("stdioProtocol", "acp")
        root.provide("acpConnection", {})
        root.provide("stdout", pipes.output)
        root.provide("stdin", pipes)

    config = compose(place, acp={}, extra=list(extra))
    try:
        async with boot(config, home=resolve_home(environ=place.env), prepare=prepare) as app:
            await pipes.ask("initialize", 1, protocolVersion=1)
            session = (await pipes.ask("session/new", 2, cwd=str(place.work), mcpServers=[]))["sessionId"]
            yield app, pipes, session
    finally:
        pipes.close()


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    place = Place.make(tmp_path)
    monkeypatch.chdir(place.work)
    return place


async def test_b18_a_client_that_leaves_takes_its_sessions_along_and_no_others(place: Place) -> None:
    async with served(place) as (app, pipes, session):
        agents = app.root[Agents]
        ready = place.work / "ready"
        other = await agents.create(CreateAgentOptions("other", {"cwd": str(place.work)}, agent_options=OPTIONS))
        other.agent.followup(create_user_message(script([{"touch": str(ready)}, {"hang": True}])))
        await appears(ready)
        pipes.leave()
        assert await app.exit.wait() == 0
        assert agents.get(session) is None
        assert agents.get("other") is other.agent and other.agent.status == "running"


async def test_b13_a_client_that_leaves_ends_the_children_of_its_agents(place: Place) -> None:
    async with served(place) as (app, pipes, session):
        agents = app.root[Agents]
        parent = agents.get(session)
        assert parent is not None
        ready = place.work / "ready"
        made = CreateAgentOptions("child", {"cwd": str(place.work), "parentSession": session}, agent_options=OPTIONS)
        child = await parent.ctx[Agents].create(made)
        child.agent.followup(create_user_message(script([{"touch": str(ready)}, {"hang": True}])))
        await appears(ready)
        pipes.leave()
        assert await app.exit.wait() == 0
        assert child.agent.status == "idle"
        assert child.agent.session.events[-1].data["reason"] == {"kind": "aborted", "reason": {"kind": "parent"}}


async def test_b13_events_of_other_sessions_and_of_children_stay_off_the_wire(place: Place) -> None:
    async with served(place) as (app, pipes, session):
        agents = app.root[Agents]
        parent = agents.get(session)
        assert parent is not None
        child = await parent.ctx[Agents].create(CreateAgentOptions("child", agent_options=OPTIONS))
        other = await agents.create(CreateAgentOptions("other", agent_options=OPTIONS))
        for one in (child.agent, other.agent):
            one.followup(create_user_message("psst"))
            await one.when_idle()
        prompt = [{"type": "text", "text": "hi"}]
        await pipes.ask("session/prompt", 3, sessionId=session, prompt=prompt)
        updates = [frame["params"] for frame in pipes.frames if frame.get("method") == "session/update"]
        assert [update["sessionId"] for update in updates] == [session]


async def test_b13_what_the_agent_does_of_its_own_accord_is_told_and_can_be_cancelled(place: Place) -> None:
    async with served(place) as (app, pipes, session):
        agent = app.root[Agents].get(session)
        assert agent is not None
        agent.followup(create_user_message("by itself"))
        frame = await pipes.next()
        while "by itself" not in str(frame):
            frame = await pipes.next()
        assert frame["params"]["sessionId"] == session
        await agent.when_idle()
        ready = place.work / "ready"
        agent.followup(create_user_message(script([{"touch": str(ready)}, {"hang": True}])))
        await appears(ready)
        pipes.send("session/cancel", sessionId=session)
        await agent.when_idle()
        end = agent.session.events[-1]
        assert end.data["reason"] == {"kind": "aborted", "reason": {"kind": "user"}}


async def test_b13_a_cancel_before_admission_leaves_the_agents_own_work_alone(place: Place) -> None:
    async with served(place) as (app, pipes, session):
        agent = app.root[Agents].get(session)
        assert agent is not None
        ready = place.work / "ready"
        agent.followup(create_user_message(script([{"touch": str(ready)}, {"hang": True}])))
        await appears(ready)
        prompt = {"sessionId": session, "prompt": [{"type": "text", "text": "too late"}]}
        pipes.send_together(("session/prompt", 3, prompt), ("session/cancel", None, {"sessionId": session}))
        answer = await pipes.next()
        assert (answer["id"], answer["result"]) == (3, {"stopReason": "cancelled"})
        assert agent.status == "running" and not agent.inbox.has_pending


async def test_b13_a_turn_that_somebody_else_cancels_ends_the_prompt_as_usual(place: Place) -> None:
    async with served(place) as (app, pipes, session):
        agent = app.root[Agents].get(session)
        assert agent is not None
        ready = place.work / "ready"
        text = script([{"touch": str(ready)}, {"hang": True}])
        asked = asyncio.ensure_future(
            pipes.ask("session/prompt", 3, sessionId=session, prompt=[{"type": "text", "text": text}])
        )
        await appears(ready)
        agent.cancel({"kind": "hook", "reason": "enough"})
        assert await asked == {"stopReason": "end_turn"}


async def test_what_comes_while_the_row_restarts_is_answered_by_the_next_server(place: Place) -> None:
    async with served(place) as (app, pipes, session):
        agent = app.root[Agents].get(session)
        assert agent is not None
        leaving, release = asyncio.Event(), asyncio.Event()

        async def linger() -> None:
            leaving.set()
            await release.wait()

        agent.ctx.defer(linger)
        (row,) = [fiber for fiber in walk(app.root.fiber) if fiber.entry_id == "acp"]
        restarted = asyncio.ensure_future(row.restart())
        await leaving.wait()
        asked = asyncio.ensure_future(
            pipes.ask("session/prompt", 3, sessionId=session, prompt=[{"type": "text", "text": "hi"}])
        )
        for _ in range(20):  # time for the server that ends to take it
            await asyncio.sleep(0)
        release.set()
        await restarted
        assert await asked == {"stopReason": "end_turn"}
        assert app.exit.code is None


async def test_b13_calls_of_other_agents_and_calls_without_an_id_are_not_asked_about(place: Place) -> None:
    async with served(place, plugin("approval")) as (app, _pipes, session):
        agents = app.root[Agents]
        agent = agents.get(session)
        assert agent is not None
        other = await agents.create(CreateAgentOptions("other", agent_options=OPTIONS))

        async def nobody() -> Any:
            return "unavailable"

        for event in (
            ApprovalRequest(agent=other.agent, tool_name="bash", call_id="c"),
            ApprovalRequest(agent=agent, tool_name="bash"),
        ):
            assert await app.root.waterfall(event, nobody) == "unavailable"
