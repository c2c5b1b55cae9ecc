"""``dsh acp`` as a child process, and a client that sees every frame."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from dsh.loader.yamlio import dump_yaml
from tests.cli.kit import PYTHON, TIMEOUT, Place

PLUGINS = Path(__file__).parent / "acp_plugins"
Frame = dict[str, Any]

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC"  # one pixel


def compose(place: Place, *, acp: dict[str, Any] | None = None, extra: list[Any] | None = None) -> Path:
    """Write a composition on the scripted model; ``acp`` is the config of its row ``acp``, none for no such row."""
    rows: list[dict[str, Any]] = [
        {"id": name, "name": f"dsh-{name}"}
        for name in (
            "llm",
            "llm-retry",
            "session",
            "agent",
            "tools",
            "session-checkpoint-policy",
            "fs-local",
            "tool-fs",
            "subprocess-local",
            "bash-local",
            "shell-env",
            "tool-bash",
        )
    ]
    rows += [
        {"id": "agent-loop", "name": "dsh-agent-loop", "config": {"agents": []}},
        {"id": "system-prompt", "name": "dsh-system-prompt", "config": {"persona": "Test."}},
        {"id": "tool-todo", "name": "dsh-tool-todo", "config": {"allowParallelInProgress": True}},
        {
            "id": "persistence",
            "name": "dsh-session-persistence-jsonl",
            "config": {"root": str(place.home / "sessions"), "compression": "none"},
        },
        plugin("model"),
        *(extra or []),
    ]
    if acp is not None:
        rows.append({"id": "acp", "name": "dsh-acp", "config": {"provider": "scripted", "model": "blind", **acp}})
    return place.write("cordis.yml", dump_yaml(rows))


def plugin(name: str, **config: Any) -> dict[str, Any]:
    """A row of one of the test plugins."""
    return {"id": f"test-{name}", "name": str(PLUGINS / f"{name}.py"), **({"config": config} if config else {})}


def script(*replies: list[dict[str, Any]]) -> str:
    """The prompt that makes the scripted model reply like this, one list a step."""
    return json.dumps(list(replies))


def stored_events(place: Place, session_id: str) -> list[Any]:
    """The records of a session's log on disk, header first."""
    (path,) = [path for path in place.home.rglob("session.jsonl") if session_id in str(path)]
    return [json.loads(line) for line in path.read_text("utf-8").split("\n") if line]


class Client:
    """The other end of the pipes. ``frames`` holds all that came, in order."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.frames: list[Frame] = []
        self.err = ""
        self.answers: dict[str, Callable[[Frame], Awaitable[Any]]] = {}
        """What the client answers to requests of the server, by method; anything else is not found."""
        self._ids = itertools.count(1)
        self._news = asyncio.Event()
        self._replying: set[asyncio.Task[None]] = set()
        self._readers = [asyncio.create_task(self._read_out()), asyncio.create_task(self._read_err())]

    # -- asking

    def send(self, method: str, params: Any = None, **more: Any) -> int:
        """Send a request without waiting; its id."""
        request_id = next(self._ids)
        self._write({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params or more})
        return request_id

    async def answer(self, request_id: int) -> Frame:
        """The frame that answers a request."""
        return await self.frame(lambda frame: frame.get("id") == request_id and "method" not in frame)

    async def ask(self, method: str, params: Any = None, **more: Any) -> Any:
        """The result of a request. Fails on an error."""
        frame = await self.answer(self.send(method, params, **more))
        assert "result" in frame, frame
        return frame["result"]

    async def refused(self, method: str, params: Any = None, **more: Any) -> Frame:
        """The error of a request."""
        frame = await self.answer(self.send(method, params, **more))
        assert "error" in frame, frame
        error: Frame = frame["error"]
        return error

    def notify(self, method: str, **params: Any) -> None:
        """Send a notification."""
        self._write({"jsonrpc": "2.0", "method": method, "params": params})

    def raw(self, data: bytes) -> None:
        """Write bytes as they are."""
        assert self.process.stdin is not None
        self.process.stdin.write(data)

    async def frame(self, wanted: Callable[[Frame], bool]) -> Frame:
        """The first frame that ``wanted`` accepts, there already or still to come."""
        async with asyncio.timeout(TIMEOUT):
            while True:
                for frame in self.frames:
                    if wanted(frame):
                        return frame
                if self._readers[0].done():
                    raise AssertionError(f"the server has ended:\n{self.err}")
                self._news.clear()
                await self._news.wait()

    # -- everyday

    async def hello(self, **capabilities: Any) -> Any:
        """Shake hands; what the server offers."""
        return await self.ask("initialize", protocolVersion=1, clientCapabilities=capabilities)

    async def session(self, cwd: Path | str) -> str:
        """Open a session."""
        result = await self.ask("session/new", cwd=str(cwd), mcpServers=[])
        session_id: str = result["sessionId"]
        return session_id

    def begin(self, session_id: str, *content: Any) -> int:
        """Send a prompt without waiting; strings are text blocks."""
        blocks = [{"type": "text", "text": each} if isinstance(each, str) else each for each in content]
        return self.send("session/prompt", sessionId=session_id, prompt=blocks)

    async def prompt(self, session_id: str, *content: Any) -> Any:
        """Prompt and wait; the stop reason."""
        frame = await self.answer(self.begin(session_id, *content))
        assert "result" in frame, frame
        return frame["result"]["stopReason"]

    def updates(self, session_id: str, kind: str | None = None) -> list[Any]:
        """The updates of a session so far."""
        return [
            frame["params"]["update"]
            for frame in self.frames
            if frame.get("method") == "session/update"
            and frame["params"]["sessionId"] == session_id
            and kind in (None, frame["params"]["update"]["sessionUpdate"])
        ]

    def texts(self, session_id: str, kind: str = "agent_message_chunk") -> list[str]:
        """The texts of its message chunks so far."""
        return [update["content"]["text"] for update in self.updates(session_id, kind)]

    # -- the end

    async def leave(self) -> int:
        """Close the input and wait for the exit code."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return await self.gone()

    async def gone(self) -> int:
        """Wait for the exit code."""
        code = await asyncio.wait_for(self.process.wait(), TIMEOUT)
        await asyncio.gather(*self._readers)
        return code

    def kill(self, number: signal.Signals) -> None:
        """Send a signal."""
        self.process.send_signal(number)

    def _write(self, frame: Frame) -> None:
        self.raw(json.dumps(frame).encode() + b"\n")

    async def _read_out(self) -> None:
        assert self.process.stdout is not None
        while line := await self.process.stdout.readline():
            frame = json.loads(line)  # anything but a frame fails the test
            self.frames.append(frame)
            if "method" in frame and "id" in frame:
                task = asyncio.create_task(self._reply(frame))
                self._replying.add(task)
                task.add_done_callback(self._replying.discard)
            self._news.set()
        self._news.set()

    async def _reply(self, frame: Frame) -> None:
        handler = self.answers.get(frame["method"])
        if handler is None:
            self._write({"jsonrpc": "2.0", "id": frame["id"], "error": {"code": -32601, "message": "not here"}})
        else:
            self._write({"jsonrpc": "2.0", "id": frame["id"], "result": await handler(frame["params"])})

    async def _read_err(self) -> None:
        assert self.process.stderr is not None
        while line := await self.process.stderr.readline():
            self.err += line.decode("utf-8", "replace")


@asynccontextmanager
async def acp(place: Place, *arguments: str) -> AsyncIterator[Client]:
    """``dsh acp …`` while the block runs."""
    process = await asyncio.create_subprocess_exec(
        PYTHON,
        "-m",
        "dsh.cli.main",
        "acp",
        *arguments,
        cwd=place.work,
        env={**place.env, "PYTHONWARNINGS": "always"},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        limit=2**25,
        start_new_session=True,
    )
    client = Client(process)
    try:
        yield client
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
        await client.gone()


async def opened(client: Client, place: Place) -> str:
    """Shake hands and open a session in the workspace."""
    await client.hello()
    return await client.session(place.work)


async def appears(path: Path) -> None:
    """Wait until a file is there."""
    async with asyncio.timeout(TIMEOUT):
        while not path.exists():
            await asyncio.sleep(0.01)
