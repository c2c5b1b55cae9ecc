"""Effects: order of undo, nesting, asynchronous setup, refusal while unloading, bounded undo."""

import asyncio
from contextlib import asynccontextmanager, contextmanager

import anyio
import pytest

from dsh.cordis import Context, CordisError, Emit
from dsh.cordis.testing import assert_clean, harness
from tests.cordis.helpers import errors, turns


class Ping(Emit, name="effects/ping"):
    pass


async def test_b01a_undo_runs_once_on_plugin_dispose_and_on_repeat():
    undone = []
    async with harness() as root:
        fiber = await root.plugin(lambda ctx: ctx.defer(lambda: undone.append(1)) and None)
        await fiber.dispose()
        await fiber.dispose()
    assert undone == [1]


async def test_b01b_undo_runs_once_on_manual_dispose_then_plugin_dispose():
    undone, kept = [], []
    async with harness() as root:

        def body(ctx):
            kept.append(ctx.effect(lambda: lambda: undone.append(1)))

        fiber = await root.plugin(body)
        first = kept[0]()
        assert undone == [1]
        assert kept[0]() is first
        await first
        await fiber.dispose()
    assert undone == [1]


async def test_b02a_nested_groups_undo_last_in_first_out():
    order = []
    async with harness() as root:
        with root.group("outer") as outer:
            outer.defer(lambda: order.append(1))
            with outer.group("inner") as inner:
                inner.defer(lambda: order.append(2))
            outer.defer(lambda: order.append(3))
        assert root.fiber.effects()[-1] == {
            "outer": ["defer(<lambda>)", {"inner": ["defer(<lambda>)"]}, "defer(<lambda>)"]
        }
        await outer()
        assert order == [3, 2, 1]
        assert "outer" not in str(root.fiber.effects())


async def test_b02b_inner_disposer_called_early_leaves_the_outer():
    order = []
    async with harness() as root:
        with root.group("outer") as outer:
            outer.defer(lambda: order.append(1), "one")
            inner = outer.group("inner")
            inner.defer(lambda: order.append(2), "two")
        inner()
        assert order == [2]
        assert root.fiber.effects()[-1] == {"outer": ["one"]}
        outer()
        assert order == [2, 1]


async def test_b02c_group_whose_block_raises_undoes_what_it_collected():
    order = []
    async with harness() as root:
        with pytest.raises(ValueError), root.group("g") as g:
            g.defer(lambda: order.append(1))
            raise ValueError
        assert order == [1]
        assert "g" not in str(root.fiber.effects()[4:])


async def test_b02d_registering_through_a_disposed_group_is_refused():
    async with harness() as root:
        g = root.group("g")
        g()
        with pytest.raises(CordisError) as caught:
            g.on(Ping, lambda e: None)
        assert caught.value.code == "INACTIVE_EFFECT"


async def test_b03a_async_setup_is_awaitable_and_undone():
    order = []

    @asynccontextmanager
    async def cm():
        await asyncio.sleep(0)
        order.append("in")
        yield
        await asyncio.sleep(0)
        order.append("out")

    async with harness() as root:
        disposer = root.effect(cm())
        assert await disposer is disposer
        assert order == ["in"]
        await disposer()
        assert order == ["in", "out"]


async def test_b03b_dispose_during_setup_cancels_it():
    order = []

    async def setup():
        try:
            await asyncio.sleep(30)
        finally:
            order.append("gave up")

    async with harness() as root:
        disposer = root.effect(setup)
        await turns()
        await disposer()
        assert order == ["gave up"]
        with pytest.raises(CordisError):
            await disposer


async def test_b03c_dispose_before_the_setup_task_starts():
    async def setup():
        raise AssertionError("must not run")

    async with harness() as root:
        disposer = root.effect(setup)
        await disposer()
        assert len(root.fiber.effects()) == 4
        assert not errors(root)


async def test_b03d_setup_error_rejects_the_caller_and_leaves_no_entry():
    @asynccontextmanager
    async def cm():
        await asyncio.sleep(0)
        raise ValueError("no")
        yield

    async with harness() as root:
        with pytest.raises(ValueError, match="no"):
            await root.effect(cm(), "broken")
        await turns()
        assert "broken" not in root.fiber.effects()
        with pytest.raises(ValueError, match="sync"):
            root.effect(_raise_sync, "broken")
        assert "broken" not in root.fiber.effects()


def _raise_sync():
    raise ValueError("sync")


async def test_b03e_reentrant_dispose_inside_setup_waits_for_it():
    order = []
    async with harness() as root:
        g = root.group("g")

        def setup():
            g()
            order.append("setup done")
            return lambda: order.append("undone")

        g.effect(setup)
        await root.settle()
        assert order == ["setup done", "undone"]


async def test_b03f_generator_and_context_manager_setups():
    order = []

    def halves():
        order.append("g in")
        yield
        order.append("g out")

    @contextmanager
    def plain():
        order.append("c in")
        yield "value"
        order.append("c out")

    @asynccontextmanager
    async def slow():
        async with anyio.create_task_group():
            yield "async value"
        order.append("a out")

    async with harness() as root:
        fiber = root.plugin(lambda ctx: None)
        await fiber
        fiber.ctx.effect(halves)
        assert fiber.ctx.enter(plain()) == "value"
        assert await fiber.ctx.enter_async(slow()) == "async value"
        await fiber.dispose()
    assert order == ["g in", "c in", "a out", "c out", "g out"]


@pytest.mark.parametrize("result", [5, "text"])
async def test_b03g_other_results_of_a_setup_are_refused(result):
    async with harness() as root:
        with pytest.raises(CordisError) as caught:
            root.effect(lambda: result)
        assert caught.value.code == "INVALID_EFFECT"


async def test_b03h_a_generator_must_yield_once_and_bare():
    def value():
        yield 1

    def none():
        return
        yield

    async def twice():
        yield
        yield

    async with harness() as root:
        with pytest.raises(CordisError) as caught:
            root.effect(value)
        assert caught.value.code == "INVALID_EFFECT"
        with pytest.raises(RuntimeError, match="didn't yield"):
            root.effect(none)
        disposer = await root.effect(twice)
        await disposer()
        assert len(errors(root)) == 1


async def test_b04_registrations_inside_an_undo_are_refused():
    codes = []

    def body(ctx):
        def undo():
            for attempt in (
                lambda: ctx.plugin(lambda ctx: None),
                lambda: ctx.effect(lambda: None),
                lambda: ctx.on(Ping, lambda e: None),
                lambda: ctx.provide("x", 1),
                lambda: ctx.group(),
                lambda: ctx.scope(),
            ):
                with pytest.raises(CordisError) as caught:
                    attempt()
                codes.append(caught.value.code)

        ctx.defer(undo)

    async with harness() as root:
        fiber = await root.plugin(body)
        await fiber.dispose()
    assert codes == ["INACTIVE_EFFECT"] * 6
    with pytest.raises(CordisError):
        root.on(Ping, lambda e: None)


async def test_b13_a_raising_undo_is_logged_once_and_the_rest_run():
    order = []

    async def bad_async():
        raise ValueError("async bad")

    def body(ctx):
        ctx.defer(lambda: order.append("first"))
        ctx.defer(lambda: 1 / 0)
        ctx.defer(lambda: order.append("second"))
        ctx.defer(bad_async)

    async with harness() as root:
        fiber = await root.plugin(body)
        await fiber.dispose()
        assert order == ["second", "first"]
        assert len(errors(root)) == 2


async def test_b13b_async_undos_run_one_after_another():
    order = []

    def body(ctx):
        for name in "abc":

            async def undo(name=name):
                order.append(f"{name} starts")
                await asyncio.sleep(0)
                order.append(f"{name} ends")

            ctx.defer(undo)

    async with harness() as root:
        await root.plugin(body)
    assert order == ["c starts", "c ends", "b starts", "b ends", "a starts", "a ends"]


async def test_b26_a_stuck_undo_is_bounded_and_reported():
    order = []

    async def stuck():
        await asyncio.Event().wait()

    async def deaf():
        while True:
            try:
                await asyncio.sleep(30)
            except asyncio.CancelledError:
                order.append("deaf heard it")
                return

    def body(ctx):
        ctx.defer(lambda: order.append("other"))
        ctx.defer(stuck)
        ctx.defer(deaf)

    root = Context(dispose_timeout=0.05)
    async with asyncio.timeout(10), root:
        fiber = await root.plugin(body)
    assert order == ["deaf heard it", "other"]
    assert fiber.leaks == 2
    assert sum("given up" in line for line in errors(root)) == 2
    assert_clean(root)


async def test_b26b_a_lifespan_stuck_in_its_second_half_is_bounded():
    async def body(ctx):
        yield
        await asyncio.Event().wait()

    async with asyncio.timeout(10), harness(dispose_timeout=0.05) as root:
        fiber = await root.plugin(body)
    assert fiber.leaks == 1


async def test_lifespan_halves_share_one_task_and_undo_in_order():
    order = []

    async def body(ctx):
        ctx.defer(lambda: order.append("first half undone"))
        async with anyio.create_task_group() as group:
            group.start_soon(anyio.sleep_forever)
            yield
            order.append("second half")
            group.cancel_scope.cancel()

    async with harness() as root:
        fiber = await root.plugin(body)
        assert fiber.is_active
        await fiber.dispose()
        assert not errors(root)
    assert order == ["second half", "first half undone"]


async def test_a_lifespan_whose_inner_task_dies_is_a_fault_and_the_plugin_stays():
    async def die():
        raise ValueError("inside")

    async def body(ctx):
        async with anyio.create_task_group() as group:
            group.start_soon(die)
            yield

    async with harness() as root:
        fiber = await root.plugin(body)
        await turns(20)
        assert fiber.is_active
        assert fiber.faults == 1
