"""Times, sizes and counts as short words."""

from __future__ import annotations

from typing import Final

MOMENT: Final = 0.1
"""Seconds below which how long something took is not worth a word."""


def duration(seconds: float) -> str:
    """How long something took: ``0.4 s``, ``12 s``, ``1 min 04 s``, ``2 h 05 min``."""
    if seconds < 9.95:
        return f"{max(0.0, seconds):.1f} s"
    return elapsed(seconds)


def elapsed(seconds: float) -> str:
    """How long something runs, in whole seconds."""
    whole = max(0, int(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02} min"


def size(count: int) -> str:
    """Bytes: ``20 bytes``, ``1.2 kB``, ``3.4 MB``."""
    if count < 1000:
        return counted(count, "byte")
    return f"{count / 1000:.1f} kB" if count < 999_950 else f"{count / 1_000_000:.1f} MB"


def thousands(count: int) -> str:
    """A count of tokens: ``950``, ``12.3k``, ``1.2M``."""
    if count < 1000:
        return str(count)
    if count < 99_950:
        return f"{count / 1000:.1f}k"
    return f"{count / 1000:.0f}k" if count < 999_500 else f"{count / 1_000_000:.1f}M"


def counted(count: int, noun: str) -> str:
    """``1 line``, ``3 lines``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
