"""A daemon whose stream is cut wherever a test says: the control API of one session, with a log that stands."""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from dsh.interfaces.control.run_folder import Entry, host_name, listen, open_run_folder, publish, withdraw

SESSION = "s-1"
SLOW = {"type": "stream/error", "code": "SLOW_CONSUMER", "message": "too much was waiting"}

Cut = tuple[int, str]
"""How many events a stream sends, and what comes then: `slow`, `end` in good order, `break` off, or `stay` open."""


def turn(message_id: str, text: str, words: int = 10) -> list[dict[str, Any]]:
    """The events of one prompt and its reply."""
    chunk = {"type": "text-delta", "text": "w "}
    events: list[tuple[str, Any]] = [
        ("agent/inbox/spliced", {"target": "next-turn", "start": 0, "inserted": [{"id": message_id}]}),
        ("turn/start", {"turn": 1}),
        ("agent/inbox/spliced", {"target": "next-turn", "start": 0, "removedCount": 1, "inserted": []}),
        ("user/message", {"id": message_id, "source": {"kind": "user"}, "content": [{"type": "text", "text": text}]}),
        *[("assistant/chunk", {"chunk": chunk})] * words,
        ("assistant/message", {"message": {"content": [{"type": "text", "text": "w " * words}]}}),
        ("turn/end", {"turn": 1, "reason": {"kind": "completed"}}),
    ]
    return [{"type": kind, "seq": seq, "data": data} for seq, (kind, data) in enumerate(events)]


class FakeDaemon:
    """Answers like a daemon; cuts: what becomes of each stream in turn. asked: the `after` of each.

    prompts: the texts it was sent; it answers them while `takes_prompts` is set, and anything while `answers` is.
    """

    def __init__(self, log: list[dict[str, Any]], cuts: list[Cut]) -> None:
        self.log = log
        self.cuts = cuts
        self.asked: list[int] = []
        self.prompts: list[str] = []
        self.takes_prompts = asyncio.Event()
        self.takes_prompts.set()
        self.answers = asyncio.Event()
        self.answers.set()
        self.change: Callable[[str], bytes | None] = lambda path: None
        self.run_id = "aa"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection with one request."""
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            method, target, _ = head.split(b"\r\n")[0].decode().split(" ")
            length = re.search(rb"(?i)content-length: (\d+)", head)
            given = await reader.readexactly(int(length[1]) if length else 0)
            url = urlsplit(target)
            await self.answers.wait()
            if url.path.endswith("/prompt"):
                self.prompts.append(json.loads(given)["content"])
                await self.takes_prompts.wait()
            if url.path == "/api/stream":
                await self._stream(writer, parse_qs(url.query))
                return
            body = self.change(url.path) or json.dumps(self._answer(method, url.path)).encode()
            writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
            await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    def _answer(self, method: str, path: str) -> Any:
        agent = {"label": "main", "sessionId": SESSION, "status": "idle", "queued": 0}
        if path == "/api/status":
            return {"runId": self.run_id, "state": "running", "agents": [agent]}
        if path.endswith("/prompt"):
            return {"messageId": "m-1", "seq": 0}
        if path == "/api/commands":
            return {"commands": []}
        if path == "/api/config/keys":
            return {"keys": []}
        if path.endswith("/usage"):
            return {"turns": 0, "route": "", "routes": {}, "context": {"window": None, "used": 0}}
        if path.endswith("/events"):
            return {"events": [], "next": None}
        return {**agent, "asOfSeq": -1 if not self.asked else self.log[-1]["seq"]}

    async def _stream(self, writer: asyncio.StreamWriter, query: dict[str, list[str]]) -> None:
        after = int(query["after"][0].rpartition(":")[2])
        self.asked.append(after)
        count, then = self.cuts[min(len(self.asked), len(self.cuts)) - 1]
        frames = [{"type": "session/subscribed", "sessionId": SESSION, "live": True, "status": "running"}]
        rest = [event for event in self.log if event["seq"] > after]
        frames += [{"type": "session/event", "sessionId": SESSION, "event": event} for event in rest[:count]]
        frames += [SLOW] if then == "slow" else []
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for frame in frames:
            data = b"data: " + json.dumps(frame).encode() + b"\n\n"
            writer.write(b"%x\r\n%b\r\n" % (len(data), data))
        await writer.drain()
        if then == "stay":
            await asyncio.Event().wait()
        if then != "break":
            writer.write(b"0\r\n\r\n")


@asynccontextmanager
async def fake_daemon(home: Path, log: list[dict[str, Any]], cuts: list[Cut]) -> AsyncIterator[FakeDaemon]:
    """A fake daemon of a home folder, under the pid of the test."""
    daemon = FakeDaemon(log, cuts)
    tasks: set[asyncio.Task[None]] = set()

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(daemon.serve(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    folder = open_run_folder(home)
    sock, path = listen(folder, daemon.run_id)
    entry = publish(folder, Entry("", os.getpid(), daemon.run_id, path, host_name(), "/x/cordis.yml", "/x", 1))
    server = await asyncio.start_unix_server(connected, sock=sock)
    try:
        yield daemon
    finally:
        server.close()
        withdraw(entry)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
