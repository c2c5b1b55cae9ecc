"""Asynchronous setups that are disposed or fail on the way: what was collected is undone, nothing else is."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from dsh.cordis import CordisError, FiberState
from dsh.cordis.testing import harness
from tests.cordis.helpers import errors, turns


async def test_b03_the_undo_waits_for_a_setup_that_may_not_be_cut_short():
    order, go = [], asyncio.Event()

    async with harness() as root:

        @asynccontextmanager
        async def setup():
            try:
                async with root.shield():
                    await go.wait()
                    order.append("set up")
                yield
            finally:
                order.append("undone")

        disposer = root.effect(setup(), "slow")
        await turns()
        undo = asyncio.ensure_future(_wait(disposer()))
        await turns()
        assert order == [] and not undo.done()
        go.set()
        await undo
        assert "slow" not in root.fiber.effects()
    assert order == ["set up", "undone"]


async def _wait(disposed):
    await disposed


async def test_b03_disposing_during_setup_undoes_only_what_was_collected():
    order = []

    @asynccontextmanager
    async def outer():
        order.append("first in")
        try:
            await asyncio.sleep(30)
            order.append("second in")
            yield
        finally:
            await asyncio.sleep(0)
            order.append("first out")

    async with harness() as root:
        disposer = root.effect(outer(), "half")
        await turns()
        await disposer()
        assert order == ["first in", "first out"]
        assert "half" not in root.fiber.effects()
        assert not errors(root)
        with pytest.raises(CordisError):
            await disposer


async def test_b03_a_setup_that_fails_half_way_undoes_what_it_collected_and_tells_whoever_waits():
    order = []

    @asynccontextmanager
    async def outer():
        order.append("in")
        try:
            await asyncio.sleep(0)
            raise ValueError("half way")
            yield
        finally:
            await asyncio.sleep(0)
            order.append("out")

    async with harness() as root:
        disposer = root.effect(outer(), "half")
        with pytest.raises(ValueError, match="half way"):
            await disposer
        assert order == ["in", "out"]
        assert "half" not in root.fiber.effects()


async def test_b03_a_body_that_fails_half_way_undoes_what_it_registered_newest_first():
    order = []

    async def body(ctx):
        ctx.defer(lambda: order.append("one out"))
        ctx.spawn(_until_cancelled, order)
        await asyncio.sleep(0)
        ctx.defer(lambda: order.append("two out"))
        raise ValueError("half way")

    async with harness() as root:
        fiber = root.plugin(body)
        with pytest.raises(ValueError, match="half way"):
            await fiber
        assert fiber.state is FiberState.FAILED
        assert order == ["two out", "task out", "one out"]
        assert fiber.effects() == []


async def _until_cancelled(order):
    try:
        await asyncio.Event().wait()
    finally:
        order.append("task out")


async def test_b13_a_raising_undo_is_logged_exactly_once_and_the_parent_goes_on():
    order = []

    def child(ctx):
        ctx.defer(lambda: order.append("child"))
        ctx.defer(lambda: 1 / 0)

    def parent(ctx):
        ctx.defer(lambda: order.append("parent"))
        ctx.plugin(child)

    async with harness() as root:
        fiber = root.plugin(parent)
        await root.settle()
        await fiber.dispose()
        assert order == ["child", "parent"]
        assert fiber.state is FiberState.DISPOSED
        assert len(errors(root)) == 1
