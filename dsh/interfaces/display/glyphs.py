"""The signs of the display, and what stands for them where the terminal's encoding lacks them."""

from __future__ import annotations

from typing import Final

from dsh.cordis.records import record


@record
class Glyphs:
    """One sign each; ``spinner`` is a cycle of frames."""

    done: str
    failed: str
    cancelled: str
    waiting: str
    thought: str
    steer: str
    retry: str
    dot: str
    ellipsis: str
    spinner: str


UNICODE: Final = Glyphs("✓", "✗", "⊘", "◦", "∴", "»", "↻", "·", "…", "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏")
ASCII: Final = Glyphs("ok", "x", "-", ".", "*", ">>", "~", "-", "...", "|/-\\")


def glyphs_for(encoding: str) -> Glyphs:
    """The signs for text in ``encoding``; plain ASCII when it cannot say all of them."""
    try:
        "✓✗⊘◦∴»↻·…⠋".encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return ASCII
    return UNICODE
