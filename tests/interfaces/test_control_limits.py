"""What clients of the control API may cost: queues, connections that say nothing, and what a log gives away."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dsh.core.seams import SessionPersistence
from dsh.interfaces.control import server
from dsh.interfaces.control.client import FrameParser
from dsh.interfaces.control.server import Control
from dsh.interfaces.control.subscription import MAX_QUEUED, MAX_QUEUED_BYTES, Subscription
from tests.cli.kit import TIMEOUT, Place
from tests.interfaces.control_kit import controlled, demo_place
from tests.interfaces.test_console import console

SMALL = b'data: {"type":"small"}\n\n'


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return demo_place(tmp_path)


async def live() -> tuple[Subscription, Any]:
    """A subscription that has caught up, and its chunks."""
    feed: Any = SimpleNamespace(journal=[], live_ids=list, join=lambda _: None, leave=lambda _: None)
    subscription = Subscription(feed, None, {}, None)
    chunks = subscription.chunks()
    assert await anext(chunks) == b""
    subscription.put(SMALL)
    assert await anext(chunks) == SMALL
    return subscription, chunks


async def rest(chunks: Any) -> list[Any]:
    return list(FrameParser().feed(b"".join([chunk async for chunk in chunks])))


async def test_a_burst_of_small_frames_is_no_reason_to_drop_a_client() -> None:
    subscription, chunks = await live()
    for _ in range(20):
        for _ in range(10_000):
            subscription.put(SMALL)
        assert await anext(chunks) == SMALL * 10_000


@pytest.mark.parametrize(
    ("size", "fit"), [(len(SMALL), MAX_QUEUED), (2**20, MAX_QUEUED_BYTES // 2**20), (2 * MAX_QUEUED_BYTES, 1)]
)
async def test_what_waits_is_bounded_by_bytes_and_by_number_and_any_one_frame_passes(size: int, fit: int) -> None:
    frame = SMALL[:-2] + b" " * (size - len(SMALL)) + b"\n\n"
    subscription, chunks = await live()
    for _ in range(fit):
        subscription.put(frame)
    assert len(await anext(chunks)) == size * fit
    for _ in range(fit + 5):
        subscription.put(frame)
    (only,) = await rest(chunks)
    assert (only["type"], only["code"]) == ("stream/error", "SLOW_CONSUMER")


async def test_what_a_client_missed_comes_in_pieces_of_a_bounded_size() -> None:
    event = SimpleNamespace(seq=0, to_wire=lambda: {"text": "x" * 2**20})
    session = SimpleNamespace(id="s", seq=20, events=[event] * 20)
    feed: Any = SimpleNamespace(
        journal=[], live=lambda _: session, status_of=lambda _: "idle", join=lambda _: None, leave=lambda _: None
    )
    chunks = Subscription(feed, ["s"], {"s": -1}, None).chunks()
    sizes = [len(await anext(chunks)) for _ in range(21)]
    assert max(sizes) < 2 * 2**20 and sum(sizes) > 20 * 2**20
    await chunks.aclose()


async def test_the_log_of_a_closed_session_is_read_once_for_a_client_that_comes_back() -> None:
    """Given 50 missed events of a session that is closed, when a client of all sessions comes back, then it gets them
    after one reading of the log; what a later life of the session added is read when it is due."""
    log = [SimpleNamespace(seq=seq, to_wire=lambda seq=seq: {"seq": seq}) for seq in range(50)]
    lengths, read = [30, 50], []

    async def read_from(session_id: str, seq: int) -> list[Any]:
        read.append(seq)
        return log[seq : lengths[len(read) - 1]]

    journal = [("s", event.seq) for event in log]
    answers = [journal[1:], []]
    feed: Any = SimpleNamespace(
        journal=journal, ctx={SessionPersistence: SimpleNamespace(read_from=read_from)}, live=lambda _: None,
        live_ids=list, since=lambda *_: answers.pop(0), join=lambda _: None, leave=lambda _: None,
    )  # fmt: skip
    chunks = Subscription(feed, None, {}, ("s", 0)).chunks()
    frames = list(FrameParser().feed(await anext(chunks)))
    await chunks.aclose()
    assert [frame["event"]["seq"] for frame in frames] == list(range(1, 50))
    assert read == [1, 30]


async def test_a_connection_that_says_nothing_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "FIRST_SECONDS", 0.01)
    closed = asyncio.Event()
    control: Any = SimpleNamespace()
    writer: Any = SimpleNamespace(close=closed.set)
    await asyncio.wait_for(Control._serve(control, asyncio.StreamReader(), writer, None), TIMEOUT)
    assert closed.is_set()


async def test_connections_on_tcp_are_limited_and_the_socket_of_the_owner_is_not(place: Place) -> None:
    async with controlled(place, "--control-port", "0") as control:
        port = int(str(control.entry.url).split(":")[2].split("/")[0])
        held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(server.MAX_ON_TCP)]
        async with asyncio.timeout(TIMEOUT):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            with pytest.raises((ConnectionError, EOFError)):
                await reader.readexactly(1)
            writer.close()
            assert (await control.ask("GET", "/api/status"))["state"] == "running"
            for _, each in held:
                each.close()
            while True:  # there is room again
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(b"GET /api/status HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                try:
                    answer = await reader.read(12)
                except ConnectionError:
                    answer = b""
                writer.close()
                if answer == b"HTTP/1.1 403":
                    break


async def test_the_token_is_shown_on_a_terminal_and_kept_out_of_a_log(place: Place) -> None:
    async with controlled(place, "--control-port", "0") as control:
        address, token = str(control.entry.url).split("#token=")
        shown = f"dsh: control on {address} (its token is in {control.entry.path})\n"
        assert shown in control.daemon.err and token not in control.daemon.err
        assert token in Path(control.entry.path).read_text("utf-8")
    async with console(place, "cordis.yml", "--control-port", "0") as terminal:
        await terminal.shows("/#token=")
