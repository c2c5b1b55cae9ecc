"""The cancellation token of the whole product: cooperative, keeps its first reason, crosses tasks."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any

from .errors import FAILURES, AbortError

__all__ = ["AbortController", "AbortError", "AbortSignal"]

Undo = Callable[[], None]


def _nothing() -> None:
    return None


class AbortSignal:
    """Says whether work should stop. Made by an `AbortController`, by `any` or by `after`.

    Not thread-safe: all calls belong to the event loop's thread.
    """

    __slots__ = ("__weakref__", "_aborted", "_aborted_at", "_listeners", "_reason")

    def __init__(self) -> None:
        self._aborted = False
        self._aborted_at = 0
        self._reason: Any = None
        # Keyed by a private object each, so that one function may listen twice.
        self._listeners: dict[object, Callable[[], None]] = {}

    @property
    def aborted(self) -> bool:
        """Whether the signal has fired. Once true it stays true."""
        return self._aborted

    @property
    def reason(self) -> Any:
        """What the first abort gave, `None` before."""
        return self._reason

    def raise_if_aborted(self) -> None:
        """Raise `AbortError` (with `reason`) if the signal has fired."""
        if self.aborted:
            reason = self.reason
            raise AbortError(reason=reason) from (reason if isinstance(reason, BaseException) else None)

    def on_abort(self, fn: Callable[[], None]) -> Undo:
        """Call `fn` once when the signal fires, at once if it already has. Returns the undo.

        An exception of `fn` is logged and does not keep other listeners from running.
        """
        if self.aborted:
            _call(fn)
            return _nothing
        key = object()
        first = not self._listeners
        self._listeners[key] = fn
        if first:
            self._arm()

        def undo() -> None:
            if self._listeners.pop(key, None) is not None and not self._listeners and not self._aborted:
                self._disarm()

        return undo

    async def wait(self) -> Any:
        """Return the reason once the signal has fired."""
        if not self.aborted:
            fired: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            undo = self.on_abort(lambda: None if fired.done() else fired.set_result(None))
            try:
                await fired
            finally:
                undo()
        return self.reason

    @staticmethod
    def any(*signals: AbortSignal | None) -> AbortSignal:
        """A signal that fires with the first of `signals`, with its reason; `None` entries are left out.

        It listens to its sources only while somebody listens to it, so it may be dropped without cleaning up.
        """
        sources = tuple(signal for signal in signals if signal is not None)
        return sources[0] if len(sources) == 1 else _AnySignal(sources)

    @staticmethod
    def after(seconds: float, reason: Any = None) -> AbortSignal:
        """A signal that fires `seconds` from now; the reason defaults to a `TimeoutError`. Needs a running loop."""
        return _TimeoutSignal(seconds, TimeoutError(f"timed out after {seconds:g} s") if reason is None else reason)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {f'aborted: {self.reason!r}' if self.aborted else 'open'}>"

    def _fire(self, reason: Any, at: int | None = None) -> None:
        if self._aborted:
            return
        self._aborted = True
        self._aborted_at = time.monotonic_ns() if at is None else at
        self._reason = reason
        self._disarm()
        listeners, self._listeners = self._listeners, {}
        for fn in listeners.values():
            _call(fn)

    def _arm(self) -> None:
        """The first listener arrived: derived signals start to watch what they depend on."""

    def _disarm(self) -> None:
        """The last listener left, or the signal fired."""


class _DerivedSignal(AbortSignal):
    """A signal that sees whether it has fired when it is asked."""

    __slots__ = ()

    @property
    def aborted(self) -> bool:
        if not self._aborted:
            self._look()
        return self._aborted

    @property
    def reason(self) -> Any:
        if not self._aborted:
            self._look()
        return self._reason

    def _look(self) -> None:
        """Fire if what it depends on says so."""


class _AnySignal(_DerivedSignal):
    __slots__ = ("_sources", "_undos")

    def __init__(self, sources: tuple[AbortSignal, ...]) -> None:
        super().__init__()
        self._sources = sources
        self._undos: list[Undo] = []

    def _look(self) -> None:
        fired = [source for source in self._sources if source.aborted]
        if fired:
            first = min(fired, key=lambda source: source._aborted_at)
            self._fire(first.reason, first._aborted_at)

    def _arm(self) -> None:
        self._undos = [source.on_abort(self._look) for source in self._sources]

    def _disarm(self) -> None:
        undos, self._undos = self._undos, []
        for undo in undos:
            undo()


class _TimeoutSignal(_DerivedSignal):
    __slots__ = ("_deadline", "_late_reason", "_loop", "_timer")

    def __init__(self, seconds: float, reason: Any) -> None:
        super().__init__()
        self._loop = asyncio.get_running_loop()
        self._deadline = self._loop.time() + seconds
        self._late_reason = reason
        self._timer: asyncio.TimerHandle | None = None

    def _look(self) -> None:
        if self._loop.time() >= self._deadline:
            self._fire(self._late_reason)

    def _arm(self) -> None:
        self._timer = self._loop.call_at(self._deadline, self._fire, self._late_reason)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class AbortController:
    """The side that aborts: owns one `signal`."""

    __slots__ = ("signal",)

    def __init__(self) -> None:
        self.signal = AbortSignal()

    def abort(self, reason: Any = None) -> None:
        """Fire the signal. Only the first call counts."""
        self.signal._fire(reason)


def _call(fn: Callable[[], None]) -> None:
    try:
        fn()
    except FAILURES:
        logging.getLogger("dsh.abort").exception("an abort listener raised")
