"""Text for a person's terminal: colour when wanted, control sequences of others never."""

from __future__ import annotations

import os
from typing import TextIO

# C0 without tab and line feed, DEL, C1, and the bidirectional overrides that can disguise what a line says.
_HIDDEN = dict.fromkeys((*range(9), *range(11, 32), 127, *range(128, 160)))
_HIDDEN.update(dict.fromkeys((*range(8234, 8239), *range(8294, 8298))))
_SPELLED = {code: repr(chr(code))[1:-1] for code in (9, 10, *_HIDDEN)}


def printable(text: str) -> str:
    """``text`` without control characters; surrogates and unencodable parts replaced."""
    return text.translate(_HIDDEN).encode("utf-8", "replace").decode("utf-8")


def spelled(text: str) -> str:
    """A name as one line: control characters, line feeds too, as escapes, so that no two names look the same."""
    return text.translate(_SPELLED).encode("utf-8", "backslashreplace").decode("utf-8")


def one_line(text: str, width: int = 100) -> str:
    """The first line of ``text``, cut to ``width`` characters."""
    line = printable(text).strip().split("\n", 1)[0]
    return line if len(line) <= width else line[: width - 1] + "…"


class Style:
    """ANSI colours, or none: for pipes, ``NO_COLOR`` and dumb terminals."""

    def __init__(self, stream: TextIO) -> None:
        self.enabled = stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"

    def __call__(self, code: str, text: str) -> str:
        """``text`` in the SGR style ``code``, e.g. ``"2"`` for dim, ``"31"`` for red."""
        return f"\x1b[{code}m{text}\x1b[0m" if self.enabled else text
