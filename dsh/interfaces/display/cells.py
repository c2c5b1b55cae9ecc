"""Text measured in cells of a terminal: wide characters take two, combining ones none.

Never less than what a terminal takes: a joined emoji counts as all its parts, for not every terminal joins them.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

_EMOJI_STYLE: Final = "\ufe0f"


def cells(text: str) -> int:
    """How many cells ``text`` takes, which has neither control characters nor line feeds."""
    return len(text) if text.isascii() else sum(map(_width, text))


def cut(text: str, width: int, ellipsis: str = "…") -> str:
    """``text``, or as much of its start as fits into ``width`` cells with ``ellipsis`` behind it."""
    if cells(text) <= width:
        return text
    kept, _ = _head(text, width - cells(ellipsis))
    return kept + ellipsis if cells(ellipsis) <= width else _head(text, width)[0]


def wrapped(text: str, width: int) -> list[str]:
    """The rows of ``text`` in ``width`` cells, broken at spaces where possible; at least one row a line."""
    rows: list[str] = []
    for line in text.split("\n"):
        while True:
            row, rest = _head(line, width)
            if not rest:
                break
            if not row:  # not even one character fits
                row, rest = "?"[:width], line[1:]
            elif rest[0] != " " and (space := row.rfind(" ")) > 0:
                row, rest = line[:space], line[space:]
            rows.append(row.rstrip(" "))
            line = rest.lstrip(" ")
        rows.append(row.rstrip(" "))
    return rows


def _head(text: str, width: int) -> tuple[str, str]:
    """``text`` in two, the first at most ``width`` cells wide."""
    if text[: width + 1].isascii():
        return text[: max(0, width)], text[max(0, width) :]
    used = 0
    for at, character in enumerate(text):
        used += _width(character)
        if used > width:
            return text[:at], text[at:]
    return text, ""


@lru_cache(4096)
def _width(character: str) -> int:
    from wcwidth import wcwidth  # what prompt_toolkit asks, too

    # A sign that is asked to look like an emoji takes a second cell on most terminals.
    return 1 if character == _EMOJI_STYLE else max(0, wcwidth(character))
