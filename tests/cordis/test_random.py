"""Random sequences of everything that can happen to a tree of plugins settle to the state of a fresh load."""

import asyncio
from dataclasses import dataclass

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dsh.cordis import Emit, FiberState, StatusChanged
from dsh.cordis.testing import harness
from tests.cordis.helpers import errors

PENDING, LOADING, ACTIVE, FAILED, DISPOSED, UNLOADING = FiberState

EDGES = {
    (PENDING, LOADING),
    (LOADING, ACTIVE),
    (LOADING, UNLOADING),
    (ACTIVE, UNLOADING),
    (FAILED, LOADING),
    (FAILED, UNLOADING),
    (PENDING, UNLOADING),
    (UNLOADING, PENDING),
    (UNLOADING, LOADING),
    (UNLOADING, FAILED),
    (UNLOADING, DISPOSED),
}

SLOTS = 5


class Value:
    alive = True

    def die(self):
        self.alive = False


ROOTS = 2


class Ping(Emit, name="random/ping"):
    pass


@dataclass(frozen=True)
class Shape:
    """One plugin: what it needs, how it is written, what its child needs."""

    needs: frozenset[str]
    kind: str
    child_needs: frozenset[str] | None


def names(slot):
    return [f"s{other}" for other in range(SLOTS) if other != slot] + [f"r{index}" for index in range(ROOTS)]


def shapes():
    def shape(slot):
        needs = st.frozensets(st.sampled_from(names(slot)), max_size=2)
        kinds = st.sampled_from(["sync", "async", "lifespan", "slow undo", "generator"])
        return st.builds(Shape, needs, kinds, st.none() | needs)

    return st.tuples(*(shape(slot) for slot in range(SLOTS)))


slots = st.integers(0, SLOTS - 1)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("mount"), slots, st.booleans()),
        st.tuples(st.just("dispose"), slots),
        st.tuples(st.just("restart"), slots),
        st.tuples(st.just("update"), slots, st.booleans()),
        st.tuples(st.just("root"), st.integers(0, ROOTS - 1)),
        st.tuples(st.just("swap"), st.integers(0, ROOTS - 1)),
        st.tuples(st.just("blink"), st.integers(0, ROOTS - 1)),
        st.tuples(st.just("crash"), slots),
        st.tuples(st.just("ticks"), st.integers(1, 6)),
        st.tuples(st.just("settle")),
    ),
    min_size=4,
    max_size=25,
)


def make_plugin(slot, shape):
    def child(ctx):
        ctx.on(Ping, lambda e: None)

    def common(ctx, config):
        ctx.on(Ping, lambda e: None)
        if shape.child_needs is not None:
            ctx.plugin(child, inject=shape.child_needs)
        if config["fail"]:
            raise ValueError("asked to fail")
        value = Value()
        ctx.provide(f"s{slot}", value)
        ctx.defer(value.die)

    def sync(ctx, config):
        common(ctx, config)

    async def asynchronous(ctx, config):
        await asyncio.sleep(0)
        common(ctx, config)
        await asyncio.sleep(0)

    async def lifespan(ctx, config):
        await asyncio.sleep(0)
        common(ctx, config)
        async with asyncio.TaskGroup():
            yield
            await asyncio.sleep(0)

    def slow_undo(ctx, config):
        async def undo():
            await asyncio.sleep(0)
            assert all(ctx[need].alive for need in shape.needs), "a service left before its user"

        ctx.defer(undo)
        common(ctx, config)

    def generator(ctx, config):
        common(ctx, config)
        yield

    bodies = {
        "sync": sync,
        "async": asynchronous,
        "lifespan": lifespan,
        "slow undo": slow_undo,
        "generator": generator,
    }
    body = bodies[shape.kind]
    body.name = f"slot{slot}"
    body.inject = list(shape.needs)
    return body


def picture(root):
    """What a user can see of the settled system."""
    return {
        "fibers": sorted((fiber.name, fiber.state.name, fiber.missing()) for fiber in root.fiber.children()),
        "services": sorted(name for name, _ in root.runtime.services.implementations),
        "listeners": len(root.runtime.events.channel("random/ping").all),
        "effects": sorted(str(fiber.effects()) for fiber in root.fiber.children()),
    }


async def crash():
    raise ValueError("crashed")


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(shapes=shapes(), steps=steps, settled_start=st.booleans())
def test_b27_random_sequences_settle_to_the_state_of_a_fresh_load(shapes, steps, settled_start):
    asyncio.run(run(shapes, steps, settled_start))


async def run(shapes, steps, settled_start):
    plugins = [make_plugin(slot, shape) for slot, shape in enumerate(shapes)]
    mounted, provided, crashed = {}, {}, set()
    async with asyncio.timeout(20), harness() as root:
        root.on(StatusChanged, lambda e: edges.append((e.old, e.fiber.state)))
        edges = []
        for index in range(ROOTS):
            provided[index] = root.provide(f"r{index}", Value())
        for slot in range(SLOTS):
            mounted[slot] = root.plugin(plugins[slot], {"fail": False})
        if settled_start:
            await root.settle()
        for step in steps:
            match step:
                case "mount", slot, fail:
                    if slot not in mounted and not root.registry.fibers(plugins[slot]):
                        mounted[slot] = root.plugin(plugins[slot], {"fail": fail})
                case "dispose", slot:
                    if slot in mounted:
                        mounted.pop(slot).dispose()
                        crashed.discard(slot)
                case "restart", slot:
                    if slot in mounted:
                        mounted[slot].restart()
                        crashed.discard(slot)
                case "update", slot, fail:
                    if slot in mounted:
                        mounted[slot].update({"fail": fail})
                case "root", index:
                    if index in provided:
                        provided.pop(index)()
                    else:
                        provided[index] = root.provide(f"r{index}", Value())
                case "blink", index:
                    if index in provided:
                        provided.pop(index)()
                        await root.settle()
                        provided[index] = root.provide(f"r{index}", Value())
                case "swap", index:
                    if index in provided:
                        provided[index]()
                        provided[index] = root.provide(f"r{index}", Value())
                case "crash", slot:
                    if slot in mounted and mounted[slot].is_active:
                        mounted[slot].ctx.spawn(crash, critical=True)
                case "ticks", count:
                    for _ in range(count):
                        await asyncio.sleep(0)
                case ("settle",):
                    await root.settle()
        for _ in range(3):
            await root.settle()
            await asyncio.sleep(0)
        assert set(edges) <= EDGES
        for fiber in root.fiber.children():
            assert fiber.is_active == (not fiber.missing() and fiber.error is None)
            assert fiber.is_settled
            for name, used in (fiber.committed or {}).items():
                assert used is root.runtime.services.implementations[name, None]
        assert not [line for line in errors(root) if "undo" in line]
        # A crash is history that a fresh load has not: start those again.
        for slot, fiber in mounted.items():
            if str(fiber.error) == "crashed":
                fiber.restart()
                await root.settle()
        # A failed fiber whose services left meanwhile stays failed; a fresh load would wait for them.
        for slot, fiber in mounted.items():
            if fiber.state is FAILED and fiber.missing():
                await root.settle()
                await fiber.dispose()
                mounted[slot] = root.plugin(plugins[slot], fiber.raw_config)
        await root.settle()
        final = {slot: fiber.raw_config for slot, fiber in mounted.items()}
        seen = picture(root)
    async with harness() as fresh:
        for index in provided:
            fresh.provide(f"r{index}", Value())
        for slot, config in final.items():
            fresh.plugin(plugins[slot], config)
        await fresh.settle()
        assert seen == picture(fresh)
