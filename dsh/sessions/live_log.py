"""Write-behind of one live session: events gather for a moment, go to disk as one batch, and barriers wait for them.

The session itself is the buffer: what is not yet stored is its events from number `durable` on, so a failed batch
keeps its order by standing still, and an event costs one attribute test.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from dsh.cordis.errors import error_chain
from dsh.core.session import Session
from dsh.core.session_event import SessionEvent
from dsh.sessions.backend import Log
from dsh.sessions.errors import SessionFencedError

Write = Callable[[int, Sequence[SessionEvent]], "asyncio.Future[None]"]
"""Queue the storing of events from a number on; settles when they are durable."""


class LiveLog:
    """What of a session is on disk and what is still on its way.

    durable: events known to be stored. lazy: nothing is stored and nothing has happened yet, so the seed waits for
    the first event. window_ms: from the first waiting event to its write.
    """

    def __init__(
        self,
        session: Session,
        write: Write,
        *,
        durable: int,
        window_ms: Callable[[], int],
        logger: Log,
        on_lost: Callable[[SessionFencedError], None],
    ) -> None:
        self.session = session
        self.durable = durable
        self.lazy = durable == 0
        self.lost: SessionFencedError | None = None
        self._write = write
        self._window_ms = window_ms
        self._logger = logger
        self._on_lost = on_lost
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._soon: asyncio.Handle | None = None
        self._overdue = False
        self._writing_to = 0
        """Number behind the batch that is being written; 0 when none is."""
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._reported = ""

    def note(self) -> None:
        """An event was appended: write it within the window."""
        if self._timer is None and self.lost is None:
            self.lazy = False
            self._timer = self._loop.call_later(self._window_ms() / 1000, self._expire)

    def begin(self) -> None:
        """Write what is there in the next turn of the loop, seed or not."""
        self.lazy = False
        if self._soon is None:
            self._soon = self._loop.call_soon(self._start)

    @property
    def clean(self) -> bool:
        """Everything that has happened is durable."""
        return self.lazy or (self.durable >= self.session.seq and self.lost is None)

    def barrier(self) -> asyncio.Future[None] | None:
        """None if everything so far is durable; else a future that is done when it is, or fails with the reason.

        Barriers of the same moment share one write. Cancelling the future does not stop the write.
        """
        if self.clean:
            return None
        future: asyncio.Future[None] = self._loop.create_future()
        if self.lost is not None:
            future.set_exception(self.lost)
            return future
        target = self.session.seq
        self._waiting.append((target, future))
        if not self._writing_to and self._soon is None:
            # One turn of the loop later, so that whoever else runs in this one rides along.
            self._soon = self._loop.call_soon(self._start)
        return future

    def stop(self) -> None:
        """Write nothing more on its own."""
        self._disarm()

    def lose(self, error: SessionFencedError) -> None:
        """The right to write is gone: nothing more is written, every barrier fails."""
        if self.lost is not None:
            return
        self.lost = error
        self._disarm()
        self._settle(self.session.seq + 1, error)
        self._on_lost(error)

    def _expire(self) -> None:
        self._timer = None
        if self._writing_to:
            self._overdue = True
        else:
            self._start()

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._soon is not None:
            self._soon.cancel()
            self._soon = None
        self._overdue = False

    def _start(self) -> None:
        self._disarm()
        events = self.session.events
        if self._writing_to or len(events) <= self.durable:
            return
        self._writing_to = len(events)
        try:
            writing = self._write(self.durable, events[self.durable :])
        except Exception as error:
            writing = self._loop.create_future()
            writing.set_exception(error)
        writing.add_done_callback(self._written)

    def _written(self, writing: asyncio.Future[None]) -> None:
        reached, self._writing_to = self._writing_to, 0
        error = asyncio.CancelledError() if writing.cancelled() else writing.exception()
        if isinstance(error, SessionFencedError):
            self.lose(error)
            return
        if error is None:
            self.durable = reached
            self._reported = ""
        elif not self._settle(reached, error):
            # Nobody waits for it, so only the log can tell; the events stay and go with the next write.
            text = error_chain(error)
            if text != self._reported:
                self._reported = text
                self._logger.error('session "%s": its log could not be written: %s', self.session.id, text)
        self._settle(self.durable, None)
        if self._waiting or self._overdue:
            self._start()

    def _settle(self, reached: int, error: BaseException | None) -> bool:
        """Answer the barriers that wait for nothing beyond `reached`; whether there was one."""
        waiting = self._waiting
        self._waiting = [entry for entry in waiting if entry[0] > reached]
        answered = False
        for target, future in waiting:
            if target <= reached and not future.done():
                answered = True
                if error is None:
                    future.set_result(None)
                else:
                    future.set_exception(error)
        return answered
