"""Live sessions on disk: claimed, written behind, drained, resumed, kept apart."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from dsh.cordis import AbortController, AbortError, Context
from dsh.core import session_store
from dsh.core.seams import SessionPersistence
from dsh.core.session import Session
from dsh.core.session_event import SessionEvent
from dsh.core.session_header import SessionHeader
from dsh.core.session_store import SessionCreated, Sessions
from dsh.sessions import jsonl
from dsh.sessions.errors import (
    SessionBusyError,
    SessionCollisionError,
    SessionFencedError,
    SessionFormatUnsupportedError,
    SessionLockedError,
    SessionNotFoundError,
    SessionPersistenceCorruptionError,
    SessionPersistenceError,
)
from dsh.sessions.lease_events import SessionLeaseLost
from dsh.sessions.log_file import StoredLog
from dsh.sessions.stored import list_stored
from tests.sessions.helpers import Child, LogBuilder, header, log_of, raw_bytes, store_at, write_log
from tests.sessions.runtime import Runtime, prompt, running, turn


def stored(runtime: Runtime, session_id: str) -> list[SessionEvent]:
    return store_at(runtime.root).read(session_id).events


async def quiet(runtime: Runtime) -> None:
    """Until nothing more is on its way to the disk."""
    while runtime.store._live.leaving:
        await asyncio.wait(list(runtime.store._live.leaving.values()))


# -- claiming and writing ---------------------------------------------------------------------------------------------


async def test_nothing_is_on_disk_before_the_first_event(tmp_path: Path) -> None:
    async with running(tmp_path / "root") as runtime:
        session = runtime.create("s")
        assert await runtime.sessions.flush(session) is True
        assert not (tmp_path / "root").exists()
        prompt(session)
        await runtime.sessions.flush(session)
        assert stored(runtime, "s") == list(session.events)


async def test_a_fork_is_written_once_with_its_first_event(tmp_path: Path) -> None:
    async with running(tmp_path, compression="none") as runtime:
        source = runtime.create("source")
        turn(source, 1)
        await runtime.sessions.flush(source)
        child = runtime.sessions.fork(source, child_id="child")
        await runtime.sessions.flush(child)
        assert runtime.files() == ["session.jsonl"]
        prompt(child)
        await runtime.sessions.flush(child)
        assert stored(runtime, "child") == list(child.events)
        assert store_at(tmp_path).read("child").header.parent_session == "source"
        before = runtime.log_bytes("child")
        await runtime.store.delete("source") if runtime.sessions.get("source") is None else None
        prompt(child)
        await runtime.sessions.flush(child)
        assert runtime.log_bytes("child").startswith(before)


async def test_events_reach_the_disk_without_a_flush(tmp_path: Path) -> None:
    async with running(tmp_path) as runtime:
        session = runtime.create("s")
        turn(session, 1)
        deadline = time.monotonic() + 10
        while runtime.files() != ["session.jsonl.zstd"] and time.monotonic() < deadline:
            await asyncio.sleep(0.005)
        assert stored(runtime, "s") == list(session.events)


async def test_b04c_a_flush_of_a_clean_session_does_no_io(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(tmp_path) as runtime:
        session = runtime.create("s")
        prompt(session)
        await runtime.sessions.flush(session)
        monkeypatch.setattr(runtime.store._writer, "submit", lambda job: pytest.fail("the disk was touched"))
        assert await runtime.sessions.flush(session) is True
        flushing = runtime.sessions.flush(session)
        with pytest.raises(StopIteration):  # not one turn of the event loop
            flushing.send(None)
        monkeypatch.undo()


async def test_many_events_are_one_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(tmp_path, compression="none") as runtime:
        session = runtime.create("s")
        prompt(session)
        await runtime.sessions.flush(session)
        writes: list[int] = []
        write = os.write
        monkeypatch.setattr(os, "write", lambda fd, data: writes.append(len(data)) or write(fd, data))
        for _ in range(100):
            prompt(session)
        await asyncio.gather(*(runtime.sessions.flush(session) for _ in range(5)))
        monkeypatch.undo()
        assert len([size for size in writes if size > 1]) == 1  # one byte goes to the loop's own wake-up pipe
        assert stored(runtime, "s") == list(session.events)


async def test_a_refused_creation_leaves_no_trace(tmp_path: Path) -> None:
    async with running(tmp_path / "root") as runtime:

        def refuse(event: SessionCreated) -> None:
            raise RuntimeError("no")

        undo = runtime.ctx.on(SessionCreated, refuse)
        with pytest.raises(RuntimeError, match="no"):
            runtime.create("s", seed=log_of(1))
        undo()
        await quiet(runtime)
        assert not (tmp_path / "root").exists()
        prompt(runtime.create("s"))
    assert [entry.id for entry in list_stored(str(tmp_path / "root")).sessions] == ["s"]


async def test_b03d_a_full_disk_fails_the_flush_and_the_next_one_catches_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(tmp_path) as runtime:
        session = runtime.create("s")
        prompt(session)
        await runtime.sessions.flush(session)
        before = runtime.log_bytes("s")
        write = os.write

        def full(fd: int, data: Any) -> int:
            if len(data) > 1:
                raise OSError(errno.ENOSPC, "No space left on device")
            return write(fd, data)

        with monkeypatch.context() as broken:
            broken.setattr(os, "write", full)
            prompt(session)
            for _ in range(3):
                with pytest.raises(OSError, match="No space left"):
                    await runtime.sessions.flush(session)
            assert runtime.log_bytes("s") == before
        await runtime.sessions.flush(session)
        assert stored(runtime, "s") == list(session.events)


async def test_disposal_writes_the_rest_and_gives_the_session_free(tmp_path: Path) -> None:
    async with running(tmp_path) as runtime:
        preparation = runtime.sessions.prepare("s", meta={"cwd": "/w"})
        detach = runtime.sessions.enter(preparation.session)
        runtime.sessions.announce(preparation.session)
        turn(preparation.session, 1)
        detach()
        await quiet(runtime)
        assert stored(runtime, "s") == list(preparation.session.events)
        hold = store_at(tmp_path).hold("s", None)
        assert hold.lease.token == 2
        hold.release()


async def test_all_of_a_session_is_read_while_its_end_is_still_being_written(tmp_path: Path) -> None:
    async with running(tmp_path, writeBatchMaxDelayMs=600_000, compression="none") as runtime:
        session = runtime.sessions.prepare("s", meta={"cwd": "/w"}).session
        detach = runtime.sessions.enter(session)
        runtime.sessions.announce(session)
        turn(session, 1, end=False)
        await runtime.sessions.flush(session)
        session.append("turn/end", {"turn": 1, "reason": {"kind": "completed"}})
        disk_busy = threading.Event()
        runtime.store._writer.submit(disk_busy.wait)
        detach()
        asyncio.get_running_loop().call_later(0.1, disk_busy.set)  # later than any reading that does not wait
        inspected, suffix, raw = await asyncio.gather(
            runtime.store.inspect("s"), runtime.store.read_from("s", 0), runtime.store.read_raw("s")
        )
        assert inspected == (session.header, list(session.events))
        assert suffix == list(session.events)
        assert raw is not None and raw["content"] == runtime.log_bytes("s").decode()


async def test_a_session_that_ended_before_its_first_write_is_listed(tmp_path: Path) -> None:
    async with running(tmp_path, writeBatchMaxDelayMs=600_000) as runtime:
        session = runtime.sessions.prepare("s", meta={"cwd": "/w"}).session
        detach = runtime.sessions.enter(session)
        runtime.sessions.announce(session)
        turn(session, 1)
        disk_busy = threading.Event()
        runtime.store._writer.submit(disk_busy.wait)
        detach()
        asyncio.get_running_loop().call_later(0.1, disk_busy.set)
        assert [header.id for header in await runtime.store.list()] == ["s"]


async def test_a_name_can_be_used_again_while_the_old_log_is_still_being_written(tmp_path: Path) -> None:
    async with running(tmp_path) as runtime:
        preparation = runtime.sessions.prepare("s", meta={"cwd": "/w"})
        detach = runtime.sessions.enter(preparation.session)
        runtime.sessions.announce(preparation.session)
        turn(preparation.session, 1)
        detach()
        again = runtime.create("s", seed=list(preparation.session.events))
        turn(again, 2)
        await runtime.sessions.flush(again)
        assert stored(runtime, "s") == list(again.events)


async def test_sessions_of_one_name_that_end_while_the_first_is_still_being_written_are_all_kept(
    tmp_path: Path,
) -> None:
    async with running(tmp_path, writeBatchMaxDelayMs=600_000) as runtime:

        def live(seed: list[SessionEvent] | None, number: int) -> Session:
            session = runtime.sessions.prepare("s", seed=seed, meta={"cwd": "/w"}).session
            detach = runtime.sessions.enter(session)
            runtime.sessions.announce(session)
            turn(session, number)
            detach()
            return session

        first = live(None, 1)
        second = live(list(first.events), 2)
        third = live(list(second.events), 3)
        await quiet(runtime)
        assert stored(runtime, "s") == list(third.events)
        assert runtime.store._live.failures == []


async def test_b16a_unloading_drains_what_is_pending(tmp_path: Path) -> None:
    async with running(tmp_path, writeBatchMaxDelayMs=600_000) as runtime:
        one, two = runtime.create("one"), runtime.create("two")
        turn(one, 1)
        turn(two, 1)
        await runtime.fiber.dispose()
        assert stored(runtime, "one") == list(one.events)
        assert stored(runtime, "two") == list(two.events)
        assert list_stored(str(tmp_path)).unreadable == []
        store_at(tmp_path).hold("one", None).release()


async def test_b16b_loading_takes_on_the_sessions_that_are_live(tmp_path: Path) -> None:
    async with Context() as ctx:
        await ctx.plugin(session_store)
        session = ctx[Sessions].create("s", meta={"cwd": "/w"})
        untouched = ctx[Sessions].create("untouched", meta={"cwd": "/w"}, seed=[])
        turn(session, 1)
        fiber = await ctx.plugin(jsonl, {"root": str(tmp_path), "durability": "os", "writeBatchMaxDelayMs": 1})
        await fiber.dispose()
        assert store_at(tmp_path).read("s").events == list(session.events)
        assert untouched.seq == 1 and len(list_stored(str(tmp_path)).sessions) == 1


async def test_b13a_a_reloaded_plugin_goes_on_with_the_missing_suffix(tmp_path: Path) -> None:
    async with running(tmp_path, compression="none") as runtime:
        session = runtime.create("s")
        session.append("turn/start", {"turn": 1})
        prompt(session)
        await runtime.sessions.flush(session)
        before = runtime.log_bytes("s")
        await runtime.fiber.dispose()
        prompt(session, "while nobody was writing")
        await runtime.ctx.plugin(jsonl, {"root": str(tmp_path), "durability": "os"})
        prompt(session, "and after")
        await runtime.sessions.flush(session)
        assert runtime.log_bytes("s").startswith(before)
        assert stored(runtime, "s") == list(session.events)
        assert not any(event.type == "turn/end" for event in session.events)


async def test_a_reloaded_plugin_takes_its_sessions_back_at_once(tmp_path: Path) -> None:
    async with running(tmp_path) as runtime:
        turn(runtime.create("first"), 1)
        await runtime.fiber.restart()
        write_log(tmp_path, header("resumed", "/w"), log_of(1))
        session = await runtime.resume("resumed")
        await runtime.sessions.flush(session)
        await runtime.fiber.restart()
        for session in runtime.sessions.list():
            await runtime.sessions.flush(session)
            with pytest.raises(SessionLockedError):
                store_at(tmp_path).hold(session.id, None)


async def test_b13b_a_torn_tail_is_cut_when_a_log_is_adopted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    events = log_of(1)
    path = write_log(tmp_path, header("s", "/w"), events, compression="none")
    with open(path, "ab") as file:
        file.write(b'{"type":"turn/st')
    async with running(tmp_path) as runtime:
        session = runtime.create("s", seed=events)
        prompt(session)
        await runtime.sessions.flush(session)
        assert stored(runtime, "s") == list(session.events)
        assert not any(event.data == {"turn": 1, "reason": {"kind": "interrupted"}} for event in session.events)
        assert caplog.text.count("cut 16 bytes of an interrupted write") == 1


async def test_b13c_another_workspace_or_other_events_are_a_collision(tmp_path: Path) -> None:
    write_log(tmp_path, header("s", "/elsewhere"), log_of(1))
    write_log(tmp_path, header("t", "/w"), log_of(1, 2))
    before = {path: path.read_bytes() for path in tmp_path.rglob("session.jsonl*")}
    async with running(tmp_path) as runtime:
        for session_id, why in (("s", "another workspace"), ("t", "other events")):
            session = runtime.create(session_id)
            prompt(session)
            with pytest.raises(SessionCollisionError, match=f'session id collision: "{session_id}" .*{why}'):
                await runtime.sessions.flush(session)
        with pytest.raises(ExceptionGroup):
            await runtime.store.stop()
    assert {path: path.read_bytes() for path in tmp_path.rglob("session.jsonl*")} == before


# -- resuming ---------------------------------------------------------------------------------------------------------


async def test_a_stored_session_comes_back_and_goes_on(tmp_path: Path) -> None:
    async with running(tmp_path) as runtime:
        session = runtime.create("s")
        turn(session, 1)
    async with running(tmp_path) as runtime:
        resumed = await runtime.resume("s")
        assert [event.type for event in resumed.events][-1] == "session/end-seed"
        assert list(resumed.events)[:-1] == list(session.events)
        assert resumed.header == session.header
        turn(resumed, 2)
        await runtime.sessions.flush(resumed)
        assert stored(runtime, "s") == list(resumed.events)


async def test_b05c_reopening_twice_changes_nothing(tmp_path: Path) -> None:
    write_log(tmp_path, header("s", "/w"), log_of(1, end=False))
    sizes = []
    for _ in range(3):
        async with running(tmp_path) as runtime:
            await runtime.resume("s")
            await runtime.sessions.flush(runtime.sessions.list()[0])
        sizes.append(next(tmp_path.rglob("session.jsonl.zstd")).stat().st_size)
    assert sizes[1] == sizes[0] and sizes[2] == sizes[0]


async def test_b07a_a_crash_among_tools_is_closed_in_transcript_order(tmp_path: Path) -> None:
    log = LogBuilder()
    log.add("turn/start", {"turn": 1})
    log.prompt("do it")
    log.add("step/start", {"turn": 1, "step": 1})
    calls = [{"type": "tool-call", "id": name, "name": "bash", "arguments": "{}"} for name in ("never", "maybe")]
    source = {"kind": "model", "provider": "p", "model": "m"}
    message = {"id": "a", "role": "assistant", "content": calls, "source": source}
    log.add("assistant/message", {"turn": 1, "step": 1, "message": message}, surface_op="append")
    log.add("tool/call", {"turn": 1, "step": 1, "callId": "maybe", "name": "bash", "arguments": "{}"})
    write_log(tmp_path, header("s", "/w"), log.events)
    async with running(tmp_path) as runtime:
        session = await runtime.resume("s")
        await runtime.sessions.flush(session)
        tail = list(session.events)[len(log.events) :]
        assert [event.type for event in tail] == [
            "tool/result", "tool/result", "step/end", "turn/end", "session/end-seed",
        ]  # fmt: skip
        assert [event.data["error"]["code"] for event in tail[:2]] == ["TOOL_NOT_STARTED", "TOOL_OUTCOME_UNKNOWN"]
        assert tail[3].data["reason"] == {"kind": "interrupted"}
        assert stored(runtime, "s") == list(session.events)


@pytest.mark.parametrize("compression", ["none", "zstd"])
async def test_f19_a_torn_end_is_cut_once_and_said_once(
    tmp_path: Path, compression: Any, caplog: pytest.LogCaptureFixture
) -> None:
    path = write_log(tmp_path, header("s", "/w"), log_of(1), log_of(1, 2)[len(log_of(1)) :], compression=compression)
    os.truncate(path, os.path.getsize(path) - 5)
    async with running(tmp_path) as runtime:
        session = await runtime.resume("s")
        prompt(session)
        await runtime.sessions.flush(session)
        raw = await runtime.store.read_raw("s")
        assert raw is not None
        lines = raw["content"].split("\n")
        assert lines[-1] == "" and all(json.loads(line) for line in lines[:-1])
        assert stored(runtime, "s") == list(session.events)
    assert caplog.text.count("of an interrupted write from the end of its log") == 1
    async with running(tmp_path) as runtime:
        await runtime.resume("s")
    assert caplog.text.count("of an interrupted write from the end of its log") == 1


async def test_b08a_inspecting_a_damaged_log_leaves_every_byte(tmp_path: Path) -> None:
    path = write_log(tmp_path, header("s", "/w"), log_of(1, end=False), compression="none")
    with open(path, "ab") as file:
        file.write(b'{"type":"tur')
    before = Path(path).read_bytes()
    async with running(tmp_path) as runtime:
        head, events = await runtime.store.inspect("s")
        assert head.id == "s"
        assert [event.type for event in events][-1] == "turn/end"
        assert events[-1].data["reason"] == {"kind": "interrupted"}
        assert await runtime.store.read_from("s", 0) == log_of(1, end=False)
    assert Path(path).read_bytes() == before


async def test_b08b_loading_a_live_session_needs_its_turn_closed(tmp_path: Path) -> None:
    async with running(tmp_path) as runtime:
        session = runtime.create("s")
        session.append("turn/start", {"turn": 1})
        with pytest.raises(SessionBusyError, match="in the middle of a turn"):
            await runtime.store.load("s")
        assert (await runtime.store.inspect("s"))[1] == list(session.events)
        session.append("turn/end", {"turn": 1, "reason": {"kind": "completed"}})
        head, events = await runtime.store.load("s")
        assert head == session.header and events == list(session.events) == stored(runtime, "s")


async def test_loading_repairs_durably_and_gives_the_session_back(tmp_path: Path) -> None:
    write_log(tmp_path, header("s", "/w"), log_of(1, end=False))
    async with running(tmp_path) as runtime:
        _, events = await runtime.store.load("s")
        assert events[-1].data["reason"] == {"kind": "interrupted"}
        assert stored(runtime, "s") == events
        assert await runtime.store.load("s") == (header("s", "/w"), events)
        store_at(tmp_path).hold("s", None).release()


async def test_b09d_unknown_event_types_are_refused_kept_or_registered(tmp_path: Path) -> None:
    log = LogBuilder()
    log.turn(1)
    log.add("weather/report", {"sky": "blue"})
    path = write_log(tmp_path, header("s", "/w"), log.events)
    async with running(tmp_path) as runtime:
        for attempt in (runtime.store.prepare, runtime.store.load, runtime.store.inspect):
            with pytest.raises(SessionFormatUnsupportedError) as caught:
                await attempt("s")
            assert str(caught.value) == (
                f'session "s" contains event type "weather/report" (seq {len(log.events) - 1}) unknown to this harness '
                "and not marked ignorable; refusing to interpret the log — it was likely written by a newer harness "
                f"(raw log: {path})"
            )
            assert caught.value.location == path
        undo = runtime.sessions.register_event_type("weather/report")
        assert (await runtime.store.load("s"))[1] == log.events
        undo()
    ignorable = LogBuilder()
    ignorable.add("weather/report", {"sky": "blue"}, ignorable=True)
    write_log(tmp_path, header("t", "/w"), ignorable.events)
    async with running(tmp_path) as runtime:
        assert (await runtime.store.load("t"))[1] == ignorable.events


async def test_read_from_judges_the_suffix_alone(tmp_path: Path) -> None:
    log = LogBuilder()
    log.add("weather/report", {})
    log.turn(1)
    write_log(tmp_path, header("s", "/w"), log.events)
    async with running(tmp_path) as runtime:
        assert await runtime.store.read_from("s", 1) == log.events[1:]
        assert await runtime.store.read_from("s", len(log.events)) == []
        assert await runtime.store.read_from("s", 10**9) == []
        with pytest.raises(SessionFormatUnsupportedError):
            await runtime.store.read_from("s", 0)
        for bad in (-1, 1.5, True, "0"):
            with pytest.raises(SessionPersistenceError, match="non-negative integer"):
                await runtime.store.read_from("s", bad)  # type: ignore[arg-type]


async def test_a_log_whose_events_contradict_each_other_is_corrupt_and_untouched(tmp_path: Path) -> None:
    log = LogBuilder()
    log.turn(1, end=False)
    log.add("user/message", {"id": "u", "role": "user", "content": [], "source": {"kind": "user"}},
            surface_op={"op": "replace", "start": 1, "end": 3}, source_event_seqs=(1, 3))  # fmt: skip
    path = write_log(tmp_path, header("s", "/w"), log.events)
    before = Path(path).read_bytes()
    async with running(tmp_path) as runtime:
        with pytest.raises(
            SessionPersistenceCorruptionError, match='stored session "s" failed validation: .*end seq 3'
        ):
            await runtime.store.prepare("s")
        with pytest.raises(SessionPersistenceCorruptionError):  # the lease was given back
            await runtime.store.prepare("s")
    assert Path(path).read_bytes() == before


async def test_b14_a_session_given_back_stays_warm_until_its_log_changes(tmp_path: Path) -> None:
    events = log_of(1)
    path = write_log(tmp_path, header("s", "/w"), events)
    async with running(tmp_path) as runtime:
        first = await runtime.store.prepare("s")
        session = first.session
        with pytest.raises(SessionBusyError):
            await runtime.store.append("s", log_of(1, 2)[len(events) :])
        with pytest.raises(SessionBusyError, match="being opened"):
            await runtime.store.prepare("s")
        first.release()
        first.release()
        second = await runtime.store.prepare("s")
        assert second.session is session
        second.release()
        os.utime(path, ns=(1, 1))
        third = await runtime.store.prepare("s")
        assert third.session is not session
        third.session.append("note", {}, ignorable=True)
        third.release()
        fourth = await runtime.store.prepare("s")
        assert fourth.session is not third.session  # it was touched
        fourth.release()


async def test_a_warm_session_is_written_to_where_its_log_ends(tmp_path: Path) -> None:
    write_log(tmp_path, header("s", "/w"), log_of(1))
    async with running(tmp_path) as runtime:
        (await runtime.store.prepare("s")).release()
        session = await runtime.resume("s")
        turn(session, 2)
        await runtime.sessions.flush(session)
        assert stored(runtime, "s") == list(session.events)


async def test_only_so_many_sessions_stay_warm(tmp_path: Path) -> None:
    for session_id in "abc":
        write_log(tmp_path, header(session_id, "/w"), log_of(1))
    async with running(tmp_path, preparedSessionCacheSize=2) as runtime:
        kept = {}
        for session_id in "abc":
            preparation = await runtime.store.prepare(session_id)
            kept[session_id] = preparation.session
            preparation.release()
        for session_id, warm in (("c", True), ("b", True), ("a", False)):
            preparation = await runtime.store.prepare(session_id)
            assert (preparation.session is kept[session_id]) is warm
            preparation.release()


async def test_parallel_inspections_share_one_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_log(tmp_path, header("s", "/w"), log_of(1))
    async with running(tmp_path) as runtime:
        reads: list[str] = []
        read = runtime.store._backend.read
        monkeypatch.setattr(
            runtime.store._backend, "read", lambda session_id: reads.append(session_id) or read(session_id)
        )
        tasks = [asyncio.ensure_future(runtime.store.inspect("s")) for _ in range(5)]
        await asyncio.sleep(0)
        tasks[0].cancel()
        results = await asyncio.gather(*tasks[1:])
        assert reads == ["s"]
        assert all(events == log_of(1) for _, events in results)
        assert results[0][1] is not results[1][1]


async def test_an_inspection_does_not_share_a_read_that_began_before_the_log_grew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = log_of(1, 2)
    write_log(tmp_path, header("s", "/w"), events[:-1])
    async with running(tmp_path) as runtime:
        read = runtime.store._backend.read
        begun, go_on = threading.Event(), threading.Event()

        def slow(session_id: str) -> StoredLog:
            log = read(session_id)
            begun.set()
            go_on.wait(30)
            return log

        monkeypatch.setattr(runtime.store._backend, "read", slow)
        early = asyncio.ensure_future(runtime.store.inspect("s"))
        await asyncio.to_thread(begun.wait)
        await runtime.store.append("s", events[-1:])
        late = asyncio.ensure_future(runtime.store.inspect("s"))
        await asyncio.sleep(0)
        go_on.set()
        await early
        assert (await late)[1] == events


async def test_a_session_that_is_not_there(tmp_path: Path) -> None:
    async with running(tmp_path) as runtime:
        for attempt in (runtime.store.prepare, runtime.store.load, runtime.store.inspect, runtime.store.delete):
            with pytest.raises(SessionNotFoundError, match='session "nobody" not found'):
                await attempt("nobody")
        assert await runtime.store.read_raw("nobody") is None
        assert list(tmp_path.iterdir()) == []


async def test_a_live_session_cannot_be_opened_again(tmp_path: Path) -> None:
    async with running(tmp_path) as runtime:
        prompt(runtime.create("s"))
        with pytest.raises(SessionBusyError, match='session "s" is live'):
            await runtime.store.prepare("s")
        with pytest.raises(SessionBusyError):
            await runtime.store.append("s", log_of(1))
        with pytest.raises(SessionBusyError):
            await runtime.store.delete("s")


async def test_a_session_being_opened_cannot_be_created_beside_it(tmp_path: Path) -> None:
    write_log(tmp_path, header("s", "/w"), log_of(1))
    async with running(tmp_path) as runtime:
        preparation = await runtime.store.prepare("s")
        with pytest.raises(SessionCollisionError, match="session id collision"):
            runtime.create("s")
        preparation.release()


async def test_an_abandoned_opening_gives_the_session_back(tmp_path: Path) -> None:
    write_log(tmp_path, header("s", "/w"), log_of(1))
    async with running(tmp_path) as runtime:
        opening = asyncio.ensure_future(runtime.store.prepare("s"))
        await asyncio.sleep(0)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        (await runtime.store.prepare("s", None, wait_s=10)).release()
        abort = AbortController()
        abort.abort()
        with pytest.raises(AbortError):
            await runtime.store.prepare("s", abort.signal)
        (await runtime.store.prepare("s", None, wait_s=10)).release()


async def test_an_opening_that_the_unload_overtakes_is_given_back(tmp_path: Path) -> None:
    write_log(tmp_path, header("s", "/w"), log_of(1))
    async with running(tmp_path) as runtime:
        opening = asyncio.ensure_future(runtime.store.prepare("s"))
        await asyncio.sleep(0)
        await runtime.fiber.dispose()
        with pytest.raises(SessionPersistenceError, match="closed"):
            await opening
        store_at(tmp_path).hold("s", None).release()


async def test_old_shapes_are_read_as_todays_also_from_the_middle(tmp_path: Path) -> None:
    log = LogBuilder()
    log.add("turn/start", {"turn": 1, "trigger": {"kind": "user"}})
    log.add("step/start", {"turn": 1, "step": 1})
    flat = {"turn": 1, "step": 1, "callId": "c", "isError": False}
    log.add("tool/result", {**flat, "content": [{"type": "text", "text": "long"}]}, surface_op="append")
    short = {**flat, "content": [{"type": "text", "text": "short"}]}
    replace = {"op": "replace", "start": 2, "end": 2}
    log.add("tool/result", short, surface_op=replace, source_event_seqs=(2,))
    path = write_log(tmp_path, header("s", "/w"), log.events)
    before = Path(path).read_bytes()
    async with running(tmp_path) as runtime:
        _, events = await runtime.store.inspect("s")
        assert events[0].data == {"turn": 1}
        assert [event.data["message"]["id"] for event in events[2:4]] == ["legacy-message:s:2"] * 2
        assert await runtime.store.read_from("s", 3) == events[3:4]
    assert Path(path).read_bytes() == before
    for type_, data, text in (
        ("mode/set", {}, 'session "t" contains unsupported legacy mode/set event at seq 0'),
        ("steering/message", {"turn": 1}, 'session "t" contains malformed pre-react-loop steering/message at seq 0'),
    ):
        old = LogBuilder()
        old.add(type_, data)
        refused = write_log(tmp_path, header("t", "/w"), old.events)
        async with running(tmp_path) as runtime:
            with pytest.raises(SessionFormatUnsupportedError) as caught:
                await runtime.store.inspect("t")
            assert str(caught.value) == text and caught.value.location == refused
            await runtime.store.delete("t")


# -- leases -----------------------------------------------------------------------------------------------------------

HOLDER = """
    from tests.sessions.helpers import store_at
    hold = store_at(sys.argv[1], lease=sys.argv[2], ttl_ms=int(sys.argv[3])).hold("s", "/w")
    if hold.exists: hold.mend(hold.read(), ())
    say(str(hold.lease.token))
    hear()
    hold.release()
    say("released")
    hear()
"""


async def test_f20c_a_session_open_elsewhere_is_refused_and_can_be_waited_for(tmp_path: Path) -> None:
    write_log(tmp_path, header("s", "/w"), log_of(1))
    async with running(tmp_path) as runtime:
        with Child(HOLDER, str(tmp_path), "auto", "15000") as child:
            assert child.hear() == "2"
            with pytest.raises(SessionLockedError, match=f"is open in pid {child.pid} on "):
                await runtime.store.prepare("s")
            assert (await runtime.store.inspect("s"))[1] == log_of(1)
            assert [head.id for head in await runtime.store.list()] == ["s"]
            with pytest.raises(SessionLockedError):
                await runtime.store.delete("s")
            waiting = asyncio.ensure_future(runtime.store.prepare("s", None, wait_s=30))
            await asyncio.sleep(0.01)
            assert not waiting.done()
            child.say("release")
            (await waiting).release()


async def test_a_live_session_is_held_for_as_long_as_it_lives(tmp_path: Path) -> None:
    async with running(tmp_path) as runtime:
        session = runtime.create("s")
        prompt(session)
        await runtime.sessions.flush(session)
        code = """
            from tests.sessions.helpers import store_at
            try: store_at(sys.argv[1]).hold("s", None); say("took it")
            except Exception as error: say(str(error))
        """
        with Child(code, str(tmp_path)) as child:
            assert f"is open in pid {os.getpid()}" in child.hear()


async def test_d24_a_named_session_is_held_before_it_is_published(tmp_path: Path) -> None:
    async with running(tmp_path) as runtime, running(tmp_path) as other:
        preparation = runtime.sessions.prepare("main", meta={"cwd": "/w"})
        await runtime.store.reserve(preparation.session)
        rival = other.sessions.prepare("main", meta={"cwd": "/w"})
        with pytest.raises(SessionLockedError):
            await other.store.reserve(rival.session)
        runtime.sessions.enter(preparation.session)
        runtime.sessions.announce(preparation.session)
        prompt(preparation.session)
        await runtime.sessions.flush(preparation.session)
        assert stored(runtime, "main") == list(preparation.session.events)
        fresh = other.create("fresh")
        assert not (tmp_path / "--w--" / "fresh").exists()
        assert fresh.id == "fresh"


async def test_a_reservation_that_came_to_nothing_leaves_nothing(tmp_path: Path) -> None:
    async with running(tmp_path) as runtime, running(tmp_path) as other:
        first = runtime.sessions.prepare("main", meta={"cwd": "/w"}).session
        await runtime.store.reserve(first)
        runtime.store.unreserve(first)
        rival = other.sessions.prepare("main", meta={"cwd": "/w"}).session
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(asyncio.sleep(0), asyncio.get_running_loop()))
        await runtime.store.list()
        await other.store.reserve(rival)
        other.store.unreserve(rival)
        again = runtime.sessions.prepare("main", meta={"cwd": "/w"}).session
        await runtime.store.list()
        for _ in range(50):
            try:
                await runtime.store.reserve(again)
                break
            except SessionLockedError:
                await asyncio.sleep(0.01)
        third = runtime.sessions.prepare("main", meta={"cwd": "/w"}).session
        await runtime.store.reserve(third)  # the second creation of a process takes the place of the first
    assert list((tmp_path / "--w--").iterdir()) == []


async def test_reserving_a_name_with_another_log_is_a_collision(tmp_path: Path) -> None:
    write_log(tmp_path, header("main", "/w"), log_of(1))
    async with running(tmp_path) as runtime:
        session = runtime.sessions.prepare("main", meta={"cwd": "/w"}).session
        with pytest.raises(SessionCollisionError):
            await runtime.store.reserve(session)
        (await runtime.store.prepare("main")).release()


class Agents:
    """Stands in for the registry of agents."""

    def __init__(self) -> None:
        self.cancelled: list[tuple[str, Any]] = []

    def get(self, session_id: str) -> Any:
        registry = self

        class Agent:
            def cancel(self, cause: Any) -> None:
                registry.cancelled.append((session_id, cause))

        return Agent()


async def test_b12h_losing_the_lease_cancels_the_agent_and_stops_all_writing(tmp_path: Path) -> None:
    async with running(tmp_path) as runtime:
        agents, lost = Agents(), []
        runtime.ctx.provide("agents", agents)
        runtime.ctx.on(SessionLeaseLost, lambda event: lost.append((event.session.id, event.error.code)))
        session = runtime.create("s")
        turn(session, 1, end=False)
        await runtime.sessions.flush(session)
        before = runtime.log_bytes("s")
        (tmp_path / "--w--" / "s" / "lease.lock").unlink()
        with Child(HOLDER, str(tmp_path), "auto", "15000") as child:
            assert child.hear() == "2"
            prompt(session)
            with pytest.raises(SessionFencedError, match=f"was taken over by pid {child.pid} on "):
                await runtime.sessions.flush(session)
            assert agents.cancelled == [("s", {"kind": "hook", "reason": "lease-lost"})]
            assert lost == [("s", "SESSION_FENCED")]
            session.append("turn/end", {"turn": 1, "reason": {"kind": "aborted", "reason": {"kind": "user"}}})
            with pytest.raises(SessionFencedError):
                await runtime.sessions.flush(session)
            await runtime.fiber.dispose()
            assert runtime.log_bytes("s") == before
            assert lost == [("s", "SESSION_FENCED")]


async def test_an_expiring_lease_is_renewed_while_its_session_lives(tmp_path: Path) -> None:
    async with running(tmp_path, lease="expiry", leaseTtlMs=500, leaseRenewMs=50) as runtime:
        session = runtime.create("s")
        prompt(session)
        await runtime.sessions.flush(session)
        left = runtime.store.lease_left_ms(session)
        assert left is not None and 0 < left <= 500
        await asyncio.sleep(1.0)
        with pytest.raises(SessionLockedError):
            store_at(tmp_path, lease="expiry", ttl_ms=500).hold("s", None)
        assert (runtime.store.lease_left_ms(session) or 0) > 0
        prompt(session)
        await runtime.sessions.flush(session)
    hold = store_at(tmp_path, lease="expiry", ttl_ms=500).hold("s", None)  # given back: no need to wait
    assert not hold.lease.took_over
    hold.release()


async def test_a_lost_expiring_lease_is_noticed_without_a_write(tmp_path: Path) -> None:
    async with running(tmp_path, lease="expiry", leaseTtlMs=60_000, leaseRenewMs=30) as runtime:
        noticed = asyncio.Event()
        runtime.ctx.on(SessionLeaseLost, lambda event: noticed.set())
        session = runtime.create("s")
        prompt(session)
        await runtime.sessions.flush(session)
        past = time.time_ns() - 120_000_000_000
        os.utime(tmp_path / "--w--" / "s" / "lease.json", ns=(past, past))
        with Child(HOLDER, str(tmp_path), "expiry", "60000") as child:
            if child.hear() == "2":  # else the renewal came first
                await asyncio.wait_for(noticed.wait(), 10)
                assert runtime.store.lease_left_ms(session) == 0.0
                with pytest.raises(SessionFencedError):
                    await runtime.store.renew_lease(session)


# -- without a live session -------------------------------------------------------------------------------------------


async def test_sessions_can_be_stored_without_being_live(tmp_path: Path) -> None:
    events = log_of(1, 2)
    async with running(tmp_path / "root") as runtime:
        await runtime.store.create(header("s", "/w"))
        assert not (tmp_path / "root").exists()
        with pytest.raises(SessionCollisionError):
            await runtime.store.create(header("s", "/w"))
        with pytest.raises(SessionPersistenceError, match="must continue at seq 0, got 3"):
            await runtime.store.append("s", events[3:])
        await runtime.store.append("s", events[:5])
        await runtime.store.append("s", events[5:])
        await runtime.store.append("s", events[5:])
        await runtime.store.append("s", [])
        assert stored(runtime, "s") == events
        with pytest.raises(SessionPersistenceError, match=f"must continue at seq {len(events)}, got {len(events) + 1}"):
            await runtime.store.append("s", [SessionEvent("x", len(events) + 1, 0, {})])
        with pytest.raises(SessionPersistenceError, match="contiguous|continue"):
            await runtime.store.append("s", [events[0], events[2]])
        with pytest.raises(SessionCollisionError, match="already has a stored log"):
            await runtime.store.create(header("s", "/w"))
        with pytest.raises(SessionNotFoundError):
            await runtime.store.append("unregistered", events)
        with pytest.raises(SessionPersistenceError, match='"bad/event"'):
            await runtime.store.append("s", [SessionEvent("bad/event", len(events), 0, {"x": float("inf")})])
        assert stored(runtime, "s") == events


async def test_deleting_a_session_leaves_its_children(tmp_path: Path) -> None:
    write_log(tmp_path, header("parent", "/w"), log_of(1))
    write_log(tmp_path, header("child", "/w", parent_session="parent"), log_of(1))
    async with running(tmp_path) as runtime:
        await runtime.store.delete("parent")
        assert [head.parent_session for head in await runtime.store.list()] == ["parent"]
        with pytest.raises(SessionNotFoundError):
            await runtime.store.inspect("parent")
        session = runtime.create("parent")
        prompt(session)
        await runtime.sessions.flush(session)
        assert stored(runtime, "parent") == list(session.events)


async def test_raw_text_is_what_is_stored(tmp_path: Path) -> None:
    events = log_of(1)
    for session_id, compression in (("a", "none"), ("b", "zstd")):
        write_log(tmp_path, header(session_id, "/w"), events, compression=compression)  # type: ignore[arg-type]
    async with running(tmp_path) as runtime:
        assert runtime.store.supports_raw_artifacts
        for session_id in "ab":
            head = header(session_id, "/w")
            assert await runtime.store.read_raw(session_id) == {
                "header": head.to_wire(),
                "filename": "session.jsonl",
                "content": raw_bytes(head, events).decode(),
            }


async def test_locate_says_where_a_log_would_be(tmp_path: Path) -> None:
    async with running(tmp_path) as runtime:
        location = runtime.store.locate(SessionHeader("a b", 1, cwd="/x y"))
        assert location is not None and location.kind == "jsonl"
        assert location.path == str(tmp_path / "--x~0020y--" / "a~0020b" / "session.jsonl.zstd")
        assert not list(tmp_path.iterdir())


async def test_snapshots_change_with_their_logs_alone(tmp_path: Path) -> None:
    write_log(tmp_path, header("a", "/w"), log_of(1))
    write_log(tmp_path, header("b", "/w"), log_of(1))
    async with running(tmp_path) as runtime:
        before = {entry.header.id: entry.revision for entry in await runtime.store.list_snapshots()}
        again = {entry.header.id: entry.revision for entry in await runtime.store.list_snapshots()}
        assert before == again
        await runtime.store.append("a", log_of(1, 2)[len(log_of(1)) :])
        after = {entry.header.id: entry.revision for entry in await runtime.store.list_snapshots()}
        assert after["b"] == before["b"] and after["a"] != before["a"]


async def test_a_closed_store_takes_nothing_more(tmp_path: Path) -> None:
    write_log(tmp_path, header("s", "/w"), log_of(1))
    async with running(tmp_path) as runtime:
        store = runtime.store
        preparation = await store.prepare("s")
        await runtime.fiber.dispose()
        preparation.release()
        for attempt in (store.prepare("s"), store.append("s", []), store.create(header("t"))):
            with pytest.raises(SessionPersistenceError, match="closed"):
                await attempt
        store_at(tmp_path).hold("s", None).release()


async def test_config_errors_are_found_at_load(tmp_path: Path) -> None:
    async with Context() as ctx:
        await ctx.plugin(session_store)
        for bad in ({}, {"root": ""}, {"root": "x", "writeBatchMaxDelayMs": 0}, {"root": "x", "compression": "gzip"}):
            with pytest.raises(Exception, match="root|writeBatchMaxDelayMs|compression"):
                await ctx.plugin(jsonl, bad)


async def test_f58_everything_works_in_a_directory_with_a_difficult_name(tmp_path: Path) -> None:
    code = """
        import asyncio
        from pathlib import Path
        from tests.sessions.runtime import running, turn
        async def main():
            root = Path.cwd() / "sessions"
            async with running(root) as runtime:
                session = runtime.sessions.create("ä 目录 😀", meta={"cwd": str(Path.cwd())})
                turn(session, 1)
            async with running(root) as runtime:
                session = await runtime.resume("ä 目录 😀")
                turn(session, 2)
                assert session.header.cwd == str(Path.cwd()), session.header.cwd
            async with running(root) as runtime:
                say(str(len((await runtime.store.inspect("ä 目录 😀"))[1])))
        import os
        os.chdir(sys.argv[1])
        asyncio.run(main())
    """
    place = tmp_path / "ä 目录 'q' 😀"
    place.mkdir()
    environment = {"LANG": "C", "LC_ALL": "", "PYTHONUTF8": "0"}
    with Child(code, str(place), env=environment) as child:
        assert child.hear() == "7"


async def test_the_persistence_is_found_under_its_service_name(tmp_path: Path) -> None:
    async with running(tmp_path) as runtime:
        assert runtime.ctx.get(SessionPersistence) is runtime.store
        assert isinstance(runtime.create("x"), Session)
