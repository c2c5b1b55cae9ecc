"""The body of a DeepSeek request: messages in the service's shape, options in a fixed order.

The same conversation always gives the same bytes, so each request of a session is a prefix of the next and hits the
service's cache. API: https://api-docs.deepseek.com/api/create-chat-completion
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import orjson

from dsh.cordis.jsonio import JsonDecodeError, decode, encode_str
from dsh.llm.content import text_of
from dsh.llm.failure import LlmError
from dsh.llm.types import Block, LlmRequest, Message

NO_OUTPUT = "(no output)"
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_log = logging.getLogger("dsh.llm-deepseek")


def request_body(
    request: LlmRequest, effort: str, max_tokens: int, *, messages: Any = None, omit: Collection[str] = ()
) -> dict[str, Any]:
    """The body of one request. `effort` is the reasoning effort in force, ``off`` for none.

    `messages` takes the place of the request's if they are encoded already; fields in `omit` are left out.

    Raises `LlmError` ``UNSUPPORTED_CONTENT`` for an image, which this route cannot send.
    """
    thinking = effort != "off"
    body: dict[str, Any] = {
        "model": request.model,
        "messages": messages or wire_messages(request.system, request.messages, thinking=thinking),
        "stream": True,
        "stream_options": {"include_usage": True},
        "thinking": {"type": "enabled" if thinking else "disabled"},
    }
    if thinking:
        body["reasoning_effort"] = effort
    if request.tools:
        body["tools"] = [
            {
                "type": "function",
                "function": {
                    "name": tool["name"],
                    "description": tool["description"],
                    "parameters": tool["parameters"],
                },
            }
            for tool in request.tools
        ]
    if request.config.temperature is not None:
        body["temperature"] = request.config.temperature
    body["max_tokens"] = max_tokens
    if request.config.stop is not None:
        body["stop"] = list(request.config.stop)
    for name in omit:
        body.pop(name, None)
    return body


def text_size(body: dict[str, Any]) -> int:
    """Roughly how many characters a body holds."""
    return sum(len(message.get("content") or "") for message in body["messages"])


def wire_messages(
    system: str | None, messages: Sequence[Message], *, thinking: bool, repair: bool = True
) -> list[dict[str, Any]]:
    """The conversation as the service wants it; without `repair` calls and results are left where they are.

    While thinking is on, *every* assistant message carries ``reasoning_content``, empty if it has none: the service
    refuses a history in which one lacks it ("must be passed back to the API"), often only on a cold replay.
    """
    wire: list[dict[str, Any]] = [{"role": "system", "content": system}] if system else []
    for message in messages:
        if message["role"] == "assistant":
            wire.append(_assistant(message, thinking))
        elif message["role"] == "system":
            wire.append({"role": "system", "content": _text(message["content"], "system")})
        else:
            wire += _user(message["content"])
    return _paired(wire) if repair else wire


def _assistant(message: Message, thinking: bool) -> dict[str, Any]:
    content = message["content"]
    wire: dict[str, Any] = {"role": "assistant", "content": _text(content, "assistant")}
    reasoning = "".join(block["text"] for block in content if block["type"] == "reasoning")
    if thinking or reasoning:
        wire["reasoning_content"] = reasoning
    calls = [
        {
            "id": block["id"],
            "type": "function",
            "function": {"name": valid_name(block["name"]), "arguments": valid_arguments(block["arguments"])},
        }
        for block in content
        if block["type"] == "tool-call"
    ]
    if calls:
        wire["tool_calls"] = calls
    return wire


def _user(content: Sequence[Block]) -> Iterable[dict[str, Any]]:
    """Text first, then one tool message for each result."""
    text = _text(content, "user")
    results = [block for block in content if block["type"] == "tool-result"]
    if text or not results:
        yield {"role": "user", "content": text}
    for block in results:
        output = _text(block["content"], "tool result") or NO_OUTPUT
        yield {"role": "tool", "tool_call_id": block["toolCallId"], "content": output}


def _text(content: Sequence[Block], where: str) -> str:
    if any(block["type"] == "image" for block in content):
        raise LlmError.of("UNSUPPORTED_CONTENT", f"an image in a {where} message cannot be sent to this model")
    return text_of(content)


def valid_name(name: str) -> str:
    """The name of a call as the service takes it: a model may have made up one that it would refuse in a history."""
    if _NAME.fullmatch(name):
        return name
    return re.sub(r"[^A-Za-z0-9_-]", "_", name)[:64] or "unknown"


def valid_arguments(arguments: str) -> str:
    """Tool arguments as the model produced them; what is no JSON object goes back inside one.

    The service parses the arguments of the history, so a single malformed call would spoil the session for ever.
    """
    try:
        value: Any = orjson.loads(arguments)
    except orjson.JSONDecodeError:
        try:
            value = decode(arguments)
        except JsonDecodeError:
            value = None
    if isinstance(value, dict):
        return arguments
    return encode_str({"malformed_arguments": arguments}) if arguments.strip() not in ("", "null") else "{}"


def _paired(wire: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The messages with each tool call followed directly by its result, which the service insists on.

    A well-formed conversation is returned as it is. Otherwise results move up to their call, a missing one is stated
    as empty, and a result without a call becomes user text.
    """
    if is_paired(wire):
        return wire
    _log.warning("repaired a conversation whose tool calls and results do not match")
    repaired: list[dict[str, Any]] = []
    position = 0
    while position < len(wire):
        message = wire[position]
        position += 1
        if message["role"] == "tool":
            text = f"Result of the unknown tool call {message['tool_call_id']}:\n{message['content']}"
            repaired.append({"role": "user", "content": text})
            continue
        repaired.append(message)
        open_ids = [call["id"] for call in message.get("tool_calls", ())]
        if not open_ids:
            continue
        rest: list[dict[str, Any]] = []
        while position < len(wire) and wire[position]["role"] != "assistant":
            follower = wire[position]
            position += 1
            if follower["role"] == "tool" and follower["tool_call_id"] in open_ids:
                open_ids.remove(follower["tool_call_id"])
                repaired.append(follower)
            else:
                rest.append(follower)
        repaired += [{"role": "tool", "tool_call_id": call_id, "content": NO_OUTPUT} for call_id in open_ids]
        wire[position:position] = rest
    return repaired


def is_paired(wire: list[dict[str, Any]]) -> bool:
    """Whether the results of each message's tool calls follow it directly."""
    open_ids: list[str] = []
    for message in wire:
        if message["role"] == "tool":
            if message["tool_call_id"] not in open_ids:
                return False
            open_ids.remove(message["tool_call_id"])
        elif open_ids:
            return False
        elif "tool_calls" in message:
            open_ids = [call["id"] for call in message["tool_calls"]]
    return not open_ids
