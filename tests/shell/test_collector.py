"""The end of a stream in memory, all of it in a file."""

from __future__ import annotations

import os
import random
import stat
from pathlib import Path

import pytest

from dsh.shell import collector
from dsh.shell.collector import Collector, SpillDirectory
from dsh.shell.service import Collect


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collector.tempfile, "tempdir", str(tmp_path))


def test_b08a_exactly_the_last_bytes_are_kept() -> None:
    random.seed(5)
    for _ in range(200):
        limit = random.randrange(1, 50)
        taker = Collector(Collect(limit), SpillDirectory())
        whole = b""
        for _ in range(random.randrange(12)):
            data = bytes(random.choice(b"abc") for _ in range(random.randrange(1, 40)))
            taker.feed(data)
            whole += data
        read = taker.read_from(0)
        assert read.text == whole[-limit:].decode()
        assert read.lossy == (len(whole) > limit)
        assert read.next_offset == len(whole)


def test_b08b_the_first_overflow_spills_the_whole_stream() -> None:
    taker = Collector(Collect(10, 1000), SpillDirectory())
    taker.feed(b"123456")
    assert taker.read_from(0).spill_path is None
    taker.feed(b"7890AB")
    taker.feed(b"CD")
    taker.finish()
    read = taker.read_from(0)
    assert (read.text, read.lossy) == ("567890ABCD", True)
    assert read.spill_path is not None
    assert Path(read.spill_path).read_text() == "1234567890ABCD"
    assert stat.S_IMODE(os.stat(read.spill_path).st_mode) == 0o600
    assert stat.S_IMODE(os.stat(os.path.dirname(read.spill_path)).st_mode) == 0o700


def test_b08c_an_oversize_spill_is_deleted(tmp_path: Path) -> None:
    taker = Collector(Collect(10, 20), SpillDirectory())
    taker.feed(b"x" * 15)
    assert taker.read_from(0).spill_path is not None
    taker.feed(b"y" * 6)
    taker.feed(b"z" * 6)
    taker.finish()
    read = taker.read_from(0)
    assert (read.text, read.spill_path) == ("yyyyzzzzzz", None)
    assert not [file for file in tmp_path.rglob("*") if file.is_file()]


def test_b08d_a_full_disk_gives_the_file_up_and_keeps_the_tail(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    taker = Collector(Collect(10, 1000), SpillDirectory())
    taker.feed(b"x" * 15)
    monkeypatch.setattr(collector.os, "write", full)
    taker.feed(b"y" * 5)
    taker.finish()
    assert taker.read_from(0).text == "xxxxxyyyyy"
    assert taker.read_from(0).spill_path is None
    assert not [file for file in tmp_path.rglob("*") if file.is_file()]


def test_b08e_a_file_that_could_not_be_closed_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    taker = Collector(Collect(10, 1000), SpillDirectory())
    taker.feed(b"x" * 15)

    def broken(fd: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(collector.os, "close", broken)
    taker.finish()
    assert taker.read_from(0).spill_path is None


def test_b08f_reading_consumes_nothing_and_a_delta_repeats_nothing() -> None:
    taker = Collector(Collect(8), SpillDirectory())
    taker.feed(b"abc")
    first = taker.read_from(0)
    assert taker.read_from(0) == first
    taker.feed(b"def")
    second = taker.read_from(first.next_offset)
    assert (first.text, second.text, second.lossy) == ("abc", "def", False)
    taker.feed(b"0123456789")
    third = taker.read_from(second.next_offset)
    assert (third.text, third.lossy) == ("23456789", True)
    assert taker.read_from(third.next_offset).text == ""


def test_a_character_in_two_pieces_is_one_character() -> None:
    taker = Collector(Collect(100), SpillDirectory())
    text = ""
    offset = 0
    for byte in "ä目😀".encode():
        taker.feed(bytes([byte]))
        read = taker.read_from(offset)
        text, offset = text + read.text, read.next_offset
    assert text == "ä目😀"


def test_a_cut_at_the_beginning_leaves_no_broken_character() -> None:
    taker = Collector(Collect(5), SpillDirectory())
    taker.feed("目目目".encode())
    taker.finish()
    assert taker.read_from(0).text == "目"


def test_f47a_bytes_that_are_no_text_are_marked() -> None:
    taker = Collector(Collect(100), SpillDirectory())
    taker.feed(b"\xff\xfe\x00ok\xf0\x9f")
    assert taker.read_from(0).text == "\ufffd\ufffd\ufffdok"  # the last two bytes may still become a character
    taker.finish()
    read = taker.read_from(0)
    assert read.text == "\ufffd\ufffd\ufffdok\ufffd"
    read.text.encode()
    taker = Collector(Collect(100_000), SpillDirectory())
    taker.feed(os.urandom(4000))
    taker.finish()
    taker.read_from(0).text.encode()
