"""An edit as a person reads it: removed and added lines, cut to a bound."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from ..terminal_text import visible
from .cells import cut
from .ink import DIM, GREEN, RED, Ink

MOST_ROWS: Final = 40
MOST_PAIRS: Final = 40_000
"""A larger hunk (old lines times new lines) is shown as all removed and all added: comparing it takes too long."""

_COLOURS: Final = {"-": RED, "+": GREEN, " ": DIM}

Row = tuple[str, str]
"""A sign (``-``, ``+`` or a space) and the line."""


class DiffView:
    """The hunks of one edit."""

    def __init__(self, diffs: Sequence[Mapping[str, Any]]) -> None:
        self._hunks = [list(_rows(diff)) for diff in diffs]
        signs = [sign for hunk in self._hunks for sign, _ in hunk]
        self.added, self.removed = signs.count("+"), signs.count("-")

    def rows(self, ink: Ink, width: int) -> list[str]:
        """At most about `MOST_ROWS` rows."""
        shown: list[str] = []
        left = 0
        for at, hunk in enumerate(self._hunks):
            room = max(0, MOST_ROWS - len(shown))
            if at and room:
                shown.append(ink(DIM, f"  {ink.glyphs.ellipsis}"))
            for sign, line in hunk[:room]:
                text = cut(f"  {sign} {visible(line)}", width, ink.glyphs.ellipsis)
                shown.append(ink(_COLOURS[sign], text))
            left += max(0, len(hunk) - room)
        if left:
            shown.append(ink(DIM, f"  {ink.glyphs.ellipsis} {left} more"))
        return shown


def _rows(diff: Mapping[str, Any]) -> Iterator[Row]:
    from difflib import SequenceMatcher

    before = diff.get("oldText")
    old = before.split("\n") if isinstance(before, str) and before else []
    new = diff["newText"].split("\n") if diff["newText"] else []
    if len(old) * len(new) > MOST_PAIRS:
        yield from (("-", line) for line in old)
        yield from (("+", line) for line in new)
        return
    for tag, i1, i2, j1, j2 in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag == "equal":
            yield from ((" ", line) for line in old[i1:i2])
        else:
            yield from (("-", line) for line in old[i1:i2])
            yield from (("+", line) for line in new[j1:j2])
