"""A conversation on its way to an adapter: without the notes of other adapters, without images the model refuses.

Both depend on one message alone, and a session's next request nearly always extends its last one, so each message of a
session is looked at once: what was sent before is recognised by the identity of its messages.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import NamedTuple

from dsh.cordis.jsonio import FrozenDict
from dsh.llm.content import with_source, without_image
from dsh.llm.types import LlmRequest, Message

_KEPT = 64
"""Sessions remembered for one adapter; one that falls out is looked at in full once more."""


class _Seen(NamedTuple):
    """What a session sent last and what became of it; the same tuple twice when nothing had to change."""

    given: tuple[Message, ...] = ()
    sent: tuple[Message, ...] = ()


class OutgoingHistory:
    """Prepares conversations for one adapter.

    `owns(provider)` says whether a note of that provider is the adapter's own; call `clear` when its answers change,
    `forget` when a session ends.
    """

    __slots__ = ("_owns", "_seen")

    def __init__(self, owns: Callable[[str], bool]) -> None:
        self._owns = owns
        self._seen: OrderedDict[tuple[str | None, bool], _Seen] = OrderedDict()

    def clear(self) -> None:
        """Look at everything anew."""
        self._seen.clear()

    def forget(self, session_id: str) -> None:
        """Let go of what a session's requests held."""
        for images in (True, False):
            self._seen.pop((session_id, images), None)

    def prepare(self, request: LlmRequest, *, images: bool) -> Sequence[Message]:
        """The messages of `request` as the adapter may have them; the very same ones wherever nothing has to change."""
        given = tuple(request.messages)
        key = (request.session_id, images)
        seen = self._seen.get(key, _Seen())
        if given[: len(seen.given)] != seen.given:
            seen = _Seen()
        added = given[len(seen.given) :]
        sent = [self._fit(message, images) for message in added]
        same = seen.sent is seen.given and all(now is before for now, before in zip(sent, added, strict=True))
        outcome = _Seen(given, given if same else (*seen.sent, *sent))
        if request.session_id is not None and all(type(message) is FrozenDict for message in added):
            self._seen[key] = outcome
            self._seen.move_to_end(key)
            if len(self._seen) > _KEPT:
                self._seen.popitem(last=False)
        return outcome.sent

    def _fit(self, message: Message, images: bool) -> Message:
        source = message["source"]
        if "replayState" in source and not self._owns(source.get("provider", "")):
            message = with_source(message, {key: value for key, value in source.items() if key != "replayState"})
        return message if images else without_image(message)
