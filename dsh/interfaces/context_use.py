"""How much of its model's context a session takes: a fold over its log."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dsh.cordis.records import struct

from .spending import Spending


@struct
class ContextUse:
    """Which model answers, how many tokens it can take (None: not said), and how many the last call took (0: not
    known)."""

    model: str = ""
    window: int | None = None
    used: int = 0

    def event(self, kind: str, data: Any, tokens: int) -> None:
        """Take in one event. tokens: of the call that it tells of, as `Spending.event` says."""
        if tokens:
            self.used = tokens
        elif kind == "request/context":
            window = data.get("contextWindow")
            self.model = str(data["model"])
            self.window = window if isinstance(window, int) and window > 0 else None
        elif kind == "compaction/end":
            self.used = 0  # not known until the next request


def totals(events: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """What a session, given by the types and data of its events, has used, and what its context holds: see
    `Spending.to_wire`; ``context`` is ``{window, used}``."""
    spending, context = Spending(), ContextUse()
    for kind, data in events:
        context.event(kind, data, spending.event(kind, data))
    return {**spending.to_wire(), "context": {"window": context.window, "used": context.used}}
