"""The text of a session title: cleaned of what could harm a terminal or disguise a line, and cut to size."""

from __future__ import annotations

import re
from typing import Final

# Operating system commands, device control strings, control sequences and single escapes, in seven and eight bit form.
# A string that is never terminated ends with its line.
_SEQUENCES: Final = re.compile(
    r"(?:\x1b[\]PX^_]|[\x90\x98\x9d\x9e\x9f])[^\x07\x1b\x9c\n]*(?:\x07|\x1b\\|\x9c)?"
    r"|(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"
    r"|\x1b[ -/]*[0-~]?"
)
# Controls other than white space, bidirectional marks and overrides, surrogates.
_HIDDEN: Final = re.compile(
    "[\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)


def clean(text: str) -> str:
    """`text` on one line, without escape sequences, control characters and changes of writing direction."""
    return " ".join(_HIDDEN.sub("", _SEQUENCES.sub("", text)).split())


def cut(text: str, max_bytes: int, max_words: int | None = None) -> str:
    """The first words of a cleaned text, in at most `max_bytes` of UTF-8; never half a character."""
    if max_words is not None:
        text = " ".join(text.split(" ", max_words)[:max_words])
    return text.encode()[:max_bytes].decode(errors="ignore").rstrip(" \u200d")
