"""What a plugin may leave behind: everything that is there at one moment, to be compared with a later one."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

from dsh.cordis import Context
from dsh.cordis.inspection import walk

PATIENCE = 2.0
"""Seconds that something may take to go after its owner has gone, such as a socket that closes on the loop's next turn
or a child process that has been told to end."""

BORROWED_THREADS = ("AnyIO worker", "asyncio_")
"""Worker threads that the loop lends to whoever has blocking work; they come and go with the load."""

RUNNER_TASKS = ("TestRunner.",)
"""Coroutines by which anyio's pytest plugin steps through tests and fixtures."""

_PROC_FILES = "/proc/self/fd"
_DEV_FILES = "/dev/fd"


class Footprint:
    """All that stands at one moment, each thing by an identity and with words that name it.

    Of the process, unless told otherwise: tasks of the running loop, threads, open files, child processes. Of the
    runtime that `ctx` belongs to, if one is given: plugins, listeners, services, effects, owned tasks.
    """

    def __init__(self, ctx: Context | None = None, *, process: bool = True) -> None:
        self._ctx = ctx
        self._process = process
        self._things = self._look()

    def news(self) -> list[str]:
        """What is there now that was not there then, in words; the task that asks does not count."""
        known = {*self._things, asyncio.current_task()}
        return [words for identity, words in self._look().items() if identity not in known]

    def _look(self) -> dict[Any, str]:
        things = dict(_process()) if self._process else {}
        if self._ctx is not None:
            things.update(_runtime(self._ctx))
        return things


async def assert_nothing_left(since: Footprint) -> None:
    """Fail if something is there that was not there at `since`: the message names each thing.

    Waits up to `PATIENCE` seconds for what is on its way out.
    """
    deadline = time.monotonic() + PATIENCE
    turns = 0
    while (left := since.news()) and time.monotonic() < deadline:
        if turns < 20:
            await asyncio.sleep(0)
        else:  # not asyncio.sleep: a fake clock may stand still
            await asyncio.to_thread(time.sleep, 0.01)
        turns += 1
    assert not left, "left behind: " + "; ".join(left)


@asynccontextmanager
async def nothing_left(ctx: Context | None = None) -> AsyncIterator[None]:
    """``async with nothing_left():`` what the block started is gone when it ends. See `assert_nothing_left`."""
    before = Footprint(ctx)
    yield
    await assert_nothing_left(before)


# -- the process ------------------------------------------------------------------------------------------------------


def _process() -> Iterator[tuple[Any, str]]:
    for task in asyncio.all_tasks():
        if not task.done() and not getattr(task.get_coro(), "__qualname__", "").startswith(RUNNER_TASKS):
            yield task, f"task {task.get_name()}"
    for thread in threading.enumerate():
        if not thread.name.startswith(BORROWED_THREADS):
            yield thread, f"thread {thread.name}"
    yield from _files()
    for pid in _children():
        yield ("process", pid), f"child process {pid}"


def _files() -> Iterator[tuple[Any, str]]:
    """Open files by number and, where the system tells, by what they are."""
    folder = _PROC_FILES if os.path.isdir(_PROC_FILES) else _DEV_FILES
    try:
        numbers = os.listdir(folder)
    except OSError:
        return
    for number in numbers:
        try:
            target = os.readlink(f"{_PROC_FILES}/{number}") if folder == _PROC_FILES else ""
        except OSError:
            continue  # the folder itself, which was open while it was listed
        yield ("file", number, target), f"open file {number} {target}".rstrip()


def _children() -> list[str]:
    try:
        found = []
        for thread in os.listdir("/proc/self/task"):
            with open(f"/proc/self/task/{thread}/children", encoding="ascii") as file:
                found += file.read().split()
        return found
    except OSError:
        return []


# -- the runtime ------------------------------------------------------------------------------------------------------


def _runtime(ctx: Context) -> Iterator[tuple[Any, str]]:
    runtime = ctx.runtime
    for fiber in walk(ctx.root.fiber):
        yield fiber, f"plugin {fiber.display_name}"
        for item in _items(fiber.stack.items):
            yield item, f"effect {item.label} of {fiber.display_name}"
    for channel in runtime.events.channels.values():
        for listener in channel.all:
            yield listener, f"listener of {channel.name} by {listener.ctx!r}"
    for implementation in runtime.services.implementations.values():
        yield implementation, f"service {implementation.name} of {implementation.fiber.display_name}"
    for (name, _), fibers in runtime.services.dependants.items():
        for fiber in fibers:
            yield ("waits", fiber, name), f"{fiber.display_name} waiting for {name}"
    for owned in runtime.tasks.values():
        if owned.kind != "host" and not owned.task.done():
            yield owned, f"task {owned.name}"


def _items(items: Any) -> Iterator[Any]:
    """The effects of a stack and of the groups in it; child plugins are told apart."""
    for item in items:
        if getattr(item, "spec", None) is None:
            yield item
        inner = getattr(item, "inner", None)
        if inner is not None:
            yield from _items(inner.items)
