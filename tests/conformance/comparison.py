"""Two recordings of one run, side by side: equal, alike in structure, or how they differ in words for a reader."""

from __future__ import annotations

import difflib
import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

Record = dict[str, Any]

_LINE = 400
"""Longer values are cut in a report."""


@dataclass(frozen=True)
class Part:
    """One thing a case compares: a log, a wire transcript, a result. Both sides are normalised.

    ``kind`` is ``log``, ``wire``, ``tools`` or ``value``; ``shape`` reduces records to what the structure level
    looks at.
    """

    name: str
    kind: str
    want: Sequence[Any]
    got: Sequence[Any]
    shape: Callable[[Sequence[Any]], list[Any]]

    @property
    def is_exact(self) -> bool:
        return canonical(self.want) == canonical(self.got)

    @property
    def is_alike(self) -> bool:
        return canonical(self.shape(self.want)) == canonical(self.shape(self.got))


def canonical(value: Any) -> str:
    """JSON with sorted keys: key order is no difference; ``True`` is not ``1``."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


# --- what the structure level looks at ------------------------------------------------------------------------------


def log_shape(records: Sequence[Record]) -> list[Any]:
    """A log without wording: types, numbers, calls, ends, errors, surface operations, and the last text said."""
    shape: list[Any] = []
    text = None
    for record in records:
        if record.get("type") == "session":
            shape.append({"type": "session", "delegationDepth": record.get("delegationDepth")})
            continue
        entry = _event_shape(record)
        if record["type"] == "assistant/chunk" and shape and shape[-1] == entry:
            continue  # how many chunks a reply came in is not structure
        shape.append(entry)
        if record["type"] == "assistant/message":
            blocks = record["data"]["message"]["content"]
            text = "".join(block["text"] for block in blocks if block["type"] == "text")
    return [*shape, {"finalText": text}]


def _event_shape(record: Record) -> Record:
    data = record["data"]
    out: Record = {"type": record["type"]}
    out |= {key: data[key] for key in ("turn", "step", "interrupted") if key in data}
    surface = record.get("surfaceOp")
    if surface is not None:
        out["surfaceOp"] = surface if isinstance(surface, str) else sorted(surface)
    match record["type"]:
        case "tool/call":
            out |= {"name": data["name"], "arguments": data["arguments"], "callId": data["callId"]}
        case "tool/result":
            block = data["message"]["content"][0]
            out |= {"callId": block["toolCallId"], "isError": bool(block.get("isError"))}
            out["error"] = data.get("error", {}).get("code")
        case "turn/end":
            out["reason"] = _reason_shape(data["reason"])
        case "user/message":
            out |= {"source": data["source"].get("kind"), "plugin": data["source"].get("plugin")}
        case "request/header":
            out["why"] = data["reason"]
        case "llm/retry":
            out |= {"retry": data["retry"], "failure": data["failure"]["code"]}
    return out


def _reason_shape(reason: Record) -> Record:
    return {
        "kind": reason["kind"],
        "error": reason.get("error", {}).get("code"),
        "reason": reason["reason"].get("kind") if isinstance(reason.get("reason"), dict) else reason.get("reason"),
    }


def frames_shape(frames: Sequence[Record]) -> list[Any]:
    """JSON-RPC frames without wording: which, to what, how they end."""
    shape = []
    for frame in frames:
        params, result = frame.get("params", {}), frame.get("result", {})
        entry: Record = {key: frame[key] for key in ("id", "method") if key in frame}
        entry["update"] = params.get("update", {}).get("sessionUpdate")
        entry["stopReason"] = result.get("stopReason")
        entry["error"] = frame.get("error", {}).get("code")
        shape.append(entry)
    return shape


def stream_shape(lines: Sequence[Record]) -> list[Any]:
    """Printed lines or notifications that carry session events."""
    shape: list[Any] = []
    for line in lines:
        params = line.get("params", line)
        if "event" in params:
            entry: Record = {"event": _event_shape(params["event"])}
        else:
            entry = {key: params[key] for key in ("type", "status", "output", "stopReason") if key in params}
        entry["method"] = line.get("method")
        if params.get("event", {}).get("type") == "assistant/chunk" and shape and shape[-1] == entry:
            continue
        shape.append(entry)
    return shape


def value_shape(values: Sequence[Any]) -> list[Any]:
    """Values are structure as a whole."""
    return list(values)


# --- differences, readable ------------------------------------------------------------------------------------------


def differences(want: Sequence[Any], got: Sequence[Any]) -> Iterator[str]:
    """Lines that tell how ``got`` differs from ``want``: key paths where records correspond, ``-``/``+`` where not."""
    left, right = [canonical(each) for each in want], [canonical(each) for each in got]
    for what, a, b, c, d in difflib.SequenceMatcher(None, left, right, autojunk=False).get_opcodes():
        if what == "equal":
            continue
        pairs = list(zip(want[a:b], got[c:d], strict=False))
        if what == "replace" and b - a == d - c and all(_kind(one) == _kind(other) for one, other in pairs):
            for offset, (one, other) in enumerate(pairs):
                yield f"@ {a + offset} {_kind(one)}"
                yield from _paths("", one, other)
            continue
        yield from _one_sided("-", a, want[a:b])
        yield from _one_sided("+", c, got[c:d])


def _one_sided(sign: str, start: int, records: Sequence[Any]) -> Iterator[str]:
    """Records that only one side has; the chunks of a reply in one line."""
    for kind, group in itertools.groupby(enumerate(records, start), lambda item: _kind(item[1])):
        members = list(group)
        if kind == "assistant/chunk" and len(members) > 1:
            yield f"{sign} {members[0][0]}-{members[-1][0]} {len(members)} of {kind}"
            continue
        yield from (f"{sign} {index} {_cut(canonical(record))}" for index, record in members)


def _paths(path: str, want: Any, got: Any) -> Iterator[str]:
    if canonical(want) == canonical(got):
        return
    if isinstance(want, dict) and isinstance(got, dict):
        for key in [*want, *(key for key in got if key not in want)]:
            yield from _paths(f"{path}.{key}", want.get(key, _ABSENT), got.get(key, _ABSENT))
    elif isinstance(want, list) and isinstance(got, list) and len(want) == len(got):
        for index, (one, other) in enumerate(zip(want, got, strict=True)):
            yield from _paths(f"{path}[{index}]", one, other)
    else:
        yield f"    {path}"
        yield f"      - {_show(want)}"
        yield f"      + {_show(got)}"


_ABSENT = "\0absent"


def _show(value: Any) -> str:
    return "(absent)" if value == _ABSENT else _cut(canonical(value))


def _kind(record: Any) -> str:
    if not isinstance(record, dict):
        return type(record).__name__
    params = record.get("params", record)
    event = params.get("event") if isinstance(params, dict) else None
    inner = event.get("type") if isinstance(event, dict) else None
    return str(inner or record.get("type") or record.get("method") or record.get("name") or "frame")


def _cut(text: str) -> str:
    return text if len(text) <= _LINE else f"{text[:_LINE]}… ({len(text)} characters)"
