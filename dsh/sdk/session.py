"""A session with its agent: prompts go in, events come out."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from dsh.cordis import HarnessError
from dsh.core.session_event import SessionEvent
from dsh.interfaces.params import content_blocks
from dsh.interfaces.prompt_trace import PromptTrace
from dsh.llm.message import create_user_message

from .events import Event, EventReader
from .run import Run

if TYPE_CHECKING:
    from .backend import Backend

Content = str | Sequence[Mapping[str, Any]]
"""A prompt: its text, or content blocks such as ``{"type": "text", "text": "…"}``."""

PAGE: Final = 1000
"""Events that are read at a time: an answer of a runtime must fit into one line."""


class Session:
    """One conversation, by its id; as many as you like work side by side.

        session = await harness.session("main")
        first, second = session.prompt("Read the README"), session.prompt("Now the docs")
        print((await first.result()).output, (await second.result()).output)

    Got from a ``Harness``.
    """

    def __init__(self, backend: Backend, session_id: str) -> None:
        self.id = session_id
        self._backend = backend
        self._reader = EventReader(session_id)
        self._runs: list[Run] = []
        self._followers: list[Follower] = []

    def __repr__(self) -> str:
        return f"<Session {self.id}>"

    def prompt(self, content: Content) -> Run:
        """Give the agent a prompt; it gets a turn of its own, after those that wait already.

        Raises ``HarnessError`` for an empty prompt; when the session's agent is gone, this or the run does.
        """
        return self._give(content, steer=False)

    def steer(self, content: Content) -> Run:
        """Put a message into the running turn, at its next step; an idle agent starts a turn with it."""
        return self._give(content, steer=True)

    def cancel(self) -> None:
        """Stop the running turn and empty the queue; nothing on an idle agent."""
        self._backend.tell("cancel", None, sessionId=self.id)

    async def history(self, from_seq: int = 0) -> list[Event]:
        """The events so far, from the beginning or from event number ``from_seq`` on."""
        reader, events = EventReader(self.id), []
        next_seq: int | None = from_seq
        while next_seq is not None:
            page = await self._backend.ask("read", sessionId=self.id, fromSeq=next_seq, limit=PAGE)
            events += [reader.read(SessionEvent.from_wire(each)) for each in page["events"]]
            next_seq = page.get("nextSeq")
        return events

    def follow(self) -> Follower:
        """Everything that happens in the session from now on, whoever causes it; ends with the agent, at once without.

        What is not read yet is kept, so leave it by ``close()`` or as a context manager when you read no more.
        """
        return Follower(self)

    async def close(self) -> None:
        """End the agent, and with it the runs under way; the log stays and can be resumed."""
        await self._backend.ask("close", sessionId=self.id)
        self._gone()

    # -- for runs and the backend -----------------------------------------------------------------------------------

    def _give(self, content: Content, *, steer: bool) -> Run:
        try:
            asyncio.get_running_loop()
        except RuntimeError:  # told before half of the prompt is given
            text = "a session is used in the event loop of its harness; dsh.sdk.sync serves any thread"
            raise HarnessError(text, code="NO_LOOP") from None
        if not (content.strip() if isinstance(content, str) else content):
            raise HarnessError("the prompt is empty", code="EMPTY_PROMPT")
        blocks = content if isinstance(content, str) else content_blocks({"contentBlocks": list(content)}, "prompt")
        message = create_user_message(blocks)
        run = Run(self, message["id"])
        self._runs.append(run)
        try:
            self._backend.tell("send", run, sessionId=self.id, message=message, steer=steer)
        except BaseException:
            self._runs = [one for one in self._runs if one is not run]
            raise
        return run

    def _cancel(self, run: Run) -> None:
        self._backend.tell("cancel", None, sessionId=self.id, messageId=run.message_id)

    async def _is_gone(self) -> bool:
        return bool((await self._backend.ask("status", sessionId=self.id))["status"] == "gone")

    async def _flush(self) -> None:
        if self.id in self._backend.sessions:
            await self._backend.ask("flush", sessionId=self.id)

    def _happened(self, raw: SessionEvent) -> None:
        event = self._reader.read(raw)
        for follower in self._followers:
            follower._take(event)
        for run in self._runs:
            run._take(event)
        self._runs = self._unfinished()

    def _unfinished(self) -> list[Run]:
        """The runs that are not over: what going idle would leave behind."""
        return [run for run in self._runs if not run.done]

    def _idle(self, left: list[Run]) -> None:
        """The agent is idle for good; ``left`` are the runs that were waiting when it went idle."""
        for run in left:
            if not run.done:
                run._end(PromptTrace.idle)
        self._runs = self._unfinished()

    def _gone(self) -> None:
        """The agent was disposed."""
        for run in self._runs:
            run._end(PromptTrace.gone)
        self._runs.clear()
        for follower in list(self._followers):
            follower.close()


class Follower:
    """An async iterator over what happens in one session; see ``Session.follow``."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._events: deque[Event] = deque()
        self._news = asyncio.Event()
        self._over = self._looked = False
        session._followers.append(self)

    def __aiter__(self) -> AsyncIterator[Event]:
        return self

    async def __anext__(self) -> Event:
        while not self._events:
            if self._over:
                raise StopAsyncIteration
            self._news.clear()
            if self._looked:
                await self._news.wait()
            else:
                self._looked = True
                if await self._session._is_gone():
                    self.close()
        return self._events.popleft()

    def close(self) -> None:
        """Follow no longer; what was taken before can still be read."""
        if not self._over:
            self._over = True
            self._session._followers.remove(self)
            self._news.set()

    def __enter__(self) -> Follower:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _take(self, event: Event) -> None:
        self._events.append(event)
        self._news.set()
