"""Corners of services, scopes and dispatch: who is told, who is waited for, and which plans must be forgotten."""

import asyncio

import pytest

from dsh.cordis import CordisError, Emit, FiberState, Service, Waterfall
from dsh.cordis.testing import harness
from tests.cordis.helpers import turns


class Agent:
    __slots__ = ("__scope__", "__weakref__", "name")

    def __init__(self, name):
        self.name = name


class Happened(Emit, name="routing/happened", scoped_by="agent"):
    agent: object = None


class Ping(Emit, name="routing/ping"):
    pass


class Once(Waterfall[str], name="routing/once", single_next=True):
    pass


async def test_b09_a_withdrawal_is_over_when_everybody_who_used_the_service_is_out():
    order, go = [], asyncio.Event()

    def user(ctx):
        async def undo():
            await go.wait()
            order.append("user out")

        ctx.defer(undo)

    async with harness() as root:
        take_back = root.provide("tools", 1)
        fiber = await root.plugin(user, inject=["tools"])

        async def withdraw():
            await take_back()
            order.append("withdrawn")

        leaving = asyncio.create_task(withdraw())
        await turns()
        assert order == [] and root.get("tools") is None
        go.set()
        await leaving
        assert order == ["user out", "withdrawn"] and fiber.state is FiberState.PENDING


async def test_bindings_are_told_when_they_appear_and_vanish():
    async with harness() as root:
        told = []
        root.on("internal/service", lambda e: told.append((e.name, e.value)))
        take_back = root.provide("tools", "one")
        assert told == [("tools", "one")]
        await take_back()
        assert told == [("tools", "one"), ("tools", None)]

        class Shell(Service, name="shell"):
            pass

        fiber = await root.plugin(Shell)
        await fiber.dispose()
        assert [name for name, _ in told[2:]] == ["shell", "shell"]
        assert isinstance(told[2][1], Shell) and told[3][1] is None


async def test_b22_a_parent_that_is_bound_elsewhere_takes_its_children_along():
    async with harness() as root:
        agent, preset, one, two = (Agent(name) for name in ("agent", "preset", "one", "two"))
        heard = []
        for key in (one, two):
            root.scope(key).ctx.on(Happened, lambda e, key=key: heard.append(key.name))
        middle = root.scope(preset, parent=one)
        root.scope(agent, parent=preset)
        root.emit(Happened(agent))
        assert heard == ["one"]
        middle.binding.rebind(two)
        root.emit(Happened(agent))
        assert heard == ["one", "two"]


async def test_b18_a_listener_that_moves_to_another_realm_is_routed_anew():
    async with harness() as root:
        heard, inner = [], root.isolate("tools")

        class Tools(Service, name="tools"):
            pass

        service = Tools(root)
        root.provide(service)
        fiber = await root.plugin(lambda ctx: ctx.on(Ping, lambda e: heard.append(1)) and None)
        root.emit(Ping(), origin=service)
        assert heard == [1]
        fiber.rebase(inner)
        root.emit(Ping(), origin=service)
        assert heard == [1]
        fiber.rebase(root)
        root.emit(Ping(), origin=service)
        assert heard == [1, 1]


async def test_b21_where_next_may_run_once_it_runs_that_once():
    async with harness() as root:

        async def wraps(event, next):
            return f"[{await next()}]"

        root.on(Once, wraps)
        root.on(Once, wraps)
        assert await root.waterfall(Once(), lambda: "x") == "[[x]]"

        async def twice(event, next):
            await next()
            return await next()

        undo = root.on(Once, twice)
        with pytest.raises(CordisError) as caught:
            await root.waterfall(Once(), lambda: "x")
        assert caught.value.code == "NEXT_TWICE"
        undo()
        assert await root.waterfall(Once(), lambda: "y") == "[[y]]"
