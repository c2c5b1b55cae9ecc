"""The text of a JSONL session log: one header line, then one line per event or packed row; and what a crash leaves.

Lines end in `\\n` alone; nothing else splits them, because other line separators occur inside strings. A reader takes
any layout of packed rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import orjson

from dsh.cordis.jsonio import JsonDecodeError, JsonObject, NotJsonError, decode, encode
from dsh.cordis.records import struct
from dsh.core.packed_rows import MalformedRowError, is_packed, pack, unpack
from dsh.core.session_event import SESSION_FORMAT_VERSION, InvalidEnvelopeError, SessionEvent, adopt_plain
from dsh.core.session_header import SessionHeader, SessionHeaderError
from dsh.sessions import texts
from dsh.sessions.errors import (
    SessionFormatUnsupportedError,
    SessionPersistenceCorruptionError,
    SessionPersistenceError,
)
from dsh.sessions.frames import BadFrameError, walk

if TYPE_CHECKING:
    from dsh.sessions.frames import FrameCodec

_AT_ONCE: Final = 128 * 1024
"""Bytes parsed together: few enough that what comes of them stays in the processor's cache until it is taken."""
RETIRED_HEADER_KEYS: Final = ("sandboxMode", "approvalPolicy")


@struct
class DecodedLog:
    """The content of an artifact.

    keep: bytes from its start that are sound; what follows is the torn end of an interrupted write. rewrite: index of
    the first event that stands behind `keep`, recovered from a torn frame; the number of events if there is none.
    """

    header: SessionHeader
    events: list[SessionEvent] = field(default_factory=list)
    keep: int = 0
    rewrite: int = 0


# -- writing ----------------------------------------------------------------------------------------------------------


def encode_header(header: SessionHeader) -> bytes:
    """The first line of a log."""
    return encode({"type": "session", **header.to_wire()}) + b"\n"


def encode_batch(events: Sequence[SessionEvent], *, pack_chunks: bool = True) -> bytes:
    """The lines of one append. Raises SessionPersistenceError naming the type of an event that JSON cannot hold."""
    rows: list[JsonObject]
    try:
        rows = pack(events) if pack_chunks else [event.to_wire() for event in events]
        return b"\n".join([encode(row) for row in rows]) + b"\n" if rows else b""
    except (NotJsonError, TypeError, ValueError) as error:
        for event in events:
            try:
                encode(event.to_wire())
            except (NotJsonError, TypeError, ValueError) as cause:
                raise SessionPersistenceError(
                    f'session event "{event.type}" (seq {event.seq}) is not losslessly JSON-serializable: {cause}'
                ) from cause
        raise SessionPersistenceError(f"events are not losslessly JSON-serializable: {error}") from error


# -- reading ----------------------------------------------------------------------------------------------------------


def decode_header(line: bytes, session_id: str, location: str | None = None) -> SessionHeader:
    """The header in a log's first line; its format version is judged before anything else in it.

    session_id: for the messages when the line does not say. Raises SessionFormatUnsupportedError and
    SessionPersistenceCorruptionError.
    """
    try:
        wire = decode(line)
    except JsonDecodeError as error:
        raise SessionPersistenceCorruptionError(session_id, f"unparsable session header ({error})") from error
    if not isinstance(wire, dict) or wire.get("type") != "session":
        raise SessionPersistenceCorruptionError(session_id, "the first line is not a session header")
    named = wire.get("id")
    named = named if isinstance(named, str) and named else session_id
    version = wire.get("version")
    if type(version) is int and version != SESSION_FORMAT_VERSION:
        text = texts.newer_format if version > SESSION_FORMAT_VERSION else texts.older_format
        raise SessionFormatUnsupportedError(text(named, version), location)
    for key in RETIRED_HEADER_KEYS:
        if key in wire:
            raise SessionPersistenceCorruptionError(named, f'session header carries the retired key "{key}"')
    try:
        header = SessionHeader.from_wire(wire)
    except SessionHeaderError as error:
        raise SessionPersistenceCorruptionError(named, error) from error
    if not header.id:
        raise SessionPersistenceCorruptionError(session_id, "session header id must not be empty")
    return header


def decode_raw(data: bytes, session_id: str, location: str | None = None) -> DecodedLog:
    """Read an uncompressed log.

    Bytes behind the last line end are torn. A line that does not parse or does not continue the numbering ends the
    sound part, unless a turn ended after it: then a crash cannot explain it and the log is corrupt.
    Raises SessionPersistenceCorruptionError and SessionFormatUnsupportedError.
    """
    head, end_of_line, rest = data.partition(b"\n")
    if not end_of_line:
        raise SessionPersistenceCorruptionError(session_id, "the file holds no complete session header")
    log = DecodedLog(decode_header(head, session_id, location))
    lines = rest[: rest.rfind(b"\n") + 1]
    log.keep = len(head) + 1 + len(lines)
    unsound = _read_lines(log, lines, 2)
    if unsound is not None:
        if any(_ends_turn(later) for later in lines[unsound.start :].split(b"\n")[1:]):
            raise SessionPersistenceCorruptionError(log.header.id, unsound.why)
        log.keep = len(head) + 1 + unsound.start
    log.rewrite = len(log.events)
    return log


def decode_zstd(data: bytes, codec: FrameCodec, session_id: str, location: str | None = None) -> DecodedLog:
    """Read a compressed log: the header's frame, then one frame per append.

    Of a last frame that was cut short the complete lines are kept. A whole frame that does not decode, or whose lines
    are incomplete, is no trace of a crash. Raises SessionPersistenceCorruptionError and SessionFormatUnsupportedError.
    """
    log: DecodedLog | None = None
    line_number = 2
    try:
        for start, end in walk(data):
            if log is None:
                if end is None:
                    break
                head = codec.decode(data, start, end)
                if head.count(b"\n") != 1 or head[-1:] != b"\n":
                    raise SessionPersistenceCorruptionError(
                        session_id, "the first frame must hold the session header alone"
                    )
                log = DecodedLog(decode_header(head[:-1], session_id, location), keep=end)
                continue
            if end is None:
                log.rewrite = len(log.events)
                _recover(log, codec.decode(data, start, None))
                return log
            content = codec.decode(data, start, end)
            if content[-1:] != b"\n" and content:
                raise SessionPersistenceCorruptionError(
                    log.header.id, f"the frame at byte {start} ends inside a record"
                )
            unsound = _read_lines(log, content, line_number)
            if unsound is not None:
                raise SessionPersistenceCorruptionError(log.header.id, unsound.why)
            line_number += content.count(b"\n")
            log.keep = end
    except BadFrameError as error:
        raise SessionPersistenceCorruptionError(log.header.id if log is not None else session_id, error) from error
    if log is None:
        raise SessionPersistenceCorruptionError(session_id, "the file holds no complete session header")
    log.rewrite = len(log.events)
    return log


def _recover(log: DecodedLog, content: bytes) -> None:
    """Take the complete lines of a torn frame as far as they continue the log."""
    for line in content.split(b"\n")[:-1]:
        try:
            if _read_row(log, line, 0) is not None:
                return
        except SessionPersistenceCorruptionError:
            return


class _Unsound(NamedTuple):
    """A line that does not parse or does not continue the log: where it starts, and what is wrong."""

    start: int
    why: str


def _read_lines(log: DecodedLog, content: bytes, number: int) -> _Unsound | None:
    """Add the events of complete lines, the first of which has that number, up to the first unsound one.

    Many lines are parsed and taken together if nothing is wrong with them, which saves a fifth of the time.
    Whatever is wrong, or merely unusual, is read again on its own and judged there.
    """
    events = log.events
    start = 0
    while start < len(content):
        end = content.find(b"\n", min(start + _AT_ONCE, len(content) - 1)) + 1
        lines = content[start:end].split(b"\n")
        lines.pop()
        rows = _parse(lines)
        at = 0
        while True:
            if rows is not None:
                at += adopt_plain(rows, at, events)
            if at == len(lines):
                break
            if rows is None or not _take(events, rows[at]):
                fault = _read_row(log, lines[at], number + at)
                if fault is not None:
                    return _Unsound(start + sum(map(len, lines[:at])) + at, fault)
            at += 1
        start, number = end, number + len(lines)
    return None


def _parse(lines: list[bytes]) -> list[Any] | None:
    """The value of each line, None if one does not parse."""
    try:
        return [*map(orjson.loads, lines)]
    except orjson.JSONDecodeError:
        return None


def _take(events: list[SessionEvent], row: Any) -> bool:
    """Add the events of a row, if it is sound and continues the log."""
    try:
        added = unpack(row)
    except (InvalidEnvelopeError, MalformedRowError, NotJsonError):
        return False
    if added[0].seq != len(events):
        return False
    events += added
    return True


def _read_row(log: DecodedLog, line: bytes, number: int) -> str | None:
    """Add the events of one line; the fault of a line that does not parse or does not continue the log."""
    try:
        row: Any = decode(line)
    except JsonDecodeError:
        return texts.unparsable_line(number)
    if type(row) is not dict:
        return texts.unparsable_line(number)
    events = log.events
    expected = len(events)
    try:
        if row.get("type") == "assistant/chunk" or not is_packed(row):
            event = SessionEvent.from_wire(row)
            if event.seq != expected:
                return texts.seq_gap(number, expected, event.seq)
            events.append(event)
            return None
        unpacked = unpack(row)
    except (InvalidEnvelopeError, MalformedRowError, NotJsonError) as error:
        raise SessionPersistenceCorruptionError(log.header.id, f"{error} (line {number})") from error
    if unpacked[0].seq != expected:
        return texts.seq_gap(number, expected, unpacked[0].seq)
    events += unpacked
    return None


def _ends_turn(line: bytes) -> bool:
    if b'"turn/end"' not in line:
        return False
    try:
        row = decode(line)
    except JsonDecodeError:
        return False
    return isinstance(row, dict) and row.get("type") == "turn/end"
