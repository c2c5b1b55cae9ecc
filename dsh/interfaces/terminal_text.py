"""Text for a person's terminal: colour when wanted, control sequences of others never."""

from __future__ import annotations

import os
import re
from typing import TextIO

# C0 without tab and line feed, DEL, C1, and the bidirectional overrides that can disguise what a line says.
_HIDDEN = dict.fromkeys((*range(9), *range(11, 32), 127, *range(128, 160)))
_HIDDEN.update(dict.fromkeys((*range(8234, 8239), *range(8294, 8298))))
_SPELLED = {code: repr(chr(code))[1:-1] for code in (9, 10, *_HIDDEN)}
_SIGNS = {code: f"^{chr(code ^ 64)}" for code in (*range(9), *range(11, 32), 127)}
_SIGNS.update({code: f"<U+{code:04X}>" for code in _HIDDEN if code > 127})
_SIGNS.update({code: f"<U+{code:04X}>" for code in (0x2028, 0x2029, *range(0xE0000, 0xE0080))})
_STYLES = re.compile(r"\x1b\[([0-9;]*)m")
_NO_COLOURS = ("50", "51", "52", "53", "54", "55")
_COLOUR = re.compile(r"\x1b\[[0-9;:]*m")


def visible(text: str) -> str:
    """``text`` for a terminal with nothing hidden: control characters as signs (``^[``), tabs as spaces.

    Sequences that only colour are left out; a carriage return ends a line, so that what it would overwrite is seen.
    """
    if text.isascii() and text.replace("\n", " ").isprintable():
        return text
    text = _COLOUR.sub("", text).replace("\r\n", "\n").replace("\r", "\n").expandtabs(4).translate(_SIGNS)
    return text.encode("utf-8", "replace").decode("utf-8")


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
    """What ANSI styles a stream gets: none for pipes and dumb terminals, no colours with ``NO_COLOR``.

    That variable is about colour alone (https://no-color.org): bold, dim and underlined text stays so.
    """

    def __init__(self, stream: TextIO) -> None:
        self.encoding: str = getattr(stream, "encoding", None) or "utf-8"
        self.enabled = stream.isatty() and os.environ.get("TERM") != "dumb"
        self.colours = not os.environ.get("NO_COLOR")

    def __call__(self, code: str, text: str) -> str:
        """``text`` in the SGR style ``code``, e.g. ``"2"`` for dim, ``"31"`` for red."""
        if not self.colours:
            code = _attributes(code)
        return f"\x1b[{code}m{text}\x1b[0m" if self.enabled and code else text

    def fitted(self, text: str) -> str:
        """Styled text with those styles that the stream gets."""
        if self.enabled and self.colours:
            return text
        return _STYLES.sub(self._fitted, text)

    def _fitted(self, style: re.Match[str]) -> str:
        code = _attributes(style[1]) if self.enabled else ""
        return f"\x1b[{code}m" if code else ""


def _attributes(code: str) -> str:
    """An SGR style without its colours."""
    kept = []
    parts = iter(code.split(";"))
    for part in parts:
        if part in ("38", "48", "58"):  # one of 256 colours, or of all
            for _ in range(1 if next(parts, "") == "5" else 3):
                next(parts, "")
        elif not (part.isdecimal() and ((30 <= int(part) <= 59 and part not in _NO_COLOURS) or 90 <= int(part) <= 107)):
            kept.append(part)
    return ";".join(kept)
