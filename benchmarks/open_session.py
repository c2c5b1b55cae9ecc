"""Opening a stored session of 100,000 events, from the file to a session that can go on.

All of it: reading, decompressing, parsing, checking, repairing, folding, deriving the messages; of a log as we write it
(zstd frames of packed rows) and of one with a plain line an event. The least that reads the same is a parse of each
line with orjson.

    python benchmarks/open_session.py [--quick]
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator

import orjson
from _kit import Row, fastest, script

from dsh.cordis.jsonio import snapshot_json
from dsh.core.bulk import collector_paused
from dsh.core.event_types import KNOWN_EVENT_TYPES
from dsh.core.session import Session
from dsh.core.session_event import SessionEvent
from dsh.core.session_header import SessionHeader
from dsh.sessions.jsonl_store import Compression, JsonlStore
from dsh.sessions.lease import Leases
from dsh.sessions.loading import to_session
from dsh.sessions.log_file import LogWriter

EVENTS = 100_000
BATCH = 200
"""Events that come to the disk with one append."""


def conversation() -> list[SessionEvent]:
    """Turns of a prompt, streamed words in five blocks, a reply."""
    session = Session("long", header=SessionHeader("long", 1, cwd="/w"))
    source = {"kind": "model", "provider": "p", "model": "m"}
    turn = 0
    while session.seq < EVENTS:
        turn += 1
        user = {"id": f"u{turn}", "role": "user", "content": [{"type": "text", "text": "go"}]}
        session.append("turn/start", {"turn": turn})
        session.append("user/message", {**user, "source": {"kind": "user"}}, "append")
        session.append("step/start", {"turn": turn, "step": 1})
        first = session.seq
        for word in range(200):
            chunk = {"type": "text-delta", "index": word // 40, "text": f"word {word} "}
            session.append("assistant/chunk", snapshot_json({"turn": turn, "step": 1, "chunk": chunk}))
        message = {"id": f"a{turn}", "role": "assistant", "content": [{"type": "text", "text": "ok"}], "source": source}
        reply = {"turn": turn, "step": 1, "message": message}
        session.append("assistant/message", reply, "append", range(first, session.seq))
        session.append("step/end", {"turn": turn, "step": 1})
        session.append("turn/end", {"turn": turn, "reason": {"kind": "completed"}})
    return list(session.events)


def stored(root: str, events: list[SessionEvent], compression: Compression, *, packed: bool) -> JsonlStore:
    """A store that holds them."""
    store = JsonlStore(
        root,
        compression=compression,
        writer=LogWriter(durable=False, pack_chunks=packed),
        leases=Leases(),
        logger=logging.getLogger("bench"),
    )
    header = SessionHeader("long", 1, cwd="/w")
    hold = store.hold("long", "/w")
    for at in range(0, len(events), BATCH):
        hold.append(header, at, events[at : at + BATCH])
    hold.release()
    return store


def rows(quick: bool) -> Iterator[Row]:
    """Measure."""
    rounds = 2 if quick else 5
    events = conversation()
    layouts: list[tuple[str, Compression, bool]] = [
        ("as we write it", "zstd", True),
        ("one plain line an event", "none", False),
    ]
    for name, compression, packed in layouts:
        with tempfile.TemporaryDirectory() as root:
            store = stored(root, events, compression, packed=packed)

            def opened(store: JsonlStore = store) -> object:
                session, _ = to_session(store.read("long"), KNOWN_EVENT_TYPES)
                assert session.seq > EVENTS
                return session, session.derive_messages()

            text = store.read_text("long")
            assert text is not None
            lines = text[1].split(b"\n")[:-1]

            def parsed(lines: list[bytes] = lines) -> object:
                with collector_paused():
                    return [*map(orjson.loads, lines)]

            mine, least = fastest(opened, rounds), fastest(parsed, rounds)
        measured = f"{mine * 1e3:.0f} : {least * 1e3:.0f} ms cpu"
        yield Row(f"open a session of {len(events):,} events, {name}", measured, mine / least, "< 400 ms", mine < 0.4)


if __name__ == "__main__":
    script(rows)
