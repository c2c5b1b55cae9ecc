"""What the settings and credentials tests share: sections, a consumer, waiting."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio

from dsh.cordis import ConfigModel, Context, field
from dsh.core.seams import Settings, SettingsScope
from dsh.settings.base import SettingsDocumentUpdated, SettingsUpdated

LIMIT = 10.0


class Loop(ConfigModel):
    max_parallel_tool_calls: int = field(10, min=1, live=True)


class Route(ConfigModel):
    provider: str = "deepseek-official"
    model: str = "deepseek-flash"
    reasoning_effort: str | None = None
    stop: list[str] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)


async def until(condition: Callable[[], Any], limit: float = LIMIT) -> None:
    """Wait for something that happens by itself; the limit only guards against a hang."""
    with anyio.fail_after(limit):
        while not condition():
            await anyio.sleep(0.005)


class Consumer:
    """A plugin that registers sections, and what it noticed."""

    def __init__(self) -> None:
        self.scopes: dict[str, SettingsScope[Any]] = {}
        self.events: list[tuple[str, ...]] = []

    def register(
        self, ctx: Context, ns: str, schema: type[ConfigModel] = Loop, base: Any = None, **options: Any
    ) -> SettingsScope[Any]:
        """Mount a plugin that registers one section."""

        def apply(child: Context) -> None:
            self.scopes[ns] = child[Settings].register(ns, schema, base, **options)  # type: ignore[call-arg, arg-type]

        self.fibers = getattr(self, "fibers", {})
        self.fibers[ns] = ctx.inject([Settings], apply)
        return self.scopes.get(ns)  # type: ignore[return-value]

    def listen(self, ctx: Context) -> None:
        """Note the events of the service."""
        ctx.on(SettingsUpdated, lambda e: self.events.append(("updated", e.ns, e.source)))
        ctx.on(SettingsDocumentUpdated, lambda e: self.events.append(("document", e.ns, str(e.revision))))


@asynccontextmanager
async def settings_of(plugin: Any, config: Any = None) -> AsyncIterator[tuple[Context, Settings, Consumer]]:
    """A root with one settings provider, and a consumer to register with."""
    async with Context() as root:
        await root.plugin(plugin, config)
        consumer = Consumer()
        consumer.listen(root)
        yield root, root[Settings], consumer
