"""Fibers: loading and unloading with their services, self-disposal, waiting, failing."""

import asyncio

import pytest

from dsh.cordis import Context, CordisError, Emit, FiberState, PluginChanged, Service
from dsh.cordis.testing import harness
from tests.cordis.helpers import Tools, disposed, errors, provider, states, turns

PENDING, LOADING, ACTIVE, FAILED, DISPOSED, UNLOADING = FiberState


class Ping(Emit, name="fibers/ping"):
    pass


def listeners(root):
    return root.runtime.events.channel("fibers/ping").all


async def test_b05_disposing_the_outer_of_three_nested_plugins_leaves_nothing():
    async with harness() as root:
        root.on(Ping, lambda e: None)

        def inner(ctx):
            ctx.on(Ping, lambda e: None)

        def middle(ctx):
            ctx.on(Ping, lambda e: None)
            ctx.plugin(inner)

        def outer(ctx):
            ctx.on(Ping, lambda e: None)
            ctx.plugin(middle)

        fiber = root.plugin(outer)
        await root.settle()
        assert len(listeners(root)) == 4
        assert len(root.registry) == 3
        await fiber.dispose()
        assert len(listeners(root)) == 1
        assert len(root.registry) == 0
        await fiber.dispose()
        assert fiber.state is DISPOSED
        assert fiber.uid is None


async def test_b06_snapshot_before_equals_snapshot_after_and_remount_equals_first_mount():
    def body(ctx):
        ctx.on(Ping, lambda e: None)
        ctx.provide("thing", 1)
        ctx.plugin(lambda ctx: ctx.on(Ping, lambda e: None) and None)
        ctx.effect(lambda: None, "mine")

    def picture(root):
        found = root.inspect()

        def strip(tree):
            return {**{k: v for k, v in tree.items() if k != "uid"}, "children": [strip(c) for c in tree["children"]]}

        services = [{**s, "provider": None} for s in found["services"]]
        return strip(found["fibers"]), services, found["events"]

    async with harness() as root:
        empty = picture(root)
        fiber = root.plugin(body)
        await root.settle()
        mounted = picture(root)
        assert mounted != empty
        await fiber.dispose()
        assert picture(root) == empty
        root.plugin(body)
        await root.settle()
        assert picture(root) == mounted


@pytest.mark.parametrize("order", ["consumer first", "provider first", "together"])
async def test_b07a_any_mount_order_gives_the_same_end_state(order):
    ran = []
    async with harness() as root:

        def consumer(ctx):
            ran.append(ctx["tools"])

        if order == "provider first":
            await root.plugin(provider("tools", 1))
        fiber = root.plugin(consumer, inject=["tools"])
        if order == "consumer first":
            await fiber
            assert fiber.state is PENDING
            assert fiber.missing() == ["tools"]
        if order != "provider first":
            root.plugin(provider("tools", 1))
        await root.settle()
        assert fiber.state is ACTIVE
        assert ran == [1]


async def test_b07b_a_diamond_activates_each_exactly_once():
    runs = []
    async with harness() as root:

        def node(name, needs):
            def body(ctx):
                runs.append(name)
                ctx.provide(name, name)

            return root.plugin(body, inject=needs)

        node("d", ["b", "c"])
        node("c", ["a"])
        node("b", ["a"])
        top = node("a", [])
        await root.settle()
        assert sorted(runs) == ["a", "b", "c", "d"]
        runs.clear()
        await top.restart()
        await root.settle()
        assert sorted(runs) == ["a", "b", "c", "d"]


async def test_b08a_provider_gone_while_the_dependant_loads_cancels_and_unwinds_it():
    order = []
    async with harness() as root:
        source = root.plugin(provider("tools", "one"))

        async def consumer(ctx):
            ctx.defer(lambda: order.append("unwound"))
            order.append(f"loading with {ctx['tools']}")
            try:
                await asyncio.sleep(30)
            except asyncio.CancelledError:
                order.append(f"cancelled, still has {ctx['tools']}")
                raise

        fiber = root.plugin(consumer, inject=["tools"])
        await turns()
        assert fiber.state is LOADING
        await source.dispose()
        await root.settle()
        assert fiber.state is PENDING
        assert order == ["loading with one", "cancelled, still has one", "unwound"]
        assert not errors(root)


async def test_b08b_provider_back_meanwhile_means_one_reload_against_the_new_object():
    seen = []
    async with harness() as root:
        hold = asyncio.Event()
        source = root.plugin(provider("tools", "one"))

        async def consumer(ctx):
            seen.append(ctx["tools"])
            async with ctx.shield():
                await hold.wait()

        fiber = root.plugin(consumer, inject=["tools"])
        await turns()
        gone = source.dispose()
        hold.set()
        await gone
        root.plugin(provider("tools", "two"))
        await root.settle()
        assert fiber.state is ACTIVE
        assert seen == ["one", "two"]


async def test_b08c_a_provider_that_swaps_its_object_reloads_its_dependants():
    seen = []
    async with harness() as root:
        take_back = root.provide("tools", "one")
        fiber = await root.plugin(lambda ctx: seen.append(ctx["tools"]), inject=["tools"])
        take_back()
        root.provide("tools", "two")
        await root.settle()
        assert fiber.state is ACTIVE
        assert seen == ["one", "two"]


async def test_b09_undo_code_can_still_call_the_leaving_service_along_a_chain_of_three():
    order = []

    class Link(Service):
        def __init__(self, ctx, config=None):
            ctx.defer(lambda: order.append(f"{self.service_name} undone"))

        def hello(self):
            order.append(f"{self.service_name} answers")

    class A(Link, name="a"):
        pass

    class B(Link, name="b"):
        def __init__(self, ctx, config, a: A):
            super().__init__(ctx)

            async def undo():
                await asyncio.sleep(0)
                a.hello()

            ctx.defer(undo)

    def last(ctx, config, b: B):
        async def undo():
            await asyncio.sleep(0)
            b.hello()

        ctx.defer(undo)

    async with harness() as root:
        first = root.plugin(A)
        root.plugin(B)
        fiber = root.plugin(last)
        await root.settle()
        assert fiber.state is ACTIVE
        await first.dispose()
        assert order == ["b answers", "a answers", "b undone", "a undone"]
        assert fiber.missing() == ["b"]


async def test_b10_an_async_start_gates_the_dependants():
    order = []
    ready = asyncio.Event()

    class Slow(Service, name="slow"):
        async def start(self):
            await ready.wait()
            order.append("started")

        async def stop(self):
            order.append("stopped")

        def __init__(self, ctx, config):
            ctx.defer(lambda: order.append("constructor undone"))

    async with harness() as root:
        service = root.plugin(Slow)
        consumer = root.plugin(lambda ctx: order.append("consumer"), inject=[Slow])
        await turns()
        assert service.state is LOADING
        assert consumer.state is PENDING
        ready.set()
        await root.settle()
        assert order == ["started", "consumer"]
        await service.dispose()
        assert order[2:] == ["stopped", "constructor undone"]


async def test_b11_failed_fiber_is_retried_for_a_new_service_and_not_for_unrelated_changes():
    tries = []
    async with harness() as root:
        take_back = root.provide("tools", "bad")

        def body(ctx):
            tries.append(ctx["tools"])
            if ctx["tools"] == "bad":
                raise ValueError("bad tools")
            ctx.provide("derived", 1)

        fiber = root.plugin(body, inject=["tools"])
        dependant = root.plugin(lambda ctx: None, inject=["derived"])
        with pytest.raises(ValueError, match="bad tools"):
            await fiber
        assert fiber.state is FAILED
        assert dependant.state is PENDING
        root.provide("unrelated", 1)
        await root.settle()
        assert tries == ["bad"]
        take_back()
        root.provide("tools", "good")
        await root.settle()
        assert tries == ["bad", "good"]
        assert fiber.state is ACTIVE
        assert dependant.state is ACTIVE
        assert fiber.error is None


async def test_b12_one_of_two_mounts_fails_the_other_is_active_and_one_error_is_logged():
    async with harness() as root:

        def body(ctx, config):
            if config == "fail":
                raise ValueError("asked to")

        good = root.plugin(body, "ok")
        bad = root.plugin(body, "fail")
        await root.settle()
        assert (good.state, bad.state) == (ACTIVE, FAILED)
        assert len(errors(root)) == 1
        assert set(root.registry.fibers(body)) == {good, bad}
        assert await root.registry.delete(body)
        assert (good.state, bad.state) == (DISPOSED, DISPOSED)


@pytest.mark.parametrize("where", ["body", "async body", "listener", "async listener", "task", "undo"])
async def test_b14a_unawaited_self_dispose_works_everywhere(where):
    async with asyncio.timeout(5), harness() as root:

        def go(ctx):
            ctx.fiber.dispose()

        async def go_async(ctx):
            ctx.fiber.dispose()
            await asyncio.sleep(0)

        def body(ctx):
            if where == "body":
                go(ctx)
            elif where == "listener":
                ctx.on(Ping, lambda e: go(ctx))
            elif where == "async listener":
                ctx.on(Ping, lambda: None) if False else ctx.on(Ping, _async_listener(ctx, go_async))
            elif where == "task":
                ctx.spawn(go_async, ctx)
            elif where == "undo":
                ctx.defer(lambda: go(ctx))

        fiber = root.plugin(_async_body(go_async) if where == "async body" else body)
        await root.settle()
        root.emit(Ping())
        if where == "undo":
            fiber.restart()
        await disposed(fiber)
        await root.settle()
        assert fiber.state is DISPOSED
        assert not errors(root)


def _async_listener(ctx, go):
    async def listener(event):
        await go(ctx)

    return listener


def _async_body(go):
    async def body(ctx):
        await go(ctx)

    return body


@pytest.mark.parametrize("where", ["body", "task", "listener"])
async def test_b14b_awaited_self_dispose_cancels_the_code_that_awaits(where):
    order = []

    async def go(ctx):
        try:
            await ctx.fiber.dispose()
            order.append("went on")
        except asyncio.CancelledError:
            order.append("cancelled")
            raise

    async with asyncio.timeout(5), harness() as root:

        async def async_body(ctx):
            await go(ctx)

        def body(ctx):
            if where == "task":
                ctx.spawn(go, ctx)
            else:
                ctx.on(Ping, _async_listener(ctx, go))

        fiber = root.plugin(async_body if where == "body" else body)
        await turns()
        root.emit(Ping())
        await disposed(fiber)
        assert order == ["cancelled"]
        assert not errors(root)


@pytest.mark.parametrize("what", ["dispose", "restart"])
@pytest.mark.parametrize("where", ["undo", "lifespan", "child undo"])
async def test_b14c_awaiting_oneself_in_undo_code_is_refused(where, what):
    codes = []

    async def attempt(fiber):
        try:
            await getattr(fiber, what)()
        except CordisError as error:
            codes.append(error.code)

    async with asyncio.timeout(5), harness() as root:

        def body(ctx):
            async def undo():
                await attempt(ctx.fiber)

            ctx.defer(undo)

        async def lifespan(ctx):
            yield
            await attempt(ctx.fiber)

        def parent(ctx):
            def child(inner):
                async def undo():
                    await attempt(ctx.fiber)

                inner.defer(undo)

            ctx.plugin(child)

        fiber = root.plugin({"undo": body, "lifespan": lifespan, "child undo": parent}[where])
        await root.settle()
        await fiber.dispose()
        assert codes == ["SELF_AWAIT"]
        assert fiber.state is DISPOSED


async def test_b14d_a_dependants_undo_awaiting_its_provider_is_refused():
    codes = []
    async with asyncio.timeout(5), harness() as root:
        source = root.plugin(provider("tools"))

        def consumer(ctx):
            async def undo():
                try:
                    await source.dispose()
                except CordisError as error:
                    codes.append(error.code)

            ctx.defer(undo)

        fiber = root.plugin(consumer, inject=["tools"])
        await root.settle()
        await fiber.dispose()
        assert codes == ["SELF_AWAIT"]


async def test_b14e_awaiting_oneself_in_the_body_is_refused():
    async with asyncio.timeout(5), harness() as root:

        async def body(ctx):
            await ctx.fiber

        with pytest.raises(CordisError) as caught:
            await root.plugin(body)
        assert caught.value.code == "SELF_AWAIT"


@pytest.mark.parametrize("slow_parent", [False, True])
async def test_b15_parent_disposed_in_the_childs_mount_notification(slow_parent):
    ran = []
    async with harness() as root:

        def child(ctx):
            ran.append(1)

        def mount(ctx):
            parent = ctx.fiber
            ctx.root.once(PluginChanged, lambda e: parent.dispose())
            ctx.plugin(child)

        async def body(ctx):
            mount(ctx)
            async with ctx.shield():
                await turns(10)

        fiber = root.plugin(body if slow_parent else mount)
        await root.settle()
        assert fiber.state is DISPOSED
        assert ran == []
        assert len(root.registry) == 0


async def test_b15b_child_disposed_in_its_own_mount_notification():
    ran = []
    async with harness() as root:
        root.once(PluginChanged, lambda e: e.fiber.dispose())
        fiber = root.plugin(lambda ctx: ran.append(1))
        await root.settle()
        assert fiber.state is DISPOSED
        assert ran == []


async def test_b16_cancelling_an_awaiting_task_stops_neither_the_disposal_nor_other_waiters():
    go_on = asyncio.Event()
    async with harness() as root:

        async def undo():
            await go_on.wait()

        fiber = await root.plugin(lambda ctx: ctx.defer(undo) and None)

        async def wait():
            await fiber.dispose()
            return "done"

        first, second = asyncio.create_task(wait()), asyncio.create_task(wait())
        await turns()
        first.cancel()
        await turns()
        assert fiber.state is UNLOADING
        go_on.set()
        assert await second == "done"
        assert first.cancelled()
        assert fiber.state is DISPOSED


async def test_b16b_cancelling_a_waiter_does_not_dispose_the_fiber():
    go_on = asyncio.Event()
    async with harness() as root:

        async def body(ctx):
            await go_on.wait()

        fiber = root.plugin(body)

        async def wait():
            await fiber

        waiter = asyncio.create_task(wait())
        await turns()
        waiter.cancel()
        await turns()
        go_on.set()
        assert (await fiber).state is ACTIVE


async def test_states_and_notifications_follow_the_contract():
    async with harness() as root:
        seen = []
        root.on("internal/status", lambda e: seen.append((e.old.name, e.fiber.state.name)))
        told = []
        root.on("internal/plugin", lambda e: told.append(e.fiber.uid))
        fiber = await root.plugin(lambda ctx: None)
        await fiber.restart()
        uid = fiber.uid
        await fiber.dispose()
        assert seen == [
            ("PENDING", "LOADING"),
            ("LOADING", "ACTIVE"),
            ("ACTIVE", "UNLOADING"),
            ("UNLOADING", "PENDING"),
            ("PENDING", "LOADING"),
            ("LOADING", "ACTIVE"),
            ("ACTIVE", "UNLOADING"),
            ("UNLOADING", "DISPOSED"),
        ]
        assert told == [uid, None]
        assert [state.value for state in FiberState] == [0, 1, 2, 3, 4, 5]
        assert [state.phase for state in FiberState] == ["pending", "loading", "active", "failed", None, "unloading"]


async def test_concurrent_restarts_share_one_more_pass():
    runs = []
    async with harness() as root:

        async def body(ctx):
            runs.append(1)
            await asyncio.sleep(0)

        fiber = await root.plugin(body)
        await asyncio.gather(*(fiber.restart() for _ in range(5)))
        assert fiber.state is ACTIVE
        assert len(runs) == 2


async def test_a_body_cancelled_by_itself_is_a_failure():
    async with harness() as root:

        async def body(ctx):
            raise asyncio.CancelledError

        fiber = root.plugin(body)
        await root.settle()
        assert fiber.state is FAILED


async def test_a_body_that_ignores_its_cancellation_is_given_up():
    release = asyncio.Event()

    async def body(ctx):
        async with ctx.shield():
            while not release.is_set():
                try:
                    await release.wait()
                except asyncio.CancelledError:
                    pass

    root = Context(dispose_timeout=0.05)
    async with asyncio.timeout(10), root:
        fiber = root.plugin(body)
        await turns()
        await fiber.dispose()
        assert fiber.leaks == 1
        release.set()
    assert any("given up" in line for line in errors(root))


async def test_shield_postpones_the_cancellation_to_its_end():
    order = []
    async with harness() as root:

        async def body(ctx):
            async with ctx.shield():
                await turns(5)
                order.append("critical section done")
            order.append("never")

        fiber = root.plugin(body)
        await turns(2)
        await fiber.dispose()
    assert order == ["critical section done"]


async def test_sibling_children_are_disposed_concurrently():
    meeting = asyncio.Barrier(2)
    async with asyncio.timeout(5), harness() as root:

        def child(ctx):
            async def undo():
                await meeting.wait()

            ctx.defer(undo)

        def parent(ctx):
            ctx.plugin(child)
            ctx.plugin(child)

        fiber = root.plugin(parent)
        await root.settle()
        await fiber.dispose()


async def test_root_is_uid_zero_and_uids_count_up_without_reuse():
    async with harness() as root:
        assert root.fiber.uid == 0
        first = root.plugin(lambda ctx: None)
        await first.dispose()
        second = root.plugin(lambda ctx: None)
        assert second.uid == 2
        assert repr(root) == "Context <root>"
        assert repr(second.ctx) == "Context <root>"


async def test_mounting_on_a_disposed_fiber_is_refused():
    async with harness() as root:
        fiber = await root.plugin(lambda ctx: None)
        fiber.dispose()
        with pytest.raises(CordisError) as caught:
            fiber.ctx.plugin(lambda ctx: None)
        assert caught.value.code == "INACTIVE_EFFECT"


async def test_plugins_mounted_before_the_loop_runs_start_on_entering():
    root = Context()
    fiber = root.plugin(lambda ctx: None)
    async with root:
        await fiber
        assert fiber.state is ACTIVE


async def test_inject_runs_a_function_while_services_are_there():
    seen = []
    async with harness() as root:
        take_back = root.provide("tools", 1)

        def use(ctx):
            seen.append(ctx["tools"])
            ctx.defer(lambda: seen.append("gone"))

        fiber = root.inject([Tools], use)
        await root.settle()
        await take_back()
        assert fiber.state is PENDING
        assert seen == [1, "gone"]


async def test_status_listener_that_disposes_while_loading_prevents_the_body():
    ran = []
    async with harness() as root:
        fiber = root.plugin(lambda ctx: ran.append(1))
        root.on("internal/status", lambda e: e.fiber.dispose() if e.fiber.state is LOADING else None)
        await root.settle()
        assert fiber.state is DISPOSED
        assert ran == []


async def test_root_closed_by_a_plugins_own_task_closes_for_everybody():
    async with asyncio.timeout(5):
        async with harness() as root:

            async def stop():
                root.fiber.dispose()

            root.plugin(lambda ctx: ctx.spawn(stop) and None)
            await disposed(root.fiber)


async def test_states_helper_sees_a_failed_retry():
    async with harness() as root:
        answers = iter([ValueError("first"), None])

        def body(ctx):
            if (error := next(answers)) is not None:
                raise error

        fiber = root.plugin(body)
        await root.settle()
        seen = states(root, fiber)
        await fiber.restart()
        assert seen == [LOADING, ACTIVE]


@pytest.mark.parametrize("slow", [False, True])
async def test_an_undo_returned_after_the_disposal_was_asked_for_still_runs(slow):
    order = []
    async with harness() as root:

        def body(ctx):
            ctx.fiber.dispose()
            return lambda: order.append("undone")

        async def slow_body(ctx):
            async with ctx.shield():
                await turns(5)
                ctx.fiber.dispose()
                return lambda: order.append("undone")

        fiber = root.plugin(slow_body if slow else body)
        await disposed(fiber)
        assert order == (["undone"] if not slow else [])


async def test_a_body_disposed_before_its_first_step_never_runs():
    ran = []
    async with harness() as root:

        async def body(ctx):
            ran.append(1)

        fiber = root.plugin(body)
        root.on("internal/status", lambda e: asyncio.get_running_loop().call_soon(fiber.dispose))
        await disposed(fiber)
        assert ran == []


@pytest.mark.parametrize("fails", [False, True])
async def test_a_body_that_learns_of_its_unload_by_a_refused_registration_has_not_failed(fails):
    async with harness() as root:
        begun = asyncio.Event()

        async def body(ctx):
            begun.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:  # as after work in a thread, which cannot be cancelled
                if fails:
                    raise RuntimeError("really") from None
                ctx.on(Ping, lambda e: None)

        fiber = root.plugin(body)
        await begun.wait()
        await fiber.dispose()
        assert any("given up" in line for line in errors(root)) is fails
        assert len(listeners(root)) == 0
