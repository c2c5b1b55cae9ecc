"""A composition of session store and JSONL persistence."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from dsh.cordis import Context, Fiber
from dsh.core import session_store
from dsh.core.seams import SessionPersistence
from dsh.core.session import Session
from dsh.core.session_store import Sessions
from dsh.sessions import jsonl
from dsh.sessions.jsonl import JsonlSessionPersistence

WINDOW_MS = 20


@dataclass(slots=True)
class Runtime:
    ctx: Context
    fiber: Fiber
    root: Path

    @property
    def sessions(self) -> Sessions:
        return self.ctx[Sessions]

    @property
    def store(self) -> JsonlSessionPersistence:
        return cast(JsonlSessionPersistence, self.ctx[SessionPersistence])

    def create(self, session_id: str, **more: Any) -> Session:
        return self.sessions.create(session_id, **{"meta": {"cwd": "/w"}, **more})

    async def resume(self, session_id: str) -> Session:
        """What the agent loop does to bring a stored session back."""
        with await self.store.prepare(session_id) as preparation:
            self.sessions.enter(preparation.session)
            self.sessions.announce(preparation.session)
            return preparation.session

    def files(self) -> list[str]:
        return sorted(path.name for path in self.root.rglob("session.jsonl*"))

    def log_bytes(self, session_id: str) -> bytes:
        (path,) = [path for path in self.root.rglob("session.jsonl*") if path.parent.name == session_id]
        return path.read_bytes()


@asynccontextmanager
async def running(root: Path, **config: Any) -> AsyncIterator[Runtime]:
    async with Context() as ctx:
        await ctx.plugin(session_store)
        defaults = {"root": str(root), "writeBatchMaxDelayMs": WINDOW_MS, "durability": "os"}
        fiber = await ctx.plugin(jsonl, {**defaults, **config})
        yield Runtime(ctx, fiber, root)


def prompt(session: Session, text: str = "hi") -> None:
    message = {
        "id": f"u{session.seq}",
        "role": "user",
        "content": [{"type": "text", "text": text}],
        "source": {"kind": "user"},
    }
    session.append("user/message", message, surface_op="append")


def turn(session: Session, number: int, end: bool = True) -> None:
    session.append("turn/start", {"turn": number})
    prompt(session)
    if end:
        session.append("turn/end", {"turn": number, "reason": {"kind": "completed"}})
