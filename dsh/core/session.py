"""A session: one append-only log, and everything that is folded from it incrementally.

The log is the truth: what a model sees is derived from it and nothing that reaches a model exists beside it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol, cast, overload

from dsh.cordis.jsonio import FrozenDict, JsonObject, NotJsonError, snapshot_json
from dsh.core.derivation import Derivation
from dsh.core.latest import Latest
from dsh.core.request_header import HEADER_TYPES, logged_header, refuse_legacy_header
from dsh.core.seed import Seed, SeedSource, import_seed
from dsh.core.session_event import SURFACE_TYPES, SessionError, SessionEvent, SurfaceOp
from dsh.core.session_header import SessionHeader
from dsh.core.surface import Surface
from dsh.core.working_directory import WORKING_DIRECTORY, entered_in

if TYPE_CHECKING:
    from dsh.llm.types import Message

END_SEED = "session/end-seed"
"""Border between inherited and own history; the last one in a log counts."""

_LATEST: Mapping[str, Callable[[Any], Any]] = {
    "request/header": logged_header,
    "request/context": lambda data: data if isinstance(data, dict) else None,
    WORKING_DIRECTORY: entered_in,
}


def now_ms() -> int:
    """Wall clock in whole milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


class EventsView(Sequence[SessionEvent]):
    """The log as it was at one moment: shares the list, never grows under its holder."""

    __slots__ = ("_length", "_log")

    def __init__(self, log: list[SessionEvent]) -> None:
        self._log = log
        self._length = len(log)

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> SessionEvent: ...
    @overload
    def __getitem__(self, index: slice) -> list[SessionEvent]: ...
    def __getitem__(self, index: int | slice) -> SessionEvent | list[SessionEvent]:
        if isinstance(index, slice):
            start, stop, step = index.indices(self._length)
            if step > 0:
                return self._log[start:stop:step]
            return [self._log[i] for i in range(start, stop, step)]
        if index < 0:
            index += self._length
        if not 0 <= index < self._length:
            raise IndexError("event index out of range")
        return self._log[index]

    def __iter__(self) -> Iterator[SessionEvent]:
        return islice(self._log, self._length)

    def __reversed__(self) -> Iterator[SessionEvent]:
        return (self._log[i] for i in range(self._length - 1, -1, -1))

    def __repr__(self) -> str:
        return f"<{self._length} events>"


class Publication(Protocol):
    """What a store puts between an append and its observers."""

    def publish(self, event: SessionEvent, place: slice | None) -> None:
        """Let guards veto `event`, have the session `commit` it, notify observers.

        Raises SessionError inside of another publication.
        """


class Session:
    """One log with its surface, derived messages and folded headers.

    id: also the id of the agent it belongs to. header: a SessionHeader or its wire object; None makes one (created
    now). seed: events to start from; even an empty one is closed by `session/end-seed`. seed_source: see SeedSource.
    Raises SessionHeaderError and SessionError.
    """

    def __init__(
        self,
        id: str,
        *,
        header: SessionHeader | Mapping[str, Any] | None = None,
        seed: Seed | None = None,
        seed_source: SeedSource = "create",
    ) -> None:
        self.id = id
        if header is None:
            header = SessionHeader(id=id, created_at=now_ms())
        wire = header.to_wire() if isinstance(header, SessionHeader) else header
        self.header = SessionHeader.from_wire(wire, id)
        self._log: list[SessionEvent] = []
        self._view: EventsView | None = None
        self.surface = Surface(self._log)
        self._derivation = Derivation(self._log, self.surface)
        self._latest = Latest(self._log, _LATEST)
        self.publication: Publication | None = None
        """Set by the store that holds the session; None for a bare one."""
        if seed is not None:
            import_seed(seed, self._log, self.surface, seed_source)
        self.first_live_seq = len(self._log)
        """Number of seed events."""
        if seed is not None and not (self._log and self._log[-1].type == END_SEED):
            self.append(END_SEED, {})

    @property
    def events(self) -> EventsView:
        """Immutable snapshot of the log; the same object until the next append."""
        view = self._view
        if view is None:
            view = self._view = EventsView(self._log)
        return view

    @property
    def seq(self) -> int:
        """The number the next event gets."""
        return len(self._log)

    def __len__(self) -> int:
        return len(self._log)

    def append(
        self,
        type: str,
        data: Any,
        surface_op: SurfaceOp | None = None,
        source_event_seqs: Sequence[int] | None = None,
        ignorable: bool = False,
    ) -> SessionEvent:
        """Add one event and publish it; on any failure log, surface and caches are as before.

        data: JSON, copied and frozen unless it is frozen already. Observers run after the commit and cannot fail it.
        Raises SessionError, SurfaceError, or what a guard vetoes with.
        """
        if data.__class__ is not FrozenDict:
            try:
                data = snapshot_json(data)
            except NotJsonError as error:
                raise SessionError(f'session event "{type}" carries non-JSON-serializable data') from error
        if type in HEADER_TYPES:
            refuse_legacy_header(type, data, f'session event "{type}"')
        sources: tuple[int, ...] | None = None
        if surface_op is not None or source_event_seqs is not None:
            surface_op, sources = _snapshot_metadata(type, surface_op, source_event_seqs)
        event = SessionEvent(type, len(self._log), now_ms(), data, surface_op, sources, ignorable)
        place: slice | None = None
        if type in SURFACE_TYPES or surface_op is not None or sources is not None:
            place = self.surface.plan(event)
        if self.publication is None:
            self.commit(event, place)
        else:
            self.publication.publish(event, place)
        return event

    def derive_messages(self) -> list[Message]:
        """The conversation as the model sees it: a new list of shared frozen messages."""
        return self._derivation.messages()

    def request_header(self) -> JsonObject | None:
        """The header of the latest request, canonical and frozen; None before the first."""
        header: JsonObject | None = self._latest.word("request/header")
        return header

    def request_context(self) -> JsonObject | None:
        """Route and capacity of the latest request, frozen; None before the first. Without `contextWindow` the
        capacity is unknown again."""
        context: JsonObject | None = self._latest.word("request/context")
        return context

    def entered_directory(self) -> str | None:
        """The last folder entered in this log; see :mod:`dsh.core.working_directory`."""
        folder: str | None = self._latest.word(WORKING_DIRECTORY)
        return folder

    def commit(self, event: SessionEvent, place: slice | None) -> None:
        """For a publication: make a planned event part of the log."""
        self._log.append(event)
        if place is not None:
            self.surface.commit(event, place)
        self._view = None

    def __repr__(self) -> str:
        return f"<Session {self.id} {len(self._log)} events>"


def _snapshot_metadata(
    type_: str, surface_op: SurfaceOp | None, sources: Sequence[int] | None
) -> tuple[SurfaceOp | None, tuple[int, ...] | None]:
    try:
        op = cast("SurfaceOp | None", snapshot_json(surface_op))
        cited = None if sources is None else tuple(cast("list[int]", snapshot_json(list(sources))))
    except (NotJsonError, TypeError) as error:
        raise SessionError(f'session event "{type_}" carries non-JSON-serializable surface metadata') from error
    return op, cited
