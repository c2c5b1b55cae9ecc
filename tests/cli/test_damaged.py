"""A log that was damaged in the middle: what is still there is shown, and a copy of it goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsh.sessions.errors import SessionPersistenceCorruptionError
from dsh.sessions.log_file import read_log
from dsh.sessions.salvage import readable_part
from tests.cli.kit import Place
from tests.sessions.helpers import header, log_of, raw_bytes, write_log, zstd_bytes

EVENTS = log_of(1, 2, 3)
TURN = len(log_of(1))
WRITES = [EVENTS[at : at + TURN] for at in range(0, len(EVENTS), TURN)]


@pytest.mark.parametrize("name", ["session.jsonl", "session.jsonl.zstd"])
@pytest.mark.parametrize("writes", [1, 2, 3])
def test_everything_before_the_damage_is_readable(tmp_path: Path, name: str, writes: int) -> None:
    make = zstd_bytes if name.endswith(".zstd") else raw_bytes
    data = bytearray(make(header("s"), *WRITES))
    start = len(make(header("s"), *WRITES[: writes - 1]))
    data[start + 10 : start + 30] = b"\0" * 20
    path = tmp_path / name
    path.write_bytes(data)
    if not (writes == 3 and name == "session.jsonl"):
        with pytest.raises(SessionPersistenceCorruptionError):
            read_log(str(path), "s")
    part = readable_part(str(path), "s")
    assert part.header == header("s") and part.events == EVENTS[: (writes - 1) * TURN]


def test_without_a_header_nothing_is(tmp_path: Path) -> None:
    path = tmp_path / "session.jsonl"
    path.write_bytes(b"\0" * 100 + raw_bytes(header("s"), *WRITES))
    with pytest.raises(SessionPersistenceCorruptionError):
        readable_part(str(path), "s")


async def test_a_damaged_session_is_shown_as_far_as_it_goes_and_continued_on_a_copy(tmp_path: Path) -> None:
    place = Place.make(tmp_path)
    path = write_log(place.home / "sessions", header("s", str(place.work)), *WRITES)
    head = zstd_bytes(header("s", str(place.work)), *WRITES[:1])
    data = bytearray(Path(path).read_bytes())
    data[len(head) + 10 : len(head) + 30] = b"\0" * 20
    Path(path).write_bytes(data)
    shown = await place.dsh("sessions", "show", "s")
    assert shown.code == 1 and shown.out.count("piece 0") == 1, shown
    assert f"shown are the {TURN} events before the damage" in shown.err
    refused = await place.dsh("resume", "s", "go on", "--model", "demo/demo")
    assert refused.code == 1 and "SESSION_CORRUPT" in refused.err
    assert "`dsh sessions show s` prints what is readable of it, `dsh resume s --fork`" in refused.err
    done = await place.dsh("resume", "s", "go on", "--model", "demo/demo", "--fork", "--output", "json")
    assert done.code == 0, done.err
    events = (await place.dsh("sessions", "show", done.json()["sessionId"], "--events")).lines()
    assert [e["data"]["turn"] for e in events if e["type"] == "turn/end"] == [1, 2]
    assert Path(path).read_bytes() == data
