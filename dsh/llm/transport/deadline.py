"""The clocks of one stream: how long a read may wait for bytes, and how long for an event.

Both run only while a read is outstanding; a slow consumer costs nothing. A read merely notes the time; one timer per
stream looks at the notes and arms itself again. When a clock runs out or the caller aborts, the pending read is
cancelled where it stands, without a task of its own; the first cause wins.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TYPE_CHECKING, TypeVar

from dsh.cordis.errors import AbortError
from dsh.llm.failure import LlmError

if TYPE_CHECKING:
    from dsh.cordis import AbortSignal

T = TypeVar("T")


class StreamDeadline:
    """Guards the awaits of one stream.

    `idle_ms` bounds the silence within one read; `progress_ms` the waiting time between two calls of `event`, however
    many comments or fragments arrive meanwhile. `where` names the peer in messages. Use as a context manager.
    """

    __slots__ = (
        "_active_at",
        "_cause",
        "_fired",
        "_idle",
        "_loop",
        "_progress",
        "_signal",
        "_since",
        "_task",
        "_timer",
        "_undo",
        "_waited",
        "_where",
    )

    def __init__(self, where: str, idle_ms: float, progress_ms: float, signal: AbortSignal | None) -> None:
        self._where = where
        self._idle = idle_ms / 1000
        self._progress = progress_ms / 1000
        self._signal = signal
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[object] | None = None  # whose await is guarded at this moment
        self._fired = False  # the pending await was cancelled by us
        self._cause: Exception | None = None
        self._since = 0.0  # start of the pending read
        self._active_at = 0.0  # last sign of life within it
        self._waited = 0.0  # waiting time of finished reads since the last event
        self._timer: asyncio.TimerHandle | None = None
        self._undo = None if signal is None else signal.on_abort(self._on_abort)

    def __enter__(self) -> StreamDeadline:
        return self

    def __exit__(self, *_: object) -> None:
        if self._undo is not None:
            self._undo()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def wait(self, work: Awaitable[T]) -> T:
        """The result of `work`. Raises ``AbortError`` when the signal fires and `LlmError` ``TIMEOUT`` when a clock
        runs out; `work` has ended by then.
        """
        if self._cause is not None:
            _discard(work)
            raise self._cause
        task = asyncio.current_task(self._loop)
        assert task is not None
        outer = task.cancelling()
        now = self._loop.time()
        self._since = self._active_at = now
        self._task = task
        if self._timer is None:
            self._timer = self._loop.call_at(self._due(), self._look)
        try:
            result = await work
        except BaseException:
            if self._fired and task.uncancel() <= outer and self._cause is not None:
                raise self._cause from None
            raise
        finally:
            self._task = None
            self._waited += self._loop.time() - self._since
        if self._fired and self._cause is not None:
            task.uncancel()
            raise self._cause
        return result

    def alive(self) -> None:
        """The peer showed life within the pending await: the silence starts anew."""
        self._active_at = self._loop.time()

    def event(self) -> None:
        """An event that brings something arrived: the progress clock starts anew."""
        self._waited = 0.0

    def _due(self) -> float:
        return min(self._active_at + self._idle, self._since + self._progress - self._waited)

    def _look(self) -> None:
        self._timer = None
        now = self._loop.time()
        if self._task is None:
            # The consumer is thinking; the next read is at least this far from its limit.
            self._timer = self._loop.call_at(now + min(self._idle, self._progress - self._waited), self._look)
            return
        due = self._due()
        if now < due:
            self._timer = self._loop.call_at(due, self._look)
            return
        silent = now >= self._active_at + self._idle
        limit, what = (self._idle, "nothing") if silent else (self._progress, "no event")
        self._end(LlmError.of("TIMEOUT", f"{self._where} sent {what} for {limit * 1000:g} ms"))

    def _on_abort(self) -> None:
        reason = self._signal.reason if self._signal is not None else None
        self._end(AbortError(reason=reason))

    def _end(self, cause: Exception) -> None:
        if self._cause is not None:
            return
        self._cause = cause
        if self._task is not None:
            self._fired = True
            self._task.cancel()


def _discard(work: Awaitable[object]) -> None:
    close = getattr(work, "close", None)
    if close is not None:
        close()
