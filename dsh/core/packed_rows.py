"""Packed chunk rows: one storage row for a run of stream deltas. A codec of storage, invisible to a session.

Three or more consecutive chunk events of one delta kind, equal in everything but text and time, become one row that
holds the first position and time, the time gaps, and the texts. Anything else is stored as it is. Unpacking what was
packed gives equal events.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import accumulate, islice, pairwise
from typing import Any, Final, NamedTuple, cast

from dsh.cordis.jsonio import FrozenDict, JsonObject
from dsh.core.session_event import MAX_SAFE_INT, SessionError, SessionEvent, is_count, is_safe_int

MIN_RUN: Final = 3
_CHUNK: Final = "assistant/chunk"

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
    events = list(events)
    rows: list[JsonObject] = []
    at = 0
    while at < len(events):
        shape = _shape(events[at])
        texts = [] if shape is None else _texts(events, at, shape)
        run = events[at : at + max(1, len(texts))]
        if shape is not None and len(run) >= MIN_RUN:
            rows.append(_packed(run, shape, texts))
        else:
            rows += [event.to_wire() for event in run]
        at += len(run)
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
        events.append(SessionEvent(_CHUNK, seq + position, times[position], frozen))
    return events


def _kind_of(row: object) -> _Kind | None:
    type_ = row.get("type") if isinstance(row, dict) else None
    return _BY_ROW.get(type_) if isinstance(type_, str) else None


def _shape(event: SessionEvent) -> _Shape | None:
    """The shape of a packable event, None for anything off the exact minimal form."""
    data = event.data
    if event.type != _CHUNK or event.surface_op is not None or event.source_event_seqs is not None or event.ignorable:
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


def _texts(events: list[SessionEvent], start: int, shape: _Shape) -> list[str]:
    """The texts of the run that begins at `start`: of the events of this shape that follow each other.

    Asks of each event what `_shape` asks, without making anything: most of what it costs to store a chunk is here.
    """
    kind, turn, step, block, id_, name = shape
    _, delta, text_key, _ = kind
    size = 3 + (id_ is not None) + (name is not None)
    seq, time = events[start].seq, events[start].time
    texts: list[str] = []
    for event in islice(events, start, None):
        if event.type != _CHUNK or event.seq != seq or type(event.time) is not int:
            break
        if event.surface_op is not None or event.source_event_seqs is not None or event.ignorable:
            break
        data = event.data
        chunk = data.get("chunk") if isinstance(data, dict) and len(data) == 3 else None
        if not isinstance(chunk, dict) or len(chunk) != size or chunk.get("type") != delta:
            break
        its_turn, its_step, its_block = data.get("turn"), data.get("step"), chunk.get("index")
        if its_turn != turn or its_step != step or its_block != block:
            break
        if not (type(its_turn) is type(its_step) is type(its_block) is int):  # true equals 1 and is not 1
            break
        text = chunk.get(text_key)
        if not isinstance(text, str) or chunk.get("id") != id_ or chunk.get("name") != name:
            break
        if not (-MAX_SAFE_INT <= event.time <= MAX_SAFE_INT and -MAX_SAFE_INT <= event.time - time <= MAX_SAFE_INT):
            break
        texts.append(text)
        seq, time = seq + 1, event.time
    return texts


def _packed(run: list[SessionEvent], shape: _Shape, texts: list[str]) -> JsonObject:
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
    data[kind.list_key] = texts
    return {"type": kind.row, "seq0": run[0].seq, "time0": run[0].time, "data": data}


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
