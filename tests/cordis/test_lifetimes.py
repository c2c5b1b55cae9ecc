"""Corners of lifetimes: stuck tasks at the end, slow repeated work, updates nobody waits for."""

import asyncio
import time

import pytest

from dsh.cordis import Context, plugin
from dsh.cordis.testing import VirtualClock, assert_clean, harness
from tests.cordis.helpers import errors, turns


async def test_many_tasks_that_refuse_to_end_hold_the_root_up_once_not_one_after_the_other(caplog):
    release = asyncio.Event()

    async def stubborn():
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue

    root = Context(dispose_timeout=0.2)
    async with root:
        runtime = root.runtime
        for number in range(10):
            runtime.start(stubborn(), None, "host", f"stuck {number}", runtime.variables.copy())
        tasks = list(runtime.tasks)
        await turns()
        began = time.monotonic()
    took = time.monotonic() - began
    release.set()
    await asyncio.wait(tasks)
    assert took < 1.5
    assert sum("survives the root" in record.getMessage() for record in caplog.records) == 10


async def test_an_async_call_of_every_is_not_started_again_while_it_runs():
    clock, running, most = VirtualClock(), 0, 0
    async with harness(clock=clock) as root:

        async def slow():
            nonlocal running, most
            running += 1
            most = max(most, running)
            await root.sleep(25)
            running -= 1

        root.every(10, slow)
        await clock.advance(100)
        assert most == 1


async def test_a_timer_of_a_group_that_is_being_undone_starts_nothing():
    clock, calls = VirtualClock(), []
    async with harness(clock=clock) as root:

        async def later():
            calls.append("later")

        gate = asyncio.Event()
        group = root.group("part")
        group.call_later(5, later)
        group.defer(gate.wait)
        gone = group()
        await clock.advance(10)
        gate.set()
        await gone
        assert calls == [] and errors(root) == []


async def test_an_update_that_fails_after_its_waiter_left_is_still_logged():
    async with harness() as root:
        gate = asyncio.Event()

        async def on_update(new, old, changed):
            await gate.wait()
            raise ValueError("too late")

        @plugin(on_update=on_update)
        def body(ctx, config):
            pass

        fiber = await root.plugin(body, {"a": 1})
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await fiber.update({"a": 2})
        gate.set()
        await root.settle()
        assert errors(root) == ["config update failed"]


async def test_a_fiber_on_its_way_out_cannot_be_moved_back_in():
    async with harness() as root:
        fiber = await root.plugin(lambda ctx: None)
        group = root.group("place")
        await fiber.dispose()
        assert fiber.rebase(group) == []
        assert root.fiber.children() == [] and group.composite.inner.items == {}
        await group()
    assert_clean(root)


async def test_a_call_from_another_thread_that_was_cancelled_meanwhile_is_not_made():
    calls, noise = [], []
    async with harness() as root:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: noise.append(context))

        def ask():
            future = root.from_thread(calls.append, 1)
            future.cancel()
            return future

        future = ask()
        await turns()
        assert future.cancelled() and calls == [] and noise == []


async def test_undo_code_of_a_fiber_that_was_moved_to_another_realm_still_has_its_services():
    seen = []
    async with harness() as root:
        root.provide("tool", "old")

        def body(ctx):
            ctx.provide("own", "mine")
            ctx.plugin(lambda inner: inner.defer(lambda: seen.append(inner["tool"])), inject=["tool"])
            ctx.defer(lambda: seen.append((ctx["tool"], ctx["own"])))

        fiber = await root.plugin(body, inject=["tool"])
        await root.settle()
        fiber.rebase(root.isolate("tool").isolate("own"))
        await root.settle()
        assert seen == [("old", "mine"), "old"] and fiber.missing() == ["tool"]
        assert errors(root) == []
