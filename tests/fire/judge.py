"""What must hold of a session log and of a request, whatever happened before; independent of the code under trial."""

from __future__ import annotations

import io
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import zstandard

from dsh.core.packed_rows import is_packed, unpack

Rows = list[dict[str, Any]]


def strict_rows(path: Path) -> Rows:
    """The events of the log at `path`; packed rows are opened."""
    events: Rows = []
    for row in stored_rows(path)[1:]:
        events += [event.to_wire() for event in unpack(row)] if is_packed(row) else [row]
    return events


def stored_rows(path: Path) -> Rows:
    """Header and rows of the log at `path` by a strict JSON-lines reader, after decompression."""
    data = path.read_bytes()
    if path.suffix == ".zstd":
        with zstandard.ZstdDecompressor().stream_reader(io.BytesIO(data), read_across_frames=True) as reader:
            data = reader.read()
    lines = data.split(b"\n")
    assert lines.pop() == b"", f"{path}: the last line has no end"
    rows = [json.loads(line, parse_constant=_refuse) for line in lines]
    assert all(type(row) is dict for row in rows), f"{path}: a line that is no object"
    assert rows[0]["type"] == "session", f"{path}: the first line is no header"
    return rows


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def wire(events: Sequence[Any]) -> Rows:
    """The rows of a live session's events."""
    return [event.to_wire() for event in events]


def judge_log(rows: Rows, *, closed: bool = True) -> None:
    """Numbers without a gap, balanced brackets, one result per tool call before its step ends, no message twice.

    closed: nothing may be open at the end.
    """
    assert [row["seq"] for row in rows] == list(range(len(rows))), "the numbering has a gap or a double"
    turn = step = None
    turns = steps = 0
    asked: Counter[str] = Counter()
    called: Counter[str] = Counter()
    answered: Counter[str] = Counter()
    entered: Counter[str] = Counter()
    for row in rows:
        kind, data, where = row["type"], row["data"], f"seq {row['seq']} {row['type']}"
        match kind:
            case "turn/start":
                assert turn is None and data["turn"] == turns + 1, where
                turn, turns, steps = data["turn"], data["turn"], 0
            case "turn/end":
                assert turn == data["turn"] and step is None, where
                turn = None
            case "step/start":
                assert turn == data["turn"] and step is None and data["step"] == steps + 1, where
                step, steps = data["step"], data["step"]
                asked.clear(), called.clear(), answered.clear()
            case "step/end":
                assert (turn, step) == (data["turn"], data["step"]), where
                assert set(asked.values()) <= {1} and set(called.values()) <= {1}, where
                assert asked == answered, f"{where}: asked {dict(asked)}, answered {dict(answered)}"
                assert set(called) <= set(asked), where
                step = None
            case "assistant/message" if row.get("surfaceOp") == "append":
                assert step is not None, where
                asked.update(block["id"] for block in data["message"]["content"] if block["type"] == "tool-call")
            case "tool/call":
                assert step is not None and not answered[data["callId"]], where
                called[data["callId"]] += 1
            case "tool/result" if row.get("surfaceOp") == "append":
                assert step is not None, where
                answered[data["message"]["source"]["callId"]] += 1
            case "user/message":
                assert step is not None, where
                entered[data["id"]] += 1
    assert set(entered.values()) <= {1}, f"messages entered twice: {[k for k, v in entered.items() if v > 1]}"
    if closed:
        assert turn is None and step is None, f"turn {turn} step {step} is open at the end"


def entered_ids(rows: Rows) -> list[str]:
    """Ids of the messages that entered a step, in order."""
    return [row["data"]["id"] for row in rows if row["type"] == "user/message"]


def pending_ids(rows: Rows) -> dict[str, list[str]]:
    """What waits in the inbox at the end of a log, by list; the splices replayed."""
    lists: dict[str, list[str]] = {"next-turn": [], "next-step": []}
    for row in rows:
        if row["type"] == "agent/inbox/spliced":
            data = row["data"]
            start = data["start"]
            lists[data["target"]][start : start + data.get("removedCount", 0)] = [m["id"] for m in data["inserted"]]
    return lists


def discarded_ids(rows: Rows) -> list[str]:
    """Ids that a splice took out of the inbox as canceled and nothing put back."""
    lists: dict[str, list[str]] = {"next-turn": [], "next-step": []}
    gone: list[str] = []
    for row in rows:
        if row["type"] == "agent/inbox/spliced":
            data = row["data"]
            start, inserted = data["start"], [m["id"] for m in data["inserted"]]
            span = slice(start, start + data.get("removedCount", 0))
            if data.get("outcome") == "canceled":
                gone += [each for each in lists[data["target"]][span] if each not in inserted]
            lists[data["target"]][span] = inserted
    return gone


def judge_messages(messages: Sequence[Any]) -> None:
    """A request's messages: each tool call is answered once, at once, and nothing else is an answer."""
    open_calls: list[str] = []
    for message in messages:
        for block in message["content"]:
            if block["type"] == "tool-result":
                assert block["toolCallId"] in open_calls, f"an answer to nothing: {block['toolCallId']}"
                open_calls.remove(block["toolCallId"])
            else:
                assert not open_calls, f"calls without an answer: {open_calls}"
        open_calls += [block["id"] for block in message["content"] if block["type"] == "tool-call"]
    assert not open_calls, f"calls without an answer: {open_calls}"


def fault_of_body(body: Mapping[str, Any]) -> str | None:
    """Why a chat-completions server would refuse the body of a request; None if it would not."""
    waiting: list[str] = []
    for number, message in enumerate(body["messages"]):
        calls = message.get("tool_calls") or []
        if not calls and not message["content"] and not message.get("reasoning_content"):
            return f"message {number} ({message['role']}) is empty"
        if message["role"] == "tool":
            if message["tool_call_id"] not in waiting:
                return f"message {number} answers {message['tool_call_id']}, which waits for nothing"
            waiting.remove(message["tool_call_id"])
            continue
        if waiting:
            return f"message {number}: calls without an answer: {waiting}"
        for call in calls:
            try:
                arguments = json.loads(call["function"]["arguments"])
            except ValueError:
                return f"message {number}: arguments that are no JSON"
            if not isinstance(arguments, dict) or not call["id"]:
                return f"message {number}: malformed call {call}"
            if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", call["function"]["name"]):
                return f"message {number}: the name of {call['id']} does not match the pattern of names"
            waiting.append(call["id"])
    return f"calls without an answer: {waiting}" if waiting else None
