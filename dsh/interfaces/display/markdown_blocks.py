"""Cuts streamed markdown into blocks as they become complete, so that each is shown once and for good.

A block is a paragraph, a heading, a table, one item of a list with all that belongs to it, or a few lines of code. What
no later text can change is complete: a paragraph at the empty line behind it, a line of code at its end.
"""

from __future__ import annotations

import re
from typing import Final, Literal

from dsh.cordis.records import record

_FENCE: Final = re.compile(r"( {0,3})(`{3,}|~{3,})(.*)")
_ITEM: Final = re.compile(r" {0,1}(?:[-+*]|(\d{1,9})[.)])(?:[ \t]|$)")
_HEADING: Final = re.compile(r" {0,3}#{1,6}(?:[ \t]|$)")
_RULE: Final = re.compile(r" {0,3}(?:(?:\*[ \t]*){3,}|(?:_[ \t]*){3,}|(?:-[ \t]*){3,})$")

CODE_LINES: Final = 8
"""So many lines of code are shown at once: highlighting looks back, so doing it for each line costs more."""

LONGEST: Final = 8000
"""Characters after which a block that goes on without an end is shown as it is."""

Kind = Literal["text", "item", "open", "code", "close"]


@record
class Block:
    """Complete lines. ``open`` and ``close`` are the fences around lines of ``code``; ``item`` is a list item."""

    kind: Kind
    text: str


class MarkdownBlocks:
    """One text, fed in pieces."""

    _line: str
    _lines: list[str]
    _kind: Kind
    _blank: bool
    _fence: str | None
    _in_item: bool

    def __init__(self) -> None:
        self._ready: list[Block] = []
        self._reset()

    @property
    def rest(self) -> str:
        """What is not complete yet."""
        return "\n".join((*self._lines, self._line)).strip("\n") if self._kind != "code" else self._open_code()

    @property
    def in_code(self) -> bool:
        """Whether the rest is code between fences."""
        return self._kind == "code"

    def feed(self, text: str) -> list[Block]:
        """Take a piece; the blocks that it completed."""
        *lines, last = text.split("\n")
        for line in lines:
            self._take(self._line + line)
            self._line = ""
        self._line += last
        if self._kind == "code" and len(self._lines) >= CODE_LINES:
            self._emit()
        elif len(self._line) + sum(map(len, self._lines)) > LONGEST:
            self._give_up()
        return self._taken()

    def finish(self) -> list[Block]:
        """The text has ended; the blocks that were left."""
        if self._line:
            self._take(self._line)
        self._emit()
        ready = self._taken()
        self._reset()
        return ready

    def _reset(self) -> None:
        self._line = ""
        self._lines = []
        self._kind = "text"
        self._blank = False
        self._fence = None
        self._in_item = False

    def _taken(self) -> list[Block]:
        ready, self._ready = self._ready, []
        return ready

    def _open_code(self) -> str:
        return "\n".join((*self._lines, self._line) if self._line else self._lines)

    # -- lines ----------------------------------------------------------------------------------------------------

    def _take(self, line: str) -> None:
        if self._fence is not None:
            self._fenced(line)
        elif fence := _FENCE.fullmatch(line):
            self._open(fence, line)
        elif not line.strip():
            if self._kind == "item":  # it may go on, indented
                self._blank = True
                self._lines.append("")
            else:
                self._emit()
        else:
            self._prose(line)

    def _fenced(self, line: str) -> None:
        assert self._fence is not None
        bare = line.strip()
        closes = len(bare) >= len(self._fence) and not bare.strip(self._fence[0])
        if self._in_item:
            self._lines.append(line)
        elif closes:
            self._emit()
            self._ready.append(Block("close", line))
            self._kind = "text"
        else:
            self._lines.append(line)
        if closes:
            self._fence = None

    def _open(self, fence: re.Match[str], line: str) -> None:
        indent, marker, info = fence.groups()
        if marker[0] == "`" and "`" in info:  # code within a line
            self._prose(line)
            return
        self._in_item = self._kind == "item" and bool(indent)
        self._fence = marker
        if self._in_item:
            self._lines.append(line)
            return
        self._emit()
        self._ready.append(Block("open", line))
        self._kind = "code"

    def _prose(self, line: str) -> None:
        indented = line[0] in " \t"
        rule = _RULE.fullmatch(line) is not None
        item = None if rule else _ITEM.match(line)
        starts = self._blank and not (indented and self._kind == "item")
        if item is not None:  # a number in the middle of a paragraph may just stand at the start of a line
            starts |= self._kind == "item" or item[1] in (None, "1")
        heading = _HEADING.match(line) is not None
        underlines = rule and self._kind == "text" and bool(self._lines) and not self._blank and "-" in line
        alone = heading or (rule and not underlines)
        if starts or alone:
            self._emit()
        if not self._lines:
            self._kind = "item" if item is not None else "text"
        self._blank = False
        self._lines.append(line)
        if alone:
            self._emit()

    # -- blocks ---------------------------------------------------------------------------------------------------

    def _emit(self) -> None:
        text = "\n".join(self._lines) if self._kind == "code" else "\n".join(self._lines).strip("\n")
        if self._lines and (text or self._kind == "code"):
            self._ready.append(Block(self._kind, text))
        self._lines.clear()
        self._blank = False
        if self._kind != "code":
            self._kind = "text"

    def _give_up(self) -> None:
        self._lines.append(self._line)
        self._line = ""
        kind = self._kind
        self._emit()
        self._kind = kind if kind == "code" else "text"
