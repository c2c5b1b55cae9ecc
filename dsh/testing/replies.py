"""What a scripted model answers: whole replies for people who write tests, and the stream chunks they become."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dsh.cordis.jsonio import encode_str
from dsh.cordis.records import record

Chunks = list[dict[str, Any]]
"""One reply as the stream chunks of an adapter."""

ToolCall = tuple[str, str | Mapping[str, Any]] | tuple[str, str | Mapping[str, Any], str]
"""``(tool, arguments)`` or ``(tool, arguments, call id)``; arguments as a mapping, or as the text a model wrote."""


@record
class Reply:
    """One answer of a model: it may think, say something and call tools, fail, or never end.

    `calls` are the tool calls of this one step, in order. `failure` is what the provider reports in place of an end,
    ``{"message": …, "code": …, "status"?: …}``. A reply that `hangs` stops after its text until somebody cancels.
    """

    text: str = ""
    reasoning: str = ""
    calls: Sequence[ToolCall] = ()
    finish: str | None = None
    usage: Mapping[str, int] | None = None
    failure: Mapping[str, Any] | None = None
    hangs: bool = False

    def chunks(self) -> Chunks:
        """The reply as stream chunks; one that hangs lacks its end."""
        chunks: Chunks = []
        if self.reasoning:
            chunks += _block(0, "reasoning", self.reasoning, cut=len(self.reasoning), end=not self.hangs)
        if self.text:
            cut = max(1, len(self.text) // 2)
            chunks += _block(_blocks(chunks), "text", self.text, cut=cut, end=not self.hangs)
        for number, call in enumerate(self.calls, 1):
            chunks += _call(_blocks(chunks), call, number)
        if self.usage is not None:
            chunks.append({"type": "usage", "usage": dict(self.usage)})
        if self.failure is not None:
            chunks.append({"type": "finish", "reason": {"kind": "error", "failure": dict(self.failure)}})
        elif not self.hangs:
            chunks.append({"type": "finish", "reason": {"kind": self._finish}})
        return chunks

    def http(self) -> Mapping[str, Any]:
        """The reply as an entry of `dsh.models.mock_server.MockLlmServer`."""
        if self.failure is not None:
            return {"status": self.failure.get("status", 500), "error": {"message": self.failure["message"]}}
        if self.hangs:
            deltas = [{"reasoning_content": self.reasoning}] if self.reasoning else []
            deltas += [{"content": self.text}] if self.text else []
            chunks = [{"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
            return {"chunks": chunks, "ending": "stall"}
        calls = [
            {"name": call[0], "arguments": _arguments(call), "id": _call_id(call, number)}
            for number, call in enumerate(self.calls, 1)
        ]
        entry: dict[str, Any] = {"text": self.text, "reasoning": self.reasoning, "toolCalls": calls}
        if self.finish is not None:
            entry["finish"] = {"tool-calls": "tool_calls", "max-tokens": "length"}.get(self.finish, self.finish)
        if self.usage is not None:
            names = {"inputTokens": "prompt_tokens", "outputTokens": "completion_tokens"}
            entry["usage"] = {names[key]: value for key, value in self.usage.items() if key in names}
        return entry

    @property
    def _finish(self) -> str:
        return self.finish or ("tool-calls" if self.calls else "stop")


def say(text: str) -> Reply:
    """The model answers with a text, and the turn ends."""
    return Reply(text)


def call(tool: str, arguments: Mapping[str, Any] | str = "{}", call_id: str | None = None) -> Reply:
    """The model calls one tool. For several in one step: ``Reply(calls=[(tool, arguments), …])``."""
    return Reply(calls=[(tool, arguments) if call_id is None else (tool, arguments, call_id)])


def fail(message: str = "boom", code: str = "SERVER", **more: Any) -> Reply:
    """The provider reports a failure; `more` are further fields such as ``status=503``."""
    return Reply(failure={"message": message, "code": code, **more})


def hang(text: str = "partial") -> Reply:
    """The model says something and then nothing more until it is cancelled."""
    return Reply(text, hangs=True)


# -- replies as chunks ------------------------------------------------------------------------------------------------


def _block(index: int, kind: str, text: str, *, cut: int, end: bool = True) -> Chunks:
    """A text or reasoning block in one or two deltas."""
    chunks: Chunks = [{"type": "block-start", "index": index, "blockType": kind}]
    chunks += [{"type": f"{kind}-delta", "index": index, "text": part} for part in (text[:cut], text[cut:]) if part]
    if end:
        chunks.append({"type": "block-end", "index": index, "block": {"type": kind, "text": text}})
    return chunks


def _call(index: int, call: ToolCall, number: int) -> Chunks:
    call_id, arguments = _call_id(call, number), _arguments(call)
    return [
        {"type": "block-start", "index": index, "blockType": "tool-call"},
        {"type": "tool-call-delta", "index": index, "id": call_id, "name": call[0], "argumentsDelta": arguments},
        {
            "type": "block-end",
            "index": index,
            "block": {"type": "tool-call", "id": call_id, "name": call[0], "arguments": arguments},
        },
    ]


def _call_id(call: ToolCall, number: int) -> str:
    return call[2] if len(call) > 2 else f"call-{number}"


def _arguments(call: ToolCall) -> str:
    return call[1] if isinstance(call[1], str) else encode_str(dict(call[1]))


def _blocks(chunks: Chunks) -> int:
    return sum(chunk["type"] == "block-start" for chunk in chunks)
