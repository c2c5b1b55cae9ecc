"""Appends one line to a file for every finished turn: time, session, end, steps. Shows: an event listener.

Removing the row from cordis.yml removes the listener; nothing else has to be told.
"""

from __future__ import annotations

import time
from pathlib import Path

from dsh.cordis import ConfigModel, Context, field
from dsh.core.session_store import SessionAppended


class Config(ConfigModel):
    path: str | None = field(None, description="File to append to; $DSH_HOME/turns.log by default")


def apply(ctx: Context, config: Config) -> None:
    path = Path(config.path) if config.path else (ctx.get("dshHomePath") or Path()) / "turns.log"
    steps: dict[str, int] = {}

    def write(line: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")

    @ctx.on(SessionAppended)
    def record(happened: SessionAppended) -> None:
        # Not async: it hears every event of every session, each streamed word too, and waits for none of them.
        session, event = happened.session, happened.event
        if event.type == "step/end":
            steps[session.id] = event.data["step"]
        elif event.type == "turn/end":
            stamp = time.strftime("%Y-%m-%dT%H:%M:%S%z")
            end = event.data["reason"]["kind"]
            count = steps.pop(session.id, 0)
            line = f"{stamp} {session.id} turn {event.data['turn']} {end}, {count} steps"
            write(line)  # one short line a turn: not worth a thread, and not lost when the process is leaving
