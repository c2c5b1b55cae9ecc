"""Events: declaration, each dispatch mode, guards, prepared dispatch, async listeners."""

import asyncio
import gc
import weakref

import pytest

from dsh.cordis import (
    Bail,
    CordisError,
    Dispatching,
    Emit,
    InvariantError,
    Parallel,
    Serial,
    Service,
    Waterfall,
    owned,
)
from dsh.cordis.testing import harness, record
from tests.cordis.helpers import errors, turns


class Nameless(Emit):
    pass


class Ping(Emit, name="events/ping"):
    value: int = 0
    tag: str = "none"


class Vetoed(Emit, name="events/vetoed", veto=True):
    pass


class Gather(Parallel, name="events/gather"):
    pass


class Ask(Serial[object], name="events/ask"):
    pass


class AskNow(Bail[object], name="events/ask-now"):
    pass


class Around(Waterfall[str], name="events/around"):
    text: str = ""


class AroundOnce(Waterfall[str], name="events/around-once", single_next=True):
    pass


class AroundNow(Waterfall[int], name="events/around-now", sync=True):
    pass


def test_payloads_are_slotted_mutable_and_compared_by_identity():
    event = Ping(value=3)
    assert (event.value, event.tag) == (3, "none")
    event.value = 4
    with pytest.raises(AttributeError):
        event.other = 1
    assert event != Ping(value=4)
    assert repr(event) == "Ping(value=4, tag='none')"


async def test_b19a_listeners_added_or_removed_during_dispatch_affect_only_later_ones():
    async with harness() as root:
        heard = []

        def adds(event):
            heard.append("adds")
            root.on(Ping, lambda e: heard.append("late"))
            remove()

        root.on(Ping, adds)
        remove = root.on(Ping, lambda e: heard.append("removed"))
        root.emit(Ping())
        assert heard == ["adds", "removed"]
        root.emit(Ping())
        assert heard == ["adds", "removed", "adds", "late"]


async def test_b19b_a_raising_listener_is_logged_and_starves_nobody():
    async with harness() as root:
        heard = []
        root.on(Ping, lambda e: 1 / 0)
        root.on(Ping, lambda e: heard.append(1))
        root.emit(Ping())
        assert heard == [1]
        assert errors(root) == ["listener of events/ping failed"]


async def test_b19c_a_guard_refuses_the_event_for_everybody():
    async with harness() as root:
        heard, asked = [], []

        def guard(question):
            asked.append((question.mode, question.name, question.payload.value))
            if question.payload.value == 13:
                raise ValueError("not thirteen")

        root.on(Dispatching, guard)
        root.on(Ping, lambda e: heard.append(e.value))
        with pytest.raises(ValueError, match="thirteen"):
            root.emit(Ping(value=13))
        with pytest.raises(ValueError, match="thirteen"):
            root.prepare(Ping(value=13))
        root.emit(Ping(value=1))
        assert heard == [1]
        assert asked == [("emit", "events/ping", 13), ("emit", "events/ping", 13), ("emit", "events/ping", 1)]


async def test_b19d_a_veto_class_stops_at_the_first_exception():
    async with harness() as root:
        heard = []
        root.on(Vetoed, lambda e: heard.append(1))

        def refuse(event):
            raise ValueError("no")

        root.on(Vetoed, refuse)
        root.on(Vetoed, lambda e: heard.append(2))
        with pytest.raises(ValueError, match="no"):
            root.emit(Vetoed())
        assert heard == [1]


async def test_b19e_prepare_freezes_the_listeners_and_run_contains_everything():
    async with harness() as root:
        heard = []

        def breaks(event):
            raise InvariantError("core", "broken")

        root.on(Ping, breaks)
        root.on(Ping, lambda e: heard.append("first"))
        prepared = root.prepare(Ping())
        root.on(Ping, lambda e: heard.append("late"))
        assert heard == []
        prepared.run()
        assert heard == ["first"]


async def test_an_outlet_asks_the_guards_fixes_the_listeners_and_contains_what_they_raise():
    async with harness() as root:
        heard, refused = [], []

        def breaks(event):
            raise InvariantError("core", "broken")

        root.on(Ping, breaks)
        root.on(Ping, lambda e: heard.append(e.value))
        outlet = root.outlet(Ping)
        listeners = outlet.reach(Ping(1))
        root.on(Ping, lambda e: heard.append("late"))
        outlet.tell(listeners, Ping(1))
        assert heard == [1]
        root.on("internal/dispatch", lambda asked: refused[0], global_=True)
        with pytest.raises(IndexError):
            outlet.reach(Ping(2))
        with pytest.raises(CordisError) as raised:
            root.outlet(Gather)
        assert raised.value.code == "WRONG_MODE" and heard == [1]


async def test_b19f_an_invariant_error_is_raised_after_all_ran():
    async with harness() as root:
        heard = []

        def breaks(event):
            raise InvariantError("core", "broken")

        root.on(Ping, breaks)
        root.on(Ping, lambda e: heard.append(1))
        with pytest.raises(InvariantError):
            root.emit(Ping())
        assert heard == [1]


async def test_b19g_async_listeners_run_one_at_a_time_in_order():
    async with harness() as root:
        order = []

        @root.on(Ping)
        async def slow(event):
            order.append(f"{event.value} in")
            await turns(2)
            order.append(f"{event.value} out")
            if event.value == 1:
                raise ValueError

        root.emit(Ping(value=1))
        root.emit(Ping(value=2))
        assert order == []
        await root.settle()
        assert order == ["1 in", "1 out", "2 in", "2 out"]
        assert len(errors(root)) == 1


async def test_b19h_unloading_drops_the_queue_and_cancels_the_running_call():
    order = []
    async with harness() as root:

        def body(ctx):
            @ctx.on(Ping)
            async def slow(event):
                order.append(event.value)
                try:
                    await asyncio.sleep(30)
                except asyncio.CancelledError:
                    order.append("cancelled")
                    raise

        fiber = await root.plugin(body)
        root.emit(Ping(value=1))
        root.emit(Ping(value=2))
        await turns()
        await fiber.dispose()
        await root.settle()
        assert order == [1, "cancelled"]


async def test_b19i_concurrent_listeners_overlap():
    async with asyncio.timeout(5), harness() as root:
        meeting = asyncio.Barrier(2)

        async def meet(event):
            await meeting.wait()

        root.on(Ping, meet, concurrent=True)
        root.emit(Ping())
        root.emit(Ping())
        await turns(10)
        assert not root.fiber.tasks()


async def test_order_prepend_and_once():
    async with harness() as root:
        heard = []
        root.on(Ping, lambda e: heard.append("a"))
        root.on(Ping, lambda e: heard.append("b"), prepend=True)
        root.on(Ping, lambda e: heard.append("c"), prepend=True)

        def reenter(event):
            heard.append("once")
            root.emit(Ping())

        root.once(Ping, reenter)
        root.emit(Ping())
        assert heard == ["c", "b", "a", "once", "c", "b", "a"]


async def test_once_with_an_async_listener_runs_it_once():
    async with harness() as root:
        heard = []

        async def listener(event):
            await asyncio.sleep(0)
            heard.append(event.value)

        root.once(Ping, listener)
        root.emit(Ping(value=1))
        root.emit(Ping(value=2))
        await turns()
        assert heard == [1]


async def test_wrong_dispatch_method_is_refused_at_once():
    async with harness() as root:
        for attempt in (lambda: root.emit(Gather()), lambda: root.bail(Ping()), lambda: root.prepare(AskNow())):
            with pytest.raises(CordisError) as caught:
                attempt()
            assert caught.value.code == "WRONG_MODE"
        for wrong in (root.parallel(Ping()), root.serial(AskNow()), root.waterfall(AroundNow(), lambda: 1)):
            with pytest.raises(CordisError) as caught:
                await wrong
            assert caught.value.code == "WRONG_MODE"
        with pytest.raises(CordisError):
            root.on(AskNow, _async_nothing)
        with pytest.raises(TypeError, match="no event"):
            root.emit(Nameless())


async def _async_nothing(event):
    return None


async def test_listening_by_wire_name_binds_at_first_use_and_generations_share_the_channel():
    async with harness() as root:
        heard = []

        async def by_name(event):
            heard.append(event.value)

        root.on("events/late", by_name)

        def declare():
            class Late(Emit, name="events/late"):
                value: int

            return Late

        root.emit(declare()(value=1))
        root.emit(declare()(value=2))
        await root.settle()
        assert heard == [1, 2]

        class Other(Bail[int], name="events/late"):
            pass

        with pytest.raises(CordisError) as caught:
            root.bail(Other())
        assert caught.value.code == "WRONG_MODE"


async def test_a_reloaded_class_may_change_the_mode_once_its_old_listeners_are_gone():
    async with harness() as root:

        def declare(base):
            class Changing(base, name="events/changing"):
                pass

            return Changing

        old, new = declare(Emit), declare(Serial)
        disposer = root.on(old, lambda e: None)
        root.emit(old())
        with pytest.raises(CordisError):
            await root.serial(new())
        disposer()
        assert await root.serial(new()) is None
        root.on(new, lambda e: 5)
        assert await root.serial(new()) == 5
        with pytest.raises(CordisError):
            root.emit(old())


async def test_event_classes_and_plugins_that_left_can_be_collected():
    async with harness() as root:

        def generation():
            class Gone(Emit, name="events/gone", scoped_by=lambda e: None):
                pass

            class GoneService(Service, name="gone"):
                @owned
                def use(self, caller):
                    return caller.on(Gone, lambda e: None)

            def body(ctx):
                ctx[GoneService].use()
                ctx.emit(Gone())

            return Gone, GoneService, body

        async def live_and_leave():
            classes = generation()
            fibers = [root.plugin(classes[1]), root.plugin(classes[2], inject=["gone"])]
            await root.settle()
            assert fibers[1].is_active
            for fiber in fibers:
                await fiber.dispose()
            return [weakref.ref(each) for each in classes]

        left = await live_and_leave()
        root.emit(Ping())
        gc.collect()
        assert [ref() for ref in left] == [None, None, None]


async def test_framework_events_contain_even_invariant_errors():
    async with harness() as root:

        def breaks(event):
            raise InvariantError("core", "broken")

        root.on("internal/status", breaks)
        fiber = await root.plugin(lambda ctx: None)
        assert fiber.is_active


async def test_listeners_run_in_the_emitters_task():
    async with harness() as root:
        seen = []
        root.on(Ping, lambda e: seen.append(asyncio.current_task()))
        root.emit(Ping())
        assert seen == [asyncio.current_task()]


@pytest.mark.parametrize("value", [False, 0, ""])
async def test_b20a_only_none_abstains(value):
    async with harness() as root:
        for event in (Ask, AskNow):
            root.on(event, lambda e: None)
            root.on(event, lambda e: value)
            root.on(event, lambda e: "too late")
        assert await root.serial(Ask()) is value
        assert root.bail(AskNow()) is value


async def test_b20b_serial_awaits_in_order_and_errors_reach_the_dispatcher():
    async with harness() as root:
        order = []

        async def first(event):
            await asyncio.sleep(0)
            order.append("first")

        root.on(Ask, first)
        root.on(Ask, lambda e: order.append("second"))
        assert await root.serial(Ask()) is None
        assert order == ["first", "second"]

        def breaks(event):
            raise ValueError("up")

        root.on(Ask, breaks)
        with pytest.raises(ValueError, match="up"):
            await root.serial(Ask())


async def test_b20c_parallel_runs_all_although_one_raises():
    async with asyncio.timeout(5), harness() as root:
        meeting = asyncio.Barrier(2)
        done = []

        async def meet(event):
            await meeting.wait()
            done.append(1)

        def breaks(event):
            raise ValueError("one")

        async def breaks_later(event):
            await asyncio.sleep(0)
            raise TypeError("two")

        assert await root.parallel(Gather()) == 0
        for listener in (meet, breaks, meet, breaks_later):
            root.on(Gather, listener)
        with pytest.raises(ExceptionGroup) as caught:
            await root.parallel(Gather())
        assert [str(error) for error in caught.value.exceptions] == ["one", "two"]
        assert done == [1, 1]


async def test_b20d_parallel_counts_its_listeners():
    async with harness() as root:
        root.on(Gather, lambda e: None)
        assert await root.parallel(Gather()) == 1
        root.on(Gather, _async_nothing)
        assert await root.parallel(Gather()) == 2


async def test_b21a_waterfall_wraps_replaces_and_short_circuits():
    async with harness() as root:
        assert await root.waterfall(Around(), lambda: "plain") == "plain"

        async def default():
            return "default"

        async def wraps(event, next):
            return f"[{await next()}]"

        def sync_wrap(event, next):
            return next()

        root.on(Around, wraps)
        root.on(Around, sync_wrap)
        assert await root.waterfall(Around(), default) == "[default]"
        later = []

        async def cuts(event, next):
            return "cut"

        root.on(Around, cuts)
        root.on(Around, lambda e, next: later.append(1) or next())
        assert await root.waterfall(Around(), lambda: later.append("default")) == "[cut]"
        assert later == []


async def test_b21b_listeners_may_change_the_payload():
    async with harness() as root:

        async def change(event, next):
            event.text += "!"
            return await next()

        root.on(Around, change)
        event = Around(text="hi")
        assert await root.waterfall(event, lambda: event.text) == "hi!"


async def test_b21c_next_twice_reruns_the_rest_unless_the_class_forbids_it():
    async with harness() as root:
        runs = []

        async def twice(event, next):
            await next()
            return await next()

        root.on(Around, twice)
        root.on(AroundOnce, twice)
        assert await root.waterfall(Around(), lambda: runs.append(1) or "x") == "x"
        assert runs == [1, 1]
        with pytest.raises(CordisError) as caught:
            await root.waterfall(AroundOnce(), lambda: "x")
        assert caught.value.code == "NEXT_TWICE"


async def test_b21d_a_raising_listener_reaches_the_dispatcher():
    async with harness() as root:

        async def breaks(event, next):
            raise ValueError("up")

        root.on(Around, breaks)
        with pytest.raises(ValueError, match="up"):
            await root.waterfall(Around(), lambda: "x")


async def test_b21e_sync_waterfall():
    async with harness() as root:
        assert root.waterfall_sync(AroundNow(), lambda: 1) == 1
        root.on(AroundNow, lambda e, next: next() + 1)
        root.on(AroundNow, lambda e, next: next() * 10)
        assert root.waterfall_sync(AroundNow(), lambda: 1) == 11


async def test_record_keeps_events_of_any_mode():
    async with harness() as root:
        pings, arounds = record(root, Ping), record(root, Around)
        root.emit(Ping(value=2))
        assert await root.waterfall(Around(text="t"), lambda: "x") == "x"
        assert [event.value for event in pings] == [2]
        assert [event.text for event in arounds] == ["t"]
