"""Small logs, and the bytes they make on disk."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dsh.cordis.jsonio import snapshot_json
from dsh.core.session_event import SessionEvent
from dsh.core.session_header import SessionHeader
from dsh.sessions.frames import FrameCodec
from dsh.sessions.jsonl_codec import encode_batch, encode_header
from dsh.sessions.jsonl_store import Compression, JsonlStore
from dsh.sessions.lease import LeaseMode, Leases
from dsh.sessions.log_file import LogWriter

REPO = Path(__file__).parents[2]


class LogBuilder:
    """Collects numbered events."""

    def __init__(self) -> None:
        self.events: list[SessionEvent] = []

    def add(self, type_: str, data: Any, **extra: Any) -> SessionEvent:
        event = SessionEvent(type_, len(self.events), 1000 + len(self.events), snapshot_json(data), **extra)
        self.events.append(event)
        return event

    def prompt(self, text: str) -> SessionEvent:
        seq = len(self.events)
        message = {
            "id": f"user-{seq}",
            "role": "user",
            "content": [{"type": "text", "text": text}],
            "source": {"kind": "user"},
        }
        return self.add("user/message", message, surface_op="append")

    def turn(self, number: int, text: str = "hello", chunks: int = 4, end: bool = True) -> None:
        """A plain turn of one step whose answer came in `chunks` pieces."""
        self.add("turn/start", {"turn": number})
        self.prompt(text)
        self.add("step/start", {"turn": number, "step": 1})
        first = len(self.events)
        for index in range(chunks):
            delta = {"type": "text-delta", "index": 0, "text": f"piece {index} "}
            self.add("assistant/chunk", {"turn": number, "step": 1, "chunk": delta})
        message = {
            "id": f"assistant-{number}",
            "role": "assistant",
            "content": [{"type": "text", "text": "".join(f"piece {index} " for index in range(chunks))}],
            "source": {"kind": "model", "provider": "p", "model": "m"},
        }
        self.add(
            "assistant/message",
            {"turn": number, "step": 1, "message": message},
            surface_op="append",
            source_event_seqs=tuple(range(first, first + chunks)),
        )
        self.add("step/end", {"turn": number, "step": 1})
        if end:
            self.add("turn/end", {"turn": number, "reason": {"kind": "completed"}})


def log_of(*turns: int, end: bool = True) -> list[SessionEvent]:
    builder = LogBuilder()
    for number in turns:
        builder.turn(number, end=end or number != turns[-1])
    return builder.events


def header(session_id: str = "s", cwd: str | None = "/work space/ä", **more: Any) -> SessionHeader:
    return SessionHeader(session_id, 1_700_000_000_000, cwd=cwd, **more)


def raw_bytes(head: SessionHeader, *batches: Sequence[SessionEvent]) -> bytes:
    return encode_header(head) + b"".join(encode_batch(batch) for batch in batches)


def zstd_bytes(head: SessionHeader, *batches: Sequence[SessionEvent]) -> bytes:
    codec = FrameCodec()
    return codec.encode(encode_header(head)) + b"".join(codec.encode(encode_batch(batch)) for batch in batches)


def store_at(
    root: Path | str,
    compression: Compression | None = None,
    lease: LeaseMode = "auto",
    ttl_ms: int = 15_000,
    durable: bool = False,
) -> JsonlStore:
    return JsonlStore(
        os.fspath(root),
        compression=compression,
        writer=LogWriter(durable=durable),
        leases=Leases(lease, ttl_ms),
        logger=logging.getLogger("dsh.test"),
    )


def write_log(
    root: Path | str, head: SessionHeader, *batches: Sequence[SessionEvent], compression: Compression = "zstd"
) -> str:
    """A stored session made the ordinary way; the path of its log."""
    hold = store_at(root, compression).hold(head.id, head.cwd)
    try:
        for batch in batches:
            hold.append(head, hold.stored, batch)
        assert hold.path is not None
        return hold.path
    finally:
        hold.release()


class Child:
    """A Python process that talks in lines: it runs `code` with `say(text)` and `hear()`."""

    PRELUDE = """
        import sys
        def say(text): print(text, flush=True)
        def hear(): return sys.stdin.readline().strip()
    """

    def __init__(self, code: str, *args: str, env: dict[str, str] | None = None) -> None:
        source = textwrap.dedent(self.PRELUDE) + textwrap.dedent(code)
        with tempfile.NamedTemporaryFile("w", suffix=".py", delete=False, encoding="utf-8") as file:
            file.write(source)
        self._script = file.name
        environment = {**os.environ, "PYTHONPATH": str(REPO), "PYTHONDONTWRITEBYTECODE": "1", **(env or {})}
        self.process = subprocess.Popen(
            [sys.executable, "-P", self._script, *args],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            encoding="utf-8",
            env=environment,
            cwd=REPO,
        )

    @property
    def pid(self) -> int:
        return self.process.pid

    def hear(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def say(self, text: str = "") -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()

    def signal(self, number: int) -> None:
        os.kill(self.process.pid, number)

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        os.unlink(self._script)
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                try:
                    stream.close()
                except BrokenPipeError:
                    pass
