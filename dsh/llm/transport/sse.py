"""Server-sent events, parsed from bytes as they arrive.

Slices may be cut anywhere, also inside a character or a line end. Line ends are CRLF, LF and CR and nothing else: the
other characters that Python's ``splitlines`` knows (U+2028, U+0085, …) are legal inside a JSON string.
Rules: https://html.spec.whatwg.org/multipage/server-sent-events.html
"""

from __future__ import annotations

from typing import TypeAlias

from dsh.llm.failure import LlmError

MAX_EVENT_BYTES = 16 * 1024 * 1024
_BOM = b"\xef\xbb\xbf"

SseEvent: TypeAlias = tuple[str, bytes]
"""One event: its ``event:`` name (empty when it has none) and its data lines joined by LF."""


class SseParser:
    """Feed it slices, take complete events. An event exists once its blank line was seen; a tail without one is a
    truncated stream and yields nothing.
    """

    __slots__ = ("_ends_line", "_head", "_parts", "_size", "_skip_lf")

    def __init__(self) -> None:
        self._parts: list[bytes] = []  # slices of the unfinished event
        self._size = 0  # their bytes
        self._ends_line = False  # the last of them ends in LF
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
        if b"\n\n" not in slice_ and not (self._ends_line and slice_[:1] == b"\n"):
            self._keep(slice_)
            return []
        if self._parts:
            slice_ = b"".join([*self._parts, slice_])
            self._parts.clear()
            self._size, self._ends_line = 0, False
        *blocks, tail = slice_.split(b"\n\n")
        self._keep(tail)
        events: list[SseEvent] = []
        for block in blocks:
            if block.startswith(b"data: ") and b"\n" not in block:  # nearly all of them
                events.append(("", block[6:]))
            elif (event := _event_of(block)) is not None:
                events.append(event)
        return events

    def _keep(self, rest: bytes) -> None:
        if not rest:
            return
        self._parts.append(rest)
        self._ends_line = rest.endswith(b"\n")
        self._size += len(rest)
        if self._size > MAX_EVENT_BYTES:
            raise LlmError.of("MALFORMED_RESPONSE", f"the provider sent an event above {MAX_EVENT_BYTES} bytes")

    def _decide_bom(self, slice_: bytes) -> bytes:
        head = (self._head or b"") + slice_
        if len(head) < 3 and _BOM.startswith(head):
            self._head = head
            return b""
        self._head = None
        return head.removeprefix(_BOM)


def _event_of(block: bytes) -> SseEvent | None:
    """The event of the lines before a blank one, None if none of them is data."""
    data: list[bytes] = []
    name = ""
    for line in block.split(b"\n"):
        field, _, value = line.partition(b":")
        if field == b"data":
            data.append(value.removeprefix(b" "))
        elif field == b"event":
            name = value.decode("utf-8", "replace").removeprefix(" ")
    return (name, b"\n".join(data)) if data else None
