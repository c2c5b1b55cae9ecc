"""The last record of a kind in a stored log, looked for from the end without decoding what comes before it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

from dsh.cordis.jsonio import JsonDecodeError, decode
from dsh.sessions.errors import SessionPersistenceCorruptionError
from dsh.sessions.frames import BadFrameError, FrameCodec, walk
from dsh.sessions.log_file import is_compressed, read_stable

T = TypeVar("T")
Judge = Callable[[Mapping[str, Any]], T | None]
"""What a record says; None if it is not one of those looked for."""

_REACH: Final = 65536


def last_in_log(path: str, session_id: str, marks: Sequence[bytes], judge: Judge[T]) -> T | None:
    """What `judge` says of the last record it knows, among the lines that hold one of `marks`.

    Raises OSError, SessionPersistenceCorruptionError.
    """
    if is_compressed(path):
        return _in_frames(path, session_id, marks, judge)
    with open(path, "rb", buffering=0) as file:
        end = file.seek(0, os.SEEK_END)
        reach = _REACH
        while True:
            start = max(0, end - reach)
            found = _in_lines(os.pread(file.fileno(), end - start, start), marks, judge)
            if found is not None or start == 0:
                return found
            reach *= 4


def _in_frames(path: str, session_id: str, marks: Sequence[bytes], judge: Judge[T]) -> T | None:
    data, _ = read_stable(path)
    codec = FrameCodec()
    try:
        for start, end in reversed(list(walk(data))):
            found = _in_lines(codec.decode(data, start, end), marks, judge)
            if found is not None:
                return found
    except BadFrameError as error:
        raise SessionPersistenceCorruptionError(session_id, error) from error
    return None


def _in_lines(content: bytes, marks: Sequence[bytes], judge: Judge[T]) -> T | None:
    end = len(content)
    while (at := max(content.rfind(mark, 0, end) for mark in marks)) >= 0:
        begin = content.rfind(b"\n", 0, at) + 1
        line_end = content.find(b"\n", at)
        row = _row(content[begin : line_end if line_end >= 0 else len(content)])
        found = None if row is None else judge(row)
        if found is not None:
            return found
        end = begin
    return None


def _row(line: bytes) -> Mapping[str, Any] | None:
    try:
        row: Any = decode(line)
    except JsonDecodeError:
        return None
    return row if isinstance(row, dict) else None
