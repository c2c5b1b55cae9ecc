"""An event loop that can act between any two steps of what runs in it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from contextvars import Context, copy_context
from typing import Any

LONG = "FIRE_COUNT" in os.environ
"""Whether this is the long form of a trial; `scripts/soak` says so."""

SEED = int(os.environ.get("FIRE_SEED", "1"))
"""Where random choices start; printed with each failure."""


FAR = 10_000
"""More moments than anything has."""


def count(short: int) -> int:
    """How many times to try: `short` in the default suite, what `scripts/soak` asks for in the long form."""
    return int(os.environ.get("FIRE_COUNT", short))


class SteppingLoop(asyncio.SelectorEventLoop):
    """Counts callbacks (each resumption of a task is one) and runs actions before chosen ones of them."""

    def __init__(self) -> None:
        super().__init__()
        self.steps = 0
        self._acts: dict[int, Callable[[], Any]] = {}
        self._context: Context | None = None
        self._counting = False

    def arm(self, acts: Mapping[int, Callable[[], Any]]) -> None:
        """Count from now on and call each of `acts` just before the callback of its number, in the caller's context."""
        self.steps, self._acts = 0, dict(acts)
        self._context = copy_context()
        self._counting = True

    def disarm(self) -> bool:
        """Stop counting; whether all actions have run."""
        acted, self._acts, self._counting = not self._acts, {}, False
        return acted

    def call_soon(self, callback: Any, *args: Any, context: Context | None = None) -> asyncio.Handle:
        if not self._counting:
            return super().call_soon(callback, *args, context=context)
        return super().call_soon(self._step, callback, args, context=context)

    def call_soon_threadsafe(self, callback: Any, *args: Any, context: Context | None = None) -> asyncio.Handle:
        if not self._counting:
            return super().call_soon_threadsafe(callback, *args, context=context)
        return super().call_soon_threadsafe(self._step, callback, args, context=context)

    def _step(self, callback: Callable[..., Any], args: tuple[Any, ...]) -> None:
        if self._counting:
            self.steps += 1
            act = self._acts.pop(self.steps, None)
            if act is not None:
                assert self._context is not None
                self._context.run(act)
        callback(*args)


async def at_every_moment(
    trial: Callable[[int], Awaitable[bool]], *, step: int = 1, first: int = 1, at_least: int
) -> None:
    """Await `trial` for moments first, first + step, …, until it says that its act came too late.

    at_least: the act must have come in time for that many moments.
    """
    for k in range(first, FAR, step):
        try:
            acted = await trial(k)
        except BaseException as error:
            error.add_note(f"at moment {k}")
            raise
        if not acted:
            assert k > at_least, f"hardly anything happened: {k} moments"
            return
    raise AssertionError("there is no end")


def run_stepping(main: Callable[[SteppingLoop], Any]) -> Any:
    """Run the coroutine function `main` in a loop of its own, which it is given."""
    with asyncio.Runner(loop_factory=SteppingLoop) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, SteppingLoop)
        return runner.run(main(loop))
