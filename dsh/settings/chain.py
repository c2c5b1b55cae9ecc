"""One piece of work after another: the order in which a document is read, written and published."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

import anyio
from anyio.abc import TaskGroup

from dsh.cordis import Context

T = TypeVar("T")


class Chain:
    """Runs work one at a time in order; a failure goes to who asked and does not stop the next.

    Create it in the constructor of a service and await `drain` in its `stop`: the worker then outlives everything
    the service started later, and what is queued is finished before the service goes.
    """

    def __init__(self, ctx: Context, name: str) -> None:
        self.closing = False
        self._jobs: deque[Callable[[], Awaitable[None]]] = deque()
        self._wake = asyncio.Event()
        self._finished = asyncio.Event()
        self._side_tasks: TaskGroup | None = None
        ctx.spawn(self._work, name=name)

    async def _work(self) -> None:
        try:
            async with anyio.create_task_group() as group:
                self._side_tasks = group
                while True:
                    while self._jobs:
                        await self._jobs.popleft()()
                    if self.closing:
                        break
                    self._wake.clear()
                    await self._wake.wait()
        finally:
            self.closing = True
            self._finished.set()

    def run(self, work: Callable[[], Awaitable[T]]) -> Awaitable[T]:
        """Queue `work`; await the result to have it. Losing interest in the result does not stop the work.

        Work that must not begin any more once the service is leaving looks at `closing` itself.
        """
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        async def job() -> None:
            try:
                result = await work()
            except asyncio.CancelledError:
                future.cancel()
                raise
            except Exception as error:
                if not future.done():
                    future.set_exception(error)
                    future.exception()  # who asked may be gone; that is no reason for a warning
            else:
                if not future.done():
                    future.set_result(result)

        if self._finished.is_set():
            future.cancel()
            return future
        self._jobs.append(job)
        self._wake.set()
        return asyncio.shield(future)

    def start_beside(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run `work` beside the chain; `drain` waits for it. It must contain its own failures."""
        assert self._side_tasks is not None
        self._side_tasks.start_soon(work)

    async def drain(self) -> None:
        """Accept no new work from outside (`closing`), finish what is queued and what runs beside."""
        self.closing = True
        self._wake.set()
        await self._finished.wait()
