"""Which prompts were steers: they waited for a step of the running turn, not for a turn of their own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

MOST: Final = 1000
"""Steers that are remembered; more never wait at once."""


class Steers:
    """The inbox, followed through the log."""

    def __init__(self) -> None:
        self._ids: set[str] = set()

    def spliced(self, data: Mapping[str, Any]) -> None:
        """The inbox has changed: an ``agent/inbox/spliced``."""
        if data["target"] == "next-step":
            if len(self._ids) > MOST:
                self._ids.clear()
            self._ids.update(str(message.get("id")) for message in data.get("inserted", ()))

    def entered(self, message: Mapping[str, Any]) -> bool:
        """Whether this message, which has just entered a step, was one."""
        id = str(message.get("id"))
        known = id in self._ids
        self._ids.discard(id)
        return known
