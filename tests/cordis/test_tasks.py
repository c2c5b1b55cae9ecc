"""Background tasks, context variables, time helpers, logging, diagnostics."""

import asyncio
import contextvars
import json
import logging
import threading

import pytest

from dsh.cordis import Context, CordisError, Emit, FiberState, plugin
from dsh.cordis.testing import VirtualClock, harness
from tests.cordis.helpers import errors, provider, turns

AGENT = contextvars.ContextVar("agent", default=None)


class Ping(Emit, name="tasks/ping"):
    pass


async def test_b25_a_task_started_during_an_agents_call_does_not_see_its_variables():
    seen = []
    async with harness() as root:

        async def look():
            seen.append(AGENT.get())

        fiber = await root.plugin(lambda ctx: None)

        async def listener(event):
            seen.append(AGENT.get())

        root.on(Ping, listener)
        AGENT.set("agent-1")
        await fiber.ctx.spawn(look)
        root.emit(Ping())
        await root.settle()
        root.plugin(lambda ctx: seen.append(AGENT.get()))
        await root.settle()
        await fiber.ctx.spawn(look, inherit=True)
        assert seen == [None, None, None, "agent-1"]


async def test_variables_a_body_sets_reach_its_tasks():
    seen = []
    async with harness() as root:

        async def look():
            seen.append(AGENT.get())

        def body(ctx):
            AGENT.set("plugin")
            ctx.spawn(look)

        await root.plugin(body)
        await turns()
        assert seen == ["plugin"]
        assert AGENT.get() is None


async def test_a_spawned_task_is_cancelled_and_awaited_at_its_place():
    order = []
    async with harness() as root:

        async def work():
            try:
                await asyncio.sleep(30)
            finally:
                await asyncio.sleep(0)
                order.append("task ended")

        def body(ctx):
            ctx.defer(lambda: order.append("below"))
            ctx.spawn(work)
            ctx.defer(lambda: order.append("above"))

        fiber = await root.plugin(body)
        await turns()
        assert fiber.tasks()[0].name.endswith("work")
        await fiber.dispose()
        assert order == ["above", "task ended", "below"]


async def test_handle_gives_the_result_and_leaves_the_stack():
    async with harness() as root:

        async def work(value):
            await asyncio.sleep(0)
            return value

        handle = root.spawn(work, 5, name="five")
        assert root.fiber.effects()[-1] == "task(five)"
        assert await handle == 5
        assert handle.done()
        assert not handle.cancel()
        assert "task(five)" not in root.fiber.effects()
        lasting = root.spawn(asyncio.sleep, 30)
        assert lasting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await lasting
        assert lasting.cancelled()


async def test_a_failing_task_is_logged_and_counted_and_its_plugin_stays():
    told = []
    async with harness() as root:
        root.on("internal/task-error", lambda e: told.append((e.fiber.name, e.name, str(e.error))))

        async def work():
            raise ValueError("broken")

        @plugin(name="worker")
        def body(ctx):
            ctx.spawn(work, name="job")

        fiber = await root.plugin(body)
        await turns()
        assert fiber.state is FiberState.ACTIVE
        assert fiber.faults == 1
        assert told == [("worker", "job", "broken")]
        assert errors(root) == ["task job failed"]


async def test_a_failing_critical_task_fails_its_fiber_once():
    async with harness() as root:
        undone, runs = [], []

        async def work():
            await asyncio.sleep(0)
            raise ValueError("broken")

        def body(ctx):
            runs.append(1)
            ctx.defer(lambda: undone.append(1))
            ctx.spawn(work, critical=True)

        fiber = root.plugin(body)
        await root.settle()
        await turns()
        await root.settle()
        assert fiber.state is FiberState.FAILED
        assert str(fiber.error) == "broken"
        assert (runs, undone) == ([1], [1])


async def test_spawn_on_an_unloading_fiber_is_refused_without_a_warning():
    async with harness() as root:
        fiber = await root.plugin(lambda ctx: None)
        await fiber.dispose()
        with pytest.raises(CordisError):
            fiber.ctx.spawn(asyncio.sleep, 1)


async def test_sleep_follows_the_clock_and_ends_with_the_fiber():
    clock, order = VirtualClock(), []
    async with harness(clock=clock) as root:

        async def work(ctx):
            await ctx.sleep(10)
            order.append(clock.time())
            try:
                await ctx.sleep(10)
            except CordisError as error:
                order.append(error.code)

        kept = []
        fiber = await root.plugin(lambda ctx: kept.append(ctx))
        outside = asyncio.create_task(work(kept[0]))
        await clock.advance(9)
        assert order == []
        await clock.advance(1)
        assert order == [10]
        await fiber.dispose()
        await outside
        assert order == [10, "INACTIVE_EFFECT"]


async def test_call_later_and_every():
    clock, calls = VirtualClock(), []
    async with harness(clock=clock) as root:
        root.call_later(2, lambda: calls.append("later"))
        dropped = root.call_later(2, lambda: calls.append("never"))
        dropped()
        every = root.every(3, lambda: calls.append(clock.time()))
        await clock.advance(10)
        assert calls == ["later", 3, 6, 9]
        every()
        await clock.advance(10)
        assert len(calls) == 4
        assert root.fiber.effects() == root.fiber.effects()[:4]

        async def slow():
            calls.append("async")

        root.call_later(1, slow)
        root.call_later(1, lambda: 1 / 0)
        await clock.advance(1)
        assert calls[-1] == "async"
        assert root.fiber.faults == 1


async def test_every_as_an_iterator_ends_with_the_fiber():
    clock, ticks = VirtualClock(), []
    async with harness(clock=clock) as root:

        async def work(ctx):
            async for _ in ctx.every(5):
                ticks.append(clock.time())
            ticks.append("end")

        fiber = await root.plugin(lambda ctx: None)
        outside = asyncio.create_task(work(fiber.ctx))
        await clock.advance(11)
        await fiber.dispose()
        await outside
        assert ticks == [5, 10, "end"]


async def test_debounce_and_throttle():
    clock, calls = VirtualClock(), []
    async with harness(clock=clock) as root:
        fiber = await root.plugin(lambda ctx: None)
        debounced = fiber.ctx.debounce(lambda x: calls.append(x), 2)
        debounced(1)
        await clock.advance(1)
        debounced(2)
        await clock.advance(1)
        assert calls == []
        await clock.advance(1)
        assert calls == [2]
        calls.clear()
        throttled = fiber.ctx.throttle(calls.append, 2)
        for value in (1, 2, 3):
            throttled(value)
        assert calls == [1]
        await clock.advance(2)
        assert calls == [1, 3]
        throttled(4)
        await clock.advance(2)
        assert calls == [1, 3, 4]
        await clock.advance(2)
        debounced(9)
        throttled(5)
        throttled(6)
        await fiber.dispose()
        await clock.advance(10)
        assert calls == [1, 3, 4, 5]
        debounced(10)
        await clock.advance(10)
        throttled(7)
        throttled(8)
        await clock.advance(10)
        assert calls == [1, 3, 4, 5, 7]


async def test_from_thread_and_off_loop_use():
    async with harness(debug=True) as root:
        found = await asyncio.to_thread(lambda: root.from_thread(threading.get_ident).result(5))
        assert found == threading.get_ident()

        def off_loop():
            root.on(Ping, lambda e: None)

        with pytest.raises(CordisError) as caught:
            await asyncio.to_thread(off_loop)
        assert caught.value.code == "OFF_LOOP"


class Collect(logging.Handler):
    def __init__(self, level=logging.DEBUG):
        super().__init__(level)
        self.lines = []

    def emit(self, record):
        self.lines.append((record.name, record.levelname, record.getMessage()))


async def test_logger_names_levels_exporters_and_the_last_records():
    async with harness() as root:
        collect = Collect()

        @plugin(name="myPlugin")
        def body(ctx):
            ctx.logger.exporter(collect)
            ctx.logger.info("count %d", 3)
            ctx.logger.debug("hidden")
            ctx.logger("other").warning("look")
            ctx.intercept("logger", name="renamed", level="debug").logger.debug("shown")

            def child(inner):
                inner.logger.info("from a child")

            child.name = None
            ctx.plugin(lambda inner: inner.logger.info("nameless child"))

        fiber = await root.plugin(body)
        await root.settle()
        logging.getLogger("dsh.plain").warning("stdlib")
        assert collect.lines == [
            ("dsh.my-plugin", "INFO", "count 3"),
            ("dsh.other", "WARNING", "look"),
            ("dsh.renamed", "DEBUG", "shown"),
            ("dsh.my-plugin", "INFO", "nameless child"),
            ("dsh.plain", "WARNING", "stdlib"),
        ]
        assert [record.getMessage() for record in root.runtime.logs.records][:2] == ["count 3", "look"]
        await fiber.dispose()
        root.logger.error("after")
        logging.getLogger("dsh.plain").warning("after")
        assert len(collect.lines) == 5


async def test_log_levels_by_logger():
    async with harness() as root:
        collect = Collect()
        root.logger.exporter(collect)
        root.runtime.logs.set_levels({"default": 0, "loud": 3, "loud.part": "warning"})
        for name in ("quiet", "loud", "loud.part", "loud.rest"):
            root.logger(name).debug("d")
            root.logger(name).error("e")
        assert [(name, text) for name, _, text in collect.lines] == [
            ("dsh.quiet", "e"),
            ("dsh.loud", "d"),
            ("dsh.loud", "e"),
            ("dsh.loud.part", "e"),
            ("dsh.loud.rest", "d"),
            ("dsh.loud.rest", "e"),
        ]
        with pytest.raises(ValueError, match="unknown log level"):
            root.runtime.logs.set_levels({"x": "shout"})


async def test_inspect_is_json_and_shows_waiting_failed_and_cycles():
    async with harness() as root:

        @plugin(name="left", inject=["b"], provides=["a"])
        def left(ctx):
            ctx.provide("a", 1)

        @plugin(name="right", inject=["a"], provides=["b"])
        def right(ctx):
            ctx.provide("b", 1)

        def broken(ctx):
            raise ValueError("no luck")

        root.plugin(left)
        root.plugin(right, entry_id="row-2")
        root.plugin(broken)
        root.isolate("tools", "mine").plugin(provider("tools"))
        root.on(Ping, lambda e: None)
        root.spawn(asyncio.sleep, 30, name="nap")
        await root.settle()
        found = json.loads(json.dumps(root.inspect()))
        rows = {row["name"]: row for row in found["fibers"]["children"]}
        assert rows["left"]["phase"] == "pending"
        assert rows["left"]["missing"] == ["b"]
        assert rows["right"]["entryId"] == "row-2"
        assert rows["broken"]["error"] == "no luck"
        assert rows["provider-tools"]["provides"] == ["tools"]
        assert found["cycles"] == [["left", "right"]]
        assert {"name": "tasks/ping", "mode": "emit", "listeners": 1} in found["events"]
        assert [s["realm"] for s in found["services"] if s["name"] == "tools"] == ["mine"]
        assert found["fibers"]["tasks"] == ["nap"]


async def test_root_services_are_there_before_any_plugin():
    async with harness() as root:
        assert {s["name"] for s in root.inspect()["services"]} == {"events", "registry", "timer", "logger"}
        fiber = await root.plugin(lambda ctx: None, inject={"timer": True, "logger": None})
        assert fiber.is_active


async def test_a_bug_in_the_runtime_cancels_the_holder_and_surfaces_there():
    root = Context()
    with pytest.raises(ZeroDivisionError):
        async with asyncio.timeout(5), root:
            root.runtime.fail(ZeroDivisionError())
            await asyncio.sleep(30)


async def test_cancelling_the_root_holder_still_disposes_everything():
    undone = []

    async def undo():
        await turns()
        undone.append(1)

    async def main():
        async with harness() as root:
            await root.plugin(lambda ctx: ctx.defer(undo) and None)
            await asyncio.sleep(30)

    task = asyncio.create_task(main())
    await turns(10)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert undone == [1]


async def test_after_the_root_closed_every_registration_is_refused():
    async with harness() as root:
        pass
    for attempt in (
        lambda: root.on(Ping, lambda e: None),
        lambda: root.plugin(lambda ctx: None),
        lambda: root.provide("x", 1),
    ):
        with pytest.raises(CordisError) as caught:
            attempt()
        assert caught.value.code == "INACTIVE_EFFECT"
