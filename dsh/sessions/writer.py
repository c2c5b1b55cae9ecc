"""The one thread that does a backend's writing, first come first served.

One queue gives every session's operations their order: a claim comes after the release before it, a batch after the
batch before it. The event loop never waits for a disk.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar

from dsh.sessions.errors import SessionPersistenceError

T = TypeVar("T")
_Job = tuple[Callable[[], Any], "asyncio.Future[Any]"]


class Writer:
    """Runs jobs one after another on its own thread, which starts with the first job.

    name: of the thread. Use from one event loop; `close` ends the thread.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._queue: SimpleQueue[_Job | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False

    def submit(self, job: Callable[[], T]) -> asyncio.Future[T]:
        """Queue `job`; the future gets its result or exception. A cancelled future does not stop its job.

        Raises SessionPersistenceError once the writer is closed.
        """
        if self._closed:
            raise SessionPersistenceError("session persistence is closed")
        if self._thread is None:
            self._loop = asyncio.get_running_loop()
            # A daemon, so that a process which never got to unload its plugins can still exit.
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()
        assert self._loop is not None
        future: asyncio.Future[T] = self._loop.create_future()
        self._queue.put((job, future))
        return future

    def submit_after(self, first: asyncio.Future[Any], job: Callable[[], T]) -> asyncio.Future[T]:
        """Queue `job` once `first` is done, whatever came of that."""
        result: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def finished(done: asyncio.Future[T]) -> None:
            error = done.exception()
            if error is not None:
                _fail(result, error)
            else:
                _succeed(result, done.result())

        def go_on(_: asyncio.Future[Any]) -> None:
            try:
                self.submit(job).add_done_callback(finished)
            except SessionPersistenceError as error:  # closed meanwhile: whoever waits must hear of it
                _fail(result, error)

        first.add_done_callback(go_on)
        return result

    def finally_run(self, job: Callable[[], None]) -> None:
        """Run a job that must not be lost: queued, or at once when the writer is closed already."""
        if self._closed:
            job()
        else:
            self.submit(job)

    async def close(self) -> None:
        """Let the queued jobs finish, then end the thread."""
        self._closed = True
        thread, self._thread = self._thread, None
        if thread is None or self._loop is None:
            return
        ended: asyncio.Future[None] = self._loop.create_future()
        self._closing = ended
        self._queue.put(None)
        await ended
        thread.join()

    def _run(self) -> None:
        loop = self._loop
        assert loop is not None
        while (entry := self._queue.get()) is not None:
            job, future = entry
            try:
                result = job()
            except BaseException as error:
                self._answer(loop, _fail, future, error)
            else:
                self._answer(loop, _succeed, future, result)
            # Nothing of a finished job may live on while the thread waits for the next one.
            del entry, job, future
            result = None
        self._answer(loop, _succeed, self._closing, None)

    @staticmethod
    def _answer(loop: asyncio.AbstractEventLoop, settle: Callable[..., None], *args: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is gone, and so is everybody who waits
            loop.call_soon_threadsafe(settle, *args)


def _succeed(future: asyncio.Future[Any], result: Any) -> None:
    if not future.done():
        future.set_result(result)


def _fail(future: asyncio.Future[Any], error: BaseException) -> None:
    if future.done():
        return
    if isinstance(error, StopIteration):  # a future refuses this one
        error = RuntimeError(repr(error))
    future.set_exception(error)
