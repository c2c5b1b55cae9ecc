"""A JSON-RPC runtime in a real process, driven frame by frame over its pipes."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests import warm
from tests.cli.kit import PYTHON, TIMEOUT, Place

COMMAND = (PYTHON, "-m", "dsh.cli.main", "jsonrpc")
AGENT = (PYTHON, "-c", "from dsh.cli.start import jsonrpc_agent; jsonrpc_agent()")
PROFILE = (PYTHON, "-m", "dsh.cli.main", "--profile", "sdk")

ROWS = """\
- {id: agent-loop, name: dsh-agent-loop, config: {agents: []}}
- {id: system-prompt, name: dsh-system-prompt}
- {id: llm, name: dsh-llm}
- {id: llm-deepseek, name: dsh-llm-deepseek}
- {id: llm-demo, name: dsh-llm-demo}
- {id: session, name: dsh-session}
- {id: agent, name: dsh-agent}
- {id: tools, name: dsh-tools}
- {id: invariants, name: dsh-invariants}
- {id: tool-bash, name: dsh-tool-bash}
- {id: fs, name: dsh-fs-local}
- {id: tool-fs, name: dsh-tool-fs}
- {id: subprocess, name: dsh-subprocess-local}
- {id: bash, name: dsh-bash-local, config: {graceMs: 300}}
- {id: shell-env, name: dsh-shell-env}
- {id: persistence, name: dsh-session-persistence-jsonl, config: {compression: none, root: !!js env.DSH_SESSION_ROOT || dshHomePath('sessions')}}
- {id: sdk-jsonrpc-server, name: dsh-sdk-jsonrpc-server}
"""  # noqa: E501

STALL: dict[str, Any] = {
    "chunks": [{"choices": [{"index": 0, "delta": {"role": "assistant", "content": "half a"}}]}],
    "ending": "stall",
}
"""A reply of the model server that begins and never goes on."""


class RpcFailure(Exception):
    """An error answer."""

    def __init__(self, error: Mapping[str, Any]) -> None:
        super().__init__(error["message"])
        self.code = error["code"]


class Runtime:
    """One running process, the frames it has written and what it said on standard error."""

    def __init__(self, process: asyncio.subprocess.Process, place: Place) -> None:
        self.process = process
        self.place = place
        self.frames: list[Any] = []
        self.raw = bytearray()
        self.err = ""
        self.killed = False
        self._seen = 0
        self._ids = 0
        self._news = asyncio.Condition()
        self.paused = asyncio.Event()
        self.paused.set()
        self._readers = [asyncio.create_task(self._read_out()), asyncio.create_task(self._read_err())]

    async def _read_out(self) -> None:
        assert self.process.stdout is not None
        rest: list[bytes] = []
        while chunk := await self.process.stdout.read(65536):
            await self.paused.wait()
            self.raw += chunk
            *lines, left = chunk.split(b"\n")
            if lines:
                lines[0] = b"".join([*rest, lines[0]])
                rest = []
            rest.append(left)
            async with self._news:
                self.frames += [json.loads(line) for line in lines]  # fails for anything that is no frame
                self._news.notify_all()
        if not self.killed:
            assert b"".join(rest) == b""
        async with self._news:
            self._news.notify_all()

    async def _read_err(self) -> None:
        assert self.process.stderr is not None
        while line := await self.process.stderr.readline():
            self.err += line.decode()
            async with self._news:
                self._news.notify_all()

    async def _until(self, found: Callable[[], Any], what: str) -> Any:
        async with asyncio.timeout(TIMEOUT):
            async with self._news:
                while (value := found()) is None:
                    if self._readers[0].done():
                        self._readers[0].result()
                        raise AssertionError(f"the runtime ended before {what}:\n{self.err}")
                    await self._news.wait()
                return value

    def send(self, method: str, params: Any = None, *, id: Any = None) -> Any:
        """Write a request; its id."""
        if id is None:
            self._ids += 1
            id = self._ids
        frame = {"jsonrpc": "2.0", "id": id, "method": method}
        if params is not None:
            frame["params"] = params
        self.write(json.dumps(frame, ensure_ascii=False).encode() + b"\n")
        return id

    def write(self, data: bytes) -> None:
        """Write bytes as they are."""
        assert self.process.stdin is not None
        self.process.stdin.write(data)

    async def answer(self, id: Any) -> Any:
        """The result of the request with this id. Raises RpcFailure."""
        frame = await self._until(
            lambda: next((f for f in self.frames if "method" not in f and f["id"] == id), None), f"answer {id}"
        )
        if "error" in frame:
            raise RpcFailure(frame["error"])
        return frame["result"]

    async def call(self, method: str, params: Any = None) -> Any:
        """Ask and wait for the answer."""
        return await self.answer(self.send(method, params))

    async def initialize(self, **more: Any) -> Any:
        """The usual first request."""
        return await self.call("initialize", self.route(**more))

    def route(self, **more: Any) -> dict[str, Any]:
        given = {"cwd": str(self.place.work), "provider": "deepseek-official", "model": "deepseek-flash"}
        return {**given, **more}

    async def prompt(self, session_id: str, text: str = "hi") -> str:
        """Prompt a session; the message id."""
        params = {"sessionId": session_id, "contentBlocks": [{"type": "text", "text": text}]}
        result: str = (await self.call("session/prompt", params))["messageId"]
        return result

    async def turn(self, session_id: str, text: str = "hi") -> None:
        """Prompt a session and wait until it is idle again."""
        await self.prompt(session_id, text)
        await self.idle(session_id)

    async def wait_for(self, wanted: Callable[[Any], bool], what: str) -> Any:
        """The next notification that ``wanted`` accepts, from where the last wait stopped."""

        def found() -> Any:
            while self._seen < len(self.frames):
                frame = self.frames[self._seen]
                self._seen += 1
                if "method" in frame and wanted(frame):
                    return frame
            return None

        return await self._until(found, what)

    async def event(self, kind: str, session_id: str | None = None) -> Any:
        """The next session event of one type."""
        frame = await self.wait_for(
            lambda f: (
                f["method"] == "session.event"
                and f["params"]["event"]["type"] == kind
                and session_id in (None, f["params"]["sessionId"])
            ),
            kind,
        )
        return frame["params"]["event"]

    async def idle(self, session_id: str) -> None:
        """Wait for the next ``idle`` of a session."""
        wanted = {"sessionId": session_id, "status": "idle"}
        await self.wait_for(lambda f: f["method"] == "session.status" and f["params"] == wanted, "idle")

    async def said(self, text: str) -> None:
        """Wait until standard error holds ``text``."""
        await self._until(lambda: True if text in self.err else None, text)

    def told(self, session_id: str) -> list[str]:
        """What was told of a session, in short: event types and states."""
        out = []
        for frame in self.frames:
            params = frame.get("params", {})
            if params.get("sessionId") != session_id:
                continue
            out.append(params["event"]["type"] if frame["method"] == "session.event" else params["status"])
        return out

    def events(self, session_id: str) -> list[Any]:
        """All events told of a session."""
        return [
            f["params"]["event"]
            for f in self.frames
            if f.get("method") == "session.event" and f["params"]["sessionId"] == session_id
        ]

    def close_input(self) -> None:
        """End of standard input."""
        assert self.process.stdin is not None
        self.process.stdin.close()

    def kill(self) -> None:
        """End it the hard way; its last line may be cut."""
        self.killed = True
        self.process.kill()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal."""
        self.process.send_signal(number)

    async def finish(self, seconds: float = TIMEOUT) -> int:
        """Wait for the end; the exit code."""
        self.paused.set()
        code = await asyncio.wait_for(self.process.wait(), seconds)
        await asyncio.gather(*self._readers)
        return code

    def answers(self) -> list[Any]:
        """All answers, in the order they came."""
        return [frame for frame in self.frames if "method" not in frame]


@asynccontextmanager
async def runtime(
    place: Place, *arguments: str, command: Sequence[str] = COMMAND, env: Mapping[str, str] | None = None
) -> AsyncIterator[Runtime]:
    """A runtime while the block runs; killed at its end if still there."""
    whole = {**place.env, **(env or {})}
    process = await warm.start(
        *arguments, command=command, folder=place.work, environment=whole, stdin=asyncio.subprocess.PIPE
    )
    running = Runtime(process, place)
    try:
        yield running
    finally:
        if process.returncode is None:
            running.kill()
        await running.finish()


async def stored(place: Place, session_id: str, text: str) -> None:
    """Wait until the log of a session holds ``text``."""
    async with asyncio.timeout(TIMEOUT):
        while not any(text in log.read_text() for log in place.home.glob(f"sessions/*/{session_id}/session.jsonl")):
            await asyncio.sleep(0.1)


async def written_pid(file: Path) -> int:
    """The process id that a command writes into a file."""
    async with asyncio.timeout(TIMEOUT):
        while not file.is_file() or not (text := file.read_text().strip()):
            await asyncio.sleep(0.01)
    return int(text)
