"""Level 0: what is folded from a recorded log, title and todos, is what the recording says; fallback titles too."""

from __future__ import annotations

import json
from functools import reduce
from pathlib import Path
from typing import Any

import pytest

from dsh.policy.todo import fold_todos
from dsh.sessions.title import fold_title
from dsh.sessions.title_text import clean, cut
from tests.conformance.corpus import Case, decode_log, label, logs_with_facts

LOGS = logs_with_facts()
MAX_WORDS, MAX_BYTES = 5, 40
"""Limits of a fallback title in every recorded composition."""


@pytest.mark.parametrize(("case", "path"), LOGS, ids=label)
def test_the_folded_title_is_the_recorded_one(case: Case, path: Path) -> None:
    nothing: Any = None
    assert reduce(fold_title, decode_log(path).read(), nothing) == case.facts[path.name].get("title")


@pytest.mark.parametrize(("case", "path"), LOGS, ids=label)
def test_the_folded_todos_are_the_last_ones_the_model_wrote_in_its_turn(case: Case, path: Path) -> None:
    events = decode_log(path).read()
    written = None
    for event in events:
        if event.type == "turn/start":
            written = None
        elif event.type == "tool/call" and event.data["name"] == "todo_write":
            written = json.loads(event.data["arguments"])["todos"]
    nothing: Any = None
    assert reduce(fold_todos, events, nothing) == written


@pytest.mark.parametrize(("case", "path"), LOGS, ids=label)
def test_fallback_titles_are_cut_from_the_recorded_messages(case: Case, path: Path) -> None:
    events = decode_log(path).read()
    for event in events:
        if event.type == "session/title" and event.data["source"]["kind"] == "fallback":
            (seq,) = event.data["messageSeqs"]
            content = events[seq].data["content"]
            text = clean("\n".join(block["text"] for block in content if block["type"] == "text"))
            assert event.data["title"] == cut(text, MAX_BYTES, MAX_WORDS)
