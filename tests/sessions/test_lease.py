"""One writer at a time: between processes, across crashes, with and without locks of the operating system."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import signal
import time
from pathlib import Path

import pytest

from dsh.sessions.errors import SessionFencedError, SessionLockedError
from dsh.sessions.lease import Lease, LeaseRecord, Leases, LeaseState, probe
from tests.sessions.helpers import Child, header, log_of, store_at, write_log

HOLDER = """
    from dsh.sessions.lease import Leases
    mode, directory = sys.argv[1], sys.argv[2]
    ttl = int(sys.argv[3]) if len(sys.argv) > 3 else 15000
    lease = Leases(mode, ttl).acquire("s", directory)
    say(str(lease.token))
    while (word := hear()):
        try:
            lease.renew() if word == "renew" else lease.check()
            say("ok")
        except Exception as error:
            say(f"{type(error).__name__}: {error}")
"""


def acquire(directory: Path, leases: Leases | None = None) -> Lease:
    return (leases or Leases()).acquire("s", str(directory))


def test_the_record_holds_token_and_holder(tmp_path: Path) -> None:
    leases = Leases()
    lease = acquire(tmp_path, leases)
    record = json.loads((tmp_path / "lease.json").read_bytes())
    assert record == {
        "token": 1,
        "holder": {
            "host": os.uname().nodename,
            "pid": os.getpid(),
            "startedAt": leases.holder.started_at,
            "runId": leases.holder.run_id,
        },
    }
    assert lease.left_ms() is None
    lease.release()


def test_the_token_grows_with_every_acquisition(tmp_path: Path) -> None:
    for token in (1, 2, 3):
        lease = acquire(tmp_path)
        assert lease.token == token
        lease.check()
        lease.release()
        lease.release()
    assert sorted(os.listdir(tmp_path)) == ["lease.json", "lease.lock"]


def test_two_holders_in_one_process_exclude_each_other(tmp_path: Path) -> None:
    lease = acquire(tmp_path)
    with pytest.raises(SessionLockedError):
        acquire(tmp_path)
    lease.release()
    acquire(tmp_path).release()


def test_b12c_a_second_process_is_refused_in_one_sentence(tmp_path: Path) -> None:
    with Child(HOLDER, "auto", str(tmp_path)) as child:
        assert child.hear() == "1"
        with pytest.raises(SessionLockedError) as caught:
            acquire(tmp_path)
        assert re.fullmatch(
            rf'session "s" is open in pid {child.pid} on {re.escape(os.uname().nodename)} since '
            r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ; close it there, or continue on a copy with --fork",
            str(caught.value),
        )
        assert caught.value.code == "SESSION_LOCKED"
        child.signal(signal.SIGSTOP)
        with pytest.raises(SessionLockedError):  # a paused owner keeps its lock
            acquire(tmp_path)
        child.signal(signal.SIGKILL)
        child.process.wait()
        lease = acquire(tmp_path)  # a dead one does not
        assert lease.token == 2
        lease.release()


def test_f20a_a_lock_does_not_live_on_in_a_forked_child(tmp_path: Path) -> None:
    code = """
        import os, time
        from dsh.sessions.lease import Leases
        lease = Leases().acquire("s", sys.argv[1])
        if os.fork() == 0:
            say("forked")
            time.sleep(60)
            os._exit(0)
        time.sleep(60)
    """
    with Child(code, str(tmp_path)) as child:
        assert child.hear() == "forked"
        with pytest.raises(SessionLockedError):
            acquire(tmp_path)
        child.signal(signal.SIGKILL)
        child.process.wait()
        acquire(tmp_path).release()


def test_f20b_a_command_started_by_the_holder_does_not_keep_the_lock(tmp_path: Path) -> None:
    code = """
        import subprocess
        from dsh.sessions.lease import Leases
        lease = Leases().acquire("s", sys.argv[1])
        process = subprocess.Popen(["sleep", "60"], close_fds=False)
        say(str(process.pid))
        hear()
    """
    with Child(code, str(tmp_path)) as child:
        orphan = int(child.hear())
        child.signal(signal.SIGKILL)
        child.process.wait()
        try:
            acquire(tmp_path).release()
        finally:
            os.kill(orphan, signal.SIGKILL)


@pytest.mark.parametrize("how", ["unlink lock", "replace lock", "unlink record", "touch record"])
def test_b12d_a_lease_whose_files_were_meddled_with_is_no_lease(tmp_path: Path, how: str) -> None:
    lease = acquire(tmp_path)
    lock, record = tmp_path / "lease.lock", tmp_path / "lease.json"
    if how == "unlink lock":
        lock.unlink()
    elif how == "replace lock":
        (tmp_path / "new").touch()
        os.replace(tmp_path / "new", lock)
    elif how == "unlink record":
        record.unlink()
    else:
        os.utime(record, ns=(1, 1))
    with pytest.raises(SessionFencedError, match="its lease files were removed or replaced") as caught:
        lease.check()
    assert caught.value.code == "SESSION_FENCED"
    lease.release()


def test_b12e_a_fenced_holder_is_told_who_took_over(tmp_path: Path) -> None:
    lease = acquire(tmp_path)
    (tmp_path / "lease.lock").unlink()
    with Child(HOLDER, "auto", str(tmp_path)) as child:
        assert child.hear() == "2"
        with pytest.raises(SessionFencedError) as caught:
            lease.check()
        assert str(caught.value) == (
            f'session "s": write refused, the session was taken over by pid {child.pid} on {os.uname().nodename}'
        )
    lease.release()
    assert json.loads((tmp_path / "lease.json").read_bytes())["token"] == 2


def test_a_lost_lease_does_not_disturb_its_successor(tmp_path: Path) -> None:
    old = acquire(tmp_path)
    (tmp_path / "lease.lock").unlink()
    new = acquire(tmp_path)
    old.release()
    new.check()
    new.release()


def test_a_damaged_record_is_no_obstacle(tmp_path: Path) -> None:
    for content in (b"", b"\xff\x00", b"[]", b'{"token":"x","holder":3}'):
        (tmp_path / "lease.json").write_bytes(content)
        acquire(tmp_path).release()


def test_probing_shows_holder_and_state_without_taking_anything(tmp_path: Path) -> None:
    assert probe(str(tmp_path)) == LeaseState(probe(str(tmp_path)).record, False)
    lease = acquire(tmp_path)
    state = probe(str(tmp_path))
    assert state.locked and state.record.pid == os.getpid() and state.record.token == 1
    lease.check()
    lease.release()
    assert not probe(str(tmp_path)).locked


def test_probing_a_dead_holder_says_unlocked(tmp_path: Path) -> None:
    with Child(HOLDER, "auto", str(tmp_path)) as child:
        child.hear()
        assert probe(str(tmp_path)).locked
        child.signal(signal.SIGKILL)
        child.process.wait()
    assert not probe(str(tmp_path)).locked


# -- without locks ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [errno.EPERM, errno.ENOLCK, errno.ENOTSUP])
def test_f23d_where_locks_do_not_work_the_lease_runs_out_instead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def no_locks(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(fcntl, "flock", no_locks)
    lease = acquire(tmp_path, Leases("auto", 60_000))
    assert lease.expires and 59_000 < (lease.left_ms() or 0) <= 60_000
    lease.check()
    with pytest.raises(SessionLockedError):
        acquire(tmp_path, Leases("auto", 60_000))
    lease.release()
    again = acquire(tmp_path, Leases("auto", 60_000))
    assert again.token == 2 and not again.took_over
    again.release()


def test_an_expiring_lease_is_kept_by_renewing_it(tmp_path: Path) -> None:
    lease = acquire(tmp_path, Leases("expiry", 400))
    until = time.monotonic() + 1.2
    while time.monotonic() < until:
        lease.renew()
        with pytest.raises(SessionLockedError):
            acquire(tmp_path, Leases("expiry", 400))
        time.sleep(0.05)
    assert (lease.left_ms() or 0) > 0
    lease.release()


def test_an_unrenewed_lease_runs_out_and_its_holder_is_fenced(tmp_path: Path) -> None:
    old = acquire(tmp_path, Leases("expiry", 100))
    time.sleep(0.3)
    new = acquire(tmp_path, Leases("expiry", 60_000))
    assert new.token == 2 and new.took_over
    for use in (old.check, old.renew):
        with pytest.raises(SessionFencedError, match="taken over"):
            use()
    old.release()
    new.check()
    new.release()


def test_the_age_of_a_lease_is_judged_by_the_life_it_was_given(tmp_path: Path) -> None:
    lease = acquire(tmp_path, Leases("expiry", 60_000))
    time.sleep(0.05)
    with pytest.raises(SessionLockedError):
        acquire(tmp_path, Leases("expiry", 1))
    lease.release()


def test_of_many_that_want_an_expired_lease_one_gets_it(tmp_path: Path) -> None:
    acquire(tmp_path, Leases("expiry", 100))
    time.sleep(0.3)
    code = """
        from dsh.sessions.lease import Leases
        leases = Leases("expiry", 60000)
        say("ready"); hear()
        try:
            leases.acquire("s", sys.argv[1]); say("won")
        except Exception as error:
            say(type(error).__name__)
        hear()
    """
    children = [Child(code, str(tmp_path)) for _ in range(4)]
    try:
        assert [child.hear() for child in children] == ["ready"] * 4
        for child in children:
            child.say("go")
        assert sorted(child.hear() for child in children) == ["SessionLockedError"] * 3 + ["won"]
    finally:
        for child in children:
            child.__exit__()
    assert json.loads((tmp_path / "lease.json").read_bytes())["token"] == 2


def test_a_claimant_that_comes_second_notices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rival = Leases("expiry", 60_000)
    claim = Leases._claim

    def overtaken(self: Leases, session_id: str, directory: str, before: LeaseRecord) -> tuple[int, str]:
        """Both saw the same record; the rival replaced it and took its claim away before we made ours."""
        (tmp_path / "lease.json").write_bytes(rival.record(before.token + 1, expires=True))
        return claim(self, session_id, directory, before)

    monkeypatch.setattr(Leases, "_claim", overtaken)
    with pytest.raises(SessionLockedError):
        acquire(tmp_path, Leases("expiry", 60_000))
    assert (tmp_path / "lease.json").read_bytes() == rival.record(1, expires=True)
    assert sorted(os.listdir(tmp_path)) == ["lease.json"]


def test_a_claim_of_a_dead_claimant_holds_nobody_up(tmp_path: Path) -> None:
    acquire(tmp_path, Leases("expiry", 100))
    claim = tmp_path / "lease.2.claim"
    claim.touch()
    os.utime(claim, ns=(1, 1))
    time.sleep(0.3)
    lease = acquire(tmp_path, Leases("expiry", 60_000))
    assert lease.token == 3
    lease.release()
    assert sorted(os.listdir(tmp_path)) == ["lease.json"]


def test_two_failed_renewals_lose_the_lease(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lease = acquire(tmp_path, Leases("expiry", 60_000))

    def refuse(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "pwrite", refuse)
    lease.renew()
    with pytest.raises(SessionFencedError, match="could not be renewed"):
        lease.renew()


def test_locks_and_expiry_respect_each_other(tmp_path: Path) -> None:
    locked = acquire(tmp_path, Leases("auto"))
    with pytest.raises(SessionLockedError):
        acquire(tmp_path, Leases("expiry", 1000))
    locked.release()
    expiring = acquire(tmp_path, Leases("expiry", 60_000))
    with pytest.raises(SessionLockedError):
        acquire(tmp_path, Leases("auto"))
    expiring.release()
    acquire(tmp_path, Leases("auto")).release()


# -- whole logs -------------------------------------------------------------------------------------------------------

WRITER = """
    from tests.sessions.helpers import header, log_of, store_at
    root, lease, ttl = sys.argv[1], sys.argv[2], int(sys.argv[3])
    events = log_of(1, 2, 3)
    store = store_at(root, "none", lease, ttl)
    try:
        hold = store.hold("s", "/w")
        if hold.exists:
            hold.mend(hold.read(), ())
        say(f"{hold.lease.token}")
    except Exception as error:
        say(f"{type(error).__name__}: {error}")
        sys.exit()
    while (word := hear()):
        try:
            hold.append(header(cwd="/w"), hold.stored, events[hold.stored:hold.stored + int(word)])
            say(f"stored {hold.stored}")
        except Exception as error:
            say(f"{type(error).__name__}: {error}")
"""


def test_b12f_a_paused_and_overtaken_holder_cannot_append(tmp_path: Path) -> None:
    with Child(WRITER, str(tmp_path), "expiry", "300") as old:
        assert old.hear() == "1"
        old.say("5")
        assert old.hear() == "stored 5"
        old.signal(signal.SIGSTOP)
        with pytest.raises(SessionLockedError):
            store_at(tmp_path, lease="expiry", ttl_ms=60_000).hold("s", None)
        time.sleep(0.6)
        hold = store_at(tmp_path, lease="expiry", ttl_ms=60_000).hold("s", None)
        assert hold.lease.token == 2
        hold.mend(hold.read(), ())
        events = log_of(1, 2, 3)
        hold.append(header(cwd="/w"), 5, events[5:8])
        old.signal(signal.SIGCONT)
        old.say("3")
        assert old.hear() == (
            f'SessionFencedError: session "s": write refused, the session was taken over by pid {os.getpid()} on '
            f"{os.uname().nodename}"
        )
        hold.append(header(cwd="/w"), 8, events[8:])
        assert hold.read().events == events
        hold.release()


def test_b12g_a_write_that_comes_late_lands_in_nobodys_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events = log_of(1, 2, 3)
    old = store_at(tmp_path, "none", "expiry", 60_000).hold("s", "/w")
    old.append(header(cwd="/w"), 0, events[:5])
    old.append(header(cwd="/w"), 5, events[5:6])
    write = os.write
    taken: list[object] = []

    def paused(fd: int, data: memoryview) -> int:
        """Between the check and the write the lease runs out and another process takes over."""
        if not taken:
            taken.append(None)
            past = time.time_ns() - 120_000_000_000
            os.utime(tmp_path / "--w--" / "s" / "lease.json", ns=(past, past))
            hold = store_at(tmp_path, "none", "expiry", 60_000).hold("s", None)
            hold.mend(hold.read(), ())
            hold.append(header(cwd="/w"), 6, events[6:8])
            hold.release()
        return write(fd, data)

    monkeypatch.setattr(os, "write", paused)
    with pytest.raises(SessionFencedError):
        old.append(header(cwd="/w"), 6, events[6:])
    monkeypatch.undo()
    assert store_at(tmp_path).read("s").events == events[:8]
    old.release()


def test_b11_of_processes_that_publish_one_id_exactly_one_wins(tmp_path: Path) -> None:
    children = [Child(WRITER, str(tmp_path), "auto", "15000") for _ in range(4)]
    try:
        first = [child.hear() for child in children]
        winners = [child for child, text in zip(children, first, strict=True) if text == "1"]
        assert len(winners) == 1
        assert sum(text.startswith("SessionLockedError") for text in first) == 3
        winners[0].say("5")
        assert winners[0].hear() == "stored 5"
    finally:
        for child in children:
            child.__exit__()
    assert store_at(tmp_path).read("s").events == log_of(1, 2, 3)[:5]


def test_readers_need_no_lease(tmp_path: Path) -> None:
    write_log(tmp_path, header(cwd="/w"), log_of(1))
    with Child(WRITER, str(tmp_path), "auto", "15000") as child:
        assert child.hear() == "2"
        store = store_at(tmp_path)
        assert store.read("s").events == log_of(1)
        assert [entry.id for entry in store.listing().sessions] == ["s"]
