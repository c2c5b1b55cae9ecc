"""One prompt and what it causes: its events as they happen, and what came of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from dsh.cordis import HarnessError
from dsh.cordis.records import record
from dsh.interfaces.outcome import outcome_from
from dsh.interfaces.prompt_trace import PromptTrace

from .events import Event

if TYPE_CHECKING:
    from .session import Session

_SENTENCES: Mapping[str, str] = {
    "discarded": "the prompt was taken out of the queue unread",
    "parked": "the agent stopped working with the prompt still in its queue",
    "disposed": "the agent was disposed",
    "unended": "the agent stopped working without ending the turn",
}


class RunFailedError(HarnessError):
    """A run that did not complete, raised by ``Result.check``. ``result`` is what came of it."""

    def __init__(self, message: str, code: str, result: Result) -> None:
        super().__init__(message, code=code)
        self.result = result


@record
class Result:
    """What came of one prompt.

    ``status``: the kind of its turn's end (see ``TurnEnd``); ``discarded`` when it was taken out of the queue unread,
    ``parked`` when the agent stopped with it in the queue (the next prompt starts with it), ``disposed`` when the agent
    was. ``output``: the last non-empty text of the assistant; ``usage``: the turn's token counts by name; ``turns``: 1,
    or 0 when no turn ended; ``error``: ``{message, code, …}`` of a failure.
    """

    session_id: str
    message_id: str
    status: str
    output: str
    usage: Mapping[str, int]
    turns: int
    error: Mapping[str, Any] | None

    @property
    def ok(self) -> bool:
        """Whether the turn completed."""
        return self.status == "completed"

    def check(self) -> Self:
        """This result if the turn completed. Raises ``RunFailedError`` otherwise."""
        if self.ok:
            return self
        message = _SENTENCES.get(self.status, f"the turn ended as {self.status}")
        code = "RUN_" + self.status.upper().replace("-", "_")
        if self.error is not None:
            code = self.error["code"]
            message = self.error["message"] if self.status == "error" else f"{message}: {self.error['message']}"
        raise RunFailedError(message, code, self)


class Run:
    """A prompt on its way: an async iterator of its events, and ``await run.result()``.

    The events are those of the one turn that takes the prompt, from its entry in the queue to the turn's end,
    whatever other prompts wait before or after it; a steering prompt's begin where it joins the turn. Each iteration
    starts at the first event, so a late one misses nothing. As a context manager it cancels on the way out what has
    not ended::

        async with asyncio.timeout(60), session.prompt("Fix the build") as run:
            print((await run.result()).output)
    """

    def __init__(self, session: Session, message_id: str) -> None:
        self.session = session
        self._trace = PromptTrace(message_id)
        self._events: list[Event] = []
        self._opening: list[Event] | None = None
        """A turn's start and claims, until it is known whose turn it is."""
        self._failure: Exception | None = None
        self._waiting: list[asyncio.Future[None]] = []

    def __repr__(self) -> str:
        return f"<Run {self.message_id} in {self.session.id}: {self.status}>"

    @property
    def message_id(self) -> str:
        """Id of the prompt's message in the log."""
        return self._trace.message_id

    @property
    def done(self) -> bool:
        """Whether it is known what came of the prompt."""
        return self._failure is not None or self._trace.state == "over"

    @property
    def status(self) -> str:
        """``queued``, ``running``, or a ``Result.status`` once done."""
        if self._trace.status is not None:
            return self._trace.status
        return "running" if self._trace.state == "taken" else "queued"

    def __aiter__(self) -> AsyncIterator[Event]:
        return _Reader(self)

    async def result(self) -> Result:
        """Wait for the end; what came of it, on disk when this returns.

        Cancelling the wait does not cancel the turn. Raises ``HarnessError`` when the prompt could not be given.
        """
        while not self.done:
            await self._news()
        if self._failure is not None:
            raise self._failure
        await self.session._flush()
        outcome = outcome_from(self.session.id, (event.raw for event in self._events))
        error = self._trace.error
        return Result(
            self.session.id, self.message_id, self.status, outcome.output, outcome.usage, outcome.turns, error
        )

    def cancel(self) -> None:
        """Take the prompt out of the queue, or stop its turn, and with it what waits behind it; nothing once done.

        The run ends as ``discarded`` or ``aborted``.
        """
        if not self.done:
            self.session._cancel(self)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cancel()
        while not self.done:
            await self._news()

    # -- what happens, told by the session --------------------------------------------------------------------------

    def _take(self, event: Event) -> None:
        """The session's next event."""
        trace, before = self._trace, self._trace.state
        ours = trace.in_its_turn
        trace.event(event.raw.type, event.raw.data)
        if ours or trace.in_its_turn:
            self._events += self._opening or ()
            self._opening = None
            self._events.append(event)
        elif trace.state != before:
            self._events.append(event)
        elif event.raw.type == "turn/start":
            self._opening = [event]
            return
        elif self._opening is not None and event.raw.type == "agent/inbox/spliced":
            self._opening.append(event)
            return
        else:
            self._opening = None
            return
        self._tell()

    def _end(self, why: Callable[[PromptTrace], None]) -> None:
        why(self._trace)
        self._tell()

    def _fail(self, error: Exception) -> None:
        self._failure = error
        self._tell()

    # -- waiting ----------------------------------------------------------------------------------------------------

    def _tell(self) -> None:
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            if not one.done():
                one.set_result(None)

    async def _news(self) -> None:
        news = asyncio.get_running_loop().create_future()
        self._waiting.append(news)
        await news

    async def _after(self, count: int) -> list[Event]:
        """The events after the first ``count``, as soon as there are any; none once there will be no more."""
        while len(self._events) <= count and not self.done:
            await self._news()
        if len(self._events) <= count and self._failure is not None:
            raise self._failure
        return self._events[count:]


class _Reader:
    """One iteration over a run."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._next = 0

    def __aiter__(self) -> _Reader:
        return self

    async def __anext__(self) -> Event:
        if self._next == len(self._run._events) and not await self._run._after(self._next):
            raise StopAsyncIteration
        self._next += 1
        return self._run._events[self._next - 1]
