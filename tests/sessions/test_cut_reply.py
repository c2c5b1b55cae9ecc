"""What is told of a reply that was cut off by the end of its process."""

from __future__ import annotations

from typing import Any

from dsh.core.session_event import SessionEvent
from dsh.core.session_header import SessionHeader
from dsh.sessions.cut_reply import CutReply
from dsh.sessions.markdown import markdown_of


def chunk(text: str, kind: str = "text-delta") -> tuple[str, Any]:
    return "assistant/chunk", {"chunk": {"type": kind, "text": text}}


MESSAGE: tuple[str, Any] = ("assistant/message", {"message": {"content": [{"type": "text", "text": "whole"}]}})
END: tuple[str, Any] = ("turn/end", {"turn": 1, "reason": {"kind": "interrupted"}})


def test_only_text_that_no_message_repeats_is_told_and_only_once() -> None:
    for events, told in (
        ([("step/start", {}), chunk("half "), chunk("hm", "reasoning-delta"), chunk("a word")], "half a word"),
        ([chunk("whole"), MESSAGE], ""),
        ([chunk("whole"), MESSAGE, ("step/start", {}), chunk("next")], "next"),
        ([chunk("broken"), ("llm/retry", {}), chunk("again")], "again"),
        ([], ""),
    ):
        reply = CutReply()
        for kind, data in events:
            reply.event(kind, data)
        assert (reply.take(), reply.take()) == (told, "")


def test_an_exported_document_has_the_half_reply_of_a_killed_process() -> None:
    header = SessionHeader(id="s", created_at=0, cwd=None)
    events = [SessionEvent(kind, n, 0, data) for n, (kind, data) in enumerate([chunk("half a wo"), END])]
    document = markdown_of(header, events)
    assert "## Assistant\n\nhalf a wo\n\n*The turn ended: interrupted*" in document
