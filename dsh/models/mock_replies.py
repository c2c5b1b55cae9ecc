"""What the mock model server can answer: every behaviour as a plan of bytes, plus the scripted replies.

A script is a list. An entry is the name of a behaviour, or a mapping: ``{"behavior": name, …options}``,
``{"text"?, "reasoning"?, "toolCalls"?: [{"name", "arguments", "id"?}], "finish"?, "usage"?}``,
``{"status", "error"?, "headers"?}``, ``{"json": body}`` or ``{"chunks": [...]}`` where a mapping is sent as one SSE
event and a string as the bytes it is. In Python an entry may also be a function of the request body that returns one.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any, Literal, TypeAlias

from dsh.cordis.jsonio import encode
from dsh.cordis.records import record

Entry: TypeAlias = "str | Mapping[str, Any] | Callable[[Mapping[str, Any]], Entry]"
Ending: TypeAlias = Literal["end", "reset", "stall", "pings"]

DONE = b"data: [DONE]\n\n"
PING = b": keep-alive\n\n"
ODD_SPACES = "one\u2028two\u2029three\u0085four\x0bfive\x0csix"
RANDOM_WEIGHTS: Mapping[str, float] = {
    "success": 6,
    "tool_call_success": 1,
    "reasoning_success": 1,
    "rate_limit": 1,
    "server_error": 1,
    "connection_reset": 1,
    "partial_disconnect": 1,
    "partial_eof": 1,
    "empty": 1,
}


@record
class MockOptions:
    """What the behaviours say and how fast. Delays are milliseconds, before the first and between later pieces."""

    text: str = "Hello from the mock model."
    reasoning: str = "The user greets me, so I greet back."
    tool_name: str = "bash"
    tool_arguments: str = '{"command":"echo mock"}'
    chunk_size: int = 8
    first_delay_ms: float = 0
    delay_ms: float = 0
    slow_delay_ms: float = 250
    ping_ms: float = 20
    pings: int = 5
    retry_after_ms: float = 1000
    request_id: str = "mock-request"
    weights: Mapping[str, float] = field(default_factory=lambda: RANDOM_WEIGHTS)


@record
class Plan:
    """One answer: a head (none for `status` 0), pieces of the body, and how the connection ends."""

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=lambda: {"Content-Type": "text/event-stream; charset=utf-8"})
    pieces: Sequence[bytes] = ()
    ending: Ending = "end"
    delay_ms: float | None = None
    single_bytes: bool = False
    streamed: bool = True


class UnknownBehaviour(ValueError):
    """A script names a behaviour that does not exist."""


def check_entry(entry: object) -> None:
    """Raise `UnknownBehaviour` when a script entry names one that does not exist."""
    name = entry.get("behavior", "success") if isinstance(entry, Mapping) else entry
    if isinstance(name, str) and name not in BEHAVIOURS:
        raise UnknownBehaviour(f'unknown mock behaviour "{name}"; known: {", ".join(sorted(BEHAVIOURS))}')


def choose(options: MockOptions, rng: random.Random) -> str:
    """One behaviour by weight."""
    names = list(options.weights)
    return rng.choices(names, [options.weights[name] for name in names])[0]


def plan_entry(entry: str | Mapping[str, Any], model: str, options: MockOptions) -> Plan:
    """The answer for one script entry. Raises `UnknownBehaviour`."""
    if isinstance(entry, str):
        return _behaviour(entry, model, options)
    if "behavior" in entry:
        known = {key: value for key, value in _snake(entry).items() if key in MockOptions.__dataclass_fields__}
        return _behaviour(entry["behavior"], model, replace(options, **known))
    if "status" in entry:
        return _refusal(entry["status"], entry.get("error", {"message": "mock error"}), options, entry.get("headers"))
    if "json" in entry:
        return _json(200, entry["json"])
    if "chunks" in entry:
        return Plan(pieces=[_raw(piece) for piece in entry["chunks"]], ending=entry.get("ending", "end"))
    return Plan(pieces=[*_reply(_Writer(model), entry, options), DONE])


BEHAVIOURS = frozenset(
    {
        "connection_reset",
        "stream_disconnect",
        "partial_disconnect",
        "stall",
        "empty",
        "empty_body",
        "stream_eof",
        "partial_eof",
        "malformed_json",
        "malformed_event",
        "wrong_content_type",
        "rate_limit",
        "server_error",
        "service_unavailable",
        "auth_error",
        "invalid_request",
        "context_overflow",
        "quota_exceeded",
        "success",
        "slow_success",
        "reasoning_success",
        "tool_call_success",
        "max_tokens",
        "random",
        "keep_alive",
        "pings_only",
        "split_bytes",
        "u2028",
        "no_done",
        "inband_error",
        "json_200",
        "parallel_tools",
        "bad_indexes",
    }
)


def _behaviour(name: str, model: str, options: MockOptions) -> Plan:
    check_entry(name)
    refusal = _REFUSALS.get(name)
    if refusal is not None:
        status, error = refusal
        after = {"Retry-After": str(math.ceil(options.retry_after_ms / 1000))} if name == "rate_limit" else None
        return _refusal(status, error, options, after)
    writer = _Writer(model)
    text = [writer.delta(content=part) for part in _cut(options.text, options.chunk_size)]
    half = text[: max(1, len(text) // 2)]
    whole = [*_reply(writer, {"text": options.text}, options), DONE]
    call = {"name": options.tool_name, "arguments": options.tool_arguments}
    match name:
        case "connection_reset":
            return Plan(status=0, ending="reset")
        case "stream_disconnect":
            return Plan(pieces=[writer.role()], ending="reset")
        case "partial_disconnect":
            return Plan(pieces=[writer.role(), *half], ending="reset")
        case "stall":
            return Plan(pieces=[writer.role()], ending="stall")
        case "empty":
            return Plan(pieces=[writer.role(), writer.end("stop"), writer.usage(), DONE])
        case "empty_body":
            return Plan(streamed=False)
        case "stream_eof":
            return Plan(pieces=[writer.role()])
        case "partial_eof":
            return Plan(pieces=[writer.role(), *half])
        case "malformed_json":
            return Plan(pieces=[writer.role(), b'data: {"choices": [\n\n'])
        case "malformed_event":
            return Plan(pieces=[writer.role(), b'data: {"choices": [null]}\n\n'])
        case "wrong_content_type":
            return Plan(pieces=whole, headers={"Content-Type": "application/json"})
        case "slow_success":
            return Plan(pieces=whole, delay_ms=options.slow_delay_ms)
        case "reasoning_success":
            return Plan(pieces=[*_reply(writer, {"reasoning": options.reasoning, "text": options.text}, options), DONE])
        case "tool_call_success":
            return Plan(pieces=[*_reply(writer, {"toolCalls": [call]}, options), DONE])
        case "max_tokens":
            return Plan(pieces=[*_reply(writer, {"text": options.text, "finish": "length"}, options), DONE])
        case "keep_alive":
            return Plan(pieces=[*[PING] * options.pings, *whole], delay_ms=options.ping_ms)
        case "pings_only":
            return Plan(pieces=[writer.role(), *half], ending="pings")
        case "split_bytes":
            return Plan(pieces=[*_reply(writer, {"text": options.text}, options), DONE], single_bytes=True)
        case "u2028":
            return Plan(pieces=[*_reply(writer, {"text": ODD_SPACES}, options), DONE])
        case "no_done":
            return Plan(pieces=whole[:-1])
        case "inband_error":
            error = {"error": {"message": "the server is overloaded", "type": "server_error", "code": 503}}
            return Plan(pieces=[writer.role(), *half, _event(error)])
        case "json_200":
            return _json(200, _completion(model, options))
        case "parallel_tools":
            return Plan(pieces=[*_parallel(writer, options), writer.end("tool_calls"), writer.usage(), DONE])
        case "bad_indexes":
            return Plan(pieces=[*_bad_indexes(writer, options), writer.end("tool_calls"), writer.usage(), DONE])
        case _:
            return Plan(pieces=whole)


_REFUSALS: Mapping[str, tuple[int, Mapping[str, Any]]] = {
    "rate_limit": (429, {"message": "Rate limit reached", "type": "rate_limit_error", "code": "rate_limit_reached"}),
    "server_error": (500, {"message": "Internal server error", "type": "server_error"}),
    "service_unavailable": (503, {"message": "Service unavailable", "type": "server_error"}),
    "auth_error": (401, {"message": "Authentication fails", "type": "authentication_error"}),
    "invalid_request": (400, {"message": "Invalid parameter: temperature", "type": "invalid_request_error"}),
    "context_overflow": (
        400,
        {"message": "This model's maximum context length is 65536 tokens.", "type": "invalid_request_error"},
    ),
    "quota_exceeded": (402, {"message": "Insufficient Balance", "type": "insufficient_balance"}),
}


class _Writer:
    """Completion chunks of one reply."""

    def __init__(self, model: str) -> None:
        self._base = {"id": "chatcmpl-mock", "object": "chat.completion.chunk", "created": 0, "model": model}

    def role(self) -> bytes:
        return self.delta(role="assistant", content="")

    def delta(self, **delta: Any) -> bytes:
        return _event({**self._base, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]})

    def call(self, **fields: Any) -> bytes:
        function = {key: fields.pop(key) for key in ("name", "arguments") if key in fields}
        return self.delta(tool_calls=[{**fields, "function": function}])

    def end(self, reason: str) -> bytes:
        return _event({**self._base, "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})

    def usage(self, usage: Mapping[str, Any] | None = None) -> bytes:
        return _event({**self._base, "choices": [], "usage": usage or _USAGE})


_USAGE = {"prompt_tokens": 12, "completion_tokens": 6, "total_tokens": 18, "prompt_cache_hit_tokens": 4}


def _reply(writer: _Writer, entry: Mapping[str, Any], options: MockOptions) -> list[bytes]:
    """A whole well-formed reply up to its usage."""
    pieces = [writer.role()]
    size = options.chunk_size
    pieces += [writer.delta(reasoning_content=part) for part in _cut(entry.get("reasoning", ""), size)]
    pieces += [writer.delta(content=part) for part in _cut(entry.get("text", ""), size)]
    calls = entry.get("toolCalls") or ([entry["toolCall"]] if "toolCall" in entry else [])
    for index, call in enumerate(calls):
        arguments = call.get("arguments", {})
        text = arguments if isinstance(arguments, str) else encode(arguments).decode()
        call_id = call.get("id", f"call_mock_{index}")
        pieces.append(writer.call(index=index, id=call_id, type="function", name=call["name"], arguments=""))
        pieces += [writer.call(index=index, arguments=part) for part in _cut(text, size)]
    pieces.append(writer.end(entry.get("finish", "tool_calls" if calls else "stop")))
    if entry.get("usage", True) is not None:
        usage = entry.get("usage")
        pieces.append(writer.usage(usage if isinstance(usage, Mapping) else None))
    return pieces


def _parallel(writer: _Writer, options: MockOptions) -> list[bytes]:
    """Two interleaved calls whose later pieces carry empty or null identities."""
    head, tail = options.tool_arguments[:5], options.tool_arguments[5:]
    name = options.tool_name
    return [
        writer.role(),
        writer.call(index=0, id="call_a", type="function", name=name, arguments=""),
        writer.call(index=1, id="call_b", type="function", name=name, arguments=""),
        writer.call(index=0, id="", name="", arguments=head),
        writer.call(index=1, id=None, name=None, arguments=head),
        writer.call(index=1, id="", arguments=tail),
        writer.call(index=0, id="", name="", arguments=tail),
    ]


def _bad_indexes(writer: _Writer, options: MockOptions) -> list[bytes]:
    """Two calls that both claim index 0, then pieces without any index."""
    head, tail = options.tool_arguments[:5], options.tool_arguments[5:]
    name = options.tool_name
    return [
        writer.role(),
        writer.call(index=0, id="call_a", type="function", name=name, arguments=head),
        writer.call(id="call_a", arguments=tail),
        writer.call(index=0, id="call_b", type="function", name=name, arguments=head),
        writer.call(arguments=tail),
    ]


def _completion(model: str, options: MockOptions) -> dict[str, Any]:
    message = {"role": "assistant", "content": options.text}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    return {"id": "chatcmpl-mock", "object": "chat.completion", "model": model, "choices": [choice], "usage": _USAGE}


def _refusal(
    status: int, error: Mapping[str, Any], options: MockOptions, extra: Mapping[str, str] | None = None
) -> Plan:
    return _json(status, {"error": error}, {"X-Request-Id": options.request_id, **(extra or {})})


def _json(status: int, body: Any, extra: Mapping[str, str] | None = None) -> Plan:
    headers = {"Content-Type": "application/json", **(extra or {})}
    return Plan(status=status, headers=headers, pieces=[encode(body)], streamed=False)


def _raw(piece: Any) -> bytes:
    return piece.encode("utf-8") if isinstance(piece, str) else piece if isinstance(piece, bytes) else _event(piece)


def _event(payload: Any) -> bytes:
    return b"data: " + encode(payload) + b"\n\n"


def _cut(text: str, size: int) -> list[str]:
    return [text[start : start + size] for start in range(0, len(text), size)]


def _snake(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {"".join(f"_{c.lower()}" if c.isupper() else c for c in key): value for key, value in entry.items()}
