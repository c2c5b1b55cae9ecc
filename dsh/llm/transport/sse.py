"""Server-sent events, parsed from bytes as they arrive.

Slices may be cut anywhere, also inside a character or a line end. Line ends are CRLF, LF and CR and nothing else: the
other characters that Python's ``splitlines`` knows (U+2028, U+0085, …) are legal inside a JSON string.
Rules: https://html.spec.whatwg.org/multipage/server-sent-events.html
"""

from __future__ import annotations

from typing import NamedTuple

from dsh.llm.failure import LlmError

MAX_EVENT_BYTES = 16 * 1024 * 1024
_BOM = b"\xef\xbb\xbf"


class SseEvent(NamedTuple):
    """One event: its ``event:`` name (empty when it has none) and its data lines joined by LF."""

    name: str
    data: bytes


class SseParser:
    """Feed it slices, take complete events. An event exists once its blank line was seen; a tail without one is a
    truncated stream and yields nothing.
    """

    __slots__ = ("_data", "_head", "_name", "_parts", "_size", "_skip_lf")

    def __init__(self) -> None:
        self._parts: list[bytes] = []  # slices of the unfinished line
        self._size = 0  # bytes of the unfinished event
        self._data: bytes | None = None
        self._name = ""
        self._skip_lf = False  # the last slice ended in CR, whose LF may still come
        self._head: bytes | None = b""  # the first bytes until the byte order mark is decided, then None

    def feed(self, slice_: bytes) -> list[SseEvent]:
        """The events completed by `slice_`. Raises ``MALFORMED_RESPONSE`` for an event above 16 MiB."""
        if self._head is not None:
            slice_ = self._decide_bom(slice_)
        if self._skip_lf and slice_:
            self._skip_lf = False
            if slice_[:1] == b"\n":
                slice_ = slice_[1:]
        if b"\r" in slice_:
            self._skip_lf = slice_.endswith(b"\r")
            slice_ = slice_.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        self._size += len(slice_)
        if b"\n" not in slice_:
            if slice_:
                self._parts.append(slice_)
                self._check_size()
            return []
        if self._parts:
            slice_ = b"".join(self._parts) + slice_
            self._parts.clear()
        lines = slice_.split(b"\n")
        tail = lines.pop()
        if tail:
            self._parts.append(tail)
        events = self._take(lines)
        if events:
            self._size = len(tail) + len(self._data or b"")
        else:
            self._check_size()
        return events

    def _take(self, lines: list[bytes]) -> list[SseEvent]:
        events: list[SseEvent] = []
        data, name = self._data, self._name
        for line in lines:
            if not line:
                if data is not None:
                    events.append(SseEvent(name, data))
                data, name = None, ""
            elif line.startswith(b"data:"):
                value = line[6:] if line[5:6] == b" " else line[5:]
                data = value if data is None else data + b"\n" + value
            elif line.startswith(b"event:"):
                name = line[6:].decode("utf-8", "replace").removeprefix(" ")
            elif line == b"data":
                data = b"" if data is None else data + b"\n"
        self._data, self._name = data, name
        return events

    def _decide_bom(self, slice_: bytes) -> bytes:
        head = (self._head or b"") + slice_
        if len(head) < 3 and _BOM.startswith(head):
            self._head = head
            return b""
        self._head = None
        return head.removeprefix(_BOM)

    def _check_size(self) -> None:
        if self._size > MAX_EVENT_BYTES:
            raise LlmError.of("MALFORMED_RESPONSE", f"the provider sent an event above {MAX_EVENT_BYTES} bytes")
