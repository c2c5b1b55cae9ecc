"""Reading a chat-completions stream: payloads in, chunks out, without any I/O.

One text block, one reasoning block and one block a tool call, numbered in the order in which they appear. Everything
a compatible server is known to get wrong in its tool-call deltas is sorted out here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import uuid4

from dsh.cordis.jsonio import encode_str, frozen_object
from dsh.llm.failure import LlmError
from dsh.llm.types import Block, StreamChunk, Usage

_FINISH = {"stop": "stop", "tool_calls": "tool-calls", "function_call": "tool-calls", "length": "max-tokens"}
_REASONING_KEYS = ("reasoning_content", "reasoning", "reasoning_text")


PIECE = 64
"""What a piece of a reply costs at least, in characters, however short its text is."""


class _Call:
    """A tool call being streamed. Its id and name are set by the first non-empty value and never erased."""

    __slots__ = ("id", "index", "name", "parts")

    def __init__(self, index: int) -> None:
        self.index = index
        self.id = ""
        self.name = ""
        self.parts: list[str] = []


class _Prose:
    """The text or the reasoning of the reply."""

    __slots__ = ("delta", "index", "parts")

    def __init__(self, kind: str, index: int) -> None:
        self.delta = f"{kind}-delta"
        self.index = index
        self.parts: list[str] = []


class CompletionReader:
    """Decodes one reply. Feed each payload to `push`, then call `close` once for what ends the stream."""

    __slots__ = ("_calls", "_calls_at", "_last_call", "_next", "_prose", "_usage", "finish_word", "held")

    def __init__(self) -> None:
        self.held = 0
        """What the reply takes: its characters, and `PIECE` for each piece that they came in."""
        self._next = 0
        self._prose: dict[str, _Prose] = {}
        self._calls: list[_Call] = []
        self._calls_at: dict[int, _Call] = {}  # by the index the server gives
        self._last_call: _Call | None = None
        self._usage: Usage | None = None
        self.finish_word = ""
        """The server's word for how the reply ended; empty until it came."""

    @property
    def received(self) -> int:
        """How many characters of output have arrived."""
        parts = [*(prose.parts for prose in self._prose.values()), *(call.parts for call in self._calls)]
        return sum(len(part) for block in parts for part in block)

    def push(self, payload: Any) -> list[StreamChunk]:
        """The chunks that one payload stands for. Raises ``ValueError`` when it has the wrong shape."""
        if not isinstance(payload, dict):
            raise ValueError("not an object")
        chunks: list[StreamChunk] = []
        choices = payload.get("choices")
        if choices:
            if not isinstance(choices, list):
                raise ValueError("choices is not a list")
            for choice in choices:
                if not isinstance(choice, dict):
                    raise ValueError("a choice is not an object")
                delta = choice.get("delta") or choice.get("message")
                if delta:
                    self._delta(delta, chunks)
                reason = choice.get("finish_reason")
                if reason:
                    self.finish_word = str(reason)
        usage = payload.get("usage")
        if usage:
            self._usage = read_usage(usage) or self._usage
        return chunks

    def close(self) -> list[StreamChunk]:
        """What ends a complete reply: block ends, usage, finish."""
        chunks: list[StreamChunk] = [
            {"type": "block-end", "index": index, "block": block} for index, block in sorted(self._blocks().items())
        ]
        if self._usage is not None:
            chunks.append({"type": "usage", "usage": self._usage})
        word = self.finish_word or "stop"
        kind = _FINISH.get(word)
        if kind is None:
            failure = {"message": f"model stopped: {word}", "code": word.upper()}
            chunks.append({"type": "finish", "reason": {"kind": "error", "failure": failure}})
        elif self._next == 0 and kind != "max-tokens":
            failure = {"message": "the model ended its reply without saying anything", "code": "EMPTY_RESPONSE"}
            chunks.append({"type": "finish", "reason": {"kind": "error", "failure": failure}})
        else:
            chunks.append({"type": "finish", "reason": {"kind": kind}})
        return chunks

    def _delta(self, delta: Any, chunks: list[StreamChunk]) -> None:
        if not isinstance(delta, dict):
            raise ValueError("a delta is not an object")
        for key in _REASONING_KEYS:
            text = delta.get(key)
            if text:
                self._say("reasoning", text, chunks)
                break
        text = delta.get("content")
        if text:
            self._say("text", text if isinstance(text, str) else _joined(text), chunks)
        calls = delta.get("tool_calls")
        if calls:
            if not isinstance(calls, list):
                raise ValueError("tool_calls is not a list")
            for piece in calls:
                if not isinstance(piece, dict):
                    raise ValueError("a tool call is not an object")
                self._call(piece, chunks)

    def _say(self, kind: str, text: Any, chunks: list[StreamChunk]) -> None:
        if not isinstance(text, str):
            raise ValueError(f"{kind} is not a string")
        prose = self._prose.get(kind)
        if prose is None:
            if not text:
                return
            prose = self._prose[kind] = _Prose(kind, self._open(kind, chunks))
        prose.parts.append(text)
        self.held += len(text) + PIECE
        chunk: StreamChunk = {"type": prose.delta, "index": prose.index, "text": text}
        chunks.append(frozen_object(chunk))

    def _call(self, piece: Mapping[str, Any], chunks: list[StreamChunk]) -> None:
        call = self._route(piece)
        if call is None:
            call = _Call(self._open("tool-call", chunks))
            self._calls.append(call)
        if type(piece.get("index")) is int:
            self._calls_at[piece["index"]] = call
        self._last_call = call
        function = piece.get("function") or {}
        if not isinstance(function, Mapping):
            raise ValueError("a tool call's function is not an object")
        call.id = call.id or _word(piece.get("id"))
        call.name = _word(function.get("name")) or call.name
        arguments = function.get("arguments")
        if isinstance(arguments, Mapping):
            arguments = encode_str(arguments)
        text = arguments if isinstance(arguments, str) else ""
        if text:
            call.parts.append(text)
        self.held += len(text) + PIECE
        chunk: StreamChunk = {"type": "tool-call-delta", "index": call.index, "id": call.id}
        if call.name:
            chunk["name"] = call.name
        chunk["argumentsDelta"] = text
        chunks.append(frozen_object(chunk))

    def _route(self, piece: Mapping[str, Any]) -> _Call | None:
        """The call a piece belongs to: by a known id, else by its index unless a new id claims that, else the last."""
        call_id, index = _word(piece.get("id")), piece.get("index")
        if call_id:
            known = next((call for call in self._calls if call.id == call_id), None)
            if known is not None:
                return known
        if type(index) is int:
            owner = self._calls_at.get(index)
            return None if owner is not None and call_id and owner.id else owner
        if call_id:
            return None
        return self._last_call

    def _open(self, kind: str, chunks: list[StreamChunk]) -> int:
        index = self._next
        self._next += 1
        chunks.append({"type": "block-start", "index": index, "blockType": kind})
        return index

    def _blocks(self) -> dict[int, Block]:
        blocks: dict[int, Block] = {
            prose.index: {"type": kind, "text": "".join(prose.parts)} for kind, prose in self._prose.items()
        }
        for call in self._calls:
            blocks[call.index] = {
                "type": "tool-call",
                "id": call.id or f"call_{uuid4()}",
                "name": call.name,
                "arguments": "".join(call.parts),
            }
        return blocks


def read_usage(usage: Any) -> Usage | None:
    """Token counts with disjoint fields; None when the sample says too little to be true to them."""
    if not isinstance(usage, Mapping):
        return None
    prompt, output, total = (_count(usage.get(key)) for key in ("prompt_tokens", "completion_tokens", "total_tokens"))
    if output is None and prompt is not None and total is not None and total >= prompt:
        output = total - prompt
    if prompt is None or output is None:
        return None
    details = usage.get("prompt_tokens_details")
    cached = _count(details.get("cached_tokens")) if isinstance(details, Mapping) else None
    if cached is None:
        cached = _count(usage.get("prompt_cache_hit_tokens"))
    sample: Usage = {"inputTokens": max(prompt - (cached or 0), 0), "outputTokens": output}
    if cached is not None:
        sample["cacheReadTokens"] = cached
    spent = usage.get("completion_tokens_details")
    reasoning = _count(spent.get("reasoning_tokens")) if isinstance(spent, Mapping) else None
    if reasoning is not None:
        sample["reasoningTokens"] = reasoning
    return sample


def in_band_error(name: str, payload: Any) -> Any:
    """The error object that a payload delivers instead of a piece of the reply, or None."""
    if isinstance(payload, dict) and payload.get("error"):
        return payload["error"]
    return payload if name == "error" else None


def malformed(data: bytes, note: str = "") -> LlmError:
    """The error for a payload nobody can read; `note` says what to do about it."""
    shown = data[:480].decode("utf-8", "replace")[:120]
    return LlmError.of("MALFORMED_RESPONSE", f"malformed SSE payload: {shown}{note and f' ({note})'}")


def _joined(parts: Any) -> str:
    if not isinstance(parts, list) or not all(isinstance(part, dict) for part in parts):
        raise ValueError("content is neither text nor a list of parts")
    return "".join(_word(part.get("text")) for part in parts)


def _word(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _count(value: Any) -> int | None:
    return value if type(value) is int and value >= 0 else None
