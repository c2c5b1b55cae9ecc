"""The live sessions of a process and their way to the disk: claimed when announced, let go when disposed."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from dsh.cordis import Context
from dsh.core.session import Session
from dsh.core.session_event import SessionEvent
from dsh.core.session_header import SessionHeader
from dsh.sessions.errors import SessionCollisionError, SessionFencedError
from dsh.sessions.lease_events import SessionLeaseLost
from dsh.sessions.live_log import LiveLog
from dsh.sessions.loading import is_prefix, understand

if TYPE_CHECKING:
    from dsh.sessions.backend import Backend, Hold
    from dsh.sessions.writer import Writer


class Owner:
    """A live session, the hold on its log once it has one, and what is still to be written."""

    __slots__ = ("hold", "log", "session")

    def __init__(self, session: Session, hold: Hold | None) -> None:
        self.session = session
        self.hold = hold
        self.log: LiveLog


class LiveSessions:
    """Owners by session id.

    event_types: names a stored log may hold. window_ms: longest wait of an event before it is written. renew_ms: how
    often leases that run out are renewed.
    """

    def __init__(
        self,
        ctx: Context,
        backend: Backend,
        writer: Writer,
        *,
        event_types: Callable[[], frozenset[str]],
        window_ms: Callable[[], int],
        renew_ms: int,
    ) -> None:
        self.leaving: dict[str, asyncio.Future[None]] = {}
        """Sessions that are no longer live and still being drained."""
        self.failures: list[Exception] = []
        """What the last drains could not write."""
        self.spare_holds: Callable[[], list[Hold]] = list
        """Holds of others whose leases are to be renewed along."""
        self._ctx = ctx
        self._backend = backend
        self._writer = writer
        self._event_types = event_types
        self._window_ms = window_ms
        self._renew_ms = renew_ms
        self._owners: dict[str, Owner] = {}
        self._renewing = False

    def get(self, session_id: str) -> Owner | None:
        """The owner of a live session."""
        return self._owners.get(session_id)

    def of(self, session: Session) -> Owner | None:
        """The owner of exactly this session."""
        owner = self._owners.get(session.id)
        return owner if owner is not None and owner.session is session else None

    def own(self, session: Session, hold: Hold | None = None, stored: int = 0) -> Owner:
        """Follow a session from now on. stored: how many of its events its log holds already."""
        owner = Owner(session, hold)
        owner.log = LiveLog(
            session,
            partial(self._write, owner),
            durable=stored,
            window_ms=self._window_ms,
            logger=self._ctx.logger,
            on_lost=partial(self._on_lost, owner),
        )
        self._owners[session.id] = owner
        return owner

    def let_go(self, owner: Owner, *, still_live: bool = False) -> None:
        """Write the rest of a session that nobody follows any more, then release its hold; `leaving` tells when.

        still_live: only what is there now is written, because a running stream would never come to an end.
        """
        session_id = owner.session.id
        del self._owners[session_id]
        before = self.leaving.get(session_id)
        gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.leaving[session_id] = gone

        def released(_: object) -> None:
            if self.leaving.get(session_id) is gone:
                del self.leaving[session_id]
            gone.set_result(None)

        def drained(barrier: asyncio.Future[None] | None) -> None:
            error = None if barrier is None else barrier.exception()
            if error is None and not (still_live and barrier is not None):
                rest = owner.log.barrier() if owner.log.lost is None else None
                if rest is not None:
                    rest.add_done_callback(drained)
                    return
            owner.log.stop()
            if isinstance(error, Exception) and not isinstance(error, SessionFencedError):
                self.failures.append(error)
                lost = owner.session.seq - owner.log.durable
                self._ctx.logger.error('session "%s": its last %d events were not written: %s', session_id, lost, error)
            if owner.hold is None:
                released(None)
            else:
                self._writer.submit(owner.hold.release).add_done_callback(released)

        if before is None:
            drained(None)
        else:  # the session before this one under the same id still has the log
            owner.log.stop()
            before.add_done_callback(lambda _: drained(None))

    async def let_all_go(self) -> None:
        """Let go of every session and wait until all are drained."""
        for owner in list(self._owners.values()):
            self.let_go(owner, still_live=True)
        if self.leaving:
            await asyncio.wait(list(self.leaving.values()))

    # -- writing ------------------------------------------------------------------------------------------------------

    def _write(self, owner: Owner, base: int, events: Sequence[SessionEvent]) -> asyncio.Future[None]:
        header = owner.session.header

        def job() -> None:
            hold = owner.hold
            if hold is None:
                hold = owner.hold = self._claim(header, events)
                hold.append(header, hold.stored, events[hold.stored :])
            else:
                hold.append(header, base, events)

        leaving = self.leaving.get(header.id)
        if leaving is not None and self._owners.get(header.id) is owner:
            # The session before this one under the same id still has the log.
            writing = self._writer.submit_after(leaving, job)
        else:
            writing = self._writer.submit(job)
        if not self._renewing:
            writing.add_done_callback(lambda _: self.watch_lease(owner.hold))
        return writing

    def _claim(self, header: SessionHeader, events: Sequence[SessionEvent]) -> Hold:
        """On the writer thread: the hold of a session that has just begun to write."""
        hold = self._backend.hold(header.id, header.cwd)
        try:
            if hold.exists:
                self.adopt(hold, header, events)
        except BaseException:
            hold.release()
            raise
        return hold

    def adopt(self, hold: Hold, header: SessionHeader, events: Sequence[SessionEvent]) -> None:
        """On the writer thread: accept a log that is there already, if it is the beginning of `events`.

        No turn is closed: it goes on here. Raises SessionCollisionError.
        """
        log = hold.read()
        if log.header.cwd != header.cwd:
            raise SessionCollisionError(header.id, f"is stored for another workspace ({log.header.cwd})")
        if not is_prefix(understand(log, self._event_types()), events):
            raise SessionCollisionError(header.id, "is stored with other events")
        hold.mend(log, ())

    # -- leases -------------------------------------------------------------------------------------------------------

    def watch_lease(self, hold: Hold | None) -> None:
        """Renew the lease of `hold` if it runs out, and all others like it, as long as the plugin runs."""
        if hold is None or self._renewing or not self._ctx.fiber.is_active:
            return
        if hold.lease.expires and hold.lease.held:
            self._renewing = True
            self._ctx.spawn(self._keep_renewing, name="session-leases")

    async def renew(self, owner: Owner) -> None:
        """Renew one lease now. Raises SessionFencedError if it is lost."""
        if owner.log.lost is not None:
            raise owner.log.lost
        if owner.hold is not None:
            try:
                await self._writer.submit(owner.hold.lease.renew)
            except SessionFencedError as error:
                owner.log.lose(error)
                raise

    async def _keep_renewing(self) -> None:
        while True:
            await asyncio.sleep(self._renew_ms / 1000)
            for owner in [owner for owner in self._owners.values() if owner.log.lost is None]:
                with contextlib.suppress(SessionFencedError):  # everybody has been told
                    await self.renew(owner)
            for hold in self.spare_holds():
                try:
                    await self._writer.submit(hold.lease.renew)
                except SessionFencedError as error:
                    self._ctx.logger.warning("%s", error)

    def _on_lost(self, owner: Owner, error: SessionFencedError) -> None:
        session = owner.session
        self._ctx.logger.error("%s", error)
        self._ctx.emit(SessionLeaseLost(session=session, error=error))
        agents: Any = self._ctx.get("agents")
        agent = agents.get(session.id) if agents is not None else None
        if agent is not None:
            agent.cancel({"kind": "hook", "reason": "lease-lost"})
