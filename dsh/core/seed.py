"""Events given to a session at construction: checked one by one exactly like appends, never published."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from dsh.cordis.jsonio import FrozenDict, NotJsonError, snapshot_json
from dsh.core.bulk import collector_paused
from dsh.core.message_shape import check_message_event
from dsh.core.request_header import HEADER_TYPES, check_header, refuse_legacy_header
from dsh.core.session_event import SURFACE_TYPES, InvalidEnvelopeError, SessionError, SessionEvent
from dsh.core.surface import Surface, SurfaceError

SeedSource = Literal["create", "persistence"]
"""`create` leaves the caller's values alone; `persistence` adopts freshly parsed ones and freezes them in place."""

Seed = Iterable[SessionEvent | Mapping[str, Any]]
"""Events, or their wire objects."""


def import_seed(seed: Seed, log: list[SessionEvent], surface: Surface, source: SeedSource) -> None:
    """Validate `seed` into the empty `log` and its `surface`. Raises SessionError naming the index."""
    with collector_paused():
        _import(seed, log, surface, source == "persistence")


def _import(seed: Seed, log: list[SessionEvent], surface: Surface, adopt: bool) -> None:
    for index, raw in enumerate(seed):
        event = _as_event(raw, index, adopt)
        type_ = event.type
        if type_ in HEADER_TYPES:
            refuse_legacy_header(type_, event.data, f"seed event at index {index}")
        if event.seq != index:
            raise SessionError(
                f"seed event at index {index} has seq {event.seq} (expected {index}); seed must be contiguous from 0"
            )
        if type_ in SURFACE_TYPES:
            check_message_event(type_, event.data, f"seed {type_} at index {index}")
        elif type_ == "request/header":
            check_header(event.data, f"seed request/header at index {index}")
        if type_ in SURFACE_TYPES or event.surface_op is not None or event.source_event_seqs is not None:
            try:
                place = surface.plan(event)
            except SurfaceError as error:
                raise SurfaceError(f"invalid seed event at index {index}: {error}") from error
            if place is not None:
                surface.commit(event, place)
        log.append(event)


def _as_event(raw: SessionEvent | Mapping[str, Any], index: int, adopt: bool) -> SessionEvent:
    """`raw` itself when it is an intact frozen event, else a checked event built from its wire form."""
    if type(raw) is SessionEvent:
        if (
            type(raw.data) is FrozenDict
            and type(raw.seq) is int
            and type(raw.time) is int
            and type(raw.type) is str
            and (raw.surface_op is None or type(raw.surface_op) in (str, FrozenDict))
            and (raw.source_event_seqs is None or type(raw.source_event_seqs) is tuple)
        ):
            return raw
        raw = raw.to_wire()
    try:
        return SessionEvent.from_wire(raw if adopt else snapshot_json(raw))
    except NotJsonError as error:
        raise SessionError(f"seed event at index {index} is not losslessly JSON-serializable") from error
    except InvalidEnvelopeError as error:
        raise InvalidEnvelopeError(f"seed event at index {index} has an invalid event envelope") from error
