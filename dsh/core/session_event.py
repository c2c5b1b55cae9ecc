"""The envelope of one log event, and its wire form.

An event is immutable by convention: a plain slotted class costs a third of a frozen dataclass to build, and a log of
100,000 events is built at every open. Everything inside `data` is deep-frozen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any, Final, cast

from dsh.cordis.errors import HarnessError
from dsh.cordis.jsonio import JsonObject, freeze_json, json_equal
from dsh.cordis.records import identity_struct

SESSION_FORMAT_VERSION: Final = 0
"""One number for header shape, envelope, meaning of core events and the surface mechanism."""

MAX_SAFE_INT: Final = 2**53 - 1
"""Largest integer that every JSON reader keeps exactly."""

SURFACE_TYPES: Final = frozenset({"user/message", "assistant/message", "tool/result"})
"""The only event types that can become model-visible messages."""

SurfaceOp = str | Mapping[str, Any]
"""`"append"`, or `{"op": "replace", "start": seq, "end": seq}`."""

_REQUIRED: Final = frozenset({"type", "seq", "time", "data"})
_ENVELOPE: Final = _REQUIRED | {"sourceEventSeqs", "surfaceOp", "ignorable"}


class SessionError(HarnessError):
    """A session operation that breaks a rule of the log; the message says which one."""

    code = "SESSION"


class InvalidEnvelopeError(SessionError):
    """A value that is not an event envelope."""

    code = "SESSION_INVALID_ENVELOPE"


def is_count(value: object) -> bool:
    """True for a non-negative integer that JSON keeps exactly; booleans are not integers."""
    return type(value) is int and 0 <= value <= MAX_SAFE_INT


def is_safe_int(value: object) -> bool:
    """True for any integer that JSON keeps exactly; booleans are not integers."""
    return type(value) is int and -MAX_SAFE_INT <= value <= MAX_SAFE_INT


@identity_struct
class SessionEvent:
    """One entry of a session log.

    type: event name. seq: position in the log, from 0. time: wall clock in ms since the epoch (may go backwards).
    data: deep-frozen JSON. surface_op: how the event enters the model-visible list (surface types only).
    source_event_seqs: earlier events it was built from; None = not recorded, () = known to be none.
    ignorable: a reader that does not know the type may skip the event.
    """

    type: str
    seq: int
    time: int
    data: Any
    surface_op: SurfaceOp | None = None
    source_event_seqs: tuple[int, ...] | None = None
    ignorable: bool = False

    def to_wire(self) -> JsonObject:
        """A new dict in storage key order; unset optional fields are left out. `data` is shared, not copied."""
        wire: dict[str, Any] = {"type": self.type, "seq": self.seq, "time": self.time, "data": self.data}
        if self.source_event_seqs is not None:
            wire["sourceEventSeqs"] = list(self.source_event_seqs)
        if self.surface_op is not None:
            wire["surfaceOp"] = self.surface_op
        if self.ignorable:
            wire["ignorable"] = True
        return wire

    @classmethod
    def from_wire(cls, wire: object) -> SessionEvent:
        """Build an event from freshly parsed JSON, adopting and freezing its `data` in place.

        Only the envelope is checked. Raises InvalidEnvelopeError, or NotJsonError for data that is not JSON.
        """
        if not isinstance(wire, Mapping):
            raise InvalidEnvelopeError("invalid event envelope: not an object")
        keys = wire.keys()
        if not (keys == _REQUIRED or (keys <= _ENVELOPE and keys >= _REQUIRED)):
            raise InvalidEnvelopeError(
                "invalid event envelope: "
                f"missing {sorted(_REQUIRED - keys)}, unexpected {sorted(str(key) for key in keys - _ENVELOPE)}"
            )
        type_, seq, time = wire["type"], wire["seq"], wire["time"]
        if not (isinstance(type_, str) and is_count(seq) and is_safe_int(time)):
            raise InvalidEnvelopeError("invalid event envelope: type must be text, seq and time integers")
        data = freeze_json(wire["data"])
        if "ignorable" in wire and wire["ignorable"] is not True:
            raise InvalidEnvelopeError("invalid event envelope: ignorable must be true when present")
        sources = None
        if "sourceEventSeqs" in wire:
            raw = wire["sourceEventSeqs"]
            if not isinstance(raw, (list, tuple)):
                raise InvalidEnvelopeError("invalid event envelope: sourceEventSeqs must be an array")
            sources = tuple(cast("list[int]", freeze_json(raw)))
        op = None
        if "surfaceOp" in wire:
            op = cast("SurfaceOp", freeze_json(wire["surfaceOp"]))
            if op is None:
                raise InvalidEnvelopeError("invalid event envelope: surfaceOp must not be null")
        return cls(type_, seq, time, data, op, sources, "ignorable" in wire)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, SessionEvent):
            return NotImplemented
        return (
            self.seq == other.seq
            and self.type == other.type
            and self.time == other.time
            and self.ignorable is other.ignorable
            and self.source_event_seqs == other.source_event_seqs
            and json_equal(self.surface_op, other.surface_op)
            and json_equal(self.data, other.data)
        )

    def __hash__(self) -> int:
        return hash((self.type, self.seq, self.time))

    def __repr__(self) -> str:
        return f"SessionEvent({self.seq} {self.type})"


def adopt_plain(rows: Sequence[Any], start: int, events: list[SessionEvent]) -> int:
    """Append to a log the events of freshly parsed rows from `start` on, each as `SessionEvent.from_wire` makes it.

    Stops at the first row that has other fields than the four required ones, continues the log with another number, or
    is no event at all. Returns how many it took. One loop for all: a log of 100,000 events is read at each open, and
    calls for each of them took half as long again.
    """
    first = seq = len(events)
    append = events.append
    for row in islice(rows, start, None):
        try:
            type_, number, time, data = row["type"], row["seq"], row["time"], row["data"]
            if number != seq or type(number) is not int or type(time) is not int or type(type_) is not str:
                break
            if len(row) != 4 or not -MAX_SAFE_INT <= time <= MAX_SAFE_INT:
                break
            append(SessionEvent(type_, seq, time, freeze_json(data)))
        except (KeyError, TypeError):  # NotJsonError is one of them
            break
        seq += 1
    return seq - first
