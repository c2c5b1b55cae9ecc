"""The one way the spine starts a task (named, owned, awaited), and how it tells its end from a failure inside."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class TaskOwner:
    """Holds strong references to the tasks of one component and waits for them.

    Not a task group: a task that fails does not touch its siblings. Every task started here reports its own failures
    or has somebody who awaits it.
    """

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def start(self, coroutine: Coroutine[Any, Any, T], *, name: str) -> asyncio.Task[T]:
        """Run ``coroutine`` as a task that this owner keeps alive."""
        task = asyncio.get_running_loop().create_task(coroutine, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def join(self) -> None:
        """Wait until no task is left, the calling one excepted."""
        current = asyncio.current_task()
        while pending := [task for task in self._tasks if task is not current]:
            await asyncio.wait(pending)

    def __len__(self) -> int:
        return len(self._tasks)


def cancel_count() -> int:
    """How often the running task was asked to end."""
    task = asyncio.current_task()
    return task.cancelling() if task is not None else 0


def stops_host(error: BaseException, cancels_before: int = 0) -> bool:
    """Whether the running task is being ended, as against code in it that failed.

    Only a cancellation somebody asked this task for ends it, that is one beyond the ``cancels_before`` it had before.
    Whatever else is raised is the failure of who raised it, also ``SystemExit``, ``KeyboardInterrupt`` and
    ``GeneratorExit``: the process takes interrupts as signals, and nobody closes a running coroutine from outside.
    """
    return isinstance(error, asyncio.CancelledError) and cancel_count() > cancels_before
