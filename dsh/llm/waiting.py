"""Waiting for something that may never come, with an abort signal as the way out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from dsh.cordis import AbortSignal

T = TypeVar("T")


async def until_abort(work: Coroutine[Any, Any, T], signal: AbortSignal | None) -> T:
    """The result of `work`, or ``AbortError`` as soon as `signal` is aborted.

    Aborted work is cancelled and awaited, so that nothing of it goes on behind the caller's back.
    """
    if signal is None:
        return await work
    if signal.aborted:
        work.close()
        signal.raise_if_aborted()
    task = asyncio.get_running_loop().create_task(work)

    def stop() -> None:
        task.cancel()

    undo = signal.on_abort(stop)
    try:
        return await task
    except asyncio.CancelledError:
        if not task.done():
            task.cancel()
            await asyncio.wait({task})
            raise
        current = asyncio.current_task()
        if current is not None and current.cancelling():
            raise
        signal.raise_if_aborted()
        raise
    finally:
        undo()


@asynccontextmanager
async def reading(stream: AsyncIterator[T], signal: AbortSignal, grace: float) -> AsyncIterator[AsyncIterator[T]]:
    """Close `stream` at the end, and cut it off if it outlives an abort by `grace` seconds.

    The timer exists only from the abort on. Raises ``TimeoutError`` when the stream had to be cut off.
    """
    clock = asyncio.get_running_loop()
    async with asyncio.timeout(None) as limit:
        undo = signal.on_abort(lambda: limit.reschedule(clock.time() + grace))
        try:
            yield stream
        finally:
            try:
                if (close := getattr(stream, "aclose", None)) is not None:
                    await close()
            finally:
                undo()
