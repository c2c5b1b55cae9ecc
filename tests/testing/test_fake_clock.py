"""Time that a test moves by hand, for everything that asks the loop for it."""

from __future__ import annotations

import asyncio
import time

import pytest

from dsh.cordis import Context
from dsh.core.tools import Tools
from dsh.testing import FakeClock, call, run_plugin, say


async def test_time_stands_still_until_it_is_moved() -> None:
    with FakeClock() as clock:
        started = clock.time()
        waiting = asyncio.create_task(asyncio.sleep(3600, "woken"))
        await clock.advance(3599)
        assert not waiting.done()
        await clock.advance(1)
        assert waiting.result() == "woken"
        assert asyncio.get_running_loop().time() == clock.time() == started + 3600
    assert asyncio.get_running_loop().time() < started + 3600


async def test_timers_fire_in_order_and_what_they_wake_runs_in_between() -> None:
    seen: list[tuple[str, float]] = []
    with FakeClock() as clock:
        started = clock.time()

        async def steps(name: str, *pauses: float) -> None:
            for pause in pauses:
                await asyncio.sleep(pause)
                seen.append((name, clock.time() - started))

        tasks = [asyncio.create_task(steps("a", 1, 2)), asyncio.create_task(steps("b", 2, 2))]
        cancelled = asyncio.get_running_loop().call_later(1.5, seen.append, ("never", 0.0))
        cancelled.cancel()
        await clock.advance(10)
        await asyncio.gather(*tasks)
    assert seen == [("a", 1), ("b", 2), ("a", 3), ("b", 4)]


async def test_a_timeout_fires_by_the_clock() -> None:
    async def impatient() -> None:
        async with asyncio.timeout(30):
            await asyncio.Event().wait()

    with FakeClock() as clock:
        waiting = asyncio.create_task(impatient())
        await clock.advance(29)
        assert not waiting.done()
        await clock.advance(1)
        with pytest.raises(TimeoutError):
            await waiting


async def test_what_is_still_scheduled_goes_on_in_real_time() -> None:
    with FakeClock() as clock:
        waiting = asyncio.create_task(asyncio.sleep(3600.01))
        await clock.advance(3600)
        dropped = asyncio.get_running_loop().call_later(0, lambda: pytest.fail("it was cancelled"))
    dropped.cancel()
    await waiting


async def test_a_clock_is_for_one_run_at_a_time() -> None:
    with FakeClock() as clock, pytest.raises(RuntimeError, match="in use"), clock:
        pass


def test_it_works_on_uvloop_too() -> None:
    uvloop = pytest.importorskip("uvloop")

    async def main() -> None:
        with FakeClock() as clock:
            waiting = asyncio.create_task(asyncio.sleep(3600))
            async with asyncio.timeout(4000):
                await clock.advance(3600)
                await waiting
        await asyncio.sleep(0.001)

    started = time.monotonic()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
    assert time.monotonic() - started < 60


async def test_the_time_helpers_of_a_plugin_and_its_tools_follow_the_clock() -> None:
    ticks: list[int] = []

    def plugin(ctx: Context, config: None, tools: Tools) -> None:
        ctx.every(60, lambda: ticks.append(1))

        @tools.tool
        async def nap(seconds: int) -> str:
            """Sleep."""
            await asyncio.sleep(seconds)
            return "rested"

    clock = FakeClock()
    async with run_plugin(plugin, clock=clock, model=[call("nap", {"seconds": 600}), say("Good.")]) as run:
        turn = asyncio.create_task(run.prompt("Have a rest."))
        await clock.advance(590)
        assert not turn.done() and len(ticks) == 9
        await clock.advance(10)
        assert (await turn).results == ["rested"] and len(ticks) == 10
