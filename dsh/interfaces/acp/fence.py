"""Fenced blocks of Markdown around text that may hold fences itself."""

from __future__ import annotations

import re

_BACKTICKS = re.compile(r"`+")


def fence_for(text: str) -> str:
    """The shortest fence that nothing in ``text`` can end."""
    return "`" * max(3, 1 + max((len(run) for run in _BACKTICKS.findall(text)), default=0))
