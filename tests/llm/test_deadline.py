"""The clocks of a stream."""

from __future__ import annotations

import asyncio

import pytest

from dsh.cordis import AbortController, AbortError
from dsh.llm.failure import LlmError
from dsh.llm.transport.deadline import StreamDeadline


async def never() -> None:
    await asyncio.Event().wait()


async def test_b22a_silence_runs_into_the_idle_clock_and_the_read_has_ended() -> None:
    ended: list[str] = []

    async def read() -> None:
        try:
            await never()
        finally:
            await asyncio.sleep(0)
            ended.append("read")

    with StreamDeadline("peer", 30, 10_000, None) as deadline:
        with pytest.raises(LlmError, match="peer sent nothing for 30 ms") as raised:
            await deadline.wait(read())
        assert raised.value.code == "TIMEOUT" and ended == ["read"]
        with pytest.raises(LlmError):
            await deadline.wait(read())
    assert ended == ["read"]
    assert asyncio.current_task().cancelling() == 0  # type: ignore[union-attr]


async def test_b22b_reads_without_events_run_into_the_progress_clock() -> None:
    with StreamDeadline("peer", 10_000, 60, None) as deadline:
        with pytest.raises(LlmError, match="no event for 60 ms"):
            for _ in range(1000):
                await deadline.wait(asyncio.sleep(0.01))
        assert asyncio.current_task().cancelling() == 0  # type: ignore[union-attr]


async def test_b22c_events_and_life_keep_the_clocks_from_running_out() -> None:
    with StreamDeadline("peer", 600, 600, None) as deadline:
        for _ in range(8):
            await deadline.wait(asyncio.sleep(0.1))
            deadline.event()

    with StreamDeadline("peer", 600, 10_000, None) as deadline:

        async def upload() -> None:
            for _ in range(8):
                await asyncio.sleep(0.1)
                deadline.alive()

        await deadline.wait(upload())


async def test_b22d_a_slow_consumer_costs_nothing() -> None:
    with StreamDeadline("peer", 30, 60, None) as deadline:
        for _ in range(3):
            await deadline.wait(asyncio.sleep(0))
            await asyncio.sleep(0.1)
        with pytest.raises(LlmError):
            await deadline.wait(never())


async def test_b23a_an_abort_ends_the_pending_read_with_the_first_cause() -> None:
    controller = AbortController()
    with StreamDeadline("peer", 10_000, 10_000, controller.signal) as deadline:
        asyncio.get_running_loop().call_soon(controller.abort, {"kind": "user"})
        with pytest.raises(AbortError) as raised:
            await deadline.wait(never())
        assert raised.value.reason == {"kind": "user"}
    assert asyncio.current_task().cancelling() == 0  # type: ignore[union-attr]
    with StreamDeadline("peer", 10_000, 10_000, controller.signal) as deadline, pytest.raises(AbortError):
        await deadline.wait(never())


async def test_the_callers_own_cancellation_is_never_swallowed() -> None:
    controller = AbortController()

    async def stream() -> None:
        with StreamDeadline("peer", 10_000, 10_000, controller.signal) as deadline:
            await deadline.wait(never())

    task = asyncio.create_task(stream())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    # Both at once: the outer cancellation stays in force.
    task = asyncio.create_task(stream())
    await asyncio.sleep(0)
    controller.abort("user")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_errors_and_results_of_the_read_pass_through() -> None:
    async def fail() -> None:
        raise ConnectionError("gone")

    async def value() -> int:
        return 7

    with StreamDeadline("peer", 10_000, 10_000, None) as deadline:
        assert await deadline.wait(value()) == 7
        with pytest.raises(ConnectionError, match="gone"):
            await deadline.wait(fail())


async def test_no_timer_survives_the_stream() -> None:
    with StreamDeadline("peer", 10_000, 10_000, None) as deadline:
        await deadline.wait(asyncio.sleep(0))
        timer = deadline._timer
        assert timer is not None
        for _ in range(100):
            await deadline.wait(asyncio.sleep(0))
        assert deadline._timer is timer  # one timer for all reads
    assert timer.cancelled()
