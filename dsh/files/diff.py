"""What changed between two texts, as hunks of whole lines for people to look at.

The cost is bounded, well below a tenth of a second: the equal head and tail are skipped at memory speed, large middles
are split at lines that occur once on each side, only small pieces go through `difflib` (which is quadratic), and a diff
too large for anybody to read is left out.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from difflib import SequenceMatcher
from typing import TypedDict

from .text import common_prefix, common_suffix

CONTEXT_LINES = 3
MAX_LINE_PAIRS = 10_000
"""Pieces with at most this many (old line, new line) pairs get an exact line diff."""
MAX_DIFF_CHARS = 256 * 1024
"""A diff with more text than this is not shown."""
MAX_SPREAD = 2 * MAX_DIFF_CHARS
"""Changes further apart than this many characters (old and new together) are not looked for: it would take too long."""

_Change = tuple[int, int, int, int]


class Hunk(TypedDict):
    """One changed place with its context lines, joined by LF."""

    oldText: str
    newText: str


def hunks(before: str, after: str) -> list[Hunk]:
    """The hunks that turn `before` into `after`, both with LF line ends; empty when equal or above the size limit."""
    if before == after:
        return []
    head = before.rfind("\n", 0, common_prefix(before, after)) + 1
    tail = common_suffix(before, after, min(len(before), len(after)) - head)
    old_stop, new_stop = len(before) - tail, len(after) - tail
    if not (_starts_line(before, old_stop) and _starts_line(after, new_stop)):
        found = before.find("\n", old_stop)
        grown = (len(before) if found < 0 else found + 1) - old_stop
        old_stop, new_stop = old_stop + grown, new_stop + grown
    if old_stop + new_stop - 2 * head > MAX_SPREAD:
        return []
    lead, trail = _last_lines(before[:head]), _first_lines(before[old_stop:])
    old = [*lead, *_lines(before[head:old_stop]), *trail]
    new = [*lead, *_lines(after[head:new_stop]), *trail]
    result: list[Hunk] = []
    size = 0
    for i1, i2, j1, j2 in _groups(_changes(old, new)):
        hunk: Hunk = {"oldText": _join(old[i1:i2]), "newText": _join(new[j1:j2])}
        size += len(hunk["oldText"]) + len(hunk["newText"])
        if size > MAX_DIFF_CHARS:
            return []
        result.append(hunk)
    return result


def _groups(changes: Iterator[_Change]) -> Iterator[_Change]:
    """Changes widened by their context; those whose contexts touch become one."""
    open_group: _Change | None = None
    for change in changes:
        if open_group is not None and change[0] - open_group[1] <= 2 * CONTEXT_LINES:
            open_group = (open_group[0], change[1], open_group[2], change[3])
            continue
        if open_group is not None:
            yield _widen(open_group)
        open_group = change
    if open_group is not None:
        yield _widen(open_group)


def _widen(change: _Change) -> _Change:
    i1, i2, j1, j2 = change
    lead = min(CONTEXT_LINES, i1)  # equal on both sides, so j1 >= lead too
    return i1 - lead, i2 + CONTEXT_LINES, j1 - lead, j2 + CONTEXT_LINES


def _changes(old: list[str], new: list[str]) -> Iterator[_Change]:
    """Ranges of lines that differ, ascending."""
    pending: list[_Change] = [(0, len(old), 0, len(new))]
    while pending:
        i1, i2, j1, j2 = pending.pop()
        while i1 < i2 and j1 < j2 and old[i1] == new[j1]:
            i1, j1 = i1 + 1, j1 + 1
        while i1 < i2 and j1 < j2 and old[i2 - 1] == new[j2 - 1]:
            i2, j2 = i2 - 1, j2 - 1
        if i1 == i2 or j1 == j2:
            if i1 < i2 or j1 < j2:
                yield i1, i2, j1, j2
        elif (i2 - i1) * (j2 - j1) <= MAX_LINE_PAIRS:
            matcher = SequenceMatcher(None, old[i1:i2], new[j1:j2], autojunk=False)
            for tag, a1, a2, b1, b2 in matcher.get_opcodes():
                if tag != "equal":
                    yield i1 + a1, i1 + a2, j1 + b1, j1 + b2
        elif anchors := _anchors(old[i1:i2], new[j1:j2]):
            stops = [(i1 + a, j1 + b) for a, b in anchors]
            gaps: list[_Change] = []
            for a, b in [*stops, (i2, j2)]:
                gaps.append((i1, a, j1, b))
                i1, j1 = a + 1, b + 1
            pending.extend(reversed(gaps))
        else:
            yield i1, i2, j1, j2


def _anchors(old: list[str], new: list[str]) -> list[tuple[int, int]]:
    """The longest ascending series of lines that occur exactly once on each side."""
    old_counts, new_counts = Counter(old), Counter(new)
    where = {line: at for at, line in enumerate(new) if new_counts[line] == 1}
    pairs = [(at, where[line]) for at, line in enumerate(old) if old_counts[line] == 1 and line in where]
    tails: list[int] = []
    tail_pairs: list[int] = []
    previous: list[int] = []
    for index, (_, at) in enumerate(pairs):
        slot = bisect_left(tails, at)
        previous.append(tail_pairs[slot - 1] if slot else -1)
        tails[slot : slot + 1] = [at]
        tail_pairs[slot : slot + 1] = [index]
    series: list[tuple[int, int]] = []
    at = tail_pairs[-1] if tail_pairs else -1
    while at >= 0:
        series.append(pairs[at])
        at = previous[at]
    series.reverse()
    return series


def _join(lines: list[str]) -> str:
    return "".join(lines).removesuffix("\n")


def _lines(text: str) -> list[str]:
    """The lines of `text`, each with its LF; a final line may lack it."""
    lines = text.split("\n")
    last = lines.pop()
    return [line + "\n" for line in lines] + ([last] if last else [])


def _last_lines(text: str) -> list[str]:
    at = len(text)
    for _ in range(CONTEXT_LINES):
        at = text.rfind("\n", 0, max(at - 1, 0)) + 1
    return _lines(text[at:])


def _first_lines(text: str) -> list[str]:
    at = 0
    for _ in range(CONTEXT_LINES):
        found = text.find("\n", at)
        if found < 0:
            return _lines(text)
        at = found + 1
    return _lines(text[:at])


def _starts_line(text: str, at: int) -> bool:
    return at == 0 or text[at - 1] == "\n"
