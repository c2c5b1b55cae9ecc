"""Scopes: routing of events by key, lifetimes, and layered registries."""

import asyncio

import pytest

from dsh.cordis import AnonymousEntries, CordisError, Emit, NamedEntries, ScopedLayers, Service, bind_scope, scope_chain
from dsh.cordis.testing import harness
from tests.cordis.helpers import turns


class Agent:
    __slots__ = ("__scope__", "__weakref__", "name")

    def __init__(self, name):
        self.name = name


class Happened(Emit, name="scopes/happened", scoped_by="agent"):
    agent: object = None


class Nested(Emit, name="scopes/nested", scoped_by="exec.agent"):
    exec: object


class Unnamed(Emit, name="scopes/unnamed"):
    pass


def table(root, make=Agent):
    """Listeners for everybody, an agent, its preset, and a sibling; each notes its name."""
    agent, preset, sibling = make("agent"), make("preset"), make("sibling")
    scopes = {
        "preset": root.scope(preset),
        "agent": root.scope(agent, parent=preset),
        "sibling": root.scope(sibling, parent=preset),
    }
    heard = []
    for event in (Happened, Unnamed):
        root.on(event, lambda e: heard.append("plain"))
        for name, scope in scopes.items():
            scope.ctx.on(event, lambda e, name=name: heard.append(name))
        scopes["sibling"].ctx.on(event, lambda e: heard.append("global"), global_=True)
    return {"agent": agent, "preset": preset, "sibling": sibling, None: None}, scopes, heard


ROUTES = [
    ("agent", ["plain", "preset", "agent", "global"]),
    ("preset", ["plain", "preset", "global"]),
    ("sibling", ["plain", "preset", "sibling", "global"]),
    (None, ["plain", "global"]),
]


@pytest.mark.parametrize(("key", "expected"), ROUTES)
@pytest.mark.parametrize("make", [Agent, lambda name: object()], ids=["slot", "any object"])
async def test_b22a_routing_table(key, expected, make):
    async with harness() as root:
        keys, scopes, heard = table(root, make)
        root.emit(Happened(keys[key]))
        assert heard == expected
        heard.clear()
        root.emit(Unnamed(), scope=keys[key])
        assert heard == expected
        assert scopes["agent"].ctx.scope_key is keys["agent"]


async def test_b22b_dotted_path_names_the_key():
    class Run:
        agent = Agent("a")

    async with harness() as root:
        heard = []
        root.scope(Run.agent).ctx.on(Nested, lambda e: heard.append(1))
        root.scope(Agent("b")).ctx.on(Nested, lambda e: heard.append(2))
        root.emit(Nested(Run()))
        assert heard == [1]


async def test_b22c_a_parent_is_bound_once_and_only_its_binding_rebinds():
    async with harness() as root:
        keys, scopes, heard = table(root)
        with pytest.raises(CordisError, match="already bound to a parent; re-linking requires the binding"):
            bind_scope(keys["agent"], keys["sibling"])
        root.emit(Happened(keys["agent"]))
        heard.clear()
        scopes["agent"].binding.rebind(keys["sibling"])
        root.emit(Happened(keys["agent"]))
        assert heard == ["plain", "preset", "agent", "sibling", "global"]
        assert scope_chain(keys["agent"]) == [keys["agent"], keys["sibling"], keys["preset"]]
        with pytest.raises(CordisError, match="scope parent link would form a cycle"):
            scopes["sibling"].binding.rebind(keys["agent"])


async def test_b22d_plugins_mounted_under_a_scope_inherit_its_tag():
    async with harness() as root:
        agent, heard = Agent("a"), []
        scope = root.scope(agent)

        def body(ctx):
            assert ctx.scope_key is agent
            ctx.on(Happened, lambda e: heard.append("mine"))

        fiber = scope.ctx.plugin(body)
        await fiber
        root.emit(Happened(Agent("other")))
        root.emit(Happened(agent))
        assert heard == ["mine"]
        await scope.dispose()
        assert fiber.is_disposed
        assert root.runtime.events.channel("scopes/happened").all == ()


async def test_b22e_new_listeners_reach_cached_plans():
    async with harness() as root:
        agent, heard = Agent("a"), []
        scope = root.scope(agent)
        scope.ctx.on(Happened, lambda e: heard.append(1))
        root.emit(Happened(agent))
        scope.ctx.on(Happened, lambda e: heard.append(2))
        root.emit(Happened(agent))
        assert heard == [1, 1, 2]


async def test_scope_disposal_is_shared_and_ends_with_its_tasks():
    async with harness() as root:
        scope, order = root.scope(Agent("a")), []

        async def undo():
            await turns(3)
            order.append("undone")

        scope.ctx.defer(undo)
        scope.ctx.spawn(asyncio.sleep, 30)
        await asyncio.gather(scope.dispose(), scope.dispose())
        assert order == ["undone"]
        assert not root.fiber.tasks()
        with pytest.raises(CordisError) as caught:
            scope.ctx.on(Unnamed, lambda e: None)
        assert caught.value.code == "INACTIVE_EFFECT"


async def test_awaiting_a_scopes_disposal_in_its_own_undo_is_refused():
    async with asyncio.timeout(5), harness() as root:
        scope, codes = root.scope(), []

        async def undo():
            try:
                await scope.dispose()
            except CordisError as error:
                codes.append(error.code)

        scope.ctx.defer(undo)
        await scope.dispose()
        assert codes == ["SELF_AWAIT"]


async def test_an_undo_may_await_the_end_of_a_scope_that_its_provider_opened():
    order = []

    class Agents(Service, name="agents"):
        def open(self):
            return self.ctx.scope(Agent("a"))

    def user(ctx, config, agents: Agents):
        scope = agents.open()
        scope.ctx.defer(lambda: order.append("scope undone"))

        async def undo():
            await scope.dispose()
            order.append("user undone")

        ctx.defer(undo)

    async with harness() as root:
        await root.plugin(Agents)
        fiber = await root.plugin(user)
        await fiber.dispose()
        assert order == ["scope undone", "user undone"]


async def test_scopes_resolve_services_like_the_plugin_and_end_with_it():
    async with harness() as root:
        root.provide("tools", 1)
        kept = []

        def body(ctx):
            kept.append(ctx.scope(Agent("a")))
            assert kept[0].ctx["tools"] == 1

        fiber = await root.plugin(body, inject=["tools"])
        await fiber.dispose()
        assert kept[0].disposed


class Layer:
    def __init__(self):
        self.names = NamedEntries(lambda name: ValueError(f"{name} is taken"))
        self.rest = AnonymousEntries()


async def test_b23a_reads_create_nothing():
    layers = ScopedLayers(Layer)
    agent = Agent("a")
    assert layers.peek(agent) is None
    assert layers.chain(agent) == []
    assert layers.merge(agent, lambda layer: layer.names) == {}
    assert layers.peek(agent) is None
    assert layers.peek(None) is layers.global_


async def test_b23b_the_nearest_layer_wins_and_order_is_of_insertion():
    async with harness() as root:
        layers = ScopedLayers(Layer)
        agent, preset = Agent("a"), Agent("p")
        scope = root.scope(agent, parent=preset)
        outer = root.scope(preset)

        def put(ctx, name, value):
            return layers.effect(ctx, lambda layer: layer.names.add(name, value), f"put({name})")

        put(scope.ctx, "x", "agent")
        put(outer.ctx, "x", "preset")
        put(outer.ctx, "y", "preset")
        put(root, "z", "global")
        put(root, "x", "global")
        assert layers.merge(agent, lambda layer: layer.names) == {"z": "global", "x": "agent", "y": "preset"}
        assert list(layers.merge(agent, lambda layer: layer.names)) == ["z", "x", "y"]
        assert layers.merge(None, lambda layer: layer.names) == {"z": "global", "x": "global"}
        assert layers.chain(agent) == [layers.peek(preset), layers.peek(agent)]
        with pytest.raises(ValueError, match="x is taken"):
            put(scope.ctx, "x", "again")
        await scope.dispose()
        assert layers.peek(agent) is None
        assert layers.merge(agent, lambda layer: layer.names)["x"] == "preset"


async def test_b23c_a_layer_goes_only_when_all_its_tables_are_empty():
    async with harness() as root:
        layers, agent = ScopedLayers(Layer), Agent("a")
        ctx = root.scope(agent).ctx
        first = layers.effect(ctx, lambda layer: layer.names.add("x", 1), "x")
        second = layers.effect(ctx, lambda layer: layer.rest.add(1), "rest")
        first()
        assert layers.peek(agent) is not None
        second()
        assert layers.peek(agent) is None


async def test_b23d_a_stale_undo_does_not_remove_a_newer_entry_of_the_name():
    entries = NamedEntries()
    undo = entries.add("x", 1)
    undo()
    entries.add("x", 2)
    undo()
    assert dict(entries) == {"x": 2}
    values = AnonymousEntries()
    first = values.add("same")
    values.add("same")
    first()
    first()
    assert list(values) == ["same"]


async def test_b23e_failed_actions_and_vetoed_changes_leave_nothing():
    async with harness() as root:
        refuse = False

        def changed():
            if refuse:
                raise ValueError("vetoed")
            changes.append(1)

        changes = []
        layers, agent = ScopedLayers(Layer, changed), Agent("a")
        ctx = root.scope(agent).ctx
        with pytest.raises(ZeroDivisionError):
            layers.effect(ctx, lambda layer: 1 / 0, "bad")
        assert layers.peek(agent) is None
        refuse = True
        with pytest.raises(ValueError, match="vetoed"):
            layers.effect(ctx, lambda layer: layer.names.add("x", 1), "x")
        assert layers.peek(agent) is None
        refuse = False
        disposer = layers.effect(ctx, lambda layer: layer.names.add("x", 1), "x")
        disposer()
        layers.effect(ctx, lambda layer: layer.names.add("x", 1), "x", notify=False)()
        assert changes == [1, 1]


async def test_iterating_entries_is_live_within_one_generation():
    entries = NamedEntries()
    undo = {name: entries.add(name, name) for name in "abc"}
    seen = []
    for name in entries:
        seen.append(name)
        if name == "a":
            undo["b"]()
            entries.add("d", 4)
    assert seen == ["a", "c", "d"]
    values = AnonymousEntries()
    drop = values.add(1)
    walk = iter(values)
    assert next(walk) == 1
    drop()
    values.add(2)
    assert list(walk) == [] and list(values) == [2]


async def test_an_outlet_reaches_its_scope_as_an_emit_does():
    async with harness() as root:
        keys, scopes, heard = table(root)
        outlet = root.outlet(Unnamed, scope=keys["agent"])
        for _ in range(2):
            outlet.tell(outlet.reach(Unnamed()), Unnamed())
            told, heard[:] = list(heard), []
            root.emit(Unnamed(), scope=keys["agent"])
            assert told == heard != []
            heard.clear()
            scopes["agent"].ctx.on(Unnamed, lambda e: heard.append("late"))
