"""From the raw config of a fiber to the one its plugin gets, and how a change of it is applied."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from .dispatch import run_waterfall
from .errors import CordisError
from .framework_events import ConfigResolve, ConfigUpdate
from .jsonio import json_equal
from .schema import ConfigModel, validate_config
from .tasks import StartedWork
from .waiting import Latch

if TYPE_CHECKING:
    from .fiber import Fiber


def effective_config(fiber: Fiber, raw: Any) -> Any:
    """Evaluate and validate. Raises `ConfigError`, or what a listener of `internal/config` raised."""
    spec = fiber.spec
    assert spec is not None
    resolved = fiber.runtime.root.waterfall_sync(ConfigResolve(fiber, raw), lambda: raw)
    declared = spec.Config
    if declared is None or (isinstance(declared, type) and isinstance(resolved, declared)):
        return resolved
    config = validate_config(declared, {} if resolved is None else resolved, where=fiber.describe())
    if isinstance(config, ConfigModel) and fiber.entry_id is None:  # for rows the loader says it, with file and line
        for path, message in config.warnings:
            fiber.ctx.logger.warning("config %s: %s", path, message)
    return config


def update_fiber(fiber: Fiber, raw: Any, no_save: bool) -> Awaitable[None]:
    """See `Fiber.update`."""
    runtime = fiber.runtime
    before, turn = fiber.update_turn, Latch()
    fiber.update_turn = turn
    waiting = 0

    async def run() -> None:
        try:
            if before is not None:
                await before
            await _apply(fiber, raw, no_save)
        finally:
            turn.set()
            if fiber.update_turn is turn:
                fiber.update_turn = None

    runtime.begin()
    owned = runtime.start(run(), None, "host", f"update of {fiber.label}", runtime.variables.copy())

    def finished(_: object) -> None:
        error = owned.failure()
        if error is not None and not waiting:
            runtime.report(fiber, error, "config update failed")
        runtime.end()

    owned.task.add_done_callback(finished)

    async def outcome() -> None:
        nonlocal waiting
        waiting += 1
        try:
            await owned.done
        finally:
            waiting -= 1
        if (error := owned.failure()) is not None:
            raise error

    return StartedWork(fiber.stack, "update", outcome)


async def _apply(fiber: Fiber, raw: Any, no_save: bool) -> None:
    if fiber.is_retired:
        raise CordisError("INACTIVE_EFFECT", f"{fiber.describe()} is disposed, its config cannot be updated")
    if not fiber.is_active:
        fiber.raw_config = raw
        fiber.retry()
        await fiber.until_settled()
        return
    new = effective_config(fiber, raw)
    if json_equal(fiber.config, new):
        fiber.raw_config = raw
        return
    reached = False

    async def apply() -> None:
        nonlocal reached
        reached = True
        old = fiber.config
        swaps = isinstance(old, ConfigModel) and type(old) is type(new) and old.can_swap(new)
        taken = await _ask_plugin(fiber, new, old)
        fiber.raw_config = raw
        if taken or swaps:
            _adopt(fiber, new)
        else:
            await fiber.restart()

    channel = fiber.runtime.events.channel("internal/update")
    listeners = tuple(each for each in channel.all if each.global_ or each.ctx.fiber is fiber)
    await run_waterfall(channel, listeners, ConfigUpdate(fiber, new, no_save), apply)
    if not reached:
        fiber.raw_config = raw
        _adopt(fiber, new)


def _adopt(fiber: Fiber, new: Any) -> None:
    """Make `new` the config without a restart; a typed config stays the same object."""
    if isinstance(fiber.config, ConfigModel) and type(fiber.config) is type(new):
        fiber.config.swap(new)
    else:
        fiber.config = new


async def _ask_plugin(fiber: Fiber, new: Any, old: Any) -> bool:
    """Let the plugin's `on_update(new, old, changed)` take the update over."""
    assert fiber.spec is not None
    hook: Callable[..., Any] | None = getattr(fiber.instance, "on_update", None) or fiber.spec.on_update
    if hook is None:
        return False
    changed = changed_keys(old, new)
    takes_ctx = next(iter(inspect.signature(hook).parameters), None) == "ctx"
    result = hook(fiber.ctx, new, old, changed) if takes_ctx else hook(new, old, changed)
    return bool(await result if inspect.isawaitable(result) else result)


def changed_keys(old: Any, new: Any) -> frozenset[str]:
    """Names of the fields (or top-level keys) that differ."""
    if isinstance(old, ConfigModel) and isinstance(new, ConfigModel):
        return old.changed(new)
    if isinstance(old, dict) and isinstance(new, dict):
        missing = object()
        keys = old.keys() | new.keys()
        return frozenset(key for key in keys if not json_equal(old.get(key, missing), new.get(key, missing)))
    return frozenset()
