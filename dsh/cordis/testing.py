"""Helpers for tests of plugins: a root that must end clean, recorded events, a clock moved by hand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from .clock import VirtualClock
from .context import Context
from .events import Event

E = TypeVar("E", bound=Event)

__all__ = ["VirtualClock", "assert_clean", "harness", "record"]


@asynccontextmanager
async def harness(**options: Any) -> AsyncIterator[Context]:
    """`async with harness() as root:` a root that is checked with `assert_clean` after it closed.

    Options are those of `Context`; pass `clock=VirtualClock()` to move time by hand.
    """
    before = asyncio.all_tasks()
    root = Context(**options)
    async with root:
        yield root
    assert_clean(root)
    left = [task.get_name() for task in asyncio.all_tasks() - before if not task.done()]
    assert not left, f"tasks survived the root: {left}"


def assert_clean(root: Context) -> None:
    """Fail if anything but the root itself is left: fibers, listeners, services, tasks, dependants."""
    runtime = root.runtime
    found: list[str] = [f"fiber {fiber!r}" for fiber in root.fiber.children()]
    found += [f"plugin {plugin!r}" for plugin in runtime.registry.plugins()]
    found += [
        f"listener of {channel.name} by {listener.ctx!r}"
        for channel in runtime.events.channels.values()
        for listener in channel.all
        if root.fiber.is_disposed or listener.ctx.fiber is not root.fiber
    ]
    found += [
        f"service {each.name} of {each.fiber!r}"
        for each in runtime.services.implementations.values()
        if root.fiber.is_disposed or each.fiber is not root.fiber
    ]
    found += [f"dependants of {name}" for name, _ in runtime.services.dependants]
    found += [f"task {owned.name}" for owned in runtime.tasks.values() if owned.kind != "host"]
    assert not found, "left behind: " + "; ".join(found)


def record(ctx: Context, event: type[E]) -> list[E]:
    """All events of a class from now on, whatever their scope; listens in front and lets everything pass."""
    heard: list[E] = []
    info = event.__event__
    waterfall = info is not None and info.mode.startswith("waterfall")

    def hear(payload: E, *rest: Any) -> Any:
        heard.append(payload)
        return rest[0]() if waterfall else None

    ctx.on(info.name if info is not None else "", hear, prepend=True, global_=True)
    return heard
