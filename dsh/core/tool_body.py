"""A tool's body in a task of its own: whatever it does, it ends before its call does."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from dsh.cordis import AbortError

from . import texts
from .tasks import cancel_count, stops_host

if TYPE_CHECKING:
    from .tool_definition import ToolDefinition
    from .tool_run import ToolRun

STOP_SECONDS: Final = 10.0
"""How long a body may go on after its call was aborted, before its task is cancelled, and again."""


async def run_body(definition: ToolDefinition, run: ToolRun) -> tuple[Any, BaseException | None]:
    """Run the body in a task of its own and wait for it, whatever happens: its value, or what it raised.

    A cancellation of the waiting task reaches the body; it is raised here after the body has ended. A body that goes on
    although its call is aborted has its task cancelled: at once if it could not hear of the abort.
    """
    host = asyncio.current_task()
    before = cancel_count()
    loop = asyncio.get_running_loop()
    signal = run.signal
    task = loop.create_task(_contained(definition, run), name=f"tool {run.name} {run.call_id}")
    timer: asyncio.TimerHandle | None = None

    def stop() -> None:
        nonlocal timer
        task.cancel()
        timer = loop.call_later(STOP_SECONDS, stop)

    def on_abort() -> None:
        nonlocal timer
        timer = loop.call_later(STOP_SECONDS if definition.hears_abort else 0, stop)

    undo = signal.on_abort(on_abort)
    try:
        outcome = await task
    except asyncio.CancelledError as error:
        if stops_host(error, before):
            raise
        return None, AbortError(texts.ABORTED, signal.reason) if signal.aborted else error
    finally:
        undo()
        if timer is not None:
            timer.cancel()
    if host is not None and host.cancelling() > before:
        raise asyncio.CancelledError
    return outcome


async def _contained(definition: ToolDefinition, run: ToolRun) -> tuple[Any, BaseException | None]:
    # Caught inside the task: asyncio carries SystemExit and KeyboardInterrupt past every awaiting task, straight out of
    # the loop.
    try:
        value = definition.execute(run.arguments, run)
        if hasattr(value, "__await__"):
            value = await value
    except BaseException as error:
        if stops_host(error):
            raise
        return None, error
    return value, None
