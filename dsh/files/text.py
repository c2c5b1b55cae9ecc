"""Text of files: strict decoding, line ends, and an edit that touches nothing but its match."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dsh.cordis.records import record

BINARY_PROBE = 8192
"""How many leading bytes are searched for a NUL before a file counts as text."""

_STYLE_PROBE = 4096
_BOM = "\ufeff"
_LONE_SURROGATES = re.compile("[\ud800-\udfff]")


def valid_text(text: str) -> str:
    """`text` with every lone surrogate replaced by U+FFFD, so that it can be encoded.

    Names of files that are not UTF-8 and JSON escapes such as `"\\ud800"` carry them.
    """
    return text if text.isascii() else _LONE_SURROGATES.sub("\ufffd", text)


def to_lf(text: str) -> str:
    """`text` with each CRLF turned into LF; a lone CR stays."""
    return text.replace("\r\n", "\n") if "\r\n" in text else text


def line_end(text: str) -> str:
    """The line end that new lines of this file take, judged by its first 4096 characters.

    CRLF when it outnumbers the bare LF; CR only where neither of the two occurs; else LF.
    """
    head = text[:_STYLE_PROBE]
    crlf = head.count("\r\n")
    lf = head.count("\n") - crlf
    if crlf > lf:
        return "\r\n"
    return "\r" if crlf == lf == 0 and "\r" in head else "\n"


def without_bom(text: str) -> str:
    """`text` without a leading byte order mark."""
    return text.removeprefix(_BOM)


@record
class Splice:
    """An edited file: `text` is what goes to disk, `before` and `after` are what a reader sees (no BOM, LF)."""

    text: str
    before: str
    after: str


def count_matches(text: str, old: str) -> int:
    """How often `old` occurs in `text` without overlap, CRLF and LF being equal."""
    return to_lf(without_bom(text)).count(to_lf(old))


def splice(text: str, old: str, new: str, *, every: bool) -> Splice:
    """Replace the first occurrence of `old` (or `every` one) by `new`, compared with CRLF and LF being equal.

    The characters outside a match stay as they are, and so do the parts of a match that `old` and `new` begin and end
    with: mixed line ends, a byte order mark and a missing final newline survive. New lines take the file's dominant
    line end. `old` must occur.
    """
    bom = _BOM if text.startswith(_BOM) else ""
    original = text[len(bom) :]
    before = to_lf(original)
    old, new = to_lf(old), to_lf(new)
    head = common_prefix(old, new)
    tail = common_suffix(old, new, min(len(old), len(new)) - head)
    cut = len(old) - head - tail
    fresh = new[head : len(new) - tail]
    fresh_on_disk = fresh.replace("\n", line_end(original))

    locate = _OriginalOffsets(original, before)
    on_disk: list[str] = [bom]
    seen: list[str] = []
    disk_at = seen_at = 0
    for match in _matches(before, old, every=every):
        start = match + head
        stop = start + cut
        disk_start, disk_stop = locate(start), locate(stop)
        on_disk += (original[disk_at:disk_start], fresh_on_disk)
        seen += (before[seen_at:start], fresh)
        disk_at, seen_at = disk_stop, stop
    on_disk.append(original[disk_at:])
    seen.append(before[seen_at:])
    return Splice(text="".join(on_disk), before=before, after="".join(seen))


def _matches(text: str, old: str, *, every: bool) -> Iterator[int]:
    at = text.find(old)
    while at >= 0:
        yield at
        if not every:
            return
        at = text.find(old, at + len(old))


class _OriginalOffsets:
    """Maps ascending offsets of the LF form to offsets of the original, walking the CRLF pairs once."""

    def __init__(self, original: str, lf_form: str) -> None:
        self._pairs = iter(()) if len(original) == len(lf_form) else re.finditer("\r\n", original)
        self._shift = 0
        self._next = self._advance()

    def _advance(self) -> int:
        """The offset in the LF form of the next line end that is a pair in the original."""
        pair = next(self._pairs, None)
        return -1 if pair is None else pair.start() - self._shift

    def __call__(self, offset: int) -> int:
        while 0 <= self._next < offset:
            self._shift += 1
            self._next = self._advance()
        return offset + self._shift


_STEPS = (1 << 16, 1 << 12, 1 << 8, 1 << 4, 1)


def common_prefix(a: str, b: str) -> int:
    """How many leading characters are equal; compared in blocks, at memory speed."""
    limit = min(len(a), len(b))
    at = 0
    for step in _STEPS:
        while at + step <= limit and a[at : at + step] == b[at : at + step]:
            at += step
    return at


def common_suffix(a: str, b: str, limit: int) -> int:
    """How many trailing characters are equal, at most `limit`."""
    at = 0
    for step in _STEPS:
        while at + step <= limit and a[len(a) - at - step : len(a) - at] == b[len(b) - at - step : len(b) - at]:
            at += step
    return at
