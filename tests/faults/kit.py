"""A composition with one agent, a model server that refuses a history no service would take, and a strict log reader.

A fault test provokes the fault, looks at what came of it, and then lets `fault` look at one more
turn and at one in the same session, resumed in a composition started anew: that is where most of these faults show.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from dsh.cordis import Context
from dsh.core.agent import Agent
from dsh.core.agent_loop import AgentLoop
from dsh.core.session_store import Sessions
from dsh.llm.message import create_user_message
from dsh.loader.boot import App, boot
from dsh.loader.environment import EnvLayer, LaunchEnvironment
from dsh.loader.home import Home
from dsh.models.mock_server import Entry, MockLlmServer
from tests.fire.judge import Rows, fault_of_body, stored_rows

PATIENCE = 20.0

SPINE = """\
- id: agent-loop
  name: dsh-agent-loop
  config: {agents: [{id: main, sessionId: s, provider: deepseek-official, model: deepseek-v4-flash}]}
- {id: llm, name: dsh-llm}
- {id: session, name: dsh-session}
- {id: system-prompt, name: dsh-system-prompt}
- {id: tools, name: dsh-tools}
- {id: agent, name: dsh-agent}
- id: llm-deepseek
  name: dsh-llm-deepseek
  config:
    baseURL: !!js env.MODEL_URL
    retryPolicy: {maxRetries: 1, backoff: {initialDelayMs: 1, maxDelayMs: 1, jitterRatio: 0}}
- {id: llm-retry, name: dsh-llm-retry}
- id: persistence
  name: dsh-session-persistence-jsonl
  config: {root: ./sessions, compression: none, packChunks: false, durability: os}
- {id: checkpoints, name: dsh-session-checkpoint-policy}
"""
"""A composition whose agent keeps one session, in a log of plain lines."""


def strict(entry: Entry) -> Entry:
    """The entry, unless the request's history is one that a service would refuse."""

    def answer(body: Mapping[str, Any]) -> Entry:
        why = fault_of_body(body)
        return entry if why is None else {"status": 400, "error": {"message": why}}

    return answer


def read_log(path: Path) -> Rows:
    """Header and events of a log that does not pack, each line whole and valid JSON, numbered without a gap."""
    rows = stored_rows(path)
    assert [row["seq"] for row in rows[1:]] == list(range(len(rows) - 1))
    return rows


class Life:
    """One agent of one running composition."""

    def __init__(self, app: App, server: MockLlmServer, folder: Path) -> None:
        self.app = app
        self.server = server
        self.folder = folder

    @property
    def root(self) -> Context:
        return self.app.root

    @property
    def agent(self) -> Agent:
        agent = self.app.root[AgentLoop].configured.agent("main")
        assert agent is not None, self.app.root[AgentLoop].configured.failures()
        return agent

    def say(self, text: str) -> None:
        """Give the agent a prompt without waiting."""
        self.agent.followup(create_user_message(text))

    async def quiet(self) -> dict[str, Any]:
        """Wait until the agent is idle and its log is on disk; how its last turn ended."""
        async with asyncio.timeout(PATIENCE):
            await self.agent.when_idle()
        await self.root[Sessions].flush(self.agent.session)
        reason: dict[str, Any] = self.of_type("turn/end")[-1]["reason"]
        return reason

    async def prompt(self, text: str) -> dict[str, Any]:
        """Run one turn; how it ended."""
        self.say(text)
        return await self.quiet()

    def of_type(self, kind: str) -> list[Any]:
        """The data of all events of one type."""
        return [event.data for event in self.agent.session.events if event.type == kind]

    async def until(self, kind: str, count: int = 1) -> None:
        """Wait until the log holds so many events of a type."""
        async with asyncio.timeout(PATIENCE):
            while len(self.of_type(kind)) < count:
                await asyncio.sleep(0.002)

    async def edit(self, text: str) -> None:
        """Save the composition as editors do, and let the loader take it over as its watcher would."""
        path = self.folder / "cordis.yml"
        draft = path.with_name(".cordis.yml~")
        draft.write_text(text, "utf-8")
        os.replace(draft, path)
        await self.app.loader.refresh(path)

    @property
    def messages(self) -> list[Any]:
        """The messages of the last request after the system prompt."""
        return [message for message in self.server.bodies[-1]["messages"] if message["role"] != "system"]

    def results(self) -> dict[str, list[Any]]:
        """The result events of each call; every call of the log has an entry."""
        found: dict[str, list[Any]] = {call["callId"]: [] for call in self.of_type("tool/call")}
        for result in self.of_type("tool/result"):
            found[result["message"]["source"]["callId"]].append(result)
        return found

    def log(self) -> list[Any]:
        """The log as it stands on disk."""
        (path,) = self.folder.glob("sessions/*/s/session.jsonl")
        return read_log(path)


@asynccontextmanager
async def living(
    folder: Path,
    server: MockLlmServer,
    rows: str = "",
    plugins: Mapping[str, str] | None = None,
    spine: str = SPINE,
    values: Mapping[str, Any] | None = None,
    env: Mapping[str, str] | None = None,
) -> AsyncIterator[Life]:
    """Run the composition in `folder` inside the block; `rows` are added, `plugins` written beside it.

    `values` are provided at the root before any row, `env` are further environment variables.
    """
    for name, text in (plugins or {}).items():
        (folder / name).write_text(text, "utf-8")
    path = folder / "cordis.yml"
    path.write_text(spine + rows, "utf-8")
    variables = {"MODEL_URL": server.url, "DEEPSEEK_API_KEY": "test-key", **(env or {})}
    environment = LaunchEnvironment([EnvLayer("process", variables)])
    home = Home(folder / "home", "~/.dsh")

    def prepare(root: Context) -> None:
        for name, value in (values or {}).items():
            root.provide(name, value)

    async with boot(path, environment=environment, home=home, prepare=prepare) as app:
        async with asyncio.timeout(PATIENCE):
            await app.root[AgentLoop].configured.settled()
        yield Life(app, server, folder)


@asynccontextmanager
async def fault(
    folder: Path, script: Sequence[Entry], rows: str = "", plugins: Mapping[str, str] | None = None, spine: str = SPINE
) -> AsyncIterator[Life]:
    """Run the composition against `script`; when the block is done, see that the session goes on.

    The script is followed by plain replies for the turns afterwards; every entry insists on a valid history.
    """
    folder = Path(os.path.realpath(folder))
    entries = [strict(entry) for entry in [*script, "success", "success"]]
    async with MockLlmServer(entries) as server:
        async with living(folder, server, rows, plugins, spine) as life:
            yield life
            assert len(server.requests) == len(script), "the script was not used up"
            assert await life.prompt("and now?") == {"kind": "completed"}
            assert all(len(found) == 1 for found in life.results().values()), "one result for each call"
            events = [event.to_wire() for event in life.agent.session.events]
        async with living(folder, server, rows, None, spine) as life:
            assert [event.to_wire() for event in life.agent.session.events][: len(events)] == events
            assert await life.prompt("once more") == {"kind": "completed"}
            assert all(len(found) == 1 for found in life.results().values())
            life.log()
