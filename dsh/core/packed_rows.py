"""Packed chunk rows: one storage row for a run of stream deltas. A codec of storage, invisible to a session.

Three or more consecutive chunk events of one delta kind, equal in everything but text and time, become one row that
holds the first position and time, the time gaps, and the texts. Anything else is stored as it is. Unpacking what was
packed gives equal events.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import accumulate, pairwise
from typing import Any, Final, NamedTuple, cast

from dsh.cordis.jsonio import FrozenDict, JsonObject
from dsh.core.session_event import MAX_SAFE_INT, SessionError, SessionEvent, is_count, is_safe_int

MIN_RUN: Final = 3

_DATA_KEYS: Final = frozenset({"turn", "step", "chunk"})
_ROW_KEYS: Final = frozenset({"type", "seq0", "time0", "data"})


class _Kind(NamedTuple):
    row: str
    delta: str
    text_key: str
    list_key: str


_KINDS: Final = (
    _Kind("text-chunks", "text-delta", "text", "texts"),
    _Kind("reasoning-chunks", "reasoning-delta", "text", "texts"),
    _Kind("tool-call-chunks", "tool-call-delta", "argumentsDelta", "args"),
)
_BY_DELTA: Final = {kind.delta: kind for kind in _KINDS}
_BY_ROW: Final = {kind.row: kind for kind in _KINDS}
_CALL: Final = "tool-call-delta"


class MalformedRowError(SessionError):
    """A packed row that does not follow its own format; such a file is corrupt."""

    code = "SESSION_MALFORMED_ROW"


class _Shape(NamedTuple):
    """What all events of a run have in common."""

    kind: _Kind
    turn: int
    step: int
    block: int
    id: str | None
    name: str | None


def pack(events: Iterable[SessionEvent]) -> list[JsonObject]:
    """The storage rows (wire objects) of consecutive events, packed in maximal runs."""
    rows: list[JsonObject] = []
    run: list[SessionEvent] = []
    shape: _Shape | None = None
    for event in events:
        found = _shape(event) if event.type == "assistant/chunk" else None
        if found is not None and found == shape and _follows(run[-1], event):
            run.append(event)
            continue
        if shape is not None:
            _close_run(rows, shape, run)
        shape = found
        if found is None:
            rows.append(event.to_wire())
        else:
            run = [event]
    if shape is not None:
        _close_run(rows, shape, run)
    return rows


def is_packed(row: object) -> bool:
    """True for a row of one of the packed types, well formed or not."""
    return _kind_of(row) is not None


def unpack(row: object) -> list[SessionEvent]:
    """The events of one freshly parsed storage row; an ordinary row is one event.

    Raises MalformedRowError for a packed row, InvalidEnvelopeError or NotJsonError for an ordinary one.
    """
    kind = _kind_of(row)
    if kind is None:
        return [SessionEvent.from_wire(row)]
    seq, time, data = _check_row(kind, cast("dict[str, Any]", row))
    dt, texts = data["dt"], data[kind.list_key]
    turn, step, index = data["turn"], data["step"], data["index"]
    chunk: dict[str, Any] = {"type": kind.delta, "index": index}
    if kind.delta == _CALL:
        chunk["id"] = data["id"]
        if "name" in data:
            chunk["name"] = data["name"]
    text_key = kind.text_key
    times = list(accumulate(dt, initial=time))
    if not (is_safe_int(min(times)) and is_safe_int(max(times))):
        raise _malformed(kind, "time leaves the safe integer range")
    # What goes in is scalar or frozen already, so the check of a full snapshot is skipped.
    new, fill = FrozenDict.__new__, dict.update
    body: dict[str, Any] = {"turn": turn, "step": step, "chunk": None}
    events = []
    for position, text in enumerate(texts):
        chunk[text_key] = text
        body["chunk"] = frozen_chunk = new(FrozenDict)
        fill(frozen_chunk, chunk)
        frozen = new(FrozenDict)
        fill(frozen, body)
        events.append(SessionEvent("assistant/chunk", seq + position, times[position], frozen))
    return events


def _kind_of(row: object) -> _Kind | None:
    type_ = row.get("type") if isinstance(row, dict) else None
    return _BY_ROW.get(type_) if isinstance(type_, str) else None


def _shape(event: SessionEvent) -> _Shape | None:
    """The shape of a packable event, None for anything off the exact minimal form."""
    data = event.data
    if event.surface_op is not None or event.source_event_seqs is not None or event.ignorable:
        return None
    if not isinstance(data, dict) or data.keys() != _DATA_KEYS:
        return None
    chunk = data["chunk"]
    if not isinstance(chunk, dict):
        return None
    delta = chunk.get("type")
    kind = _BY_DELTA.get(delta) if isinstance(delta, str) else None
    if kind is None or not isinstance(chunk.get(kind.text_key), str):
        return None
    turn, step, index = data["turn"], data["step"], chunk.get("index", -1)
    if not (is_count(turn) and is_count(step) and is_count(index) and is_count(event.seq) and is_safe_int(event.time)):
        return None
    if delta != _CALL:
        return _Shape(kind, turn, step, index, None, None) if len(chunk) == 3 else None
    id_, name = chunk.get("id"), chunk.get("name")
    if not isinstance(id_, str) or (name is not None and not isinstance(name, str)):
        return None
    if len(chunk) != (4 if name is None else 5):
        return None
    return _Shape(kind, turn, step, index, id_, name)


def _follows(last: SessionEvent, event: SessionEvent) -> bool:
    return event.seq == last.seq + 1 and is_safe_int(event.time - last.time)


def _close_run(rows: list[JsonObject], shape: _Shape, run: list[SessionEvent]) -> None:
    if len(run) < MIN_RUN:
        rows.extend(event.to_wire() for event in run)
        return
    kind = shape.kind
    data: dict[str, Any] = {
        "turn": shape.turn,
        "step": shape.step,
        "index": shape.block,
        "dt": [after.time - before.time for before, after in pairwise(run)],
    }
    if shape.id is not None:
        data["id"] = shape.id
    if shape.name is not None:
        data["name"] = shape.name
    data[kind.list_key] = [event.data["chunk"][kind.text_key] for event in run]
    rows.append({"type": kind.row, "seq0": run[0].seq, "time0": run[0].time, "data": data})


def _check_row(kind: _Kind, row: Mapping[str, Any]) -> tuple[int, int, Mapping[str, Any]]:
    if row.keys() != _ROW_KEYS:
        raise _malformed(kind, f"keys must be {_listed(_ROW_KEYS)}, got {_listed(row)}")
    seq, time, data = row["seq0"], row["time0"], row["data"]
    if not is_count(seq):
        raise _malformed(kind, "seq0 must be a non-negative safe integer")
    if not is_safe_int(time):
        raise _malformed(kind, "time0 must be a safe integer")
    if not isinstance(data, Mapping):
        raise _malformed(kind, "data must be an object")
    wanted = {"turn", "step", "index", "dt", kind.list_key}
    if kind.delta == _CALL:
        wanted.add("id")
        if "name" in data:
            wanted.add("name")
    if data.keys() != wanted:
        raise _malformed(kind, f"data keys must be {_listed(wanted)}, got {_listed(data)}")
    for key in ("turn", "step", "index"):
        if not is_count(data[key]):
            raise _malformed(kind, f"data.{key} must be a non-negative safe integer")
    for key in ("id", "name"):
        if key in data and not isinstance(data[key], str):
            raise _malformed(kind, f"data.{key} must be a string")
    texts, dt = data[kind.list_key], data["dt"]
    if not isinstance(texts, list) or not texts or set(map(type, texts)) != {str}:
        raise _malformed(kind, f"data.{kind.list_key} must be a non-empty array of strings")
    if not isinstance(dt, list) or len(dt) != len(texts) - 1:
        raise _malformed(kind, f"data.dt must hold {len(texts) - 1} gaps")
    if not all(map(is_safe_int, dt)):
        raise _malformed(kind, "data.dt must hold safe integers")
    if seq + len(texts) - 1 > MAX_SAFE_INT:
        raise _malformed(kind, "seq leaves the safe integer range")
    return seq, time, data


def _malformed(kind: _Kind, why: str) -> MalformedRowError:
    return MalformedRowError(f"malformed {kind.row} storage row: {why}")


def _listed(keys: Iterable[str]) -> str:
    return ", ".join(sorted(map(str, keys)))
