"""Small plugins and services the runtime tests share."""

import asyncio
from typing import Any

from dsh.cordis import Context, FiberState, Service, StatusChanged


class Tools(Service, name="tools"):
    """A service with no behaviour."""


class Shell(Service, name="shell"):
    """Another."""


def provider(name: str, value: Any = None, log: list[str] | None = None):
    """A plugin that provides `name` and notes its undo."""

    def body(ctx: Context) -> None:
        if log is not None:
            ctx.defer(lambda: log.append(f"{name} undone"))
        ctx.provide(name, value if value is not None else object())

    body.name = f"provider-{name}"
    return body


def states(root: Context, fiber) -> list[FiberState]:
    """The states a fiber goes through from now on."""
    seen: list[FiberState] = []
    root.on(StatusChanged, lambda e: seen.append(e.fiber.state) if e.fiber is fiber else None)
    return seen


def errors(root: Context) -> list[str]:
    """Messages logged as errors so far."""
    return [record.getMessage() for record in root.runtime.logs.records if record.levelname == "ERROR"]


async def turns(count: int = 5) -> None:
    """Let the loop turn a few times."""
    for _ in range(count):
        await asyncio.sleep(0)


async def disposed(fiber) -> None:
    """Wait until somebody disposed a fiber and it is gone."""
    while fiber.state is not FiberState.DISPOSED:
        await asyncio.sleep(0)
