"""The answer that streams in: what is complete is printed as markdown, the rest stands in the live region."""

from __future__ import annotations

from typing import Final

from ..terminal_text import visible
from . import markdown
from .cells import cells, wrapped
from .ink import DIM, Ink
from .markdown_blocks import Block, MarkdownBlocks

LIVE_ROWS: Final = 8
"""Rows for what is not complete; of more the end is shown."""

LIVE_MARKDOWN: Final = 2000
"""Characters up to which the rest is rendered again for each picture."""


class Answer:
    """One text block after the other, each fed in pieces."""

    def __init__(self, ink: Ink) -> None:
        self._ink = ink
        self._blocks = MarkdownBlocks()
        self._last: str | None = None
        self._language = ""
        self._code: list[str] = []

    @property
    def begun(self) -> bool:
        """Whether something of this text block was printed already."""
        return self._last is not None

    def feed(self, text: str, width: int) -> str | None:
        """Take a piece; what is to be printed now, if anything."""
        return self._printed(self._blocks.feed(visible(text)), width)

    def finish(self, width: int) -> str | None:
        """The block has ended; what is still to be printed."""
        text = self._printed(self._blocks.finish(), width)
        self._last, self._language = None, ""
        self._code.clear()
        return text

    def live(self, width: int) -> list[str]:
        """The rows of what is not complete."""
        rest = self._blocks.rest
        if not rest:
            return []
        if not self._blocks.in_code and len(rest) <= LIVE_MARKDOWN and markdown.is_loaded():
            rows = self._rendered(rest, width).split("\n")[-LIVE_ROWS:]
            if all(cells(markdown.unstyled(row)) <= width for row in rows):
                return rows
        return wrapped(rest, width)[-LIVE_ROWS:]

    def _printed(self, blocks: list[Block], width: int) -> str | None:
        shown: list[str] = []
        for block in blocks:
            together = (self._last, block.kind) in _TOGETHER
            if self._last is not None and not together:
                shown.append("")
            shown.append(self._shown(block, width))
            self._last = block.kind
        return "\n".join(shown) if blocks else None

    def _shown(self, block: Block, width: int) -> str:
        if block.kind in ("open", "close"):
            self._language = block.text.strip().lstrip("`~").strip().split(" ", 1)[0]
            self._code.clear()
            return self._ink(DIM, block.text)
        if block.kind != "code":
            return self._rendered(block.text, width)
        lines = block.text.split("\n")
        if not self._language or not (self._ink.style.enabled and self._ink.style.colours):
            return block.text
        shown = markdown.highlighted(self._code, lines, self._language)
        self._code = [*self._code, *lines][-markdown.CODE_MEMORY :]
        return "\n".join(shown)

    def _rendered(self, source: str, width: int) -> str:
        style = self._ink.style
        return style.fitted(markdown.rendered(source, width, self._ink.glyphs, style.enabled and style.colours))


_TOGETHER: Final = {("item", "item"), ("open", "code"), ("code", "code"), ("code", "close"), ("open", "close")}
"""Blocks without an empty line between them."""
