"""The `sessionProjections` service: values folded from session logs, kept current event by event.

A unit is a pure fold with a key and a version. One subscription feeds every unit; the value of a session that existed
before its unit is folded when it is first asked for. Folded states can be stored and picked up again later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, Protocol, TypeVar
from weakref import WeakKeyDictionary

from dsh.cordis import Context, Disposer, HarnessError, Service, owned
from dsh.cordis.jsonio import JsonObject, JsonValue, snapshot_json
from dsh.cordis.records import identity_record, record
from dsh.core.session import Session
from dsh.core.session_event import SessionEvent
from dsh.core.session_store import SessionAppended, Sessions

S = TypeVar("S")


class Schema(Protocol):
    """Judges a stored state."""

    def validate(self, value: Any) -> Any:
        """Raise for a value that is no state of the unit."""


@identity_record
class ProjectionWire(Generic[S]):
    """How a state is shown outside. view_schema: JSON schema of the view, for clients."""

    view: Callable[[S], JsonValue]
    view_schema: Any = None


@identity_record
class Projection(Generic[S]):
    """A fold over a log. `apply` must be pure and return the same object when nothing changed.

    state_version: raised whenever stored states stop being usable. state_schema: judges stored states; None takes any.
    wire: None keeps the value inside the process.
    """

    key: str
    init: Callable[[], S]
    apply: Callable[[S, SessionEvent], S]
    state_version: int = 0
    state_schema: Schema | None = None
    wire: ProjectionWire[S] | None = None


@record
class ProjectionSnapshot:
    """Values of all units with a wire view, as of one event. as_of_seq: -1 for an empty log."""

    as_of_seq: int
    values: JsonObject


Changed = Callable[[Session, str, JsonValue, int], None]
"""Called with session, unit key, new view (None without one) and the seq that changed it."""


class _Cell:
    """One unit's state for one session: `seen` events are folded in, the one at `changed_at` changed it last."""

    __slots__ = ("changed_at", "error", "seen", "state")

    def __init__(self, state: Any) -> None:
        self.state = state
        self.seen = 0
        self.changed_at = -1
        self.error: Exception | None = None


class _Unit:
    __slots__ = ("cells", "holders", "projection")

    def __init__(self, projection: Projection[Any]) -> None:
        self.projection = projection
        self.holders = 0
        self.cells: WeakKeyDictionary[Session, _Cell] = WeakKeyDictionary()

    def view(self, state: Any) -> JsonValue:
        wire = self.projection.wire
        return None if wire is None else snapshot_json(wire.view(state))

    def usable(self, row: Any) -> bool:
        """Whether a stored row holds a state of this unit."""
        projection = self.projection
        if (
            not isinstance(row, Mapping)
            or row.get("ver") != projection.state_version
            or type(row.get("seq")) is not int
        ):
            return False
        if projection.state_schema is not None:
            try:
                projection.state_schema.validate(row.get("val"))
            except Exception:
                return False
        return "val" in row


class SessionProjections(Service, name="sessionProjections"):
    """Units and their values."""

    def __init__(self, ctx: Context, config: object, sessions: Sessions) -> None:
        self.ctx = ctx
        self._units: dict[str, _Unit] = {}
        self._changed: dict[object, Changed] = {}
        ctx.on(SessionAppended, self._on_event, global_=True)

    @owned
    def register(self, caller: Context, projection: Projection[Any]) -> Disposer:
        """Add a unit while the calling plugin is there; equal key and version share one.

        Raises HarnessError for a key held in another version, or a version that is no count.
        """
        version = projection.state_version
        if type(version) is not int or version < 0:
            raise HarnessError(
                f'session projection "{projection.key}": stateVersion must be an integer >= 0', "PROJECTION"
            )
        unit = self._units.get(projection.key)
        if unit is not None and unit.projection.state_version != version:
            raise HarnessError(
                f'session projection "{projection.key}" is already registered with stateVersion '
                f"{unit.projection.state_version}, not {version}",
                "PROJECTION",
            )

        def setup() -> Callable[[], None]:
            held = self._units.setdefault(projection.key, _Unit(projection))
            held.holders += 1

            def undo() -> None:
                held.holders -= 1
                if not held.holders:
                    del self._units[projection.key]

            return undo

        return caller.effect(setup, f"session-projection({projection.key})")

    @owned
    def on_changed(self, caller: Context, fn: Changed) -> Disposer:
        """Call `fn` after each event that changed a unit's state, while the calling plugin is there."""

        def setup() -> Callable[[], None]:
            token = object()
            self._changed[token] = fn
            return lambda: self._changed.pop(token, None) and None

        return caller.effect(setup, "session-projection-changed")

    def state_of(self, session: Session, key: str) -> Any:
        """The current state of a unit. Raises KeyError for an unknown key, and what the unit's fold failed with."""
        cell = self._caught_up(self._units[key], session)
        if cell.error is not None:
            raise cell.error
        return cell.state

    def snapshot(self, session: Session) -> ProjectionSnapshot:
        """The views of all units as of the session's last event; a unit whose fold failed is left out."""
        values: dict[str, Any] = {}
        for key, unit in self._units.items():
            if unit.projection.wire is not None:
                cell = self._caught_up(unit, session)
                if cell.error is None:
                    values[key] = unit.view(cell.state)
        return ProjectionSnapshot(session.seq - 1, values)

    def checkpoint(self, session: Session) -> JsonObject:
        """A storable row `{ver, seq, val}` for each unit, detached; states that are no JSON are left out."""
        rows: dict[str, Any] = {}
        for key, unit in self._units.items():
            cell = self._caught_up(unit, session)
            if cell.error is None:
                try:
                    value = snapshot_json(cell.state)
                except TypeError:
                    continue
                rows[key] = {"ver": unit.projection.state_version, "seq": cell.seen - 1, "val": value}
        return rows

    def restore_floor(self, rows: Mapping[str, Any]) -> int:
        """The seq from which the log must be read to bring stored rows up to date; 0 if a unit has no usable row."""
        if not all(unit.usable(rows.get(key)) for key, unit in self._units.items()):
            return 0
        return max(0, min((rows[key]["seq"] for key in self._units), default=0))

    def restore(self, rows: Mapping[str, Any], tail: Iterable[SessionEvent]) -> ProjectionSnapshot:
        """Views from stored rows and the log from `restore_floor` on.

        Raises HarnessError when the tail does not connect to a row.
        """
        events = list(tail)
        start = events[0].seq if events else None
        values: dict[str, Any] = {}
        last = events[-1].seq if events else min((row["seq"] for row in rows.values()), default=-1)
        for key, unit in self._units.items():
            row = rows.get(key)
            state, seq = (row["val"], row["seq"]) if row is not None and unit.usable(row) else (None, -1)
            if seq < 0:
                state = unit.projection.init()
            if start is not None and start > seq + 1:
                raise HarnessError(
                    f'session projection "{key}" needs the log from seq {seq + 1}, the tail starts at {start}',
                    "PROJECTION",
                )
            for event in events:
                if event.seq > seq:
                    state = unit.projection.apply(state, event)
            if unit.projection.wire is not None:
                values[key] = unit.view(state)
        return ProjectionSnapshot(last, values)

    def view_checkpoint(self, rows: Mapping[str, Any]) -> ProjectionSnapshot:
        """Views of stored rows alone, as of the oldest of them; unusable rows are left out."""
        usable = {key: unit for key, unit in self._units.items() if unit.usable(rows.get(key))}
        values = {key: unit.view(rows[key]["val"]) for key, unit in usable.items() if unit.projection.wire is not None}
        return ProjectionSnapshot(min((rows[key]["seq"] for key in usable), default=-1), values)

    def _on_event(self, event: SessionAppended) -> None:
        session, seq = event.session, event.event.seq
        for key, unit in list(self._units.items()):
            cell = self._caught_up(unit, session)
            if cell.changed_at == seq:
                self._tell(session, key, unit, cell, seq)

    def _tell(self, session: Session, key: str, unit: _Unit, cell: _Cell, seq: int) -> None:
        if not self._changed:
            return
        view = unit.view(cell.state)
        for fn in list(self._changed.values()):
            try:
                fn(session, key, view, seq)
            except Exception:
                self.ctx.logger.exception('a listener to session projection "%s" failed', key)

    def _caught_up(self, unit: _Unit, session: Session) -> _Cell:
        """The unit's cell with the whole log folded in."""
        cell = unit.cells.get(session)
        if cell is None:
            cell = unit.cells[session] = _Cell(unit.projection.init())
        if cell.seen != session.seq:
            for event in session.events[cell.seen :]:
                self._fold(unit, cell, event)
        return cell

    def _fold(self, unit: _Unit, cell: _Cell, event: SessionEvent) -> None:
        cell.seen += 1
        if cell.error is not None:
            return
        try:
            state = unit.projection.apply(cell.state, event)
        except Exception as error:
            cell.error = error
            self.ctx.logger.exception(
                'session projection "%s" failed at seq %d and stays as it was', unit.projection.key, event.seq
            )
            return
        if state is not cell.state:
            cell.state, cell.changed_at = state, event.seq
