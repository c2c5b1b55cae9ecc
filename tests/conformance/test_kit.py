"""The normaliser itself, on the corpus's own pairs and on the rules they do not reach."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.corpus import Case, load_cases, read_lines
from tests.conformance.normalise import Normaliser


@pytest.mark.parametrize("case", load_cases(driver="normaliser"), ids=lambda case: case.id)
def test_two_recordings_of_one_run_become_equal(case: Case) -> None:
    for names in case.spec["pairs"]:
        ids = {read_lines(case.path / name)[0]["id"] for pair in case.spec["pairs"] for name in pair}
        sides = []
        for name in names:
            records = read_lines(case.path / name)
            sides.append(Normaliser(session_ids=sorted(ids), cwd=records[0]["cwd"]).log(records))
        assert sides[0] == sides[1]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/w/a", "{{cwd}}"),
        ("/w/a/b.txt", "{{cwd}}/b.txt"),
        ("in </w/a> and '/w/a'.", "in <{{cwd}}> and '{{cwd}}'."),
        ("see /w/a. Then", "see {{cwd}}. Then"),
        ("/private/w/a/x", "{{cwd}}/x"),
        ("/real/w/a/x", "{{cwd}}/x"),
        ("/w/abc", "/w/abc"),
        ("x/w/a", "x/w/a"),
        ("/w/a.txt", "/w/a.txt"),
        ("child 0B0b0b0b-1111-4222-8333-000000000001 of main-1", "child {{sessionId}} of {{sessionId}}"),
        (
            "at /spill/session-0123456789ab/ba9876543210-out.txt. Use read with offset/limit",
            "at {{spillLocator:out.txt}}. Use read with offset/limit",
        ),
    ],
)
def test_strings(text: str, expected: str) -> None:
    assert Normaliser(session_ids=["main-1"], cwd="/w/a", aliases=["/real/w/a"]).text(text) == expected


def test_times_and_prompt_texts_are_masked() -> None:
    rows: list[dict[str, Any]] = [
        {"type": "session", "id": "main-1", "createdAt": 5, "version": 0},
        {"type": "text-chunks", "seq0": 1, "time0": 9, "data": {"dt": [3, 4], "texts": ["a", "b", "c"]}},
        {"type": "request/header", "seq": 4, "time": 9, "data": {"header": {"system": "x", "tools": []}}},
        {"type": "request/header", "seq": 5, "time": 9, "data": {"header": {"config": {}}}},
    ]
    assert Normaliser(session_ids=["main-1"]).log(rows) == [
        {"type": "session", "id": "{{sessionId}}", "createdAt": 0, "version": 0},
        {"type": "text-chunks", "data": {"dt": [0, 0], "texts": ["a", "b", "c"]}},
        {"type": "request/header", "data": {"header": {"system": "{{system}}", "tools": "{{tools}}"}}},
        {"type": "request/header", "data": {"header": {"config": {}}}},
    ]
    assert [row.get("seq") for row in Normaliser().log(rows, keep_seq=True)] == [None, None, 4, 5]


def test_frame_ids_count_in_first_seen_order() -> None:
    frames: list[dict[str, Any]] = [
        {"id": 7, "method": "a"},
        {"method": "note"},
        {"id": "7", "method": "b"},
        {"id": 7, "result": {}},
    ]
    assert [frame.get("id") for frame in Normaliser().frames(frames)] == [1, None, 2, 1]


def test_goal_times_also_inside_rendered_text() -> None:
    value = {"createdAt": 12, "text": '{"updatedAt": 34, "other": 5}'}
    assert Normaliser(goal_times=True).value(value) == {"createdAt": 0, "text": '{"updatedAt": 0, "other": 5}'}
    assert Normaliser().value(value) == value
