"""Faults that trials by fire have found in stored sessions, each kept as a test."""

from __future__ import annotations

import logging
import random
from pathlib import Path

import pytest

from dsh.sessions.errors import SessionPersistenceCorruptionError
from dsh.sessions.log_file import read_text
from dsh.sessions.verify import verify_stored
from tests.sessions.helpers import header, log_of, store_at, write_log, zstd_bytes

STRAYS = [b"x", b"\n", b"no frame at all\n", bytes(4096), random.Random(1).randbytes(3000), b"\x28\xb5\x2f"]


@pytest.mark.parametrize("stray", STRAYS, ids=range(len(STRAYS)))
def test_stray_bytes_behind_the_last_frame_are_cut_and_told_once(
    tmp_path: Path, stray: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    events = log_of(1, 2)
    path = Path(write_log(tmp_path, header(), events[:5], events[5:10]))
    sound = path.read_bytes()
    path.write_bytes(sound + stray)
    (report,) = verify_stored(str(tmp_path))
    assert report.ok and report.repairs[0] == f"{len(stray)} bytes of an interrupted write are cut"
    assert read_text(str(path), "s").count(b"\n") >= 3
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            hold = store_at(tmp_path).hold("s", None)
            log = hold.read()
            assert log.events == events[:10]
            hold.mend(log, ())
            hold.release()
    assert [record.getMessage() for record in caplog.records] == [
        f'session "s": cut {len(stray)} bytes of an interrupted write from the end of its log'
    ]
    assert path.read_bytes() == sound
    hold = store_at(tmp_path).hold("s", None)
    hold.mend(hold.read(), ())
    hold.append(header(), 10, events[10:])
    hold.release()
    assert store_at(tmp_path).read("s").events == events


def test_stray_bytes_with_a_frame_behind_them_hide_something_and_are_no_torn_end(tmp_path: Path) -> None:
    events = log_of(1, 2)
    path = Path(write_log(tmp_path, header(), events[:5]))
    sound = path.read_bytes()
    last = zstd_bytes(header(), events[5:])[len(zstd_bytes(header())) :]
    path.write_bytes(sound + b"stray" + last)
    with pytest.raises(SessionPersistenceCorruptionError, match=f"no zstd frame at byte {len(sound)}"):
        store_at(tmp_path).read("s")
    path.write_bytes(b"stray" + sound)
    with pytest.raises(SessionPersistenceCorruptionError, match="no zstd frame at byte 0"):
        store_at(tmp_path).read("s")
