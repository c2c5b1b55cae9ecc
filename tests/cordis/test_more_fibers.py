"""Corners of fibers: undo functions that asynchronous code returns, and whose task is whose."""

import asyncio

import pytest

from dsh.cordis import CordisError, FiberState
from dsh.cordis.testing import harness


@pytest.mark.parametrize("slow", [False, True])
async def test_b01_an_undo_that_a_body_returns_runs_once(slow):
    order = []

    def body(ctx):
        ctx.defer(lambda: order.append("registered"))
        return lambda: order.append("returned")

    async def slow_body(ctx):
        await asyncio.sleep(0)
        return body(ctx)

    async with harness() as root:
        fiber = await root.plugin(slow_body if slow else body)
        assert order == []
        await fiber.restart()
        assert order == ["returned", "registered"]
        await fiber.dispose()
        await fiber.dispose()
        assert order == ["returned", "registered"] * 2


async def test_b03_an_undo_that_an_asynchronous_setup_returns_runs_once():
    order = []

    async def setup():
        await asyncio.sleep(0)

        async def undo():
            await asyncio.sleep(0)
            order.append("undone")

        return undo

    async with harness() as root:
        disposer = await root.effect(setup)
        assert order == []
        await disposer()
        await disposer()
        assert order == ["undone"]


async def test_b03_what_an_asynchronous_setup_or_body_returns_must_be_an_undo():
    async def odd(*_):
        await asyncio.sleep(0)
        return 5

    async with harness() as root:
        fiber = root.plugin(odd)
        with pytest.raises(CordisError) as caught:
            await fiber
        assert caught.value.code == "INVALID_EFFECT" and fiber.state is FiberState.FAILED
        with pytest.raises(CordisError) as caught:
            await root.effect(odd, "odd")
        assert caught.value.code == "INVALID_EFFECT" and "odd" not in root.fiber.effects()


async def test_tasks_are_shown_at_the_plugin_that_started_them_only():
    async def wait():
        await asyncio.Event().wait()

    async with harness() as root:
        one, two = await root.plugin(lambda ctx: None), await root.plugin(lambda ctx: None)
        one.ctx.spawn(wait, name="first")
        two.ctx.spawn(wait, name="second")
        assert [[task.name for task in fiber.tasks()] for fiber in (one, two, root.fiber)] == [
            ["first"],
            ["second"],
            [],
        ]
