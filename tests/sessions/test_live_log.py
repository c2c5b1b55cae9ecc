"""When a live session's events are written, and what waits for them. Time is the test's own."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from dsh.core.session import Session
from dsh.core.session_event import SessionEvent
from dsh.sessions.errors import SessionFencedError
from dsh.sessions.live_log import LiveLog


class Clock:
    """An event loop's timers under the control of a test."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.now = 0.0
        self.timers: list[list[Any]] = []

    def call_later(self, delay: float, fn: Callable[[], None]) -> Any:
        timer = [self.now + delay * 1000, fn, False]
        self.timers.append(timer)
        clock = self

        class Handle:
            def cancel(self) -> None:
                if timer in clock.timers:
                    clock.timers.remove(timer)

        return Handle()

    def call_soon(self, fn: Callable[[], None]) -> asyncio.Handle:
        return self.loop.call_soon(fn)

    def create_future(self) -> asyncio.Future[Any]:
        return self.loop.create_future()

    async def advance(self, ms: float) -> None:
        self.now += ms
        for timer in [timer for timer in self.timers if timer[0] <= self.now]:
            self.timers.remove(timer)
            timer[1]()
        await settle()


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


class Bench:
    """A live log whose disk is the test."""

    def __init__(self, durable: int = 0) -> None:
        self.session = Session("s")
        self.clock = Clock()
        self.batches: list[list[int]] = []
        self.writes: list[asyncio.Future[None]] = []
        self.errors: list[str] = []
        self.lost: list[SessionFencedError] = []
        self.log = LiveLog(
            self.session,
            self._write,
            durable=durable,
            window_ms=lambda: 200,
            logger=self,  # type: ignore[arg-type]
            on_lost=self.lost.append,
        )
        self.log._loop = self.clock  # type: ignore[assignment]

    def _write(self, base: int, events: Sequence[SessionEvent]) -> asyncio.Future[None]:
        assert [event.seq for event in events] == list(range(base, base + len(events)))
        self.batches.append([event.seq for event in events])
        self.writes.append(asyncio.get_running_loop().create_future())
        return self.writes[-1]

    def error(self, message: str, *args: object) -> None:
        self.errors.append(message % args)

    def event(self, count: int = 1) -> None:
        for _ in range(count):
            self.session.append("note", {}, ignorable=True)
            self.log.note()

    async def finish(self, error: Exception | None = None) -> None:
        write = self.writes.pop(0)
        if error is None:
            write.set_result(None)
        else:
            write.set_exception(error)
        await settle()


FULL = OSError(errno.ENOSPC, "No space left on device")


async def test_b01a_a_hundred_events_of_one_tick_are_one_write() -> None:
    bench = Bench()
    bench.event(100)
    await bench.clock.advance(199)
    assert bench.batches == []
    await bench.clock.advance(1)
    assert bench.batches == [list(range(100))]


async def test_b01b_the_window_counts_from_the_first_event() -> None:
    bench = Bench()
    bench.event()
    await bench.clock.advance(150)
    bench.event()
    await bench.clock.advance(50)
    assert bench.batches == [[0, 1]]
    await bench.finish()
    await bench.clock.advance(10_000)
    assert bench.batches == [[0, 1]]


async def test_b02a_an_event_during_a_write_has_a_deadline_of_its_own() -> None:
    bench = Bench()
    bench.event()
    await bench.clock.advance(200)
    bench.event()
    await bench.clock.advance(50)
    await bench.finish()
    assert bench.batches == [[0]]
    await bench.clock.advance(149)
    assert bench.batches == [[0]]
    await bench.clock.advance(1)
    assert bench.batches == [[0], [1]]


async def test_b02b_a_deadline_that_passed_during_a_write_is_met_at_once() -> None:
    bench = Bench()
    bench.event()
    await bench.clock.advance(200)
    bench.event()
    await bench.clock.advance(300)
    bench.event()
    assert bench.batches == [[0]]
    await bench.finish()
    assert bench.batches == [[0], [1, 2]]


async def test_b02c_a_barrier_during_a_write_waits_for_its_own_events() -> None:
    bench = Bench()
    bench.event()
    await bench.clock.advance(200)
    bench.event()
    barrier = bench.log.barrier()
    assert barrier is not None
    await bench.finish()
    assert bench.batches == [[0], [1]] and not barrier.done()
    await bench.finish()
    await barrier


async def test_a_barrier_cancels_the_wait() -> None:
    bench = Bench()
    bench.event(3)
    barrier = bench.log.barrier()
    assert barrier is not None
    await settle()
    assert bench.batches == [[0, 1, 2]]
    await bench.finish()
    await barrier
    await bench.clock.advance(10_000)
    assert len(bench.batches) == 1


async def test_a_barrier_does_not_wait_for_what_comes_after_it() -> None:
    bench = Bench()
    bench.event()
    barrier = bench.log.barrier()
    assert barrier is not None
    await settle()
    bench.event(5)
    await bench.finish()
    assert barrier.done() and bench.batches == [[0]]


async def test_b04a_barriers_of_one_moment_share_a_write() -> None:
    bench = Bench()
    bench.event()
    first = bench.log.barrier()
    bench.event()  # appended after the first call, before its write: rides along
    second = bench.log.barrier()
    assert first is not None and second is not None
    await settle()
    assert bench.batches == [[0, 1]]
    await bench.finish()
    assert first.done() and second.done()


async def test_a_barrier_joins_the_write_that_already_carries_its_events() -> None:
    bench = Bench()
    bench.event()
    await bench.clock.advance(200)
    barrier = bench.log.barrier()
    assert barrier is not None
    await bench.finish()
    assert barrier.done() and bench.batches == [[0]]


async def test_b04b_a_barrier_over_a_clean_log_is_nothing_at_all() -> None:
    bench = Bench()
    assert bench.log.barrier() is None
    bench.event()
    await bench.clock.advance(200)
    await bench.finish()
    assert bench.log.barrier() is None
    assert len(bench.batches) == 1


async def test_b03a_a_failed_batch_keeps_its_order_and_goes_with_the_next_event() -> None:
    bench = Bench()
    bench.event(2)
    await bench.clock.advance(200)
    await bench.finish(FULL)
    await bench.clock.advance(60_000)
    assert bench.batches == [[0, 1]]
    assert bench.errors == ['session "s": its log could not be written: [Errno 28] No space left on device']
    bench.event()
    await bench.clock.advance(199)
    assert len(bench.batches) == 1
    await bench.clock.advance(1)
    assert bench.batches[1:] == [[0, 1, 2]]
    await bench.finish(FULL)
    assert len(bench.errors) == 1
    bench.event()
    await bench.clock.advance(200)
    await bench.finish()
    assert bench.log.durable == 4 and bench.log.clean


async def test_b03b_a_flush_tries_again_and_raises_the_cause() -> None:
    bench = Bench()
    bench.event()
    await bench.clock.advance(200)
    await bench.finish(FULL)
    barrier = bench.log.barrier()
    assert barrier is not None
    await settle()
    assert bench.batches == [[0], [0]]
    await bench.finish(FULL)
    with pytest.raises(OSError, match="No space left"):
        await barrier
    assert len(bench.errors) == 1  # whoever waited was told
    await bench.clock.advance(60_000)
    assert len(bench.batches) == 2


async def test_b03c_a_barrier_behind_a_failing_write_gets_an_attempt_of_its_own() -> None:
    bench = Bench()
    bench.event()
    await bench.clock.advance(200)
    bench.event()
    barrier = bench.log.barrier()
    assert barrier is not None
    await bench.finish(FULL)
    assert bench.batches == [[0], [0, 1]] and not barrier.done()
    await bench.finish()
    await barrier


async def test_cancelling_a_barrier_does_not_stop_the_write() -> None:
    bench = Bench()
    bench.event()
    barrier = bench.log.barrier()
    assert barrier is not None
    await settle()
    barrier.cancel()
    await bench.finish()
    assert bench.log.clean


async def test_a_fenced_write_ends_all_writing() -> None:
    bench = Bench()
    bench.event()
    await bench.clock.advance(200)
    bench.event()
    barrier = bench.log.barrier()
    assert barrier is not None
    fenced = SessionFencedError("s", "it was taken over")
    await bench.finish(fenced)
    with pytest.raises(SessionFencedError):
        await barrier
    assert bench.lost == [fenced]
    bench.event()
    await bench.clock.advance(60_000)
    again = bench.log.barrier()
    assert again is not None
    with pytest.raises(SessionFencedError):
        await again
    assert len(bench.batches) == 1 and len(bench.lost) == 1


async def test_a_seed_waits_for_the_first_event() -> None:
    bench = Bench()
    bench.session = Session("s", seed=[])
    bench.log.session = bench.session
    assert bench.log.barrier() is None
    bench.event()
    await bench.clock.advance(200)
    assert bench.batches == [[0, 1]]
