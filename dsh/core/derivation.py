"""Model messages derived from the surface: verbatim, no wrapping, no merging."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import TYPE_CHECKING, cast

from dsh.cordis.records import identity_struct
from dsh.core.session_event import SessionEvent
from dsh.core.surface import Surface

if TYPE_CHECKING:
    from dsh.llm.types import Message


def derive_event_message(event: SessionEvent) -> Message | None:
    """The message one event contributes, None if it contributes nothing.

    An assistant message without content stays a surface node (it hosts usage and provenance) but is no message.
    """
    data = event.data
    if event.type == "user/message":
        return cast("Message", data)
    if event.type not in ("tool/result", "assistant/message") or not isinstance(data, dict):
        return None
    message = data.get("message")
    if not isinstance(message, dict) or (event.type == "assistant/message" and not message.get("content")):
        return None
    return cast("Message", message)


@identity_struct
class Derivation:
    """The message list of one log, extended as nodes arrive and rebuilt only after a replacement."""

    _log: Sequence[SessionEvent]
    _surface: Surface
    _messages: list[Message] = field(default_factory=list)
    _seen: int = 0
    _generation: int = 0

    def messages(self) -> list[Message]:
        """A new list of the shared, frozen messages."""
        surface = self._surface
        if self._generation != surface.replace_generation:
            self._generation = surface.replace_generation
            self._messages = []
            self._seen = 0
        if self._seen != len(surface):
            for seq in surface.tail(self._seen):
                message = derive_event_message(self._log[seq])
                if message is not None:
                    self._messages.append(message)
            self._seen = len(surface)
        return list(self._messages)
