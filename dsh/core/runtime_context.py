"""Prompt contexts on their way to the model: a user message at the tail, sent again only when it changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dsh.llm.message import create_user_message

from .system_prompt import render_contexts
from .texts import RUNTIME_CONTEXT_INTRO, RUNTIME_CONTEXT_NONE, RUNTIME_CONTEXT_PLUGIN

if TYPE_CHECKING:
    from dsh.llm.types import Message

    from .session import Session
    from .session_event import SessionEvent
    from .system_prompt import Assembly


class RuntimeContext:
    """Remembers which snapshot the model still sees and proposes the next one.

    Contexts change often; as messages they leave the system prompt byte-stable for the provider's cache. A snapshot
    that a surface replacement covered (compaction) no longer counts as seen.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._generation = session.surface.replace_generation
        seen = (session.events[seq] for seq in reversed(session.surface.nodes))
        self._retained = next(filter(_is_snapshot, seen), None)

    def propose(self, assembly: Assembly) -> Message | None:
        """The message that brings the model up to date, or ``None`` when it is."""
        sections = render_contexts(assembly)
        retained = self._current()
        if retained is None and not sections:
            return None
        text, source = _snapshot(sections)
        if retained is not None and _text_of(retained) == text:
            return None
        return create_user_message(text, source)

    def observe(self, event: SessionEvent) -> None:
        """Take notice of a ``user/message`` that a step entered."""
        if _is_snapshot(event):
            self._retained = event

    def _current(self) -> SessionEvent | None:
        surface = self._session.surface
        if surface.replace_generation != self._generation:
            self._generation = surface.replace_generation
            if self._retained is not None and self._retained.seq not in surface.nodes:
                self._retained = None
        return self._retained


def _snapshot(sections: list[dict[str, str]]) -> tuple[str, dict[str, Any]]:
    if not sections:
        return RUNTIME_CONTEXT_NONE, {"kind": "plugin", "plugin": RUNTIME_CONTEXT_PLUGIN}
    text = "\n\n".join([RUNTIME_CONTEXT_INTRO, *(section["text"] for section in sections)])
    source = {"kind": "plugin", "plugin": RUNTIME_CONTEXT_PLUGIN, "form": "snapshot", "sections": sections}
    return text, source


def _is_snapshot(event: SessionEvent) -> bool:
    if event.type != "user/message":
        return False
    source = event.data.get("source", {})
    return bool(source.get("kind") == "plugin" and source.get("plugin") == RUNTIME_CONTEXT_PLUGIN)


def _text_of(event: SessionEvent) -> str | None:
    content = event.data["content"]
    if len(content) != 1 or content[0].get("type") != "text":
        return None
    text: str = content[0]["text"]
    return text
