"""The console as a front of an agent in another process: ``dsh attach``."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any, Final
from urllib.parse import quote

import httpx

from ..dialogue import Dialogue
from ..screen import PlainScreen
from ..stdin import stdin_chunks
from .client import ANSWER_SECONDS, SILENCE_SECONDS, FrameParser, Target

HELP: Final = """\
/queue    what waits
/quit     detach, as Ctrl-D does: the daemon goes on"""
LOOK_BACK: Final = 2000
"""Events before the end of the log among which the beginning of the running turn is looked for."""


class _GoneError(Exception):
    """The daemon ended, or does not answer any more; the text says which."""


class RemoteConsole:
    """Shows one agent's session and sends what is typed; see `dialogue.Front`."""

    def __init__(self, target: Target, tail: int) -> None:
        self._target = target
        self._tail = tail
        self._path = target.path()
        self.running = target.agent["status"] == "running"
        self._waiting: list[str] = []
        self._over: str | None = None
        self._seen = -1
        """The seq of the last event that was shown."""
        self._jobs: set[asyncio.Task[None]] = set()
        transport = httpx.AsyncHTTPTransport(uds=target.daemon.entry.socket, verify=False)
        limits = httpx.Timeout(30.0, connect=ANSWER_SECONDS)
        self._http = httpx.AsyncClient(transport=transport, base_url="http://dsh", timeout=limits, trust_env=False)
        self._dialogue = Dialogue(self, HELP, lambda _: self._dialogue.prompt_line.leave())
        self._terminal = sys.stdin.isatty() and sys.stdout.isatty()
        if not self._terminal:
            self._dialogue.use(PlainScreen())

    async def run(self) -> int:
        """Until the person detaches (0) or the daemon ends (1)."""
        transcript = self._dialogue.transcript
        async with self._http:
            transcript.note(f"attached to {self._target.name}, session {self._target.session_id}; /help for commands")
            self._seen = await self._past()
            watching = asyncio.create_task(self._watch(), name="attach: events")
            talking = asyncio.create_task(self._talk(), name="attach: input")
            if self._terminal:
                asyncio.get_running_loop().add_signal_handler(signal.SIGINT, self._dialogue.interrupt)
            await asyncio.wait({watching, talking}, return_when=asyncio.FIRST_COMPLETED)
            if not talking.done():
                self._dialogue.prompt_line.leave()
                talking.cancel()
            elif not self._terminal and not talking.cancelled() and talking.exception() is None:
                await self._until_quiet(watching)
            watching.cancel()
            done = await asyncio.gather(watching, talking, *self._jobs, return_exceptions=True)
        for error in done:
            if isinstance(error, Exception) and not isinstance(error, _GoneError):
                raise error
        if self._over is not None:
            print(f"dsh: {self._over}", file=sys.stderr)
            return 1
        if self._terminal:
            print(f"detached; {self._target.daemon.name} goes on", file=sys.stderr)
        return 0

    async def _talk(self) -> None:
        await self._dialogue.run(None if self._terminal else _typed_lines())

    async def _until_quiet(self, watching: asyncio.Task[None]) -> None:
        """Without a terminal the end of the input is the end of the questions, not of the answers."""
        while not watching.done():
            status = await self._ask("GET", "")
            if status["status"] == "idle" and not status["queued"] and self._seen >= status["asOfSeq"]:
                return
            await asyncio.wait({watching}, timeout=0.2)

    # -- what happens ---------------------------------------------------------------------------------------------

    async def _past(self) -> int:
        """Show the last messages, and return the event after which the live part begins."""
        status = await self._ask("GET", "")
        last: int = status["asOfSeq"]
        if self._tail <= 0:
            return last
        page = await self._ask("GET", f"/events?from={max(0, last + 1 - LOOK_BACK)}&limit={LOOK_BACK}")
        events = [event for event in page["events"] if event["seq"] <= last]
        bounds = [event for event in events if event["type"] in ("turn/start", "turn/end")]
        if bounds and bounds[-1]["type"] == "turn/start":  # show the running turn from its beginning
            last = bounds[-1]["seq"] - 1
        shown = [e for e in events if e["seq"] <= last and e["type"] in ("user/message", "assistant/message")]
        for event in shown[-self._tail :]:
            self._dialogue.transcript.message(event["type"], event["data"])
        return last

    async def _watch(self) -> None:
        """Show frames until the daemon ends."""
        name = self._target.daemon.name
        try:
            while await self._subscribe():
                pass
            self._over = f"{name} ended"
        except httpx.TimeoutException:
            self._over = f"{name} does not answer any more"
        except httpx.TransportError:
            self._over = f"{name} ended"

    async def _subscribe(self) -> bool:
        """Show what comes after the last event seen; True when the daemon dropped us because we were too slow."""
        session_id = self._target.session_id
        query = {"sessions": session_id, "after": f"{quote(session_id, safe='/: ')}:{self._seen}"}
        parser = FrameParser()
        limits = httpx.Timeout(SILENCE_SECONDS, connect=ANSWER_SECONDS)
        async with self._http.stream("GET", "/api/stream", params=query, timeout=limits) as response:
            async for data in response.aiter_raw():
                for frame in parser.feed(data):
                    if frame["type"] == "stream/error" and frame["code"] == "SLOW_CONSUMER":
                        return True
                    self._frame(frame)
        return False

    def _frame(self, frame: dict[str, Any]) -> None:
        kind, transcript = frame["type"], self._dialogue.transcript
        if kind == "session/event":
            event = frame["event"]
            self._seen = event["seq"]
            transcript.event(event["type"], event["data"])
        elif kind == "host/session-status":
            self.running = frame["status"] == "running"
            if frame["status"] == "closed":
                transcript.note("the session was closed in its daemon", "33")
        elif kind == "session/queue":
            messages = [*frame["nextTurn"], *frame["nextStep"]]
            self._waiting = ["".join(b.get("text", "") for b in message["content"]) for message in messages]
        elif (kind == "host/agent-error" and frame["step"] == 0) or kind == "stream/error":
            transcript.error(frame["message"])

    # -- the agent ------------------------------------------------------------------------------------------------

    async def submit(self, text: str, *, steer: bool) -> None:
        body = {"content": text, "mode": "steer" if steer else "next-turn"}
        await self._ask("POST", "/prompt", body)

    def cancel(self, *, keep_queue: bool) -> None:
        async def ask() -> None:
            try:
                await self._ask("POST", "/cancel", {"keepQueue": keep_queue})
            except Exception as error:
                self._dialogue.transcript.error(str(error))

        job = asyncio.create_task(ask(), name="attach: cancel")
        self._jobs.add(job)
        job.add_done_callback(self._jobs.discard)

    def command(self, name: str, argument: str) -> bool:
        if name != "/queue":
            return False
        for text in self._waiting or ["nothing waits"]:
            self._dialogue.transcript.note(text)
        return True

    async def _ask(self, method: str, rest: str, body: Any = None) -> Any:
        try:
            response = await self._http.request(method, self._path + rest, json=body)
        except httpx.TimeoutException:
            raise _GoneError(f"{self._target.daemon.name} does not answer") from None
        except httpx.TransportError:
            raise _GoneError(f"{self._target.daemon.name} ended") from None
        answer = json.loads(response.content)
        if response.is_error:
            raise RuntimeError(answer["error"]["message"])
        return answer


async def _typed_lines() -> AsyncIterator[str]:
    """Standard input without a terminal, line by line."""
    rest = b""
    async with aclosing(stdin_chunks()) as chunks:  # type: ignore[type-var]
        async for chunk in chunks:
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                yield line.decode("utf-8", "replace").strip()
    yield rest.decode("utf-8", "replace").strip()
