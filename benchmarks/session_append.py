"""What a session log costs: appending chunks, reading it, opening a stored one.

Each figure is printed in microseconds and as a ratio to the smallest thing that could do the job at all: appending a
dict to a list and writing it with orjson.

    python benchmarks/session_append.py
"""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
from _kit import fastest
from open_session import EVENTS, conversation

from dsh.cordis import Context
from dsh.cordis.jsonio import decode, encode, snapshot_json
from dsh.core.bulk import collector_paused
from dsh.core.packed_rows import pack, unpack
from dsh.core.session import Session
from dsh.core.session_store import SessionAppended, Sessions


def chunk(index: int, text: str) -> dict[str, Any]:
    return {"turn": 1, "step": 1, "chunk": {"type": "text-delta", "index": index, "text": text}}


def baseline() -> float:
    """Microseconds to append one plain record to a list and encode it."""

    def run() -> list[Any]:
        log: list[Any] = []
        for seq in range(EVENTS):
            log.append({"type": "assistant/chunk", "seq": seq, "time": 1_700_000_000_000, "data": chunk(0, "word")})
            orjson.dumps(log[-1])
        return log

    return fastest(run) / EVENTS * 1e6


def append_bare(frozen: Any) -> float:
    """Microseconds an event, session outside of a store."""

    def run() -> Session:
        session = Session("bench")
        for _ in range(EVENTS):
            session.append("assistant/chunk", frozen)
        return session

    return fastest(run) / EVENTS * 1e6


async def append_live(frozen: Any, listeners: int) -> float:
    """Microseconds an event, session in a store with that many listeners."""
    async with Context() as root:
        await root.plugin(Sessions)
        for _ in range(listeners):
            root.on(SessionAppended, lambda event: None)
        store = root[Sessions]
        counter = iter(range(1000))

        def run() -> Session:
            session = store.create(f"bench-{next(counter)}")
            for _ in range(EVENTS):
                session.append("assistant/chunk", frozen)
            return session

        return fastest(run, 3) / EVENTS * 1e6


def open_stored(lines: list[bytes]) -> float:
    """Seconds to decode the lines, validate and freeze them, fold the surface and derive the messages."""

    def run() -> Session:
        with collector_paused():
            events = [event for line in lines for event in unpack(decode(line))]
            session = Session("bench", seed=events, seed_source="persistence")
        session.derive_messages()
        return session

    return fastest(run, 3)


def main() -> None:
    """Print the table."""
    frozen = snapshot_json(chunk(0, "word"))
    base = baseline()
    print(f"{'list append + orjson (the unit)':52} {base:8.2f} us      1.0 x")

    def line(name: str, micros: float) -> None:
        print(f"{name:52} {micros:8.2f} us {micros / base:8.1f} x")

    line("append, frozen chunk, bare session", append_bare(frozen))
    line("append, frozen chunk, live, no listener", asyncio.run(append_live(frozen, 0)))
    line("append, frozen chunk, live, 3 listeners", asyncio.run(append_live(frozen, 3)))

    session = Session("bench")
    for _ in range(EVENTS):
        session.append("assistant/chunk", frozen)

    def views() -> None:
        for _ in range(1000):
            session.append("x", frozen)
            _ = session.events

    line("append + events view at 100,000 events", fastest(views) / 1000 * 1e6)

    events = conversation()
    packed = [encode(row) for row in pack(events)]
    plain = [encode(event.to_wire()) for event in events]
    for name, lines in (("packed rows", packed), ("one line an event", plain)):
        seconds = open_stored(lines)
        print(f"{f'open {len(events)} events, {len(lines)} lines ({name})':52} {seconds:8.3f} s ", end="")
        print(f"{seconds / len(events) * 1e6 / base:8.1f} x an event")


if __name__ == "__main__":
    main()
