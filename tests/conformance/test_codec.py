"""Level 0: every recorded log decodes, folds to the recorded facts, and packs to the same rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest

from dsh.cordis.jsonio import decode, encode, json_equal
from dsh.core.event_types import refuse_unknown_types
from dsh.core.packed_rows import is_packed, pack
from dsh.core.repair import interrupted_turn_closers
from dsh.core.session import Session
from dsh.core.session_event import SessionEvent
from dsh.core.session_invariant import LogTrace
from dsh.core.surface import fold_surface
from tests.conformance.corpus import Case, Log, decode_log, label, load_cases, log_files, logs_with_facts, recorded_logs

LOGS = recorded_logs()
WITH_FACTS = logs_with_facts()


OLD_SHAPES: dict[str, Callable[[SessionEvent], bool]] = {
    "turn-start-trigger": lambda event: event.type == "turn/start" and "trigger" in event.data,
    "message-without-id": lambda event: event.type == "user/message" and "id" not in event.data,
    "assistant-flat": lambda event: event.type == "assistant/message" and "message" not in event.data,
    "tool-result-flat": lambda event: event.type == "tool/result" and "message" not in event.data,
}
"""How to know the shapes of older builds that are read as today's."""


def _events_of(log: Log) -> dict[str, Any]:
    """The facts of a log, folded independently of the code under test where that is possible."""
    events = log.read()
    calls: dict[str, dict[str, Any]] = {}
    model_calls = 0
    title = None
    ends = []
    for event in events:
        data = event.data
        if event.type == "assistant/chunk" and data["chunk"]["type"] == "finish":
            model_calls += 1
        elif event.type == "compaction/summary" and data.get("llmStreamCall"):
            model_calls += 1
        elif event.type == "session/title":
            title = data["title"]
        elif event.type == "turn/end":
            ends.append(data["reason"]["kind"])
        elif event.type == "tool/call":
            calls[data["callId"]] = {"name": data["name"], "isError": None}
        elif event.type == "tool/result" and event.surface_op == "append":
            block = data["message"]["content"][0]
            calls[block["toolCallId"]]["isError"] = bool(block.get("isError"))
    return {
        "events": len(events),
        "rows": len(log.rows),
        "packedRows": sum(map(is_packed, log.rows)),
        "types": dict(sorted(Counter(event.type for event in log.events).items())),
        "surfaceSeqs": list(fold_surface(events)[0]),
        "modelCalls": model_calls,
        "turnEnds": ends,
        "toolCalls": list(calls.values()),
        "title": title,
    }


@pytest.mark.parametrize(("case", "path"), WITH_FACTS, ids=label)
def test_facts(case: Case, path: Path) -> None:
    facts = case.facts[path.name]
    found = _events_of(decode_log(path))
    if "tool-result-flat" in case.legacy_shapes:
        # The recorded facts did not look into this old shape; reading it tells more than they do.
        assert all(call["isError"] is None for call in facts["toolCalls"])
        assert all(call["isError"] is not None for call in found["toolCalls"])
        facts = {**facts, "toolCalls": [{**call, "isError": False} for call in facts["toolCalls"]]}
    assert {key: found[key] for key in facts} == facts


@pytest.mark.parametrize("case", [case for case in load_cases() if case.legacy_shapes], ids=label)
def test_old_shapes_are_read_as_those_of_today(case: Case) -> None:
    logs = [decode_log(path) for path in log_files(case)]
    stored = [event for log in logs for event in log.events]
    read = [event for log in logs for event in log.read()]
    there = {shape for shape, has in OLD_SHAPES.items() if any(map(has, stored))}
    assert there == case.legacy_shapes & OLD_SHAPES.keys()
    assert [event for event in read if any(has(event) for has in OLD_SHAPES.values())] == []
    ids = [_message(event)["id"] for event in read if event.type in ("user/message", "assistant/message")]
    assert all(ids) and len(set(ids)) == len(ids)


@pytest.mark.parametrize(("case", "path"), LOGS, ids=label)
def test_packing_gives_the_same_rows(case: Case, path: Path) -> None:
    log = decode_log(path)
    packed = pack(log.events)
    assert len(packed) == len(log.rows)
    for row, stored in zip(packed, log.rows, strict=True):
        assert json_equal(row, stored), row
        assert json_equal(decode(encode(row)), stored)


@pytest.mark.parametrize(("case", "path"), LOGS, ids=label)
def test_every_event_type_is_known(case: Case, path: Path) -> None:
    log = decode_log(path)
    refuse_unknown_types(log.session_id, log.read())


@pytest.mark.parametrize(("case", "path"), LOGS, ids=label)
def test_a_session_restores_from_the_log(case: Case, path: Path) -> None:
    log = decode_log(path)
    events = log.read()
    session = Session(log.session_id, header=log.header, seed=events, seed_source="persistence")
    assert session.first_live_seq == len(events)
    assert session.surface.nodes == fold_surface(events)[0]
    assert {"type": "session", **session.header.to_wire()} == {"delegationDepth": 0, **log.header}
    stored = {event.seq: event for event in events}
    visible = [_message(stored[seq]) for seq in session.surface.nodes]
    assert session.derive_messages() == [message for message in visible if message["content"] or _is_user(message)]
    headers = [event.data["header"] for event in events if event.type == "request/header"]
    folded = session.request_header()
    assert (folded is None) == (not headers)
    assert folded is None or folded["config"] == headers[-1]["config"]


@pytest.mark.parametrize(("case", "path"), LOGS, ids=label)
def test_the_log_keeps_the_grammar_of_turns_and_steps(case: Case, path: Path) -> None:
    events = decode_log(path).read()
    if not any(event.type == "turn/start" for event in events):
        return  # a replay script: chunks without turns

    def fail(message: str) -> NoReturn:
        raise AssertionError(message)

    trace = LogTrace(fail)
    for event in [*events, *interrupted_turn_closers(events)]:
        trace.check(event)
        trace.commit(event)


@pytest.mark.parametrize(("case", "path"), LOGS, ids=label)
def test_usage_folds(case: Case, path: Path) -> None:
    """Usage chunks and the assembled messages of the same calls agree."""
    chunks: dict[tuple[int, int], Any] = {}
    for event in decode_log(path).read():
        if event.type == "step/start":
            chunks.pop((event.data["turn"], event.data["step"]), None)
        elif event.type == "assistant/chunk" and event.data["chunk"]["type"] == "usage":
            chunks[event.data["turn"], event.data["step"]] = event.data["chunk"]["usage"]
        elif event.type == "assistant/message" and "usage" in event.data:
            reported = chunks.get((event.data["turn"], event.data["step"]))
            assert reported is None or reported == event.data["usage"]


def _message(event: SessionEvent) -> Any:
    return event.data if event.type == "user/message" else event.data["message"]


def _is_user(message: Any) -> bool:
    return bool(message["role"] == "user")
