"""What a plugin raises to end the process is its own failure: the others stay."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dsh.cordis import Context, Emit, FiberState


class Said(Emit, name="test/said"):
    """Somebody said something."""


EXITS = pytest.mark.parametrize("exit", [SystemExit, KeyboardInterrupt], ids=["exit", "interrupt"])


@EXITS
@pytest.mark.parametrize("is_async", [False, True])
async def test_a_plugin_that_exits_while_it_starts_has_failed(exit: type[BaseException], is_async: bool) -> None:
    def plain(ctx: Context) -> None:
        raise exit

    async def awaited(ctx: Context) -> None:
        await asyncio.sleep(0)
        raise exit

    async with Context() as root:
        fiber = root.plugin(awaited if is_async else plain)
        other = root.plugin(lambda ctx: None)
        await root.settle()
        assert fiber.state is FiberState.FAILED and "which ends no process here" in str(fiber.error)
        assert other.state is FiberState.ACTIVE


@EXITS
async def test_a_task_an_undo_and_a_listener_that_exit_are_contained(exit: type[BaseException]) -> None:
    undone: list[str] = []

    def raising(*_: Any) -> None:
        raise exit

    async def later() -> None:
        await asyncio.sleep(0)
        raise exit

    def plugin(ctx: Context) -> None:
        ctx.defer(lambda: undone.append("first"))
        ctx.defer(raising)
        ctx.defer(later)
        ctx.on(Said, raising)
        ctx.spawn(later)

    async with Context() as root:
        fiber = root.plugin(plugin)
        await root.settle()
        for _ in range(5):
            await asyncio.sleep(0)
        assert fiber.faults == 1 and fiber.state is FiberState.ACTIVE
        root.emit(Said())
        await fiber.dispose()
        assert undone == ["first"]


async def test_a_task_cancelled_before_it_began_leaves_no_warning(recwarn: pytest.WarningsRecorder) -> None:
    async def body() -> None:
        raise AssertionError("never begun")

    def plugin(ctx: Context) -> None:
        ctx.spawn(body).cancel()

    async with Context() as root:
        root.plugin(plugin)
        await root.settle()
    assert not [warning for warning in recwarn if "never awaited" in str(warning.message)]
