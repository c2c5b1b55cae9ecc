"""Session persistence over any backend: who may write which log, what is loaded, and the reading of stored sessions.

Everything that touches a log goes through the backend's writer thread, whose queue is the order of operations; this
class only decides and waits, on the event loop.
"""

from __future__ import annotations

import asyncio
import builtins
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from dsh.cordis import Context
from dsh.core.repair import open_turn
from dsh.core.seams import SessionLocation, SessionPersistence, SessionSnapshot
from dsh.core.session import END_SEED, Session
from dsh.core.session_event import SessionEvent
from dsh.core.session_header import SessionHeader
from dsh.core.session_store import (
    SessionAppended,
    SessionCreated,
    SessionDisposed,
    SessionFlush,
    SessionPreparation,
    Sessions,
)
from dsh.sessions.errors import (
    SessionBusyError,
    SessionCollisionError,
    SessionLockedError,
    SessionPersistenceError,
)
from dsh.sessions.live_sessions import LiveSessions
from dsh.sessions.loading import repaired, to_session, understand_from
from dsh.sessions.prepared import Reservation, Warm, WarmSessions
from dsh.sessions.writer import Writer

if TYPE_CHECKING:
    from dsh.cordis import AbortSignal
    from dsh.cordis.jsonio import JsonObject
    from dsh.sessions.backend import Backend, Hold
    from dsh.sessions.log_file import StoredLog
    from dsh.sessions.stored import Listing

T = TypeVar("T")

_WAIT_STEP_S = 0.2
"""How often a session that is open elsewhere is asked for: a lock does not tell when it becomes free."""


class SessionCoordinator(SessionPersistence):
    """The persistence service, given a `Backend`.

    window_ms: longest wait of an event before it is written. warm: how many given-back sessions stay loaded.
    renew_ms: how often leases that run out are renewed.
    """

    def __init__(
        self,
        ctx: Context,
        sessions: Sessions,
        backend: Backend,
        *,
        window_ms: Callable[[], int],
        warm: Callable[[], int],
        renew_ms: int = 5000,
    ) -> None:
        super().__init__(ctx)
        self.supports_raw_artifacts = backend.raw_artifacts
        self._sessions = sessions
        self._backend = backend
        self._warm_size = warm
        self._warm = WarmSessions(warm())
        self._writer = Writer("dsh-session-writer")
        self._live = LiveSessions(
            ctx, backend, self._writer, event_types=sessions.event_types, window_ms=window_ms, renew_ms=renew_ms
        )
        self._live.spare_holds = lambda: [entry.hold for entry in self._reserved.values() if entry is not None]
        self._reserved: dict[str, Reservation | None] = {}
        """Sessions loaded, or named, and not yet live; None while that is under way."""
        self._abandoned: dict[str, set[asyncio.Future[Hold]]] = {}
        """Holds being acquired for callers that were cancelled meanwhile."""
        self._registered: dict[str, SessionHeader] = {}
        self._reading: dict[str, asyncio.Future[tuple[SessionHeader, list[SessionEvent]]]] = {}
        self._closed = False
        ctx.on(SessionCreated, self._on_created)
        ctx.on(SessionAppended, self._on_appended)
        ctx.on(SessionFlush, self._on_flush)
        ctx.on(SessionDisposed, self._on_disposed)

    async def start(self) -> None:
        """Take on the sessions that are live already, from their first event."""
        for session in self._sessions.list():
            if self._live.of(session) is None:
                owner = self._live.own(session)
                untouched = all(event.type == END_SEED for event in session.events[session.first_live_seq :])
                # One that has a log was ours before a reload, and must be ours again before anybody else takes it.
                if untouched and not await self._in_thread(partial(self._has_log, session.id)):
                    continue
                if self._live.of(session) is owner:
                    owner.log.begin()

    async def stop(self) -> None:
        """Write everything down and let everything go. Raises an ExceptionGroup of what could not be written."""
        self._closed = True
        for reservation in list(self._reserved.values()):
            if reservation is not None:
                self._release(reservation)
        await self._live.let_all_go()
        await self._writer.close()
        if self._live.failures:
            raise ExceptionGroup("some sessions could not be written", self._live.failures)

    # -- live sessions ------------------------------------------------------------------------------------------------

    def _on_created(self, event: SessionCreated) -> None:
        session = event.session
        if self._closed:
            return
        if session.id in self._reserved:
            reservation = self._reserved[session.id]
            if reservation is None or (reservation.session is not session and not reservation.fresh):
                raise SessionCollisionError(session.id, "is being opened from its stored log")
            del self._reserved[session.id]
            owner = self._live.own(session, reservation.hold, reservation.stored)
            if not owner.log.clean:
                owner.log.note()
        else:
            self._live.own(session)
        self._registered.pop(session.id, None)
        self._log_changes(session.id)

    def _on_appended(self, event: SessionAppended) -> None:
        owner = self._live.get(event.session.id)
        if owner is not None:
            owner.log.note()

    def _on_flush(self, event: SessionFlush) -> asyncio.Future[None] | None:
        return self.barrier(event.session)

    def _on_disposed(self, event: SessionDisposed) -> None:
        owner = self._live.of(event.session)
        if owner is not None:
            self._live.let_go(owner)

    def barrier(self, session: Session) -> asyncio.Future[None] | None:
        """None if everything in a live session is durable; else a future that is done when all of it so far is."""
        owner = self._live.of(session)
        return None if owner is None else owner.log.barrier()

    def lease_left_ms(self, session: Session) -> float | None:
        """How long a live session may still be written without a renewal; None if its lease does not run out."""
        owner = self._live.of(session)
        if owner is None or owner.hold is None:
            return None
        return 0.0 if owner.log.lost is not None else owner.hold.lease.left_ms()

    async def renew_lease(self, session: Session) -> None:
        """Renew a live session's lease now. Raises SessionFencedError if it is lost."""
        owner = self._live.of(session)
        if owner is not None:
            await self._live.renew(owner)

    # -- opening ------------------------------------------------------------------------------------------------------

    async def prepare(
        self, session_id: str, signal: AbortSignal | None = None, *, wait_s: float = 0.0
    ) -> SessionPreparation:
        """Load a stored session, repair it durably and reserve it, under its lease.

        wait_s: how long to wait for a session that is open elsewhere. Raises SessionNotFoundError,
        SessionLockedError, SessionBusyError (live or reserved here), SessionPersistenceCorruptionError,
        SessionFormatUnsupportedError, and AbortError when `signal` fires.
        """
        reservation = await self._reserve(session_id, None, self._open, signal=signal, wait_s=wait_s)
        return SessionPreparation(reservation.session, partial(self._give_back, reservation, reservation.session.seq))

    async def reserve(self, session: Session) -> None:
        """Take the lease of a new session under a name of its own, before it is published.

        Raises SessionLockedError, SessionBusyError, SessionCollisionError if the id is stored with other events.
        """

        async def open_new(hold: Hold) -> Reservation:
            if hold.exists:
                await self._writer.submit(partial(self._live.adopt, hold, session.header, list(session.events)))
            return Reservation(session, hold, hold.stored, fresh=True)

        self._drop_fresh(session.id)  # a second creation under the same id takes the place of one that came to nothing
        await self._reserve(session.id, session.header, open_new)

    def unreserve(self, session: Session) -> None:
        """Give back what `reserve` took, if the session did not go live."""
        self._drop_fresh(session.id, session)

    async def _reserve(
        self,
        session_id: str,
        fresh: SessionHeader | None,
        open_hold: Callable[[Hold], Any],
        *,
        signal: AbortSignal | None = None,
        wait_s: float = 0.0,
    ) -> Reservation:
        self._refuse_used(session_id)
        self._reserved[session_id] = None
        try:
            hold = await self._acquire(session_id, fresh, wait_s, signal)
            try:
                reservation: Reservation = await open_hold(hold)
                if signal is not None:
                    signal.raise_if_aborted()
                self._refuse_closed()
            except BaseException:
                self._writer.finally_run(hold.release)
                raise
        except BaseException:
            self._reserved.pop(session_id, None)
            raise
        self._reserved[session_id] = reservation
        self._live.watch_lease(hold)
        return reservation

    async def _open(self, hold: Hold) -> Reservation:
        session_id = hold.session_id
        revision = await self._in_thread(partial(self._backend.revision, session_id))
        warm = self._warm.take(session_id, revision)
        if warm is not None:  # nothing was written since it was read
            await self._writer.submit(partial(hold.resume, warm.stored))
            return Reservation(warm.session, hold, warm.stored, revision)
        types = self._sessions.event_types()

        def load() -> tuple[StoredLog, Session, list[SessionEvent]]:
            log = hold.read()
            session, closers = to_session(log, types)
            return log, session, closers

        log, session, closers = await self._in_thread(load)

        def commit() -> str | None:
            hold.mend(log, closers)
            return self._backend.revision(session_id)

        revision = await self._writer.submit(commit)
        return Reservation(session, hold, hold.stored, revision)

    def _give_back(self, reservation: Reservation, seq: int) -> None:
        session = reservation.session
        if self._reserved.get(reservation.hold.session_id) is not reservation:
            return  # it went live, or everything was closed
        self._release(reservation)
        self._warm.size = self._warm_size()
        if session.seq == seq and reservation.revision is not None:
            self._warm.put(Warm(session, reservation.stored, seq, reservation.revision))

    def _drop_fresh(self, session_id: str, session: Session | None = None) -> None:
        reservation = self._reserved.get(session_id)
        if reservation is not None and reservation.fresh and session in (None, reservation.session):
            self._release(reservation)

    def _release(self, reservation: Reservation) -> None:
        del self._reserved[reservation.hold.session_id]
        self._writer.finally_run(reservation.hold.release)

    async def _acquire(
        self,
        session_id: str,
        fresh: SessionHeader | None = None,
        wait_s: float = 0.0,
        signal: AbortSignal | None = None,
    ) -> Hold:
        """The hold of a stored session, or of a new one with header `fresh`."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait_s
        cwd, must_exist = (None, True) if fresh is None else (fresh.cwd, False)
        while True:
            await self._drained(session_id)
            if abandoned := self._abandoned.get(session_id):
                await asyncio.wait(abandoned)  # what they still take is given back before ours is asked for
            if signal is not None:
                signal.raise_if_aborted()
            self._refuse_closed()
            acquiring = self._writer.submit(partial(self._backend.hold, session_id, cwd, must_exist=must_exist))
            try:
                return await asyncio.shield(acquiring)
            except asyncio.CancelledError:
                self._abandoned.setdefault(session_id, set()).add(acquiring)
                acquiring.add_done_callback(partial(self._release_late, session_id))
                raise
            except SessionLockedError:
                if loop.time() >= deadline:
                    raise
                await asyncio.sleep(_WAIT_STEP_S)

    def _release_late(self, session_id: str, acquiring: asyncio.Future[Hold]) -> None:
        pending = self._abandoned[session_id]
        pending.discard(acquiring)
        if not pending:
            del self._abandoned[session_id]
        if not acquiring.cancelled() and acquiring.exception() is None:
            self._writer.finally_run(acquiring.result().release)

    # -- reading ------------------------------------------------------------------------------------------------------

    def locate(self, header: SessionHeader) -> SessionLocation | None:
        """Where this session's artifact would be, without I/O."""
        return self._backend.locate(header)

    async def load(self, session_id: str) -> tuple[SessionHeader, builtins.list[SessionEvent]]:
        """Header and events, repaired durably; of a live session, flushed, and only between its turns."""
        owner = self._live.get(session_id)
        if owner is not None:
            barrier = owner.log.barrier()
            if barrier is not None:
                await barrier
            events = list(owner.session.events)
            if open_turn(events) is not None:
                raise SessionBusyError(f'session "{session_id}" is live and in the middle of a turn')
            return owner.session.header, events
        with await self.prepare(session_id) as preparation:
            reservation = self._reserved[session_id]
            assert reservation is not None
            session = preparation.session
            return session.header, session.events[: reservation.stored]

    async def inspect(self, session_id: str) -> tuple[SessionHeader, builtins.list[SessionEvent]]:
        """Header and events, read only; repair events exist in memory alone. A live session may be in a turn."""
        live = await self._in_memory(session_id)
        if live is not None:
            return live
        reading = self._reading.get(session_id)
        if reading is None:
            reading = self._in_thread(partial(self._inspect, session_id, self._sessions.event_types()))
            self._reading[session_id] = reading
            reading.add_done_callback(partial(self._read_done, session_id))
        header, events = await asyncio.shield(reading)
        return header, list(events)

    def _inspect(self, session_id: str, types: frozenset[str]) -> tuple[SessionHeader, builtins.list[SessionEvent]]:
        warm = self._warm.peek(session_id, self._backend.revision(session_id))
        if warm is not None:
            return warm.session.header, warm.session.events[: warm.stored]
        log = self._backend.read(session_id)
        events, closers = repaired(log, types)
        return log.header, [*events, *closers]

    def _read_done(self, session_id: str, reading: asyncio.Future[Any]) -> None:
        if self._reading.get(session_id) is reading:
            del self._reading[session_id]
        if not reading.cancelled():
            reading.exception()  # with nobody left to wait for it, it is nobody's business

    async def read_from(self, session_id: str, seq: int) -> builtins.list[SessionEvent]:
        """The stored suffix starting at `seq`; empty beyond the end. Raises SessionPersistenceError for a bad `seq`."""
        if type(seq) is not int or seq < 0:
            raise SessionPersistenceError(f"the first seq to read must be a non-negative integer, got {seq!r}")
        live = await self._in_memory(session_id)
        if live is not None:
            return live[1][seq:]
        types = self._sessions.event_types()
        return await self._in_thread(lambda: understand_from(self._backend.read(session_id), seq, types))

    async def _in_memory(self, session_id: str) -> tuple[SessionHeader, builtins.list[SessionEvent]] | None:
        """Header and events of a session that is live or being opened; None once all of it is in its log."""
        if self._live.get(session_id) is None:
            await self._drained(session_id)
        owner = self._live.get(session_id)
        if owner is not None:
            return owner.session.header, list(owner.session.events)
        reservation = self._reserved.get(session_id)
        if reservation is not None and not reservation.fresh:
            return reservation.session.header, reservation.session.events[: reservation.stored]
        return None

    async def list(self) -> builtins.list[SessionHeader]:
        """Headers of every readable stored session, the latest activity first."""
        return [entry.header for entry in (await self._listing()).sessions]

    async def list_snapshots(self) -> builtins.list[SessionSnapshot]:
        """Headers and revisions of every readable stored session."""
        return [SessionSnapshot(entry.header, entry.revision) for entry in (await self._listing()).sessions]

    async def read_raw(self, session_id: str) -> JsonObject | None:
        """The stored bytes as JSONL text: `{header, filename, content}`; None when absent."""
        await self._drained(session_id)
        found = await self._in_thread(partial(self._backend.read_text, session_id))
        if found is None:
            return None
        header, content = found
        text = content.decode("utf-8", "replace")
        return {"header": header.to_wire(), "filename": "session.jsonl", "content": text}

    # -- writing without a live session -------------------------------------------------------------------------------

    async def create(self, header: SessionHeader) -> None:
        """Register a session; nothing reaches the disk before its first append. Raises SessionCollisionError."""
        self._refuse_closed()
        if header.id in self._registered or header.id in self._reserved or self._live.get(header.id) is not None:
            raise SessionCollisionError(header.id, "is in use")
        if await self._in_thread(partial(self._backend.find, header.id)) is not None:
            raise SessionCollisionError(header.id, "already has a stored log")
        self._registered[header.id] = header

    async def append(self, session_id: str, events: Sequence[SessionEvent]) -> None:
        """Store `events` after the stored tail; durable when it returns. Not for live or reserved sessions.

        Repeating an append that did succeed changes nothing. Raises SessionBusyError, SessionNotFoundError,
        SessionPersistenceError for events that do not continue the log.
        """
        self._refuse_used(session_id)
        batch = list(events)
        header = self._registered.get(session_id)
        base = batch[0].seq if batch else 0
        for index, event in enumerate(batch):
            if event.seq != base + index:
                raise _not_contiguous(session_id, base + index, event.seq)
        leaving = self._live.leaving.get(session_id)
        job = partial(self._append, session_id, header, base, batch)
        await (self._writer.submit(job) if leaving is None else self._writer.submit_after(leaving, job))
        if batch:
            self._registered.pop(session_id, None)
        self._log_changes(session_id)

    def _append(self, session_id: str, header: SessionHeader | None, base: int, events: Sequence[SessionEvent]) -> None:
        hold = self._backend.hold(session_id, header.cwd if header else None, must_exist=header is None)
        try:
            if hold.exists:
                log = hold.read()
                header = log.header
                if base > len(log.events):
                    raise _not_contiguous(session_id, len(log.events), base)
                hold.mend(log, ())
            elif base:
                raise _not_contiguous(session_id, 0, base)
            assert header is not None
            hold.append(header, base, events)
        finally:
            hold.release()

    async def delete(self, session_id: str) -> None:
        """Remove a stored session with all that belongs to it. Children stay; their link to it dangles.

        Raises SessionBusyError, SessionLockedError, SessionNotFoundError.
        """
        self._refuse_used(session_id)
        self._registered.pop(session_id, None)
        hold = await self._acquire(session_id)

        def remove() -> None:
            try:
                hold.delete()
            finally:
                hold.release()

        await self._writer.submit(remove)
        self._log_changes(session_id)

    # -- details ------------------------------------------------------------------------------------------------------

    async def _listing(self) -> Listing:
        """What is stored, with the sessions that were let go just now."""
        await asyncio.gather(*map(self._drained, list(self._live.leaving)))
        return await self._in_thread(self._backend.listing)

    async def _drained(self, session_id: str) -> None:
        """Wait for what a session that was let go just now still has on its way to the disk."""
        leaving = self._live.leaving.get(session_id)
        if leaving is not None:
            await asyncio.shield(leaving)

    def _log_changes(self, session_id: str) -> None:
        """What was read of a log, or is being read, is not all of it any more."""
        self._warm.drop(session_id)
        self._reading.pop(session_id, None)

    def _has_log(self, session_id: str) -> bool:
        try:
            return self._backend.find(session_id) is not None
        except SessionPersistenceError:
            return True  # whatever is wrong with it, the first write will say so

    def _refuse_closed(self) -> None:
        if self._closed:
            raise SessionPersistenceError("session persistence is closed")

    def _refuse_used(self, session_id: str) -> None:
        self._refuse_closed()
        if self._live.get(session_id) is not None or self._sessions.get(session_id) is not None:
            raise SessionBusyError(f'session "{session_id}" is live in this process')
        if session_id in self._reserved:
            raise SessionBusyError(f'session "{session_id}" is being opened in this process')

    def _in_thread(self, read: Callable[[], T]) -> asyncio.Future[T]:
        return asyncio.get_running_loop().run_in_executor(None, read)


def _not_contiguous(session_id: str, expected: int, got: int) -> SessionPersistenceError:
    return SessionPersistenceError(f'session "{session_id}": events must continue at seq {expected}, got {got}')
