"""The automation profile's view of a session: each committed block of the model, nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .images import image_content
from .outbox import Outbox

if TYPE_CHECKING:
    from dsh.cordis import Context
    from dsh.core.session_event import SessionEvent

ALLOW_ONCE = {"optionId": "allow-once", "name": "Allow once", "kind": "allow_once"}
REJECT_ONCE = {"optionId": "reject-once", "name": "Reject", "kind": "reject_once"}


class CommittedView:
    """One ``agent_message_chunk`` per text or image block of a committed message; retries leak nothing."""

    def __init__(self, ctx: Context, outbox: Outbox) -> None:
        self._ctx = ctx
        self._outbox = outbox

    def session_event(self, event: SessionEvent) -> None:
        """Take one event of the session as it is appended."""
        if event.type != "assistant/message":
            return
        for block in event.data["message"]["content"]:
            if block["type"] == "text" and block["text"]:
                self._outbox.send(message_chunk(block["text"]))
            elif block["type"] == "image":
                send_image(self._ctx, self._outbox, "agent_message_chunk", block["attachment"])

    def sent(self, message_id: str) -> None:
        """The client itself gave the message of this id."""

    def permission(self, call_id: str) -> tuple[dict[str, Any], list[dict[str, str]]]:
        """How to ask about a call: the call as the client knows it, and the answers it may give."""
        return {"toolCallId": call_id}, [ALLOW_ONCE, REJECT_ONCE]

    def remembered(self, tool_name: str, call_id: str) -> str | None:
        """No answer is kept: each call is asked about."""
        return None

    def remember(self, tool_name: str, call_id: str, answer: str) -> None:
        """No answer is kept."""


def message_chunk(text: str, kind: str = "agent_message_chunk") -> dict[str, Any]:
    """A piece of a message."""
    return {"sessionUpdate": kind, "content": {"type": "text", "text": text}}


def send_image(ctx: Context, outbox: Outbox, kind: str, reference: Any) -> None:
    """Send a kept image as soon as its bytes are there."""

    async def make() -> dict[str, Any]:
        return {"sessionUpdate": kind, "content": await image_content(ctx, reference)}

    outbox.send_later(make)
