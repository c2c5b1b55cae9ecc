"""The surface: the ordered list of events that make up the conversation a model sees.

The log only grows; the surface is what replacements (compaction, pruning, result rewriting) edit. A transition is first
planned, which validates everything and changes nothing, then committed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from dsh.cordis.jsonio import json_equal
from dsh.cordis.records import record
from dsh.core.session_event import SURFACE_TYPES, SessionError, SessionEvent, is_count

_REPLACE_KEYS: Final = frozenset({"op", "start", "end"})


class SurfaceError(SessionError):
    """An event that cannot enter the surface the way it asks to."""

    code = "SESSION_SURFACE"


@record
class Replacement:
    """One replacement found by `fold_surface`: the event `seq` took the place of the nodes `shadowed_seqs`."""

    seq: int
    start: int
    end: int
    shadowed_seqs: tuple[int, ...]


class Surface:
    """The current nodes of one log.

    log: the list the owner appends to (the planned event is not in it yet). base_seq: sequence number of `log[0]`, for
    a log of which only the tail is loaded; a replacement that reaches before it is refused.
    """

    __slots__ = ("_base_seq", "_log", "_nodes", "_snapshot", "replace_generation")

    def __init__(self, log: Sequence[SessionEvent], base_seq: int = 0) -> None:
        self._log = log
        self._base_seq = base_seq
        self._nodes: list[int] = []
        self._snapshot: tuple[int, ...] | None = ()
        self.replace_generation = 0
        """How many replacements happened so far."""

    @property
    def nodes(self) -> tuple[int, ...]:
        """Sequence numbers of the model-visible events, in conversation order."""
        if self._snapshot is None:
            self._snapshot = tuple(self._nodes)
        return self._snapshot

    def __len__(self) -> int:
        return len(self._nodes)

    def tail(self, start: int) -> list[int]:
        """The nodes from index `start` on."""
        return self._nodes[start:]

    def plan(self, event: SessionEvent) -> slice | None:
        """Where `event` would go: the run of node indexes it takes the place of (empty at the end for an append).

        None for a log-only event. Raises SurfaceError; changes nothing.
        """
        if event.type not in SURFACE_TYPES:
            _refuse_metadata(event)
            return None
        start, end = _bounds(event)
        _check_sources(event)
        if start is None or end is None:
            return slice(len(self._nodes), len(self._nodes))
        return self._plan_replace(event, start, end)

    def commit(self, event: SessionEvent, place: slice) -> None:
        """Carry out what `plan` returned for `event`."""
        if place.start != place.stop:
            self.replace_generation += 1
        self._nodes[place] = [event.seq]
        self._snapshot = None

    def shadowed(self, place: slice) -> tuple[int, ...]:
        """The nodes that a planned place would take away."""
        return tuple(self._nodes[place])

    def _plan_replace(self, event: SessionEvent, start: int, end: int) -> slice:
        first, last = self._index("start", start), self._index("end", end)
        if first > last:
            raise SurfaceError(
                f"surface replace: start seq {start} (index {first}) is after end seq {end} (index {last})"
            )
        place = slice(first, last + 1)
        cited = frozenset(event.source_event_seqs or ())
        missing = [seq for seq in self._nodes[place] if seq not in cited]
        if missing:
            raise SurfaceError(
                "surface replace: sourceEventSeqs must include every shadowed surface node; "
                f"missing {', '.join(map(str, missing))}"
            )
        if event.type == "tool/result":
            self._check_rewrite(event, place)
        return place

    def _index(self, end: str, seq: int) -> int:
        try:
            return self._nodes.index(seq)
        except ValueError:
            raise SurfaceError(f"surface replace: {end} seq {seq} not found in surface") from None

    def _check_rewrite(self, event: SessionEvent, place: slice) -> None:
        if place.stop - place.start != 1:
            raise SurfaceError("tool/result surface replacement must rewrite exactly one current node")
        target = self._log[self._nodes[place.start] - self._base_seq]
        if target.type != "tool/result":
            raise SurfaceError("tool/result surface replacement must target a current tool/result")
        before, after = _without_content(target.data), _without_content(event.data)
        if before is None or after is None or not json_equal(before, after):
            raise SurfaceError("tool/result surface replacement may change only content")


def is_surface_eligible(type_: str) -> bool:
    """True for the event types that may carry a surface marker."""
    return type_ in SURFACE_TYPES


def is_surface_event(event: SessionEvent) -> bool:
    """True for an event that entered the surface, by append or by replacement."""
    return event.surface_op is not None and event.type in SURFACE_TYPES


def is_append_origin(event: SessionEvent) -> bool:
    """True for an event that was said when it was logged; human transcripts show these."""
    return event.surface_op == "append" and event.type in SURFACE_TYPES


def is_replacement(event: SessionEvent) -> bool:
    """True for an event that took the place of earlier ones in what the model sees."""
    return is_surface_event(event) and event.surface_op != "append"


def fold_surface(events: Iterable[SessionEvent], base_seq: int = 0) -> tuple[tuple[int, ...], list[Replacement]]:
    """Nodes and replacements of a log, or of its tail from `base_seq` on. Raises SurfaceError like an append would."""
    log: list[SessionEvent] = []
    surface = Surface(log, base_seq)
    replacements: list[Replacement] = []
    for event in events:
        place = surface.plan(event)
        if place is not None:
            gone = surface.shadowed(place)
            if isinstance(event.surface_op, Mapping):
                replacements.append(Replacement(event.seq, event.surface_op["start"], event.surface_op["end"], gone))
            surface.commit(event, place)
        log.append(event)
    return surface.nodes, replacements


def _refuse_metadata(event: SessionEvent) -> None:
    field = "surfaceOp" if event.surface_op is not None else "sourceEventSeqs"
    if event.surface_op is not None or event.source_event_seqs is not None:
        raise SurfaceError(f'session event "{event.type}" is not surface-eligible and cannot carry {field}')


def _bounds(event: SessionEvent) -> tuple[int | None, int | None]:
    """Start and end of a replacement, (None, None) for an append."""
    op = event.surface_op
    if op == "append":
        return None, None
    if op is None:
        raise SurfaceError(f'session event "{event.type}" is surface-eligible and requires a surfaceOp marker')
    if not isinstance(op, Mapping) or op.get("op") != "replace":
        raise SurfaceError(f'session event "{event.type}" carries an invalid surfaceOp')
    if op.keys() != _REPLACE_KEYS or not is_count(op["start"]) or not is_count(op["end"]):
        raise SurfaceError(f'session event "{event.type}" carries an invalid replace surfaceOp')
    return op["start"], op["end"]


def _check_sources(event: SessionEvent) -> None:
    sources = event.source_event_seqs
    if sources is None:
        return
    if not sources:
        if event.type != "assistant/message":
            raise SurfaceError("sourceEventSeqs must not be empty except on assistant/message")
        return
    if set(map(type, sources)) != {int} or min(sources) < 0:
        raise SurfaceError("sourceEventSeqs must contain only non-negative integers")
    if len(set(sources)) != len(sources):
        raise SurfaceError("sourceEventSeqs must not contain duplicates")
    latest = max(sources)
    if latest >= event.seq:
        raise SurfaceError(f"sourceEventSeqs must reference earlier events: {latest} >= current seq {event.seq}")


def _without_content(data: Any) -> Any:
    """A tool result's data with the text of its result block taken out, None when it has not that shape."""
    try:
        message = data["message"]
        (block,) = message["content"]
        return {**data, "message": {**message, "content": [{**block, "content": None}]}}
    except (KeyError, TypeError, ValueError):
        return None
