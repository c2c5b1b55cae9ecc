"""Blocks of markdown as text for a terminal, made by rich; code highlighted in the terminal's own colours.

rich is imported with the first block, or before that by `preload`.
"""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from ..terminal_text import visible
from .glyphs import Glyphs

if TYPE_CHECKING:
    from markdown_it.token import Token
    from rich.console import Console

MOST_CELLS: Final = 120
"""Longer rows are hard to read."""

CODE_MEMORY: Final = 80
"""Lines of code before the new ones that highlighting looks at: what a string or comment that goes on may need."""

_STYLE: Final = re.compile(r"\x1b\[[0-9;]*m")
_TRAILING: Final = re.compile(r"(?:\x1b\[[0-9;]*m| )+$")
_MODULE: Final = "rich.markdown"
# What rich draws whatever the encoding.
_PLAIN_SIGNS: Final = str.maketrans({"•": "*", "▌": "|", "─": "-", "━": "-", "…": "~"})


def preload() -> None:
    """Import rich while nobody waits for it."""
    if _MODULE not in sys.modules:
        threading.Thread(target=_tools, name="import of rich", daemon=True).start()


def is_loaded() -> bool:
    """Whether rendering begins at once."""
    return getattr(sys.modules.get(_MODULE), "Markdown", None) is not None


def rendered(source: str, width: int, glyphs: Glyphs, colours: bool = True) -> str:
    """A block of markdown with ANSI styles; rows of at most ``width`` cells as rich counts them.

    ``colours``: whether they will be seen; what colour alone would tell is told by signs otherwise.
    """
    console, make = _tools()
    text = _printed(console, make(source, ticks=not colours), min(width, MOST_CELLS))
    return text if glyphs.ellipsis == "…" else text.translate(_PLAIN_SIGNS)


def highlighted(before: list[str], lines: list[str], language: str) -> list[str]:
    """Lines of code with ANSI styles. before: those that stand above them."""
    from rich.syntax import Syntax

    console, _ = _tools()
    context = before[-CODE_MEMORY:]
    code = "\n".join((*context, *lines))
    syntax = Syntax(code, language, theme="ansi_dark", background_color="default")
    text = syntax.highlight(code)
    with console.capture() as captured:
        console.print(text, soft_wrap=True, end="")
    shown = captured.get().split("\n")
    return [_tidy(line) for line in shown[len(context) : len(context) + len(lines)]]


def _printed(console: Console, renderable: Any, width: int) -> str:
    with console.capture() as captured:
        console.print(renderable, width=max(1, width))
    rows = [_tidy(row) for row in captured.get().split("\n")]
    while rows and not unstyled(rows[-1]):
        rows.pop()
    while rows and not unstyled(rows[0]):
        rows.pop(0)
    return "\n".join(rows)


def unstyled(text: str) -> str:
    """The text alone."""
    return _STYLE.sub("", text)


def _tidy(text: str) -> str:
    """Without the spaces that fill up rows."""
    return _TRAILING.sub(lambda found: "\x1b[0m" if "\x1b" in found[0] else "", text)


@cache
def _tools() -> tuple[Console, Any]:
    """A console to render with, and what makes a renderable of markdown source."""
    from markdown_it import MarkdownIt
    from rich import markdown
    from rich.console import Console
    from rich.theme import Theme

    class LeftHeading(markdown.Heading):
        def __rich_console__(self, console: Any, options: Any) -> Iterable[Any]:
            self.text.justify = "left"
            yield self.text

    class Source(markdown.Markdown):
        elements = {**markdown.Markdown.elements, "heading_open": LeftHeading}

        def __init__(self, source: str, ticks: bool) -> None:
            super().__init__("", code_theme="ansi_dark", hyperlinks=False)
            self.parsed = parser.parse(source)
            _clean(self.parsed, ticks)

    parser = MarkdownIt("commonmark", {"html": False}).enable(["strikethrough", "table"])
    styles = {
        "markdown.code": "cyan",
        "markdown.code_block": "cyan",
        "markdown.block_quote": "dim",
        "markdown.item.bullet": "bold",
        "markdown.item.number": "bold",
        "markdown.link": "underline",
        "markdown.link_url": "dim",
        "markdown.hr": "dim",
        "markdown.table.border": "dim",
        "markdown.table.header": "bold",
        **{f"markdown.h{level}": "bold" for level in range(1, 7)},
        "markdown.h1": "bold underline",
    }
    console = Console(
        force_terminal=True,
        color_system="standard",
        theme=Theme(styles),
        highlight=False,
        markup=False,
        emoji=False,
        legacy_windows=False,
        _environ={},
    )
    return console, Source


def _clean(tokens: Iterable[Token], ticks: bool) -> None:
    """Keep line ends as they are written, images where they stand, and nothing hidden that was spelt as an entity.

    ticks: keep the signs around code within a line, too.
    """
    for token in tokens:
        if token.type == "softbreak":
            token.type = "hardbreak"
        elif token.type == "image":
            token.type, token.tag, token.children = "text", "", None
            token.content = f"{token.content} ({token.attrs.get('src')})"
        if token.content:
            token.content = visible(token.content)
        if ticks and token.type == "code_inline":
            token.content = f"{token.markup}{token.content}{token.markup}"
        _clean(token.children or (), ticks)
