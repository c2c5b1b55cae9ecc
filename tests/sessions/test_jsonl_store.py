"""Creating, appending to and mending log files, on disks and mounts that misbehave."""

from __future__ import annotations

import errno
import fcntl
import os
import time
from pathlib import Path

import pytest

from dsh.sessions.errors import (
    SessionCollisionError,
    SessionFencedError,
    SessionNotFoundError,
    SessionPersistenceCorruptionError,
)
from dsh.sessions.jsonl_store import Compression
from dsh.sessions.lease import Lease, Leases, read_record
from dsh.sessions.log_file import read_log
from tests.sessions.helpers import LogBuilder, header, log_of, raw_bytes, store_at, write_log, zstd_bytes

BOTH = pytest.mark.parametrize("compression", ["none", "zstd"])


def names(directory: str | Path) -> list[str]:
    return sorted(os.listdir(directory))


@BOTH
def test_a_session_is_created_with_its_first_batch_and_private(tmp_path: Path, compression: Compression) -> None:
    path = write_log(tmp_path / "root", header(), log_of(1), compression=compression)
    assert read_log(path, "s").events == log_of(1)
    assert Path(path).stat().st_mode & 0o777 == 0o600
    for directory in (Path(path).parent, Path(path).parents[1], tmp_path / "root"):
        assert directory.stat().st_mode & 0o777 == 0o700
    assert path.endswith("session.jsonl" if compression == "none" else "session.jsonl.zstd")


@BOTH
def test_batches_follow_each_other(tmp_path: Path, compression: Compression) -> None:
    events = log_of(1, 2)
    path = write_log(tmp_path, header(), events[:3], events[3:7], events[7:], compression=compression)
    assert read_log(path, "s").events == events


def test_an_append_is_one_write_and_one_fsync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hold = store_at(tmp_path, durable=True).hold("s", "/w")
    events = log_of(1, 2)
    hold.append(header(cwd="/w"), 0, events[:3])
    calls: list[str] = []
    write, fsync = os.write, os.fsync
    monkeypatch.setattr(os, "write", lambda fd, data: calls.append("write") or write(fd, data))
    monkeypatch.setattr(os, "fsync", lambda fd: calls.append("fsync") or fsync(fd))
    hold.append(header(cwd="/w"), 3, events[3:])
    assert calls == ["write", "fsync"]
    hold.release()


def test_b31_an_append_reads_nothing_of_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events = log_of(1, 2)
    hold = store_at(tmp_path).hold("s", "/w")
    hold.append(header(cwd="/w"), 0, events[:3])
    monkeypatch.setattr("dsh.sessions.jsonl_store.read_log", lambda *_: pytest.fail("the log was read"))
    for at in range(3, len(events)):
        hold.append(header(cwd="/w"), at, events[at : at + 1])
    monkeypatch.undo()
    assert hold.read().events == events
    hold.release()


def test_b31_a_long_log_opens_in_bounded_time(tmp_path: Path) -> None:
    builder = LogBuilder()
    for number in range(1, 2001):
        builder.turn(number, chunks=44)
    assert len(builder.events) == 100_000
    path = write_log(tmp_path, header(), *(builder.events[at : at + 50] for at in range(0, 100_000, 50)))
    began = time.perf_counter()
    log = read_log(path, "s")
    assert time.perf_counter() - began < 5
    assert len(log.events) == 100_000 and log.events[-1] == builder.events[-1]


def test_durability_os_does_not_wait_for_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda fd: pytest.fail("fsync was called"))
    path = write_log(tmp_path, header(), log_of(1))
    assert read_log(path, "s").events == log_of(1)


def test_new_directories_and_the_published_name_are_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    fsync = os.fsync

    def spy(fd: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{fd}"))
        fsync(fd)

    monkeypatch.setattr(os, "fsync", spy)
    root = tmp_path / "a" / "root"
    hold = store_at(root, durable=True).hold("s", "/w")
    hold.append(header(cwd="/w"), 0, log_of(1))
    hold.release()
    for directory in (tmp_path, tmp_path / "a", root, root / "--w--", root / "--w--" / "s"):
        assert str(directory) in synced


@BOTH
def test_b03a_a_failed_append_is_cut_away_and_can_be_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compression: Compression
) -> None:
    events = log_of(1, 2)
    hold = store_at(tmp_path, compression).hold("s", "/w")
    head = header(cwd="/w")
    hold.append(head, 0, events[:5])
    before = Path(hold.path or "").read_bytes()
    write = os.write
    with monkeypatch.context() as full:

        def short(fd: int, data: memoryview) -> int:
            if len(data) > 10:
                return write(fd, data[:10])
            raise OSError(errno.ENOSPC, "No space left on device")

        full.setattr(os, "write", short)
        with pytest.raises(OSError, match="No space left") as caught:
            hold.append(head, 5, events[5:])
        assert caught.value.filename == hold.path
    assert Path(hold.path or "").read_bytes() == before
    hold.append(head, 5, events[5:])
    assert hold.read().events == events
    hold.release()


def test_b03b_a_failed_fsync_does_not_leave_the_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events = log_of(1, 2)
    hold = store_at(tmp_path, durable=True).hold("s", "/w")
    head = header(cwd="/w")
    hold.append(head, 0, events[:5])

    def refuse(fd: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as broken:
        broken.setattr(os, "fsync", refuse)
        with pytest.raises(OSError, match="Input/output error"):
            hold.append(head, 5, events[5:])
    assert hold.read().events == events[:5]
    hold.append(head, 5, events[5:])
    assert hold.read().events == events
    hold.release()


@BOTH
def test_b03c_an_append_that_could_not_be_taken_back_is_mended_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compression: Compression
) -> None:
    events = log_of(1, 2)
    hold = store_at(tmp_path, compression).hold("s", "/w")
    head = header(cwd="/w")
    hold.append(head, 0, events[:5])
    write = os.write

    def short(fd: int, data: memoryview) -> int:
        if len(data) > 40:
            return write(fd, data[:30])
        raise OSError(errno.EIO, "Input/output error")

    def stuck(fd: int, size: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as broken:
        broken.setattr(os, "write", short)
        broken.setattr(os, "ftruncate", stuck)
        with pytest.raises(OSError, match="taken back"):
            hold.append(head, 5, events[5:])
    assert hold.read().torn
    hold.append(head, 5, events[5:])
    log = hold.read()
    assert log.events == events and not log.torn
    hold.release()


def test_b12a_repeating_a_batch_whose_reply_was_lost_stores_it_once(tmp_path: Path) -> None:
    events = log_of(1, 2)
    hold = store_at(tmp_path).hold("s", "/w")
    head = header(cwd="/w")
    hold.append(head, 0, events[:5])
    hold.append(head, 5, events[5:])
    hold.append(head, 5, events[5:])
    hold.append(head, 3, events[3:7])
    assert hold.read().events == events
    with pytest.raises(SessionPersistenceCorruptionError, match="other events"):
        hold.append(head, 5, log_of(1, 3)[5:])
    hold.release()


def test_b12b_an_append_that_leaves_a_gap_is_refused(tmp_path: Path) -> None:
    events = log_of(1, 2)
    hold = store_at(tmp_path).hold("s", "/w")
    hold.append(header(cwd="/w"), 0, events[:5])
    with pytest.raises(SessionFencedError, match="holds 5 events and the next was to be number 6"):
        hold.append(header(cwd="/w"), 6, events[6:])
    hold.release()


@BOTH
def test_a_tail_written_without_the_lease_is_noticed(tmp_path: Path, compression: Compression) -> None:
    events = log_of(1, 2)
    head = header(cwd="/w")
    hold = store_at(tmp_path, compression).hold("s", "/w")
    hold.append(head, 0, events[:5])
    foreign = raw_bytes(head, events[5:7]) if compression == "none" else zstd_bytes(head, events[5:7])
    headless = raw_bytes(head) if compression == "none" else zstd_bytes(head)
    with open(hold.path or "", "ab") as file:
        file.write(foreign[len(headless) :])
    with pytest.raises(SessionPersistenceCorruptionError, match="other events"):
        hold.append(head, 5, log_of(9)[5:])
    hold.append(head, 5, events[5:])
    assert hold.read().events == events
    hold.release()


# -- mounts without the clever calls ----------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [errno.EPERM, errno.ENOTSUP, errno.ENOSYS])
def test_f23a_without_hard_links_a_log_is_still_published_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def no_links(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "link", no_links)
    path = write_log(tmp_path, header(), log_of(1))
    assert read_log(path, "s").events == log_of(1)
    assert names(Path(path).parent) == ["lease.json", "lease.lock", "session.jsonl.zstd"]


def test_f23b_without_hard_links_nothing_is_overwritten_either(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_links(*_: object, **__: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", no_links)
    hold = store_at(tmp_path, "none").hold("s", "/w")
    target = tmp_path / "--w--" / "s" / "session.jsonl"
    target.write_bytes(raw_bytes(header(cwd="/w"), log_of(1)))
    before = target.read_bytes()
    with pytest.raises(SessionCollisionError):
        hold.append(header(cwd="/w"), 0, log_of(1, 2))
    assert target.read_bytes() == before
    assert "session.jsonl" in names(target.parent) and not [n for n in names(target.parent) if n.endswith(".tmp")]
    hold.release()


def test_f23c_a_full_disk_at_creation_leaves_no_half_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hold = store_at(tmp_path).hold("s", "/w")
    write = os.write

    def full(fd: int, data: memoryview) -> int:
        if len(data) > 20:
            return write(fd, data[:20])
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(os, "write", full)
        with pytest.raises(OSError, match="No space left"):
            hold.append(header(cwd="/w"), 0, log_of(1))
    assert not [name for name in names(hold.lease.directory) if name.startswith("session")]
    hold.append(header(cwd="/w"), 0, log_of(1))
    assert hold.read().events == log_of(1)
    hold.release()


def test_an_empty_file_left_by_a_crashed_creation_counts_as_nothing(tmp_path: Path) -> None:
    directory = tmp_path / "--w--" / "s"
    directory.mkdir(parents=True)
    (directory / "session.jsonl.zstd").touch()
    (directory / "session.jsonl.zstd.0123456789ab.tmp").write_bytes(b"half")
    hold = store_at(tmp_path).hold("s", "/w")
    assert not hold.exists
    hold.append(header(cwd="/w"), 0, log_of(1))
    hold.release()
    log = read_log(str(directory / "session.jsonl.zstd"), "s")
    assert log.events == log_of(1)
    assert names(directory) == ["lease.json", "lease.lock", "session.jsonl.zstd"]


def test_a_directory_that_cannot_be_synced_is_no_reason_to_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fsync = os.fsync

    def picky(fd: int) -> None:
        if os.path.isdir(f"/proc/self/fd/{fd}"):
            raise OSError(errno.EINVAL, "Invalid argument")
        fsync(fd)

    monkeypatch.setattr(os, "fsync", picky)
    hold = store_at(tmp_path, durable=True).hold("s", "/w")
    hold.append(header(cwd="/w"), 0, log_of(1))
    hold.release()


# -- opening ----------------------------------------------------------------------------------------------------------


def test_a_hold_on_something_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(SessionNotFoundError, match='session "nobody" not found'):
        store_at(tmp_path).hold("nobody", None, must_exist=True)
    assert names(tmp_path) == []


def test_a_hold_that_wrote_nothing_leaves_nothing(tmp_path: Path) -> None:
    hold = store_at(tmp_path).hold("s", "/w")
    assert (tmp_path / "--w--" / "s" / "lease.json").exists()
    hold.release()
    assert names(tmp_path / "--w--") == []


@BOTH
def test_b06g_mending_cuts_the_tear_and_stores_what_was_recovered(tmp_path: Path, compression: Compression) -> None:
    builder = LogBuilder()
    for _ in range(6):
        builder.add("x", {"noise": os.urandom(60_000).hex()}, ignorable=True)
    path = write_log(tmp_path, header(), builder.events[:1], builder.events[1:], compression=compression)
    os.truncate(path, os.path.getsize(path) - 1000)
    store = store_at(tmp_path)
    hold = store.hold("s", None)
    log = hold.read()
    kept = len(log.events)
    assert log.torn and 1 < kept < 6
    extra = log.events[-1].seq + 1
    closer = LogBuilder()
    closer.events = list(log.events)
    closer.add("turn/end", {"turn": 1})
    hold.mend(log, closer.events[kept:])
    hold.release()
    again = read_log(path, "s")
    assert again.events == closer.events and again.events[extra].type == "turn/end" and not again.torn


def test_a_log_that_changes_while_it_is_mended_is_refused(tmp_path: Path) -> None:
    path = write_log(tmp_path, header(), log_of(1), compression="none")
    os.truncate(path, os.path.getsize(path) - 3)
    hold = store_at(tmp_path).hold("s", None)
    log = hold.read()
    with open(path, "ab") as file:
        file.write(b"more")
    with pytest.raises(SessionFencedError, match="changed while it was read"):
        hold.mend(log, ())
    hold.release()


def test_the_header_must_belong_where_the_log_stands(tmp_path: Path) -> None:
    path = write_log(tmp_path, header("one", "/w"), log_of(1))
    moved = tmp_path / "--elsewhere--" / "one"
    moved.parent.mkdir()
    os.rename(Path(path).parent, moved)
    with pytest.raises(SessionPersistenceCorruptionError, match="the header belongs to"):
        store_at(tmp_path).read("one")


def test_an_alias_of_the_same_directory_is_no_damage(tmp_path: Path) -> None:
    path = write_log(tmp_path, header("one", "/w"), log_of(1))
    (tmp_path / "--alias--").symlink_to(tmp_path / "--w--")
    alias = tmp_path / "--alias--" / "one" / os.path.basename(path)
    assert store_at(tmp_path).read_path(str(alias), "one").events == log_of(1)


def test_both_encodings_of_one_session_are_an_error(tmp_path: Path) -> None:
    path = write_log(tmp_path, header(), log_of(1))
    Path(path).with_name("session.jsonl").write_bytes(raw_bytes(header(), log_of(1)))
    with pytest.raises(SessionPersistenceCorruptionError, match="more than one log"):
        store_at(tmp_path).hold("s", None)


def test_a_hold_that_is_refused_late_does_not_reset_the_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_log(tmp_path, header(cwd="/w"), log_of(1))
    acquire = Leases.acquire

    def meanwhile(self: Leases, session_id: str, directory: str) -> Lease:
        lease = acquire(self, session_id, directory)
        Path(path).with_name("session.jsonl").write_bytes(raw_bytes(header(cwd="/w"), log_of(1)))
        return lease

    monkeypatch.setattr(Leases, "acquire", meanwhile)
    with pytest.raises(SessionPersistenceCorruptionError, match="more than one log"):
        store_at(tmp_path).hold("s", None)
    assert read_record(os.path.dirname(path)).token == 2


def test_a_mount_without_locks_is_named_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def no_locks(*_: object) -> None:
        raise OSError(errno.ENOTSUP, "Operation not supported")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    store = store_at(tmp_path)
    for session_id in ("a", "b"):
        hold = store.hold(session_id, "/w")
        hold.append(header(session_id, "/w"), 0, log_of(1))
        hold.append(header(session_id, "/w"), len(log_of(1)), log_of(1, 2)[len(log_of(1)) :])
        assert hold.lease.expires and hold.read().events == log_of(1, 2)
        hold.release()
    assert caplog.text.count("has no file locks") == 1


def test_one_id_in_two_projects_is_an_error(tmp_path: Path) -> None:
    write_log(tmp_path / "a", header(cwd="/one"), log_of(1))
    write_log(tmp_path / "b", header(cwd="/two"), log_of(1))
    os.rename(tmp_path / "b" / "--two--", tmp_path / "a" / "--two--")
    with pytest.raises(SessionPersistenceCorruptionError, match="more than one log"):
        store_at(tmp_path / "a").read("s")


def test_the_flat_layout_of_old_builds_is_an_error(tmp_path: Path) -> None:
    flat = tmp_path / "--w--" / "s.jsonl"
    flat.parent.mkdir()
    flat.write_bytes(raw_bytes(header(cwd="/w"), log_of(1)))
    with pytest.raises(SessionPersistenceCorruptionError, match="flat layout"):
        store_at(tmp_path).read("s")


@pytest.mark.parametrize(("held", "asked", "name"), [
    (None, None, "session.jsonl.zstd"),
    ("none", None, "session.jsonl"),
    ("zstd", None, "session.jsonl.zstd"),
    ("none", "zstd", "session.jsonl.zstd"),
    (None, "none", "session.jsonl"),
])  # fmt: skip
def test_new_logs_follow_the_root_unless_told_otherwise(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, held: Compression | None, asked: Compression | None, name: str
) -> None:
    if held is not None:
        write_log(tmp_path, header("old"), log_of(1), compression=held)
    hold = store_at(tmp_path, asked).hold("new", "/w")
    hold.append(header("new", "/w"), 0, log_of(1))
    assert os.path.basename(hold.path or "") == name
    hold.release()
    assert ("other builds refuse such a root" in caplog.text) == (held == "none" and asked == "zstd")


def test_a_log_keeps_its_own_encoding(tmp_path: Path) -> None:
    events = log_of(1, 2)
    path = write_log(tmp_path, header(), events[:4], compression="none")
    hold = store_at(tmp_path, "zstd").hold("s", None)
    hold.mend(hold.read(), ())
    hold.append(header(), 4, events[4:])
    hold.release()
    assert path.endswith(".jsonl") and read_log(path, "s").events == events


def test_deleting_removes_everything_of_a_session(tmp_path: Path) -> None:
    path = write_log(tmp_path, header(cwd="/w"), log_of(1))
    other = write_log(tmp_path, header("other", cwd="/w"), log_of(1))
    attachments = Path(path).parent / "media"
    attachments.mkdir()
    (attachments / "x.png").write_bytes(b"x")
    store = store_at(tmp_path)
    store.hold("s", None, must_exist=True).delete()
    assert names(tmp_path / "--w--") == ["other"]
    assert store.read("other").events == log_of(1) and os.path.exists(other)
    with pytest.raises(SessionNotFoundError):
        store.read("s")


def test_names_of_every_kind_can_be_written(tmp_path: Path) -> None:
    cwd = "/ä 目录 'q' 😀/" + "long " * 100
    root = tmp_path / "ä 目录 'q' 😀"
    for session_id in ("a b", "..", "a/b", "😀", "con", "A", "a"):
        write_log(root, header(session_id, cwd), log_of(1))
    listing = store_at(root).listing()
    assert {entry.id for entry in listing.sessions} == {"a b", "..", "a/b", "😀", "con", "A", "a"}
    assert not listing.unreadable
