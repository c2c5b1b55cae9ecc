"""What the latest event of a kind says, for the kinds of which only the latest one counts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any

from dsh.cordis.records import identity_struct
from dsh.core.session_event import SessionEvent


@identity_struct
class Latest:
    """The latest word of each event type in `readers`, as its reader understands the event's data.

    Each look takes in only the events that came since the look before.
    """

    _log: Sequence[SessionEvent]
    _readers: Mapping[str, Callable[[Any], Any]]
    _seen: int = 0
    _words: dict[str, Any] = field(default_factory=dict)

    def word(self, type_: str) -> Any:
        """What its reader made of the latest event of this type; None before the first."""
        log, readers = self._log, self._readers
        for index in range(self._seen, len(log)):
            event = log[index]
            if event.type in readers:
                self._words[event.type] = readers[event.type](event.data)
        self._seen = len(log)
        return self._words.get(type_)
