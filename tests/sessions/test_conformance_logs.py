"""Logs recorded by the reference system: read, written back, and resumed."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from dsh.core.packed_rows import is_packed, pack, unpack
from dsh.core.session import Session
from dsh.core.session_event import SessionEvent
from dsh.core.session_header import SessionHeader
from dsh.sessions.jsonl_codec import decode_header
from dsh.sessions.jsonl_store import Compression
from dsh.sessions.verify import verify_log
from tests.sessions.helpers import REPO, raw_bytes, store_at, zstd_bytes
from tests.sessions.runtime import running

CORPUS = Path(os.environ.get("DSH_CONFORMANCE") or REPO.parent / "shared" / "conformance")


def recorded_logs() -> list[Path]:
    found = []
    for path in sorted(CORPUS.rglob("*.jsonl")):
        with path.open(encoding="utf-8") as file:
            head = json.loads(file.readline() or "{}")
        if head.get("type") == "session" and head.get("version") == 0:
            found.append(path)
    return found


LOGS = recorded_logs()
if not LOGS:
    pytest.skip(f"no recorded logs at {CORPUS} (set DSH_CONFORMANCE)", allow_module_level=True)

EACH = pytest.mark.parametrize("path", LOGS, ids=lambda path: str(path.relative_to(CORPUS)))


def hydrate(path: Path) -> tuple[SessionHeader, list[SessionEvent], list[dict[str, Any]]]:
    """The header, the events, and the storage rows with the envelope that recordings leave out."""
    lines = path.read_text(encoding="utf-8").replace("{{cwd}}", "/work space").split("\n")
    head = decode_header(lines[0].encode(), path.stem)
    events: list[SessionEvent] = []
    rows = []
    for line in filter(None, lines[1:]):
        row = json.loads(line)
        if is_packed(row):
            row = {"type": row["type"], "seq0": row.get("seq0", len(events)), "time0": row.get("time0", 0), **row}
        else:
            given = {key: value for key, value in row.items() if key not in ("type", "seq", "time")}
            row = {"type": row["type"], "seq": row.get("seq", len(events)), "time": row.get("time", 0), **given}
        rows.append(json.loads(json.dumps(row)))
        events += unpack(row)
    return head, events, rows


@EACH
@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_b17a_recorded_logs_are_written_and_read_back_equal(
    tmp_path: Path, path: Path, compression: Compression
) -> None:
    head, events, _ = hydrate(path)
    store = store_at(tmp_path, compression)
    hold = store.hold(head.id, head.cwd)
    for at in range(0, len(events), 7):
        hold.append(head, at, events[at : at + 7])
    hold.release()
    if not events:
        return
    log = store.read(head.id)
    assert log.header == head and log.events == events


@EACH
def test_b17b_packing_a_recorded_log_gives_its_rows(path: Path) -> None:
    _, events, rows = hydrate(path)
    assert json.loads(json.dumps([{**row} for row in pack(events)])) == rows


@EACH
async def test_recorded_logs_load_and_can_be_resumed(tmp_path: Path, path: Path) -> None:
    head, events, _ = hydrate(path)
    case = json.loads((path.parent / "case.json").read_text(encoding="utf-8"))
    if not events or "script-only" in (case.get("legacyShapes") or ()) or case["suite"] == "kit":
        return
    async with running(tmp_path) as runtime:
        await runtime.store.create(head)
        await runtime.store.append(head.id, events)
        _, inspected = await runtime.store.inspect(head.id)
        with await runtime.store.prepare(head.id) as preparation:
            session = preparation.session
            assert list(session.events)[: len(inspected)] == inspected
            facts = case.get("facts", {}).get(path.name)
            if facts is not None and len(inspected) == len(events):
                nodes = [seq for seq in session.surface.nodes if seq < len(events)]
                assert nodes == facts["surfaceSeqs"]
                counted = Counter(event.type for event in events)
                assert counted == Counter(facts["types"])
            session.derive_messages()
        assert verify_log(str(next(tmp_path.rglob("session.jsonl.zstd")))).ok


@pytest.mark.parametrize("make", [raw_bytes, zstd_bytes])
async def test_a_root_written_by_the_reference_is_opened(tmp_path: Path, make: Any) -> None:
    """Files put in place by hand, as another build would: no lease files, rows packed over batch borders."""
    path = CORPUS / "headless-resume" / "tool-outcome-unknown" / "seed.jsonl"
    head, events, _ = hydrate(path)
    place = tmp_path / "--work~0020space--" / head.id
    place.mkdir(parents=True)
    name = "session.jsonl" if make is raw_bytes else "session.jsonl.zstd"
    (place / name).write_bytes(make(head, events))
    async with running(tmp_path) as runtime:
        assert await runtime.store.list() == [head]
        session = await runtime.resume(head.id)
        await runtime.sessions.flush(session)
        codes = [event.data["error"]["code"] for event in session.events if event.type == "tool/result"]
        assert codes == ["TOOL_OUTCOME_UNKNOWN"]
    assert sorted(entry.name for entry in place.iterdir()) == ["lease.json", "lease.lock", name]
    assert isinstance(session, Session)
