"""Services: reading, providing, caller-bound views, isolation, interception."""

import asyncio
import gc
import weakref
from abc import abstractmethod
from typing import Protocol

import pytest

from dsh.cordis import Context, CordisError, Emit, FiberState, Service, ServiceKey, owned, unwrap
from dsh.cordis.testing import harness
from tests.cordis.helpers import Tools, provider


def code_of(caught):
    return caught.value.code


async def test_b17a_reading_through_a_kept_context_is_refused():
    kept = []
    async with harness() as root:
        root.provide("tools", 1)
        fiber = await root.plugin(kept.append and (lambda ctx: kept.append(ctx)), inject=["tools"])
        (ctx,) = kept
        assert ctx["tools"] == 1
        await fiber.dispose()
        with pytest.raises(CordisError) as caught:
            ctx["tools"]
        assert code_of(caught) == "INACTIVE_SERVICE"
        with pytest.raises(CordisError) as caught:
            ctx["undeclared"]
        assert code_of(caught) == "INACTIVE_SERVICE"


async def test_b17b_undeclared_reads_are_refused_in_plugins_and_fine_at_the_root():
    async with harness() as root:
        root.provide("tools", 1)
        codes = []

        def body(ctx):
            for read in (lambda: ctx["tools"], lambda: ctx.tools):
                with pytest.raises(CordisError) as caught:
                    read()
                codes.append(code_of(caught))
            assert not hasattr(ctx, "tools")
            with pytest.raises(AttributeError):
                ctx._tools
            assert ctx.get("tools") == 1

        await root.plugin(body)
        assert codes == ["NOT_INJECTED"] * 2
        assert root["tools"] == root.tools == 1
        with pytest.raises(CordisError) as caught:
            root["nothing"]
        assert code_of(caught) == "INACTIVE_SERVICE"


async def test_b17c_an_optional_read_through_a_foreign_service_method_returns_the_service():
    class Foreign(Service, name="foreign"):
        def look(self):
            return self.ctx.get(Tools)

    async with harness() as root:
        root.plugin(Foreign)
        seen = []
        fiber = root.plugin(lambda ctx: seen.append(ctx[Foreign].look()), inject=[Foreign])
        await root.settle()
        assert seen == [None]
        root.plugin(Tools)
        await root.settle()
        await fiber.restart()
        assert isinstance(seen[1], Tools)


async def test_b17d_declared_but_waiting_is_inactive_and_children_inherit_what_parents_declared():
    seen, kept = [], []
    async with harness() as root:
        take_back = root.provide("tools", 1)

        def child(ctx):
            seen.append(ctx["tools"])

        def parent(ctx):
            kept.append(ctx)
            ctx.plugin(child)

        await root.plugin(parent, inject=["tools"])
        await root.settle()
        assert seen == [1]
        await take_back()
        with pytest.raises(CordisError) as caught:
            kept[0]["tools"]
        assert code_of(caught) == "INACTIVE_SERVICE"


async def test_own_service_is_visible_at_once_and_to_others_when_active():
    async with harness() as root:
        seen = []

        async def body(ctx):
            ctx.provide("thing", 1)
            seen.append(ctx["thing"])
            seen.append(ctx.get("thing"))
            seen.append(root.get("thing"))

        fiber = root.plugin(body)
        await fiber
        assert seen == [1, 1, None]
        assert root["thing"] == 1


async def test_duplicate_provide_names_the_holder():
    async with harness() as root:
        await root.plugin(provider("tools"))
        with pytest.raises(CordisError, match="provider-tools") as caught:
            root.provide("tools", 2)
        assert code_of(caught) == "DUPLICATE_SERVICE"
        assert "provide(tools)" not in root.fiber.effects()


async def test_snake_case_and_wire_names_read_the_same_service():
    async with harness() as root:
        root.provide("agentLoop", 1)
        assert root.agent_loop == root.agentLoop == 1
        root.provide("my_thing", 2)
        assert root.my_thing == 2


async def test_metadata_is_inherited_and_agent_defaults_to_none():
    async with harness() as root:
        child = root.extend(agent="a", mood="good")
        assert root.agent is None
        assert (child.agent, child.mood) == ("a", "good")
        assert child.isolate("x").mood == "good"
        assert str(child.extend(base_dir="/tmp").base_dir) == "/tmp"


class Counter(Service, name="counter"):
    def __init__(self, ctx: Context, config=None):
        self.items = []
        self.value = 5

    def total(self):
        return len(self.items)

    @owned
    def add(self, caller: Context, item, *, twice=False):
        def setup():
            self.items.append(item)
            return lambda: self.items.remove(item)

        return caller.effect(setup, f"add({item})")

    @owned
    async def who(self, caller: Context):
        return caller.fiber.name

    def __len__(self):
        return len(self.items)


async def test_views_pass_the_caller_and_own_what_is_registered():
    async with harness() as root:
        await root.plugin(Counter)
        kept = []

        def user(ctx, config, counter: Counter):
            kept.append(ctx)
            counter.add("x", twice=True)
            ctx.counter.add("y")

        fiber = await root.plugin(user)
        (ctx,) = kept
        view = ctx[Counter]
        assert view is ctx[Counter]
        assert isinstance(view, Counter)
        assert view.total() == len(view) == 2
        assert await view.who() == "user"
        assert "add(x)" in fiber.effects()
        view.value = 6
        service = unwrap(view)
        assert service.value == 6
        assert view == service
        assert view != object()
        assert await service.who() == "Counter"  # called on the object itself: its own context
        assert await Counter.who(service, ctx) == "user"
        await fiber.dispose()
        assert service.items == []


class Weak(Service, name="weak"):
    pass


@pytest.mark.parametrize("cls", [Counter, Weak])
async def test_views_are_dropped_when_the_service_is_withdrawn(cls):
    async with harness() as root:
        fiber = await root.plugin(cls)
        gone = weakref.ref(unwrap(root[cls]))
        await fiber.dispose()
        gc.collect()
        assert gone() is None


async def test_a_service_without_owned_methods_is_its_own_view():
    async with harness() as root:
        await root.plugin(Tools)
        assert type(root[Tools]) is Tools


def test_overriding_an_owned_method_without_the_mark_is_refused():
    with pytest.raises(TypeError, match="mark it @owned"):

        class Bad(Counter):
            def add(self, caller, item):
                return None


async def test_abstract_capability_and_its_provider_share_one_name():
    class Shell(Service, name="shell"):
        @abstractmethod
        def run(self) -> str: ...

    class LocalBash(Shell):
        def run(self) -> str:
            return "ran"

    async with harness() as root:
        await root.plugin(LocalBash)
        assert root[Shell].run() == "ran"
        with pytest.raises(CordisError, match="abstract"):
            root.plugin(Shell)


async def test_service_key_types_any_object():
    class Greets(Protocol):
        def greet(self) -> str: ...

    key = ServiceKey("greets", Greets)
    async with harness() as root:
        root.provide(key, "hello")
        assert root[key] == root.get(key) == "hello"


async def test_a_method_named_start_that_needs_arguments_is_no_hook():
    class Runs(Service, name="runs"):
        def start(self, call):
            return call

    async with harness() as root:
        fiber = await root.plugin(Runs)
        assert fiber.is_active
        assert root[Runs].start(3) == 3


async def test_available_for_decides_per_reader_and_a_raise_counts_as_no():
    class Picky(Service, name="picky"):
        def available_for(self, ctx):
            if ctx.fiber.name == "raises":
                raise ValueError
            return ctx.fiber.name == "friend"

    async with harness() as root:
        await root.plugin(Picky)

        def make(name):
            def body(ctx):
                pass

            body.name = name
            return root.plugin(body, inject=["picky"])

        fibers = [make("friend"), make("stranger"), make("raises")]
        await root.settle()
        assert [fiber.is_active for fiber in fibers] == [True, False, False]
        assert root.get("picky") is None


async def test_b18a_three_realms_have_three_services_and_withdrawing_touches_only_its_own():
    async with harness() as root:
        seen, places, takes = [], [root, root.isolate("tools"), root.isolate("tools")], []
        for index, place in enumerate(places):
            takes.append(place.provide("tools", index))
            place.plugin(lambda ctx, index=index: seen.append((index, ctx["tools"])), inject=["tools"])
        await root.settle()
        assert sorted(seen) == [(0, 0), (1, 1), (2, 2)]
        seen.clear()
        takes[1]()
        places[1].provide("tools", "new")
        await root.settle()
        assert seen == [(1, "new")]
        assert [s["name"] for s in root.inspect()["services"]].count("tools") == 3


async def test_b18b_a_shared_label_joins_two_realms():
    async with harness() as root:
        left, right = root.isolate("tools", "shared"), root.isolate("tools", "shared")
        left.provide("tools", 1)
        seen = []
        right.plugin(lambda ctx: seen.append(ctx["tools"]), inject=["tools"])
        alone = root.plugin(lambda ctx: None, inject=["tools"])
        await root.settle()
        assert seen == [1]
        assert alone.state is FiberState.PENDING
        with pytest.raises(CordisError):
            right.provide("tools", 2)


async def test_b18c_a_derived_realm_hides_what_the_plugin_declared_outside():
    async with harness() as root:
        root.provide("tools", 1)

        def body(ctx):
            with pytest.raises(CordisError) as caught:
                ctx.isolate("tools")["tools"]
            assert code_of(caught) == "NOT_INJECTED"
            assert ctx.isolate("other")["tools"] == 1

        await root.plugin(body, inject=["tools"])


class Ping(Emit, name="services/ping"):
    pass


async def test_b18d_origin_reaches_only_listeners_of_the_same_realm_and_global_ones():
    async with harness() as root:
        heard = []
        inner = root.isolate("tools")
        root.on(Ping, lambda e: heard.append("outer"))
        inner.on(Ping, lambda e: heard.append("inner"))
        root.on(Ping, lambda e: heard.append("global"), global_=True)
        service = Tools(inner)
        inner.provide(service)
        root.emit(Ping(), origin=service)
        assert heard == ["inner", "global"]


async def test_intercepts_merge_from_the_root_and_inject_values_count():
    class Style(Service, name="style"):
        @owned
        def read(self, caller):
            return caller.intercepted("style")

    class Summing(Service, name="summing"):
        @staticmethod
        def merge_intercept(outer, inner):
            return {"n": outer["n"] + inner["n"]}

    async with harness() as root:
        root.plugin(Style)
        root.plugin(Summing)
        await root.settle()
        outer = root.intercept("style", color="red", size=1)
        seen = []

        def body(ctx):
            seen.append(ctx[Style].read())

        await outer.plugin(body, inject={"style": {"size": 2}})
        assert seen == [{"color": "red", "size": 2}]
        assert root[Style].read() == {}
        deep = root.intercept("summing", n=1).intercept("summing", n=2)
        assert deep.intercepted("summing") == {"n": 3}


async def test_rebase_restarts_only_fibers_whose_names_map_elsewhere():
    async with harness() as root:
        runs = []

        def group(ctx):
            ctx.plugin(user, inject=["tools"])
            ctx.plugin(bystander)

        def user(ctx):
            runs.append(ctx["tools"])

        def bystander(ctx):
            runs.append("bystander")

        root.provide("tools", "outer")
        private = root.isolate("tools", "row")
        private.provide("tools", "inner")
        fiber = root.plugin(group)
        await root.settle()
        assert runs == ["outer", "bystander"]
        runs.clear()
        affected = fiber.rebase(private)
        await root.settle()
        assert [each.name for each in affected] == ["user"]
        assert runs == ["inner"]
        assert fiber.rebase(private.intercept("logger", level="debug")) == []
        assert fiber.children()[0].ctx.intercepted("logger") == {"level": "debug"}


async def test_rebase_restarts_a_provider_whose_name_maps_elsewhere():
    async with harness() as root:
        source = await root.plugin(provider("tools", 1))
        consumer = await root.plugin(lambda ctx: None, inject=["tools"])
        assert source.rebase(root.isolate("tools")) == [source]
        await root.settle()
        assert root.get("tools") is None
        assert source.is_active
        assert consumer.state is FiberState.PENDING


async def test_rebase_moves_a_fiber_under_another_parent():
    async with harness() as root:
        contexts, runs = [], []

        def group(ctx):
            contexts.append(ctx)

        left, right = root.plugin(group), root.plugin(group)
        await root.settle()
        row = contexts[0].plugin(lambda ctx: runs.append(1))
        await root.settle()
        assert row.rebase(contexts[1]) == []
        assert row.parent is right
        await left.dispose()
        assert row.is_active
        assert runs == [1]
        await right.dispose()
        assert row.is_disposed


async def test_what_an_asynchronous_start_did_is_stopped_also_when_the_unload_met_it():
    done = []
    begun = asyncio.Event()

    class Store(Service, name="store"):
        def __init__(self, ctx, config=None):
            super().__init__(ctx)

        async def start(self):
            begun.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                done.append("started")  # too late to be stopped half-way

        async def stop(self):
            done.append("stopped")

    async with harness() as root:
        fiber = root.plugin(Store)
        await begun.wait()
        await fiber.dispose()
        assert done == ["started", "stopped"]
