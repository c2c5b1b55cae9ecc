"""Corners of listening: stray cancellations, misfits by name, reloaded classes, prompt settings."""

import asyncio

import pytest

from dsh.cordis import Bail, CordisError, Emit, Waterfall
from dsh.cordis.testing import harness
from tests.cordis.helpers import errors, turns


class Ping(Emit, name="listeners/ping"):
    value: int = 0


async def test_a_cancelled_future_inside_an_async_listener_ends_one_invocation_not_the_queue():
    heard = []
    async with harness() as root:

        @root.on(Ping)
        async def listen(event):
            if event.value == 1:
                gone = asyncio.get_running_loop().create_future()
                gone.cancel()
                await gone
            heard.append(event.value)

        for value in range(3):
            root.emit(Ping(value))
        await asyncio.wait_for(root.settle(), 5)
        root.emit(Ping(3))
        await asyncio.wait_for(root.settle(), 5)
        assert heard == [0, 2, 3]
        assert [text for text in errors(root) if "listeners/ping" in text] == ["listener of listeners/ping failed"]


async def test_an_async_listener_registered_by_name_for_a_synchronous_event_is_left_out_and_said():
    heard = []
    async with harness() as root:

        async def misfit(event):
            heard.append("misfit")

        root.on("listeners/late", misfit)
        root.on("listeners/late", lambda event: heard.append("fit"))

        class Late(Bail[object], name="listeners/late"):
            pass

        assert root.bail(Late()) is None
        assert root.bail(Late()) is None
        assert heard == ["fit", "fit"]
        assert errors(root) == ["it does not hear listeners/late"]


async def test_a_reloaded_class_may_change_its_mode_once_nobody_listens():
    heard = []
    async with harness() as root:

        class Old(Emit, name="listeners/changes"):
            pass

        class New(Waterfall[str], name="listeners/changes"):
            pass

        off = root.on(Old, lambda event: heard.append("old"))
        root.emit(Old())
        with pytest.raises(CordisError) as caught:
            root.on(New, lambda event, next: next())
        assert caught.value.code == "WRONG_MODE"
        off()

        @root.on(New)
        async def around(event, next):
            return f"new {await next()}"

        assert await root.waterfall(New(), lambda: "x") == "new x"
        with pytest.raises(CordisError):
            root.emit(Old())
        assert heard == ["old"]


async def test_many_generations_of_an_event_class_leave_nothing_on_the_bus():
    async with harness() as root:
        bus = root.runtime.events
        sizes = []
        for _ in range(5):

            class Again(Emit, name="listeners/again"):
                pass

            root.emit(Again())
            sizes.append(len(bus.channels))
        assert sizes == [sizes[0]] * 5


async def test_an_intercept_may_set_the_name_of_the_logger():
    async with harness() as root:
        ctx = root.intercept("logger", name="renamed", level="debug")
        ctx.logger.debug("quiet words")
        await turns()
        assert [(each.name, each.getMessage()) for each in root.runtime.logs.records] == [
            ("dsh.renamed", "quiet words")
        ]


async def test_an_event_that_finds_its_async_listener_removed_starts_nothing_and_settles():
    heard = []
    async with harness() as root:

        async def listen(event):
            heard.append(event.value)

        off = []
        root.on(Ping, lambda event: off[0]() if event.value == 0 else None)
        off.append(root.on(Ping, listen))
        root.emit(Ping(0))
        await asyncio.wait_for(root.settle(), 5)
        again = root.on(Ping, listen)
        root.emit(Ping(1))
        await root.settle()
        prepared = root.prepare(Ping(2))
        await again()
        prepared.run()
        await asyncio.wait_for(root.settle(), 5)
        assert heard == [1]
        assert not [owned for owned in root.runtime.tasks.values() if owned.kind == "listener"]


async def test_a_concurrent_listener_of_a_plugin_on_its_way_out_is_not_started():
    async with harness() as root:

        async def listen(event):
            raise AssertionError

        def body(ctx):
            ctx.on(Ping, listen, concurrent=True)

        fiber = await root.plugin(body)
        gate = asyncio.Event()
        fiber.ctx.defer(gate.wait)
        gone = fiber.dispose()
        await turns()
        root.emit(Ping())
        gate.set()
        await gone
        assert errors(root) == []


async def test_once_is_once_also_when_an_earlier_listener_emits_the_event_again():
    heard = []
    async with harness() as root:

        def again(event):
            if event.value == 0:
                root.emit(Ping(1))

        root.on(Ping, again)
        root.once(Ping, lambda event: heard.append(event.value))
        root.emit(Ping(0))
        assert heard == [1]

        class Wave(Waterfall[list[str]], name="listeners/wave"):
            inner: bool = False

        @root.on(Wave)
        async def repeat(event, next):
            inner = [] if event.inner else await root.waterfall(Wave(True), list)
            return inner + await next()

        @root.once(Wave)
        async def first(event, next):
            return ["once", *await next()]

        assert await root.waterfall(Wave(), list) == ["once"]
