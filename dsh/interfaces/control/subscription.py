"""One client of the feed: what it missed, then what happens."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final

from dsh.cordis import describe_error
from dsh.core.seams import SessionPersistence

from .frames import STILL_HERE, Position, event_frame, frame_of

if TYPE_CHECKING:
    from dsh.core.session import Session
    from dsh.core.session_event import SessionEvent

    from .feed import Feed

MAX_QUEUED_BYTES: Final = 8 * 2**20
"""What may wait for a client that does not read. A streamed word is a frame, so that a fast reply has thousands of
them in a moment without anybody being slow."""

MAX_QUEUED: Final = 50_000
"""Frames that may wait, each of which costs more than its bytes."""

HEARTBEAT_SECONDS: Final = 15.0
SLICE_BYTES: Final = 256 * 1024
"""About how much a client is sent at a time while it catches up."""

SLICE: Final = 256
"""Positions that are looked up at a time."""


_Closed = dict[str, tuple[int, "Sequence[SessionEvent]"]]
"""What was read of the logs of closed sessions, each from some seq on."""


class Subscription:
    """Frames for one client.

    wanted: session ids, None for all, also those that come later. positions: the seq of the last event it has of a
    session; sessions without one are followed from now on. last: the last event that it received of such a stream.
    host: whether it is told of the process, too: edits of the configuration, reloaded code, warnings.
    """

    def __init__(
        self,
        feed: Feed,
        wanted: Iterable[str] | None,
        positions: Mapping[str, int],
        last: Position | None,
        host: bool = False,
    ) -> None:
        self._feed = feed
        self.host = host
        self._wanted = None if wanted is None else frozenset(wanted)
        self._next = {session_id: seq + 1 for session_id, seq in positions.items()}
        self._last = last
        self._stored: set[str] = set()
        """Sessions that were read from their stored log."""
        self._frames: deque[bytes] = deque()
        self._waiting = 0
        """Bytes of the frames that wait."""
        self._wake = asyncio.Event()
        self._over = False
        self._beat_due = False

    def wants(self, session_id: str) -> bool:
        """Whether frames of a session belong to this client."""
        return self._wanted is None or session_id in self._wanted

    # -- live -----------------------------------------------------------------------------------------------------

    def put(self, frame: bytes) -> None:
        """Queue one frame; the one for which there is no room ends the subscription. There is room for any one."""
        if self._over:
            return
        if self._frames and (self._waiting + len(frame) > MAX_QUEUED_BYTES or len(self._frames) >= MAX_QUEUED):
            text = f"{len(self._frames)} frames were waiting to be read; subscribe again from the last one read"
            self._frames.clear()
            frame = frame_of({"type": "stream/error", "code": "SLOW_CONSUMER", "message": text})
            self._over = True
        self._frames.append(frame)
        self._waiting += len(frame)
        self._wake.set()

    def take_event(self, session: Session, seq: int, frame: bytes) -> None:
        """Queue an event that was just appended, after those before it that this client does not have."""
        due = self._next.get(session.id, seq)
        if due > seq:
            return
        self._fill(session, due, seq)
        self._next[session.id] = seq + 1
        self.put(frame)

    def take_over(self, session: Session) -> None:
        """A session was opened: one that was followed in its stored form gets what the opening added to it."""
        due = self._next.setdefault(session.id, session.seq)
        self._fill(session, due, session.seq)
        self._next[session.id] = max(due, session.seq)

    def _fill(self, session: Session, start: int, end: int) -> None:
        for seq in range(start, end):
            self.put(event_frame(session.id, session.events[seq]))

    def leave(self) -> None:
        """The client is gone."""
        self._over = True
        self._frames.clear()
        self._wake.set()

    async def chunks(self) -> AsyncIterator[bytes]:
        """Everything for the client, as bytes to send at once, until it leaves or is too slow."""
        heart: asyncio.TimerHandle | None = None
        clock = asyncio.get_running_loop()

        def beat() -> None:
            nonlocal heart
            self._beat_due = True
            self._wake.set()
            heart = clock.call_later(HEARTBEAT_SECONDS, beat)

        try:
            async with aclosing(self._catch_up()) as missed:  # type: ignore[type-var]
                async for chunk in missed:
                    yield chunk
                    if self._over:
                        return
            heart = clock.call_later(HEARTBEAT_SECONDS, beat)
            while True:
                if self._frames:
                    chunk = b"".join(self._frames)
                    self._frames.clear()
                    self._waiting = 0
                    yield chunk
                elif self._over:
                    return
                elif self._beat_due:
                    self._beat_due = False
                    yield STILL_HERE
                else:
                    self._wake.clear()
                    await self._wake.wait()
        finally:
            self._feed.leave(self)
            if heart is not None:
                heart.cancel()

    # -- what the client missed -----------------------------------------------------------------------------------

    async def _catch_up(self) -> AsyncIterator[bytes]:
        """What happened before; with its end the subscription is live, without a moment in between."""
        last = self._last
        several = self._wanted is None or len(self._wanted) > 1
        if several and last is not None and last in self._feed.journal:
            self._next.clear()
            async for chunk in self._replay(last):
                yield chunk
        else:
            if last is not None and self.wants(last[0]):
                self._next[last[0]] = last[1] + 1
            yield b"".join(self._subscribed(session_id) for session_id in self._followed())
            while behind := [session_id for session_id in self._next if self._is_behind(session_id)]:
                for session_id in behind:
                    async for chunk in self._read(session_id):
                        yield chunk
        for session_id in self._followed():  # no await from here on
            if (session := self._feed.live(session_id)) is not None:
                self._next.setdefault(session_id, session.seq)
        self._feed.join(self)

    async def _replay(self, last: Position) -> AsyncIterator[bytes]:
        """All that came after `last` in the order it came, so that this can be cut and taken up anywhere again."""
        closed: _Closed = {}
        while after := self._feed.since(last, self.wants):
            for start in range(0, len(after), SLICE):
                part = after[start : start + SLICE]
                found = [(id, await self._event_at(id, seq, closed)) for id, seq in part]
                frames = [event_frame(id, event) for id, event in found if event is not None]
                for chunk in _joined(frames):
                    yield chunk
            last = after[-1]

    async def _event_at(self, session_id: str, seq: int, closed: _Closed) -> SessionEvent | None:
        session = self._feed.live(session_id)
        if session is not None and seq < session.seq:
            return session.events[seq]
        first, events = closed.get(session_id, (seq, ()))
        if seq - first >= len(events):
            persistence = self._feed.ctx.get(SessionPersistence)
            try:
                events = () if persistence is None else await persistence.read_from(session_id, seq)
            except Exception:  # gone meanwhile: there is nothing left to tell of it
                events = ()
            first = seq
            closed[session_id] = first, events
        return events[seq - first] if events else None

    def _followed(self) -> list[str]:
        if self._wanted is not None:
            return sorted(self._wanted)
        return list(dict.fromkeys([*self._feed.live_ids(), *self._next]))

    def _is_behind(self, session_id: str) -> bool:
        session = self._feed.live(session_id)
        return session_id not in self._stored if session is None else self._next[session_id] < session.seq

    async def _read(self, session_id: str) -> AsyncIterator[bytes]:
        """The rest of one log, from memory or, once, from its store."""
        session = self._feed.live(session_id)
        if session is None:
            self._stored.add(session_id)
            persistence = self._feed.ctx.get(SessionPersistence)
            try:
                stored = [] if persistence is None else await persistence.read_from(session_id, self._next[session_id])
            except Exception as error:
                problem = {"code": getattr(error, "code", "UNREADABLE"), "message": describe_error(error)}
                yield frame_of({"type": "stream/error", "sessionId": session_id, **problem})
                return
            self._next[session_id] += len(stored)
            for chunk in _joined(event_frame(session_id, event) for event in stored):
                yield chunk
            return

        def rest() -> Iterator[bytes]:
            while (seq := self._next[session_id]) < session.seq:
                self._next[session_id] = seq + 1
                yield event_frame(session_id, session.events[seq])

        for chunk in _joined(rest()):
            yield chunk

    def _subscribed(self, session_id: str) -> bytes:
        session = self._feed.live(session_id)
        data: dict[str, Any] = {"type": "session/subscribed", "sessionId": session_id, "live": session is not None}
        if session is not None:
            data["lastSeq"] = session.seq - 1
            data["status"] = self._feed.status_of(session_id)
        return frame_of(data)


def _joined(frames: Iterable[bytes]) -> Iterator[bytes]:
    """Frames as pieces of about `SLICE_BYTES`."""
    part: list[bytes] = []
    size = 0
    for frame in frames:
        part.append(frame)
        size += len(frame)
        if size >= SLICE_BYTES:
            yield b"".join(part)
            part, size = [], 0
    if part:
        yield b"".join(part)
