"""The `sessions` service: which logs are live, who hears of them, and how they come and go.

A session is built unpublished (`prepare`), becomes live under its id (`enter`) and is then made known (`announce`);
`create` does all three as one effect of the calling plugin.
"""

from __future__ import annotations

import builtins
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from dsh.cordis import Context, Disposer, Emit, Parallel, Service, owned
from dsh.core.event_types import KNOWN_EVENT_TYPES
from dsh.core.fork import SessionForkError, fork_prefix
from dsh.core.seed import Seed, SeedSource
from dsh.core.session import Session, now_ms
from dsh.core.session_event import SESSION_FORMAT_VERSION, SessionError, SessionEvent
from dsh.core.session_header import SessionHeader


class SessionCreated(Emit, name="session/created", veto=True):
    """A session became known; a synchronous exception refuses it."""

    session: Session


class SessionAppended(Emit, name="session/event"):
    """An event was committed to a live session's log."""

    session: Session
    event: SessionEvent


class SessionFlush(Parallel, name="session/flush"):
    """Everything appended so far must be durable when the listeners have returned."""

    session: Session


class SessionDisposed(Emit, name="session/disposed"):
    """A session that had been announced is no longer live."""

    session: Session


class SessionPreparation:
    """An unpublished session, and what must be given back if it is never used. `release` is idempotent.

    As a context manager it releases at the end of the block.
    """

    __slots__ = ("_release", "session")

    def __init__(self, session: Session, release: Callable[[], None] | None = None) -> None:
        self.session = session
        self._release = release

    def release(self) -> None:
        """Give back what the preparation holds; once."""
        release, self._release = self._release, None
        if release is not None:
            release()

    def __enter__(self) -> SessionPreparation:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


class _Entry:
    """One live session in a store: the scope its events go to, and detaches put off while it is dispatching."""

    def __init__(self, store: Sessions, session: Session, scope: object | None) -> None:
        self._store = store
        self._ctx = store.ctx
        self.session = session
        self.scope = scope
        self._outlet = self._ctx.outlet(SessionAppended, scope)
        self.announced = False
        self._announcing = False
        self._publishing = False
        self._detach_asked = False

    def publish(self, event: SessionEvent, place: slice | None) -> None:
        if self._publishing:
            raise SessionError("session append cannot reenter while another append is being published")
        self._publishing = True
        try:
            happened = SessionAppended(self.session, event)
            listeners = self._outlet.reach(happened)
            self.session.commit(event, place)
            self._outlet.tell(listeners, happened)
        finally:
            self._publishing = False
            if self._detach_asked:
                self._detach_if_asked()

    def announce(self) -> None:
        if self.announced:
            raise SessionError(f'session "{self.session.id}" was already announced')
        self.announced = self._announcing = True
        try:
            self._ctx.emit(SessionCreated(self.session), scope=self.scope)
        finally:
            self._announcing = False
            self._detach_if_asked()

    def detach(self) -> None:
        """Leave the store, at the end of a running dispatch if there is one; idempotent."""
        self._detach_asked = True
        self._detach_if_asked()

    def _detach_if_asked(self) -> None:
        if not self._detach_asked or self._publishing or self._announcing or self.session.publication is not self:
            return
        self.session.publication = None
        self._store.drop(self)
        if not self.announced:
            return
        try:
            self._ctx.emit(SessionDisposed(self.session), scope=self.scope)
        except Exception:
            self._ctx.logger.exception('session "%s": session/disposed dispatch failed', self.session.id)


class Sessions(Service, name="sessions"):
    """The live sessions of this process."""

    def __init__(self, ctx: Context, config: object = None) -> None:
        self.ctx = ctx
        self._entries: dict[str, _Entry] = {}
        self._minted = 0
        self._event_types: Counter[str] = Counter()

    @owned
    def create(
        self, caller: Context, id: str | None = None, seed: Seed | None = None, meta: Mapping[str, Any] | None = None
    ) -> Session:
        """Build, enter and announce a session; it leaves with the calling plugin.

        id: None mints `session-<n>`. meta: header fields `{cwd, parentSession, seedLength, origin, delegationDepth,
        agentPreset}`. Raises SessionError, or what a `session/created` listener refuses with.
        """
        session = self.prepare(id, seed, meta).session

        def setup() -> Callable[[], None]:
            entry = self._enter(session, caller.scope_key)
            try:
                entry.announce()
            except BaseException:
                entry.detach()
                raise
            return entry.detach

        caller.effect(setup, f"session({session.id})")
        return session

    def prepare(
        self,
        id: str | None = None,
        seed: Seed | None = None,
        meta: Mapping[str, Any] | None = None,
        header: SessionHeader | Mapping[str, Any] | None = None,
        seed_source: SeedSource = "create",
        release: Callable[[], None] | None = None,
    ) -> SessionPreparation:
        """Build a session without making it live.

        header: a stored header, instead of `meta`; gives the id too when `id` is None. release: called when the
        preparation is released. Raises SessionError.
        """
        if id is None:
            id = self._mint_id() if header is None else _header_id(header)
        if id in self._entries:
            raise SessionError(f'session "{id}" already exists')
        if header is None:
            given = {key: value for key, value in (meta or {}).items() if value is not None}
            header = {"version": SESSION_FORMAT_VERSION, "id": id, "createdAt": now_ms(), **given}
        session = Session(id, header=header, seed=seed, seed_source=seed_source)
        return SessionPreparation(session, release)

    @owned
    def enter(self, caller: Context, session: Session) -> Callable[[], None]:
        """Make a prepared session live under its id, with the caller's scope as the target of its events.

        Returns its idempotent detach; the caller decides when to use it, so that an agent's session can outlive
        the agent's own scope. Raises SessionError on a collision.
        """
        return self._enter(session, caller.scope_key).detach

    def announce(self, session: Session) -> None:
        """Emit `session/created`, once per entry. Raises SessionError, or what a listener refuses with."""
        self._live(session).announce()

    def get(self, id: str) -> Session | None:
        """The live session of that id."""
        entry = self._entries.get(id)
        return None if entry is None else entry.session

    def list(self) -> builtins.list[Session]:
        """The live sessions in creation order, as a new list."""
        return [entry.session for entry in self._entries.values()]

    @owned
    def fork(
        self, caller: Context, source: Session | str, boundary: int | None = None, child_id: str | None = None
    ) -> Session:
        """Create a child that starts with the source's events up to `boundary` (inclusive seq, default all).

        The source may be mid-turn as long as the boundary is not. Raises SessionForkError.
        """
        if child_id is not None and child_id in self._entries:
            raise SessionForkError(f'session "{child_id}" already exists', "SESSION_ALREADY_EXISTS")
        source_id = source if isinstance(source, str) else source.id
        live = self.get(source_id)
        if live is None:
            raise SessionForkError(f'session "{source_id}" not found', "SESSION_NOT_FOUND")
        if not isinstance(source, str) and source is not live:
            raise SessionForkError(f'session "{source_id}" is not the live store instance', "SESSION_NOT_LIVE")
        prefix = fork_prefix(source_id, live.events, boundary)
        meta = {"cwd": live.header.cwd, "parentSession": source_id, "seedLength": len(prefix)}
        return Sessions.create(self, caller, child_id, prefix, meta)

    async def flush(self, session: Session) -> bool:
        """Wait until every `session/flush` listener is done; False if there is none.

        Raises the first listener's failure, in listener order, after all have settled.
        """
        entry = self._live(session)
        try:
            return await self.ctx.parallel(SessionFlush(session), scope=entry.scope) > 0
        except ExceptionGroup as group:
            raise group.exceptions[0] from None

    @owned
    def register_event_type(self, caller: Context, name: str) -> Disposer:
        """Let stored logs that hold events of this type load while the calling plugin is there."""

        disposer = caller.defer(lambda: self._event_types.subtract([name]), f"event-type({name})")
        self._event_types[name] += 1
        return disposer

    def event_types(self) -> frozenset[str]:
        """Every event type that a stored log may hold without a mark."""
        return KNOWN_EVENT_TYPES.union(+self._event_types)

    def drop(self, entry: _Entry) -> None:
        """Forget an entry that has just detached."""
        if self._entries.get(entry.session.id) is entry:
            del self._entries[entry.session.id]

    def _enter(self, session: Session, scope: object | None) -> _Entry:
        if session.id in self._entries:
            raise SessionError(f'session "{session.id}" already exists')
        if session.publication is not None:
            raise SessionError(f'session "{session.id}" is already attached to a store')
        entry = _Entry(self, session, scope)
        self._entries[session.id] = entry
        session.publication = entry
        return entry

    def _live(self, session: Session) -> _Entry:
        entry = self._entries.get(session.id)
        if entry is None or entry.session is not session:
            raise SessionError(f'session "{session.id}" is not live in this store')
        return entry

    def _mint_id(self) -> str:
        while True:
            self._minted += 1
            id = f"session-{self._minted}"
            if id not in self._entries:
                return id


def _header_id(header: SessionHeader | Mapping[str, Any]) -> str:
    id = header.id if isinstance(header, SessionHeader) else header.get("id")
    if not isinstance(id, str):
        raise SessionError("a stored session header needs an id")
    return id
