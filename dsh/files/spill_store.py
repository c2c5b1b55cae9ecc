"""The seam for output that is too long to hand to a model: it is kept whole in a place that the model can read."""

from __future__ import annotations

from abc import abstractmethod

from dsh.cordis import Service
from dsh.cordis.records import record


@record
class SpillSource:
    """Whose output it is: the session, the tool and the call, and a word for what it is."""

    session_id: str
    tool_name: str
    call_id: str
    label: str


@record
class Spilled:
    """Where a text was put. `hint` tells a model how to read it; `size` is in bytes."""

    locator: str
    size: int
    hint: str


class SpillStore(Service, name="spillStore"):
    """Keeps texts for later reading."""

    @abstractmethod
    async def save_text(self, source: SpillSource, suggested_name: str, content: str) -> Spilled:
        """Keep `content` whole, under a name like the suggested one. Raises `OSError`."""
