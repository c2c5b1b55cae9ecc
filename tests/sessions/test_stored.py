"""Listing and finding stored sessions without opening a store."""

from __future__ import annotations

import os
import stat
import time
from pathlib import Path

import pytest

from dsh.sessions import stored as stored_module
from dsh.sessions.errors import (
    AmbiguousSessionError,
    SessionFormatUnsupportedError,
    SessionLockedError,
    SessionNotFoundError,
)
from dsh.sessions.errors import SessionPersistenceCorruptionError as Corrupt
from dsh.sessions.jsonl_store import Compression
from dsh.sessions.lease import Leases
from dsh.sessions.log_file import LogWriter, read_log
from dsh.sessions.paths import session_dir
from dsh.sessions.renaming import rename_stored
from dsh.sessions.stored import (
    StoredSession,
    find_artifact,
    lease_state,
    list_stored,
    read_entry,
    resolve_stored,
    title_of,
    turn_count,
)
from dsh.sessions.title import SessionTitleInvalidError
from dsh.sessions.verify import verify_stored
from tests.sessions.helpers import LogBuilder, header, log_of, raw_bytes, store_at, write_log, zstd_bytes
from tests.sessions.runtime import running


def ids(root: Path) -> list[str]:
    return [entry.id for entry in list_stored(str(root)).sessions]


def put(root: Path, session_id: str, content: bytes, name: str = "session.jsonl", project: str = "--w--") -> Path:
    place = root / project / session_id
    place.mkdir(parents=True, exist_ok=True)
    (place / name).write_bytes(content)
    return place / name


def test_a_root_that_is_not_there_holds_nothing(tmp_path: Path) -> None:
    listing = list_stored(str(tmp_path / "nowhere"))
    assert listing.sessions == [] and listing.unreadable == []


def test_sessions_are_listed_latest_first(tmp_path: Path) -> None:
    for number, session_id in enumerate(("old", "new", "middle")):
        path = write_log(tmp_path, header(session_id, f"/w{number}"), log_of(1))
        at = {"old": 1000, "middle": 2000, "new": 3000}[session_id]
        os.utime(path, ns=(at * 10**9, at * 10**9))
    listing = list_stored(str(tmp_path))
    assert [(entry.id, entry.last_activity) for entry in listing.sessions] == [
        ("new", 3_000_000), ("middle", 2_000_000), ("old", 1_000_000),
    ]  # fmt: skip
    assert listing.sessions[2].header.cwd == "/w0"


BAD = {
    "empty": "the file is empty",
    "directory": "is a directory",
    "pipe": "is not a regular file",
    "binary": "the file holds no complete session header",
    "binary-lines": "unparsable session header",
    "damaged-frame": "no zstd frame",
    "wrong-place": "the header belongs to",
    "newer": "uses log format v1",
    "both": "holds both",
    "no id~": "is no encoded session id",
}


def put_bad_artifacts(root: Path) -> None:
    put(root, "empty", b"")
    (root / "--w--" / "directory" / "session.jsonl").mkdir(parents=True)
    (root / "--w--" / "pipe").mkdir()
    os.mkfifo(root / "--w--" / "pipe" / "session.jsonl")
    put(root, "binary", os.urandom(5000).replace(b"\n", b"x"))
    put(root, "binary-lines", b"\xff\xfe\n\x00\n")
    put(root, "damaged-frame", b"\x00\x01\x02\x03" * 30, "session.jsonl.zstd")
    put(root, "wrong-place", raw_bytes(header("other", "/w"), log_of(1)))
    put(root, "newer", raw_bytes(header("newer", "/w")).replace(b'"version":0', b'"version":1'))
    put(root, "both", raw_bytes(header("both", "/w")))
    put(root, "both", zstd_bytes(header("both", "/w")), "session.jsonl.zstd")
    put(root, "no id~", raw_bytes(header("x", "/w")))


def test_f21a_bad_artifacts_hide_nothing_and_say_what_is_wrong(tmp_path: Path) -> None:
    for number in range(10):
        write_log(tmp_path, header(f"good{number}", "/w"), log_of(1))
    put_bad_artifacts(tmp_path)
    (tmp_path / "--w--" / "flat.jsonl").write_bytes(raw_bytes(header("flat", "/w")))
    (tmp_path / "notes.txt").write_text("not a session")
    (tmp_path / "--w--" / "only-a-lease").mkdir()
    listing = list_stored(str(tmp_path))
    assert sorted(entry.id for entry in listing.sessions) == [f"good{number}" for number in range(10)]
    reasons = {Path(bad.path).relative_to(tmp_path / "--w--").parts[0]: bad.reason for bad in listing.unreadable}
    for name, reason in {**BAD, "flat.jsonl": "flat layout"}.items():
        assert reason in reasons.pop(name), name
    assert reasons == {}


async def test_f21b_the_service_lists_the_good_ones_with_one_warning_each(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_log(tmp_path, header("good", "/w"), log_of(1))
    put_bad_artifacts(tmp_path)
    async with running(tmp_path) as runtime:
        for _ in range(3):
            assert [head.id for head in await runtime.store.list()] == ["good"]
        warnings = [record.getMessage() for record in caplog.records if "stored session skipped" in record.getMessage()]
        assert len(warnings) == len(BAD)
        put(tmp_path, "binary", b"\xff\n")
        await runtime.store.list()
        assert sum("binary/" in record.getMessage() for record in caplog.records) == 2
        assert (await runtime.resume("good")).id == "good"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs another user")
def test_f21c_a_file_without_read_permission_is_named(tmp_path: Path) -> None:
    write_log(tmp_path, header("good", "/w"), log_of(1))
    path = put(tmp_path, "secret", raw_bytes(header("secret", "/w")))
    path.chmod(0)
    for directory in [*tmp_path.rglob("*"), tmp_path, *tmp_path.parents]:
        if directory.is_dir() and not directory.stat().st_mode & stat.S_IXOTH:
            directory.chmod(directory.stat().st_mode | 0o055)
    (tmp_path / "--w--" / "good" / "session.jsonl.zstd").chmod(0o644)
    os.seteuid(65534)
    try:
        listing = list_stored(str(tmp_path))
    finally:
        os.seteuid(0)
    assert [entry.id for entry in listing.sessions] == ["good"]
    assert [(bad.id, bad.reason) for bad in listing.unreadable] == [("secret", "Permission denied")]


def test_one_id_in_two_projects_is_listed_as_unreadable(tmp_path: Path) -> None:
    put(tmp_path, "s", raw_bytes(header("s", "/w")))
    put(tmp_path, "s", raw_bytes(header("s", "/v")), project="--v--")
    put(tmp_path, "t", raw_bytes(header("t", "/v")), project="--v--")
    listing = list_stored(str(tmp_path))
    assert [entry.id for entry in listing.sessions] == ["t"]
    assert {bad.id for bad in listing.unreadable} == {"s"} and len(listing.unreadable) == 2


# -- finding ----------------------------------------------------------------------------------------------------------


def test_sessions_are_found_by_id_unique_beginning_or_age(tmp_path: Path) -> None:
    for number, session_id in enumerate(("main-1", "main-12", "other", "a/b")):
        path = write_log(tmp_path, header(session_id, f"/w{number}"), log_of(1))
        os.utime(path, ns=(number * 10**9, number * 10**9))
    child = write_log(tmp_path, header("child", "/w0", origin="subagent"), log_of(1))
    os.utime(child, ns=(10**12, 10**12))
    root = str(tmp_path)
    assert resolve_stored(root, "main-1").id == "main-1"  # exact wins over being a beginning
    assert resolve_stored(root, "oth").id == "other"
    assert resolve_stored(root, "a/").id == "a/b"
    assert resolve_stored(root, last=True).id == "a/b"
    assert resolve_stored(root, last=True, cwd="/w1").id == "main-12"
    with pytest.raises(AmbiguousSessionError) as caught:
        resolve_stored(root, "main")
    assert caught.value.candidates == ["main-1", "main-12"]
    assert str(caught.value) == '"main" is the beginning of 2 session ids: main-1, main-12'
    for missing in ("nobody", "", None):
        with pytest.raises(SessionNotFoundError):
            resolve_stored(root, missing)
    with pytest.raises(SessionNotFoundError):
        resolve_stored(root, last=True, cwd="/nowhere")


def test_a_bad_session_that_was_meant_says_what_is_wrong_with_it(tmp_path: Path) -> None:
    put_bad_artifacts(tmp_path)
    with pytest.raises(SessionFormatUnsupportedError, match="newer harness"):
        resolve_stored(str(tmp_path), "newer")
    with pytest.raises(Corrupt, match="is a directory"):
        resolve_stored(str(tmp_path), "direc")
    with pytest.raises(Corrupt, match="the file is empty"):
        resolve_stored(str(tmp_path), "empty")


def test_finding_needs_no_reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_log(tmp_path, header("s", "/w"), log_of(1))
    monkeypatch.setattr(os, "open", lambda *_, **__: pytest.fail("a file was opened"))
    assert find_artifact(str(tmp_path), "s") == path
    assert find_artifact(str(tmp_path), "t") is None


# -- details ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_turns_are_counted_from_the_end(tmp_path: Path, compression: Compression) -> None:
    builder = LogBuilder()
    builder.turn(1)
    builder.turn(2, text='a lie: {"type":"turn/start","data":{"turn":99}}' * 2000, end=False)
    for _ in range(40):
        builder.add("note", {"noise": os.urandom(3000).hex()}, ignorable=True)
    write_log(tmp_path, header("s", "/w"), builder.events[:8], builder.events[8:], compression=compression)
    (entry,) = list_stored(str(tmp_path)).sessions
    assert turn_count(entry) == 2
    empty = put(tmp_path, "e", raw_bytes(header("e", "/w")))
    assert turn_count(StoredSession("e", header("e", "/w"), str(empty), 0, 0, "")) == 0


@pytest.mark.parametrize("torn", [0, 1, 20, 70_000])
def test_a_torn_end_does_not_confuse_the_count(tmp_path: Path, torn: int) -> None:
    builder = LogBuilder()
    for number in range(1, 4):
        builder.turn(number)
    builder.add("note", {"noise": os.urandom(40_000).hex()}, ignorable=True)
    path = write_log(tmp_path, header("s", "/w"), builder.events, compression="none")
    os.truncate(path, os.path.getsize(path) - torn)
    (entry,) = list_stored(str(tmp_path)).sessions
    assert turn_count(entry) == 3


def test_the_holder_of_a_session_is_shown(tmp_path: Path) -> None:
    write_log(tmp_path, header("s", "/w"), log_of(1))
    (entry,) = list_stored(str(tmp_path)).sessions
    assert not lease_state(entry).locked
    hold = store_at(tmp_path).hold("s", None)
    state = lease_state(entry)
    assert state.locked and state.record.pid == os.getpid() and state.record.host == os.uname().nodename
    hold.release()
    assert not lease_state(entry).locked
    put(tmp_path, "foreign", raw_bytes(header("foreign", "/w")))
    assert not lease_state(resolve_stored(str(tmp_path), "foreign")).locked


# -- speed ------------------------------------------------------------------------------------------------------------


def test_b31_many_sessions_list_quickly_and_a_second_time_without_reading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = LogWriter(durable=False)
    for number in range(2000):
        head = header(f"main-session-{number:05}", f"/home/me/project{number % 10}")
        place = session_dir(str(tmp_path), head.cwd, head.id)
        os.makedirs(place)
        writer.create(os.path.join(place, "session.jsonl.zstd"), head, [])
    cache: dict[str, object] = {}
    began = time.perf_counter()
    assert len(list_stored(str(tmp_path), cache=cache).sessions) == 2000  # type: ignore[arg-type]
    assert time.perf_counter() - began < 5
    reads: list[str] = []
    read = stored_module.read_header
    monkeypatch.setattr(stored_module, "read_header", lambda path, *rest: reads.append(path) or read(path, *rest))
    changed = session_dir(str(tmp_path), "/home/me/project7", "main-session-00007")
    with open(os.path.join(changed, "session.jsonl.zstd"), "ab") as file:
        file.write(zstd_bytes(header(), log_of(1)))
    assert len(list_stored(str(tmp_path), cache=cache).sessions) == 2000  # type: ignore[arg-type]
    assert reads == [os.path.join(changed, "session.jsonl.zstd")]


# -- verifying --------------------------------------------------------------------------------------------------------


def tree(root: Path) -> dict[str, tuple[int, int, bytes]]:
    return {
        str(path): (path.stat().st_mtime_ns, path.stat().st_mode, path.read_bytes() if path.is_file() else b"")
        for path in sorted(root.rglob("*"))
    }


def test_verifying_reports_every_log_and_writes_nothing(tmp_path: Path) -> None:
    write_log(tmp_path, header("good", "/w"), log_of(1, 2))
    torn = write_log(tmp_path, header("torn", "/w"), log_of(1, end=False), compression="none")
    os.truncate(torn, os.path.getsize(torn) - 4)
    unknown = LogBuilder()
    unknown.add("weather/report", {})
    write_log(tmp_path, header("unknown", "/w"), unknown.events)
    surface = LogBuilder()
    surface.add("user/message", {"id": "x"}, surface_op="append")
    write_log(tmp_path, header("surface", "/w"), surface.events)
    damaged = Path(write_log(tmp_path, header("damaged", "/w"), log_of(1), log_of(1, 2)[len(log_of(1)) :]))
    content = bytearray(damaged.read_bytes())
    content[-40] ^= 0xFF
    damaged.write_bytes(content)
    put_bad_artifacts(tmp_path)
    before = tree(tmp_path)
    reports = {report.id or Path(report.path).parent.name: report for report in verify_stored(str(tmp_path))}
    assert tree(tmp_path) == before

    good = reports.pop("good")
    assert good.ok and (good.events, good.turns, good.repairs) == (len(log_of(1, 2)), 2, [])
    mended = reports.pop("torn")
    assert mended.ok and len(mended.repairs) == 2
    assert "bytes of an interrupted write are cut" in mended.repairs[0] and "closed with" in mended.repairs[1]
    assert 'event type "weather/report" (seq 0)' in reports.pop("unknown").problems[0]
    assert "message" in reports.pop("surface").problems[0]
    assert not reports.pop("damaged").ok
    for name, reason in BAD.items():
        assert reason in reports.pop("no id~" if name == "no id~" else name).problems[0]
    assert reports == {}


def test_verifying_one_session(tmp_path: Path) -> None:
    write_log(tmp_path, header("good", "/w"), log_of(1))
    unknown = LogBuilder()
    unknown.add("weather/report", {})
    write_log(tmp_path, header("plugin", "/w"), unknown.events)
    assert [report.ok for report in verify_stored(str(tmp_path), "good")] == [True]
    assert [report.ok for report in verify_stored(str(tmp_path), "plugin", {"weather/report"})] == [True]
    assert [report.problems for report in verify_stored(str(tmp_path), "nobody")] == [["not found"]]
    hold = store_at(tmp_path).hold("good", None)
    assert f"open in pid {os.getpid()}" in next(verify_stored(str(tmp_path), "good")).notes[0]
    hold.release()


@pytest.mark.parametrize("compression", ["none", "zstd"])
@pytest.mark.parametrize("noise", [0, 40])
def test_the_latest_title_is_found_wherever_it_stands(tmp_path: Path, compression: Compression, noise: int) -> None:
    builder = LogBuilder()
    builder.turn(1, text='a lie: {"type":"session/title","data":{"title":"no"}}')
    for title in ("first", "latest"):
        builder.add("session/title", {"title": title, "messageSeqs": [], "source": {"kind": "user"}})
    first = len(builder.events)
    for _ in range(noise):
        builder.add("note", {"noise": os.urandom(3000).hex()}, ignorable=True)
    write_log(tmp_path, header("s", "/w"), builder.events[:first], builder.events[first:], compression=compression)
    write_log(tmp_path, header("t", "/w"), log_of(1), compression=compression)
    assert {entry.id: title_of(entry) for entry in list_stored(str(tmp_path)).sessions} == {"s": "latest", "t": None}


@pytest.mark.parametrize("torn", [0, 7])
@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_a_closed_session_is_renamed_behind_what_is_sound_of_it(
    tmp_path: Path, compression: Compression, torn: int
) -> None:
    events = log_of(2)
    path = write_log(tmp_path, header("s", "/w"), events[:-1], events[-1:], compression=compression)
    os.truncate(path, os.path.getsize(path) - torn)
    (entry,) = list_stored(str(tmp_path)).sessions
    assert rename_stored(str(tmp_path), entry, " Mine\x07 ") == "Mine"
    log = read_log(str(path), "s")
    kept = events[:-1] if torn else events
    assert log.events[:-1] == kept
    assert (log.events[-1].seq, log.events[-1].type) == (len(kept), "session/title")
    assert title_of(read_entry(str(path), "s")) == "Mine"


def test_a_session_that_is_open_somewhere_is_not_renamed(tmp_path: Path) -> None:
    path = write_log(tmp_path, header("s", "/w"), log_of(1))
    (entry,) = list_stored(str(tmp_path)).sessions
    lease = Leases().acquire("s", entry.directory)
    before = Path(path).read_bytes()
    with pytest.raises(SessionLockedError):
        rename_stored(str(tmp_path), entry, "Mine")
    lease.release()
    with pytest.raises(SessionTitleInvalidError):
        rename_stored(str(tmp_path), entry, "\x1b[0m")
    assert Path(path).read_bytes() == before


def test_a_session_is_found_by_a_part_of_its_title(tmp_path: Path) -> None:
    for session_id, title in (("a1", "Mend the build"), ("b2", "Mend the tests"), ("c3", "Build")):
        builder = LogBuilder()
        builder.turn(1)
        builder.add("session/title", {"title": title, "messageSeqs": [], "source": {"kind": "user"}})
        write_log(tmp_path, header(session_id, "/w"), builder.events)
    write_log(tmp_path, header("mend-this", "/w"), log_of(1))
    put(tmp_path, "bad", b"no log\n")
    root = str(tmp_path)
    assert resolve_stored(root, "the TESTS").id == "b2"
    assert resolve_stored(root, "mend").id == "mend-this"  # ids go first
    with pytest.raises(AmbiguousSessionError, match='"build" is in the titles of 2 sessions') as caught:
        resolve_stored(root, "build")
    assert sorted(caught.value.candidates) == ["a1", "c3"]
    with pytest.raises(SessionNotFoundError):
        resolve_stored(root, "nothing")
