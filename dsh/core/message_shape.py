"""The shape of a message event: a log is only read back if all of its messages have it.

Checked at the import of a log and where messages of plugins come in; other appends are built by code of ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dsh.cordis.jsonio import NotJsonError
from dsh.core.session_event import SessionError
from dsh.llm.message import freeze_message

if TYPE_CHECKING:
    from dsh.llm.types import Message


def whole_user_message(value: Any, subject: str) -> Message:
    """The message, frozen. Raises SessionError starting with `subject` if a log with it could not be read back."""
    try:
        message = freeze_message(value)
    except NotJsonError as error:
        raise SessionError(f"{subject} message carries non-JSON-serializable data") from error
    check_message_event("user/message", message, subject)
    return message


def check_message_event(type_: str, data: Any, subject: str) -> None:
    """Check the data of a surface event that comes from a file or another process.

    Block internals and plugin sources are open and not looked at. Raises SessionError starting with `subject`.
    """
    if type_ == "user/message":
        message = data
    else:
        message = data.get("message") if isinstance(data, Mapping) else None
    if not isinstance(message, Mapping) or not _text(message.get("id")):
        raise SessionError(f"{subject} lacks an identified message")
    role = "assistant" if type_ == "assistant/message" else "user"
    if message.get("role") != role:
        raise SessionError(f'{subject} message must have role "{role}"')
    source = message.get("source")
    if not isinstance(source, Mapping) or not _text(source.get("kind")):
        raise SessionError(f"{subject} message has invalid source")
    content = message.get("content")
    if not isinstance(content, list):
        raise SessionError(f"{subject} message has invalid content")
    if type_ == "assistant/message":
        if source["kind"] != "model" or not _text(source.get("provider")) or not _text(source.get("model")):
            raise SessionError(f"{subject} message must have model source")
    elif type_ == "tool/result":
        _check_result(source, content, subject)


def _check_result(source: Mapping[str, Any], content: list[Any], subject: str) -> None:
    call_id = source.get("callId")
    if source["kind"] != "tool" or not _text(call_id):
        raise SessionError(f"{subject} message must have tool source")
    block = content[0] if len(content) == 1 else None
    if (
        not isinstance(block, Mapping)
        or block.get("type") != "tool-result"
        or not isinstance(block.get("content"), list)
    ):
        raise SessionError(f"{subject} message must contain one tool-result block")
    if block.get("toolCallId") != call_id:
        raise SessionError(f"{subject} message has mismatched tool call ids")


def _text(value: object) -> bool:
    return isinstance(value, str) and value != ""
