"""The one way the spine starts a task: named, owned, awaited."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextvars import Context as VarContext
from typing import Any, TypeVar

T = TypeVar("T")


class TaskOwner:
    """Holds strong references to the tasks of one component and waits for them.

    Not a task group: a task that fails does not touch its siblings. Every task started here reports its own failures
    or has somebody who awaits it.
    """

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def start(
        self, coroutine: Coroutine[Any, Any, T], *, name: str, context: VarContext | None = None
    ) -> asyncio.Task[T]:
        """Run ``coroutine`` as a task that this owner keeps alive."""
        task = asyncio.get_running_loop().create_task(coroutine, name=name, context=context)
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
