"""A daemon in a process of its own, and its control API."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from dsh.interfaces.control.client import FrameParser
from dsh.interfaces.control.run_folder import Entry, find_entries
from tests.cli.compositions import SHELL, SPINE
from tests.cli.kit import TIMEOUT, Daemon, Place

DEMO = (
    SPINE
    + """\
- {id: llm-demo, name: dsh-llm-demo, config: {paceMs: 0}}
- {id: default-model, name: dsh-agent-default-model, config: {provider: demo, model: demo}}
- {id: persistence, name: dsh-session-persistence-jsonl, config: {root: !!js dshHomePath('sessions')}}
"""
    + SHELL
)

WAIT = 'call bash {"command":"touch begun; until [ -e go ]; do sleep 0.02; done; rm go","description":"wait"}'
"""A prompt whose turn goes on until the file `go` appears in the workspace; `begun` says that its tool runs."""


async def begun(place: Place) -> None:
    """Wait until the tool of `WAIT` runs."""
    async with asyncio.timeout(TIMEOUT):
        while not (place.work / "begun").exists():
            await asyncio.sleep(0.02)


def go(place: Place) -> None:
    """Let the tool of `WAIT` end."""
    (place.work / "begun").unlink()
    (place.work / "go").touch()


@dataclass
class Controlled:
    """A daemon, its place, and a client on its socket."""

    place: Place
    daemon: Daemon
    entry: Entry
    http: httpx.AsyncClient
    main: str

    async def ask(self, method: str, path: str, body: Any = None, expect: int = 200) -> Any:
        """The answer's data; fails unless the status is the expected one."""
        more: dict[str, Any] = {} if method in ("GET", "DELETE") else {"json": {} if body is None else body}
        response = await self.http.request(method, path, **more)
        assert response.status_code == expect, response.text
        return response.json()

    async def prompt(self, text: str, mode: str = "next-turn") -> Any:
        """Queue a prompt for the agent `main`."""
        return await self.ask("POST", f"/api/sessions/{self.main}/prompt", {"content": text, "mode": mode}, 202)

    async def idle(self, session_id: str | None = None) -> None:
        """Wait until an agent (`main`) has nothing more to do."""
        async with asyncio.timeout(TIMEOUT):
            while True:
                session = await self.ask("GET", f"/api/sessions/{session_id or self.main}")
                if session["status"] == "idle" and not session["queued"]:
                    return
                await asyncio.sleep(0.02)

    async def waiting(self, target: str) -> list[Any]:
        """What waits for `nextTurn` or `nextStep` of the agent `main`, once something does."""
        async with asyncio.timeout(TIMEOUT):
            while not (queue := await self.ask("GET", f"/api/sessions/{self.main}/queue"))[target]:
                await asyncio.sleep(0.02)
        found: list[Any] = queue[target]
        return found

    async def log(self) -> list[Any]:
        """All events of the agent `main`."""
        events: list[Any] = (await self.ask("GET", f"/api/sessions/{self.main}/events?limit=5000"))["events"]
        return events

    @asynccontextmanager
    async def frames(self, query: str = "", **headers: str) -> AsyncIterator[Frames]:
        """The event stream."""
        async with self.http.stream("GET", f"/api/stream?{query}", headers=headers) as response:
            assert response.status_code == 200, await response.aread()
            yield Frames(response)

    async def begun(self) -> None:
        """Wait until the tool of `WAIT` runs."""
        await begun(self.place)

    def go(self) -> None:
        """Let it end."""
        go(self.place)


@dataclass
class Frames:
    """Frames as they come."""

    response: httpx.Response
    seen: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._source = self._read()

    async def _read(self) -> AsyncIterator[Any]:
        parser = FrameParser()
        async for data in self.response.aiter_raw():
            for frame in parser.feed(data):
                yield frame

    async def next(self) -> Any:
        """The next frame; StopAsyncIteration at the end."""
        async with asyncio.timeout(TIMEOUT):
            frame = await anext(self._source)
        self.seen.append(frame)
        return frame

    async def until(self, kind: str, **wanted: Any) -> Any:
        """The next frame of a type with these values."""
        while True:
            frame = await self.next()
            if frame["type"] == kind and all(frame.get(name) == value for name, value in wanted.items()):
                return frame

    async def events(self, count: int) -> list[Any]:
        """The next events of sessions, `count` of them."""
        found: list[Any] = []
        while len(found) < count:
            frame = await self.next()
            if frame["type"] == "session/event":
                found.append(frame["event"])
        return found


@asynccontextmanager
async def controlled(place: Place, *arguments: str, config: str = "cordis.yml") -> AsyncIterator[Controlled]:
    """A running daemon under control."""
    async with place.daemon(config, *arguments) as daemon:
        ready = await daemon.ready()
        entry = next(each for each in find_entries(place.home) if each.pid == daemon.process.pid)
        transport = httpx.AsyncHTTPTransport(uds=entry.socket)
        async with httpx.AsyncClient(transport=transport, base_url="http://dsh", timeout=TIMEOUT) as http:
            main = ready["agents"][0]["sessionId"] if ready["agents"] else ""
            yield Controlled(place, daemon, entry, http, main)


def demo_place(root: Path, **env: str) -> Place:
    """A place with the scripted model."""
    place = Place.make(root, **env)
    place.write("cordis.yml", DEMO)
    return place
