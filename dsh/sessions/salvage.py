"""What can still be read of a damaged log: everything before the first damage."""

from __future__ import annotations

from dsh.sessions.errors import SessionPersistenceCorruptionError
from dsh.sessions.frames import BadFrameError, walk
from dsh.sessions.jsonl_codec import DecodedLog
from dsh.sessions.log_file import decode_log, is_compressed, read_stable


def readable_part(path: str, session_id: str) -> DecodedLog:
    """The longest sound beginning of the log at `path`; writes nothing.

    Raises SessionPersistenceCorruptionError if not even the header can be read, SessionFormatUnsupportedError, OSError.
    """
    data, _ = read_stable(path)
    cuts = _cuts(data, compressed=is_compressed(path))
    best = decode_log(data[: cuts[0]] if cuts else data, path, session_id)
    low, high = 1, len(cuts) - 1  # a beginning of a sound beginning is sound
    while low <= high:
        middle = (low + high) // 2
        try:
            best = decode_log(data[: cuts[middle]], path, session_id)
            low = middle + 1
        except SessionPersistenceCorruptionError:
            high = middle - 1
    return best


def _cuts(data: bytes, *, compressed: bool) -> list[int]:
    """Where a log may be cut between two of its writes, in order."""
    ends: list[int] = []
    if not compressed:
        at = 0
        while (at := data.find(b"\n", at) + 1) > 0:
            ends.append(at)
        return ends
    try:
        ends += [end for _, end in walk(data) if end is not None]
    except BadFrameError:
        pass  # what begins no frame ends the readable part at the latest
    return ends
