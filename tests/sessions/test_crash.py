"""What survives when a process is killed at any moment."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from pathlib import Path

import pytest

from dsh.sessions.stored import list_stored
from tests.sessions.helpers import Child, header, log_of, raw_bytes, store_at, zstd_bytes
from tests.sessions.runtime import running

# One process imports everything once and forks a writer for every order it gets.
FORKER = """
    import asyncio, os, signal
    from pathlib import Path
    from tests.sessions.runtime import running, prompt, turn

    async def write(root, durability):
        async with running(Path(root), durability=durability, writeBatchMaxDelayMs=1) as runtime:
            if runtime.files():
                session = await runtime.resume("s")
            else:
                session = runtime.create("s")
            number = sum(event.type == "turn/start" for event in session.events)
            while True:
                number += 1
                turn(session, number)
                await runtime.sessions.flush(session)
                say(str(session.seq))

    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while (order := hear()):
        if order == "mark":
            say(order)
            continue
        pid = os.fork()
        if pid == 0:
            asyncio.run(write(*order.split("|")))
        say(f"pid {pid}")
"""


def run_and_kill(child: Child, root: Path, durability: str, after: float) -> int:
    """Let a writer work until it is killed without warning; the last seq it called durable."""
    child.say(f"{root}|{durability}")
    acknowledged = 0
    pid = 0
    deadline = None
    while True:
        line = child.hear()
        if line.startswith("pid "):
            pid = int(line.split()[1])
        elif line:
            acknowledged = int(line)
        if acknowledged and pid:
            deadline = deadline or time.monotonic() + after
            if time.monotonic() >= deadline:
                break
    os.kill(pid, signal.SIGKILL)
    wait_until_gone(pid)
    child.say("mark")  # everything the dead writer said comes before the answer
    while True:
        line = child.hear()
        number = line.removesuffix("mark")  # the kill may have cut off the writer's last line; what is left is less
        if number:
            acknowledged = max(acknowledged, int(number))
        if number != line:
            return acknowledged


def wait_until_gone(pid: int) -> None:
    """A kill is only asked for; the lease is free once the process is gone (its parent ignores SIGCHLD)."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return
        time.sleep(0.001)
    raise AssertionError(f"process {pid} survived SIGKILL")


@pytest.mark.timeout(180)
@pytest.mark.parametrize("durability", ["os", "fsync"])
async def test_f25_what_was_acknowledged_is_in_the_log_after_a_kill(tmp_path: Path, durability: str) -> None:
    chance = random.Random(7)
    with Child(FORKER) as child:
        for number in range(50):
            root = tmp_path / f"root{number // 10}"
            acknowledged = run_and_kill(child, root, durability, chance.random() * 0.02)
            async with running(root) as runtime:
                _, events = await runtime.store.inspect("s")
                assert len(events) >= acknowledged
                assert [event.seq for event in events] == list(range(len(events)))
                raw = await runtime.store.read_raw("s")
                assert raw is not None
                for line in raw["content"].split("\n")[:-1]:
                    json.loads(line)
    for number in range(5):
        assert not list_stored(str(tmp_path / f"root{number}")).unreadable


@pytest.mark.parametrize("make", [raw_bytes, zstd_bytes])
async def test_b05d_a_log_cut_at_any_byte_reopens_and_then_stays_as_it_is(tmp_path: Path, make: object) -> None:
    events = log_of(1, end=False)
    name = "session.jsonl" if make is raw_bytes else "session.jsonl.zstd"
    head = header("s", "/w")
    data = make(head, events[:3], events[3:7], events[7:])  # type: ignore[operator]
    first = len(make(head))  # type: ignore[operator]
    place = tmp_path / "--w--" / "s"
    place.mkdir(parents=True)
    async with running(tmp_path, preparedSessionCacheSize=0) as runtime:
        for size in range(first, len(data) + 1):
            (place / name).write_bytes(data[:size])
            _, loaded = await runtime.store.load("s")
            own = [event for event in loaded if event in events]
            assert own == events[: len(own)]
            if len(own) > 0:
                assert loaded[-1].data.get("reason") == {"kind": "interrupted"}
            if size % 5:
                continue
            settled = (place / name).read_bytes()
            assert (await runtime.store.load("s"))[1] == loaded
            assert (place / name).read_bytes() == settled


@pytest.mark.timeout(120)
async def test_a_kill_while_a_session_is_created_leaves_it_whole_or_absent(tmp_path: Path) -> None:
    code = """
        import os, signal
        from tests.sessions.helpers import header, log_of, store_at
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        events = log_of(*range(1, 60))
        while (order := hear()):
            root, session_id = order.split("|")
            pid = os.fork()
            if pid == 0:
                store_at(root, durable=True).hold(session_id, "/w").append(header(session_id, "/w"), 0, events)
                os._exit(0)
            say(str(pid))
    """
    chance = random.Random(3)
    with Child(code) as child:
        for number in range(60):
            child.say(f"{tmp_path}|s{number}")
            pid = int(child.hear())
            time.sleep(chance.random() * 0.012)
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
    events = log_of(*range(1, 60))
    listing = list_stored(str(tmp_path))
    assert not listing.unreadable
    for entry in listing.sessions:
        assert store_at(tmp_path).read(entry.id).events == events
    for number in range(60):  # and every name can still be used
        hold = store_at(tmp_path).hold(f"s{number}", "/w")
        if not hold.exists:
            hold.append(header(f"s{number}", "/w"), 0, events)
        assert not [name for name in os.listdir(hold.lease.directory) if name.endswith(".tmp")]
        hold.release()
    assert len(list_stored(str(tmp_path)).sessions) == 60
