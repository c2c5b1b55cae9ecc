"""Live events over the control API: no gap and no repeat wherever a client breaks off, and an end for the slow."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from dsh.interfaces.control import subscription
from dsh.interfaces.control.client import FrameParser
from dsh.interfaces.control.frames import parse_position
from dsh.interfaces.control.messages import ApiError
from dsh.interfaces.control.run_folder import find_entries
from tests.cli.kit import TIMEOUT, Place
from tests.interfaces.control_kit import DEMO, WAIT, Controlled, controlled, demo_place


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return demo_place(tmp_path)


async def raw_stream(control: Controlled, query: str, last: str | None = None) -> tuple[Any, asyncio.StreamWriter]:
    """The stream on a connection of its own: whatever is not read stays in the daemon's buffers."""
    reader, writer = await asyncio.open_unix_connection(control.entry.socket, limit=2**26)
    header = f"Last-Event-ID: {last}\r\n" if last is not None else ""
    writer.write(f"GET /api/stream?{query} HTTP/1.1\r\nHost: dsh\r\n{header}\r\n".encode())
    return reader, writer


async def test_b17d_a_client_may_come_back_at_every_seq_of_a_log(place: Place) -> None:
    async with controlled(place) as control:
        for text in ("one", 'call bash {"command":"echo hi","description":"d"}', "two words"):
            await control.prompt(text)
        await control.idle()
        log = await control.log()
        assert len(log) > 100
        for seq in range(-1, len(log)):
            async with control.frames(
                f"sessions={control.main}", **{"Last-Event-ID": f"{control.main}:{seq}"}
            ) as frames:
                assert await frames.events(len(log) - 1 - seq) == log[seq + 1 :]
        async with control.frames(f"sessions={control.main}&after={control.main}:{len(log) - 2}") as frames:
            assert await frames.events(1) == log[-1:]
            await control.prompt("live now")
            await frames.until("host/session-status", status="idle")
            seqs = [f["event"]["seq"] for f in frames.seen if f["type"] == "session/event"]
        assert seqs == list(range(len(log) - 1, len(await control.log())))


async def test_b17d_breaking_off_and_coming_back_while_it_runs_loses_and_repeats_nothing(place: Place) -> None:
    place.write("cordis.yml", DEMO.replace("paceMs: 0", "paceMs: 2"))
    async with controlled(place) as control:
        other = (await control.ask("POST", "/api/sessions", {}, 201))["sessionId"]
        await control.prompt("a " * 150)
        await control.ask("POST", f"/api/sessions/{other}/prompt", {"content": "b " * 150}, 202)
        seen: dict[str, list[int]] = {control.main: [], other: []}
        last, connections = f"{control.main}:-1", 0
        query = f"sessions={control.main},{other}&after={control.main}:-1&after={other}:-1"
        ended = 0
        while ended < 2:
            connections += 1
            async with control.frames(query, **({"Last-Event-ID": last} if connections > 1 else {})) as frames:
                for _ in range(connections * 5):
                    if ended == 2:
                        break
                    frame = await frames.next()
                    if frame["type"] == "session/event":
                        seen[frame["sessionId"]].append(frame["event"]["seq"])
                        last = f"{frame['sessionId']}:{frame['event']['seq']}"
                        ended += frame["event"]["type"] == "turn/end"
        assert connections > 5
        for session_id, seqs in seen.items():
            assert seqs == list(range(len(seqs))), session_id


async def test_a_session_without_a_position_is_followed_from_now_on(place: Place) -> None:
    async with controlled(place) as control:
        await control.prompt("before")
        await control.idle()
        async with control.frames(f"sessions={control.main}") as frames:
            first = await frames.next()
            assert first["type"] == "session/subscribed" and first["live"] and first["status"] == "idle"
            assert first["lastSeq"] == len(await control.log()) - 1
            await control.prompt("after")
            (event,) = await frames.events(1)
            assert event["seq"] == first["lastSeq"] + 1
            assert (await frames.until("session/queue"))["sessionId"] == control.main


async def test_all_sessions_are_followed_also_those_that_come_later(place: Place) -> None:
    async with controlled(place) as control, control.frames() as frames:
        assert (await frames.next())["sessionId"] == control.main
        made = (await control.ask("POST", "/api/sessions", {}, 201))["sessionId"]
        await frames.until("host/session-added", sessionId=made)
        await control.ask("POST", f"/api/sessions/{made}/prompt", {"content": "x"}, 202)
        await frames.until("host/session-status", sessionId=made, status="running")
        await frames.until("host/session-status", sessionId=made, status="idle")
        await control.ask("DELETE", f"/api/sessions/{made}")
        await frames.until("host/session-removed", sessionId=made)
        seqs = [f["event"]["seq"] for f in frames.seen if f["type"] == "session/event"]
        assert seqs == list(range(len(seqs)))


async def test_status_frames_stand_between_the_events_they_belong_to(place: Place) -> None:
    async with controlled(place) as control, control.frames(f"sessions={control.main}") as frames:
        await frames.next()
        await control.prompt("x")
        await frames.until("host/session-status", status="idle")
        kinds = [
            f["event"]["type"] if f["type"] == "session/event" else f.get("status", f["type"]) for f in frames.seen
        ]
        assert kinds.index("agent/inbox/spliced") < kinds.index("running") < kinds.index("turn/start")
        assert kinds[-2:] == ["turn/end", "idle"]


async def test_a_stored_session_is_read_and_then_followed_once_it_is_opened(place: Place) -> None:
    async with controlled(place) as control:
        await control.prompt(WAIT)
        await control.begun()
    (place.work / "begun").unlink()  # the daemon was killed in the middle of the turn: opening adds its end
    async with controlled(place) as later:
        name = control.main
        async with later.frames(f"sessions={name}&after={name}:-1") as frames:
            assert not (await frames.next())["live"]
            await later.ask("POST", "/api/sessions", {"resume": name}, 201)
            await later.ask("POST", f"/api/sessions/{name}/prompt", {"content": "go on"}, 202)
            await frames.until("host/session-status", status="running")
            await frames.until("host/session-status", status="idle")
            seqs = [f["event"]["seq"] for f in frames.seen if f["type"] == "session/event"]
            log = (await later.ask("GET", f"/api/sessions/{name}/events?limit=5000"))["events"]
        assert seqs == list(range(len(log)))
        response = await later.http.get("/api/stream?sessions=nothing")
        assert response.status_code == 404


async def test_b17e_a_client_that_does_not_read_is_dropped_and_may_come_back(place: Place) -> None:
    async with controlled(place) as control:
        reader, writer = await raw_stream(control, f"sessions={control.main}")
        await reader.readuntil(b"\n\n")
        reader._transport.pause_reading()
        for _ in range(6):
            await control.prompt("x" * 2**20)  # one word, which the reply repeats
        await control.idle()
        reader._transport.resume_reading()
        async with asyncio.timeout(TIMEOUT):
            received = await reader.read(-1)
        writer.close()
        frames = list(FrameParser().feed(_unchunked(received)))
        assert frames[-1]["type"] == "stream/error" and frames[-1]["code"] == "SLOW_CONSUMER"
        events = [frame["event"]["seq"] for frame in frames if frame["type"] == "session/event"]
        assert events == list(range(len(events))), "what it was sent before is whole"
        total = (await control.ask("GET", f"/api/sessions/{control.main}"))["lastSeq"] + 1
        assert len(events) < total
        async with control.frames(f"sessions={control.main}&after={control.main}:{events[-1]}") as again:
            rest = await again.events(total - len(events))
        assert [event["seq"] for event in rest] == list(range(len(events), total))


def _unchunked(data: bytes) -> bytes:
    _, _, data = data.rpartition(b"\r\n\r\n") if data.startswith(b"HTTP") else (b"", b"", data)
    whole = b""
    while data:
        size, _, data = data.lstrip(b"\r\n").partition(b"\r\n")
        length = int(size, 16)
        whole, data = whole + data[:length], data[length + 2 :]
    return whole


async def test_a_client_that_leaves_is_forgotten(place: Place) -> None:
    async with controlled(place) as control:
        for _ in range(5):
            async with control.frames() as frames:
                await frames.next()
        async with asyncio.timeout(TIMEOUT):
            while True:
                rows = (await control.ask("GET", "/api/plugins"))["rows"]
                tasks = next(row["tasks"] for row in rows if row["id"] == "control")
                if tasks == ["control connection"]:
                    break
                await asyncio.sleep(0.02)


async def test_a_stop_breaks_off_the_streams_and_ends_the_process(place: Place) -> None:
    async with controlled(place) as control, control.frames() as frames:
        await frames.next()
        await control.prompt(WAIT)
        await control.begun()
        await control.ask("POST", "/api/stop", {}, 202)
        with pytest.raises(httpx.RemoteProtocolError):
            while True:
                await frames.next()
        assert await control.daemon.finish() == 0


async def test_silence_is_broken_by_signs_of_life(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscription, "HEARTBEAT_SECONDS", 0.01)

    class Quiet:
        journal: list[Any] = []
        live_ids = staticmethod(list)

        def join(self, subscription: Any) -> None: ...

        def leave(self, subscription: Any) -> None: ...

    quiet = subscription.Subscription(Quiet(), None, {}, None)  # type: ignore[arg-type]
    chunks = quiet.chunks()
    assert [await anext(chunks) for _ in range(3)] == [b"", b": still here\n\n", b": still here\n\n"]
    quiet.leave()
    with pytest.raises(StopAsyncIteration):
        await anext(chunks)


def test_positions_name_a_session_and_a_seq() -> None:
    assert parse_position("main-session-1:41") == ("main-session-1", 41)
    assert parse_position(quote("a:b c\n%") + ":-1") == ("a:b c\n%", -1)
    for wrong in ("", "x", ":1", "x:", "x:1.5", "x:-2", "x:one", "x:" + "9" * 20):
        with pytest.raises(ApiError):
            parse_position(wrong)


def test_frames_are_split_at_line_feeds_alone() -> None:
    parser = FrameParser()
    data = 'data: {"text":"a\u2028b\u0085c"}\n\n: still here\n\nid: x:1\ndata: {"n":1}\n\ndata: {"half'.encode()
    found = [frame for cut in range(len(data)) for frame in parser.feed(data[cut : cut + 1])]
    assert found == [{"text": "a\u2028b\u0085c"}, {"n": 1}]


async def test_a_client_that_reads_nothing_does_not_hold_up_the_end(place: Place) -> None:
    async with controlled(place) as control:
        reader, writer = await raw_stream(control, f"sessions={control.main}&after={control.main}:-1")
        await reader.readuntil(b"\n\n")
        reader._transport.pause_reading()
        for _ in range(6):
            await control.prompt("x" * 2**20)
        await control.idle()
        await control.ask("POST", "/api/stop", {}, 202)
        assert await control.daemon.finish() == 0
        assert "shutdown took longer" not in control.daemon.err
        writer.close()


async def test_clients_that_leave_at_any_moment_are_no_error(place: Place) -> None:
    async with controlled(place) as control:
        whole = b"GET /api/stream HTTP/1.1\r\nHost: dsh\r\n\r\n"
        for cut in (0, 1, 10, len(whole) - 1, len(whole)):
            for _ in range(20):
                _, writer = await asyncio.open_unix_connection(control.entry.socket)
                writer.write(whole[:cut])
                if cut % 2:
                    writer.transport.abort()
                writer.close()
        await control.prompt("still there?")
        await control.idle()
        assert "failed" not in control.daemon.err


async def test_a_control_row_that_changes_starts_anew_and_keeps_the_daemons_age(place: Place) -> None:
    place.write("cordis.yml", DEMO + "- {id: hmr, name: '@deepseek-ai/cordis-plugin-hmr', config: {debounce: 30}}\n")
    async with controlled(place) as control, control.frames() as frames:
        await frames.next()
        text = (place.work / "cordis.yml").read_text("utf-8")
        place.write("cordis.yml", text + "- {id: control, name: dsh-control, config: {port: 0}}\n")
        applied = await control.daemon.config("applied")
        assert applied["rows"] == ["control"]
        with pytest.raises((StopAsyncIteration, httpx.TransportError)):
            while True:
                await frames.next()
        (entry,) = find_entries(place.home)
        assert entry.run_id != control.entry.run_id and entry.url is not None
        assert entry.started_at == control.entry.started_at
        assert (await place.dsh("send", control.main, "hello", "--wait")).code == 0
