"""A session as a document for a person to read: what was said and done, in Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from dsh.core.session_event import SessionEvent
from dsh.core.session_header import SessionHeader
from dsh.llm.content import text_of

from .cut_reply import CutReply

_TICKS = re.compile(r"`{3,}")


def markdown_of(header: SessionHeader, events: Iterable[SessionEvent], title: str | None = None) -> str:
    """The transcript of a session: messages as they are, calls and results in fences, ends that were no success.

    Reasoning and what only the harness needs are left out; of stream chunks, all but those of a reply that was cut off.
    """
    lines = [f"# {_one_line(title) if title else header.id}", ""]
    facts = [f"Session `{header.id}`", f"begun {_when(header.created_at)}"]
    facts += [f"in `{header.cwd}`"] if header.cwd else []
    facts += [f"continued from `{header.parent_session}`"] if header.parent_session else []
    lines += [", ".join(facts) + "."]
    reply = CutReply()
    for event in events:
        reply.event(event.type, event.data)
        if event.type == "turn/end" and (text := reply.take()):
            lines += ["", "## Assistant", "", text]
        for heading, body in _sections(event):
            lines += ["", *([f"## {heading}", ""] if heading else []), body]
    return "\n".join(lines).rstrip("\n") + "\n"


def _sections(event: SessionEvent) -> Iterator[tuple[str | None, str]]:
    """The parts of the document that one event gives: a heading, if it has one, and a text."""
    data = event.data
    if event.type == "user/message":
        kind = data["source"]["kind"]
        text = _content(data["content"])
        if text:
            yield "User" if kind == "user" else f"Context from {kind}", text
    elif event.type == "assistant/message":
        text = _content(data["message"]["content"])
        if text:
            yield "Assistant", text
    elif event.type == "tool/call":
        yield None, f"**Call of `{data['name']}`**\n\n{fenced(str(data['arguments']), 'json')}"
    elif event.type == "tool/result":
        for block in data["message"]["content"]:
            text = _content(block.get("content") or ())
            failed = " (error)" if block.get("isError") else ""
            yield None, f"**Result{failed}**\n\n{fenced(text)}" if text else f"**Result{failed}**: no text"
    elif event.type == "turn/end" and data["reason"]["kind"] != "completed":
        reason: Mapping[str, Any] = data["reason"]
        error = reason.get("error")
        said = f": {_one_line(error['message'])}" if isinstance(error, Mapping) and error.get("message") else ""
        yield None, f"*The turn ended: {reason['kind']}{said}*"


def _content(blocks: Sequence[Any]) -> str:
    """The text of a message; what is no text is named."""
    others = [f"[{block['type']}]" for block in blocks if block["type"] in ("image", "file")]
    return "\n\n".join([part for part in (text_of(blocks).strip("\n"), *others) if part])


def fence_for(text: str) -> str:
    """The shortest fence of a code block that nothing in ``text`` can end."""
    return "`" * (1 + max((len(each) for each in _TICKS.findall(text)), default=2))


def fenced(text: str, language: str = "") -> str:
    """A code block that no text can break out of."""
    fence = fence_for(text)
    return f"{fence}{language}\n{text}\n{fence}"


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _when(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M UTC")
