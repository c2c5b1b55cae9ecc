"""Talking to a small local model: a compact prompt with a strict output schema, and reading what comes back.

Small models ignore tool calling as templates describe it, so every reply is constrained to one JSON object:
``{"tool": name, "arguments": {...}}`` or ``{"answer": text}``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import uuid4

from dsh.cordis.jsonio import JsonDecodeError, decode, encode_str
from dsh.llm.content import text_of
from dsh.llm.types import Message, StreamChunk, ToolSchema

MAX_TOOLS = 6
_HISTORY_CHARS = 1600
_RESULT_CHARS = 400
_STRING_LIMIT = 400
_ANSWER = re.compile(r'\s*\{\s*"answer"\s*:\s*"')
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", '"': '"', "\\": "\\", "/": "/"}


def output_schema(tools: Sequence[ToolSchema]) -> dict[str, Any]:
    """What a reply may be: one call of one of `tools`, or an answer."""
    options: list[dict[str, Any]] = [
        _object({"tool": {"const": tool["name"]}, "arguments": _bounded(tool["parameters"])}) for tool in tools
    ]
    options.append(_object({"answer": {"type": "string", "maxLength": 4 * _STRING_LIMIT}}))
    return {"anyOf": options}


def action_prompt(messages: Sequence[Message], tools: Sequence[ToolSchema]) -> str:
    """The prompt: what can be done, two examples, the latest part of the conversation."""
    lines = ["Choose one action for the last request.", "Actions:"]
    lines += [_signature(tool) for tool in tools]
    lines += ["- answer: reply in words", "", "Request: What is the capital of Italy?"]
    lines += ['Action: {"answer":"Rome"}', ""]
    if any(tool["name"] == "bash" for tool in tools):
        lines += ["Request: Show the current directory.", 'Action: {"tool":"bash","arguments":{"command":"pwd"}}']
        lines += ["Result: /home/user", 'Action: {"answer":"The current directory is /home/user."}', ""]
    return "\n".join([*lines, *_history(messages), "Action:"])


def calls_since_prompt(messages: Sequence[Message]) -> int:
    """How many tool calls the model has made since the last thing a person said."""
    count = 0
    for message in reversed(messages):
        if message["source"]["kind"] == "user":
            break
        count += sum(block["type"] == "tool-call" for block in message["content"])
    return count


class ActionReader:
    """Turns the JSON text of a constrained reply into chunks; an answer streams as it is written."""

    def __init__(self) -> None:
        self._raw = ""
        self._at = -1  # position in `_raw` up to which the answer is decoded; -1 until it is known to be one
        self._said: list[str] = []
        self._closed = False

    def push(self, text: str) -> list[StreamChunk]:
        """The chunks that a further piece of the JSON text stands for."""
        self._raw += text
        chunks: list[StreamChunk] = []
        if self._at < 0:
            opening = _ANSWER.match(self._raw)
            if opening is None:
                return []
            self._at = opening.end()
            chunks.append({"type": "block-start", "index": 0, "blockType": "text"})
        said = self._decode()
        if said:
            self._said.append(said)
            chunks.append({"type": "text-delta", "index": 0, "text": said})
        return chunks

    def close(self, *, cut: bool) -> list[StreamChunk]:
        """What ends the reply before its usage and finish. `cut`: the token limit ended it.

        Raises ``ValueError`` when a complete reply is no action.
        """
        if self._at >= 0:
            return [{"type": "block-end", "index": 0, "block": {"type": "text", "text": "".join(self._said)}}]
        if cut:
            # Half a call: shown as what it is and dropped by everybody who assembles the reply.
            return _call_chunks("", self._raw)
        try:
            action = decode(self._raw)
        except JsonDecodeError:
            raise ValueError(self._raw) from None
        if not isinstance(action, Mapping) or not isinstance(action.get("tool"), str):
            raise ValueError(self._raw)
        return _call_chunks(action["tool"], encode_str(action.get("arguments", {})))

    @property
    def is_call(self) -> bool:
        """Whether the reply is a tool call."""
        return self._at < 0

    def _decode(self) -> str:
        """The part of the answer's string literal that is complete by now."""
        out: list[str] = []
        raw, at = self._raw, self._at
        while not self._closed and at < len(raw):
            char = raw[at]
            if char == '"':
                self._closed = True
            elif char != "\\":
                out.append(char)
                at += 1
            else:
                taken = _escape(raw, at)
                if taken is None:
                    break
                text, at = taken
                out.append(text)
        self._at = at
        return "".join(out)


def _escape(raw: str, at: int) -> tuple[str, int] | None:
    """The character an escape stands for and the position after it; None while it is incomplete."""
    kind = raw[at + 1 : at + 2]
    if not kind:
        return None
    if kind != "u":
        return _ESCAPES.get(kind, kind), at + 2
    if len(raw) < at + 6:
        return None
    code = int(raw[at + 2 : at + 6], 16)
    if not 0xD800 <= code < 0xDC00:
        return ("\ufffd" if 0xDC00 <= code < 0xE000 else chr(code)), at + 6
    if len(raw) < at + 12 and raw[at + 6 : at + 8] in ("", "\\", "\\u"):
        return None
    low = raw[at + 8 : at + 12]
    if raw[at + 6 : at + 8] == "\\u" and re.fullmatch("[dD][c-fC-F][0-9a-fA-F]{2}", low):
        return chr(0x10000 + ((code - 0xD800) << 10) + (int(low, 16) - 0xDC00)), at + 12
    return "\ufffd", at + 6


def _call_chunks(name: str, arguments: str) -> list[StreamChunk]:
    call_id = f"call_{uuid4()}"
    delta: StreamChunk = {"type": "tool-call-delta", "index": 0, "id": call_id, "argumentsDelta": arguments}
    if name:
        delta["name"] = name
    return [
        {"type": "block-start", "index": 0, "blockType": "tool-call"},
        delta,
        {
            "type": "block-end",
            "index": 0,
            "block": {"type": "tool-call", "id": call_id, "name": name, "arguments": arguments},
        },
    ]


def _history(messages: Sequence[Message]) -> list[str]:
    """The latest exchanges as Request/Action/Result lines, within a budget of characters."""
    lines: list[str] = []
    room = _HISTORY_CHARS
    for message in reversed(messages):
        block_lines = _lines(message)
        room -= sum(map(len, block_lines))
        if room < 0 and lines:
            break
        lines[:0] = block_lines
    return lines


def _lines(message: Message) -> list[str]:
    kind = message["source"]["kind"]
    content = message["content"]
    if message["role"] == "assistant":
        lines = [f"Action: {encode_str({'answer': text_of(content)})}"] if text_of(content).strip() else []
        for block in content:
            if block["type"] == "tool-call":
                lines.append(f'Action: {{"tool":{encode_str(block["name"])},"arguments":{block["arguments"] or "{}"}}}')
        return lines
    if kind == "tool":
        outputs = (text_of(block["content"]) for block in content if block["type"] == "tool-result")
        return [f"Result: {_short(output, _RESULT_CHARS)}" for output in outputs]
    if kind == "plugin":
        return []  # instructions and context are written for larger models
    return [f"Request: {_short(text_of(content), _HISTORY_CHARS)}"]


def _signature(tool: ToolSchema) -> str:
    properties = tool["parameters"].get("properties", {})
    required = tool["parameters"].get("required", ())
    names = [name if name in required else f"{name}?" for name in properties]
    first = re.split(r"(?<=[.!?])\s|\n", tool["description"].strip(), maxsplit=1)[0]
    return f"- {tool['name']}({', '.join(names)}): {_short(first, 80)}"


def _object(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(properties),
        "additionalProperties": False,
    }


def _bounded(schema: Any) -> Any:
    """The schema with a length on every free string, so that a reply must end; descriptions only cost tokens."""
    if isinstance(schema, Mapping):
        kept = {key: _bounded(value) for key, value in schema.items() if key not in ("description", "$schema", "title")}
        if kept.get("type") == "string" and not {"enum", "const", "maxLength", "pattern"} & kept.keys():
            kept["maxLength"] = _STRING_LIMIT
        if kept.get("type") == "object" and "properties" in kept:
            kept.setdefault("additionalProperties", False)
        return kept
    if isinstance(schema, list | tuple):
        return [_bounded(item) for item in schema]
    return schema


def _short(text: str, limit: int) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= limit else flat[: limit - 1] + "…"
