"""Level 0: every recorded log goes through the JSONL backend and comes back as it was."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsh.cordis import Context
from dsh.cordis.jsonio import decode, json_equal
from dsh.core import session_store
from dsh.core.repair import interrupted_turn_closers
from dsh.core.seams import SessionPersistence
from dsh.core.session_header import SessionHeader
from dsh.sessions import jsonl
from tests.conformance.corpus import Case, decode_log, label, recorded_logs

LOGS = recorded_logs()


@pytest.mark.parametrize("compression", ["none", "zstd"])
@pytest.mark.parametrize(("case", "path"), LOGS, ids=label)
async def test_round_trip(case: Case, path: Path, compression: str, tmp_path: Path) -> None:
    log = decode_log(path)
    header = SessionHeader.from_wire(log.header)
    config = {"root": str(tmp_path), "compression": compression, "durability": "os"}
    async with Context() as root:
        await root.plugin(session_store)
        await root.plugin(jsonl, config)
        persistence = root[SessionPersistence]
        await persistence.create(header)
        if log.events:
            await persistence.append(header.id, log.events)
        else:  # a header alone is not stored before its first event
            return

        raw = await persistence.read_raw(header.id)
        assert raw is not None
        first, *rows = [decode(line) for line in raw["content"].split("\n") if line]
        assert first == {"type": "session", **header.to_wire()}
        assert len(rows) == len(log.rows)
        assert all(json_equal(row, stored) for row, stored in zip(rows, log.rows, strict=True))

    async with Context() as root:
        await root.plugin(session_store)
        await root.plugin(jsonl, config)
        persistence = root[SessionPersistence]
        assert [stored.to_wire() for stored in await persistence.list()] == [header.to_wire()]
        events = log.read()
        seen_header, seen = await persistence.inspect(header.id)
        assert seen_header == header
        assert list(seen) == [*events, *interrupted_turn_closers(events)]
        assert list(await persistence.read_from(header.id, len(events) // 2)) == events[len(events) // 2 :]
