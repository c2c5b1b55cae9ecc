"""Tool calls: one line each, live while they run, with what came of them when they have ended."""

from __future__ import annotations

from typing import Any

import pytest

from dsh.interfaces.display.glyphs import UNICODE
from tests.interfaces.display.kit import Session, text_block


def test_a_call_is_a_live_row_with_its_time_and_then_one_line() -> None:
    session = Session()
    session.call("a", "bash", command="pytest -q", description="Run the tests")
    session.now += 12
    assert session.live()[0] in UNICODE.spinner and session.live()[1:] == " bash pytest -q · 12 s"
    assert session.transcript.ticking
    session.result("a", "one\ntwo\nthree\n")
    assert session.live() == "" and not session.transcript.ticking
    assert session.text == "✓ bash pytest -q · 3 lines, 14 bytes · 12 s"


@pytest.mark.parametrize(
    ("name", "arguments", "text", "more", "line"),
    [
        ("bash", {"command": "true"}, "(no output)", {}, "✓ bash true · no output"),
        ("bash", {"command": "echo hi"}, "hi\n", {}, "✓ bash echo hi · hi"),
        ("bash", {"command": "make"}, "gcc\nmake: stop\n[exit code: 2]", {}, "✗ bash make · exit code: 2, make: stop"),
        ("bash", {"command": "yes"}, "[killed by signal: SIGKILL]", {}, "✗ bash yes · killed by signal: SIGKILL"),
        ("bash", {"command": "a\n  b"}, "x", {}, "✓ bash a b · x"),
        (
            "read",
            {"file_path": "src/a.py"},
            "<path>…",
            {"meta": {"path": "a", "offset": 10, "lines": [1] * 20, "totalLines": 450}},
            "✓ read src/a.py · lines 10-29 of 450",
        ),
        ("glob", {"path": "src", "pattern": "*"}, "…", {"meta": {"shape": "paths", "total": 8}}, "✓ glob * · 8 paths"),
        ("read", {"file_path": "b"}, "", {"failed": True}, "✗ read b · failed"),
        ("read", {"path": "b"}, "cannot read: not found", {"failed": True}, "✗ read b · cannot read: not found"),
        ("todo_write", {"todos": [{"content": "x"}]}, "ok", {}, '✓ todo_write todos (1) · ok'),
        (
            "write",
            {"file_path": "b", "content": "x\ny\n"},
            "The file was created.",
            {"meta": {"diffs": []}},
            "✓ write b · 2 lines, 4 bytes",
        ),
        ("now", {}, "12:00", {}, "✓ now · 12:00"),
    ],
)  # fmt: skip
def test_what_came_of_a_call_in_a_few_words(
    name: str, arguments: dict[str, Any], text: str, more: dict[str, Any], line: str
) -> None:
    session = Session(width=90)
    session.call("a", name, **arguments)
    session.result("a", text, **more)
    assert session.text == line


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("ABORTED", "cancelled"),
        ("ABORTED_BEFORE_DISPATCH", "cancelled before it began"),
        ("TOOL_OUTCOME_UNKNOWN", "cancelled outcome unknown"),
    ],
)
def test_a_call_that_was_cancelled_is_told_from_one_that_failed(code: str, words: str) -> None:
    session = Session()
    session.call("a", "bash", command="sleep 100")
    session.now += 2.5
    session.result("a", "tool call aborted", failed=True, error={"name": "AbortError", "code": code})
    assert session.text == f"⊘ bash sleep 100 · {words} · 2.5 s"


def test_an_edit_shows_what_it_changed() -> None:
    session = Session(colour=True)
    session.call("a", "edit", file_path="settings.txt")
    diffs = [
        {"path": "settings.txt", "oldText": "color: blue\nsize: 1", "newText": "color: green\nsize: 1\nshape: round"},
        {"path": "settings.txt", "oldText": "gone", "newText": ""},
    ]
    session.result("a", "updated", meta={"diffs": diffs})
    assert session.text == (
        "✓ edit settings.txt +2 -2\n  - color: blue\n  + color: green\n    size: 1\n  + shape: round\n  …\n  - gone"
    )
    printed = "\n".join(session.screen.printed)
    assert "\x1b[31m  - color: blue\x1b[0m" in printed and "\x1b[32m  + color: green\x1b[0m" in printed


def test_a_long_diff_is_cut() -> None:
    session = Session(width=30)
    session.call("a", "write", file_path="f")
    diff = {"path": "f", "oldText": "", "newText": "\n".join(f"{n} {'x' * 100}" for n in range(500))}
    session.result("a", "ok", meta={"diffs": [diff]})
    rows = session.text.split("\n")
    assert rows[0] == "✓ write f +500 -0" and rows[-1] == "  … 460 more"
    assert len(rows) == 42 and max(map(len, rows)) == 30


def test_calls_that_run_at_once_stand_side_by_side_and_end_in_any_order() -> None:
    session = Session()
    calls = [{"type": "tool-call", "id": id, "name": "read"} for id in "abcd"]
    session.event("assistant/message", message={"content": calls})
    for id in "abc":
        session.call(id, "read", file_path=f"{id}.txt")
        session.now += 1
    assert session.live() == "\n".join(
        ["⠙ read a.txt · 3 s", "⠙ read b.txt · 2 s", "⠙ read c.txt · 1 s", "◦ 1 call to come: read"]
    ).replace("⠙", session.live()[0])
    session.result("b", "x")
    assert session.text == "✓ read b.txt · x · 2.0 s"
    assert "b.txt" not in session.live() and "a.txt" in session.live()
    session.call("d", "read", file_path="d.txt")
    assert "to come" not in session.live()


def test_more_calls_than_there_is_room_for_are_counted() -> None:
    session = Session()
    for n in range(10):
        session.call(str(n), "read", file_path=f"{n}.txt")
    rows = session.live().split("\n")
    assert len(rows) == 7 and rows[-1] == "… 4 more run"


def test_a_call_that_the_model_still_writes_shows_its_size() -> None:
    session = Session()
    session.chunk("tool-call-delta", id="a", name="write", argumentsDelta='{"content": "')
    session.chunk("tool-call-delta", id="a", argumentsDelta="x" * 2000)
    assert session.live().endswith("write · being written, 2.0 kB")
    session.event("assistant/message", message={"content": [{"type": "tool-call", "id": "a", "name": "write"}]})
    assert session.live() == "◦ 1 call to come: write"


def test_calls_made_by_code_stand_below_the_call_that_runs_it() -> None:
    session = Session()
    session.call("run", "run_code", code="await tools.bash()")
    below = {"parentCallId": "run", "subCallId": "run:1", "name": "bash", "arguments": {"command": "echo 1"}}
    session.event("tool/code-dispatch-start", **below)
    assert session.live().split("\n")[1].startswith("  ") and "echo 1" in session.live()
    session.event("tool/code-dispatch", **below, isError=False, content=[text_block("1\n")])
    session.result("run", "done")
    assert session.text == "  ✓ bash echo 1 · 1\n✓ run_code await tools.bash() · done"


def test_a_turn_that_ends_leaves_no_call_running() -> None:
    session = Session()
    session.call("a", "bash", command="sleep 9")
    session.ends(kind="aborted", reason={"kind": "user"})
    assert session.text == "⊘ bash sleep 9 · cancelled\nturn ended: aborted" and session.live() == ""


def test_a_narrow_screen_keeps_the_name_and_what_came_of_it() -> None:
    session = Session(width=20)
    session.call("a", "bash", command="find / -name something")
    session.now += 5
    assert session.live().endswith("bash find /… · 5 s")
    session.result("a", "[exit code: 1]")
    assert session.text == "✗ bash find … · exi…"


def test_what_a_tool_printed_cannot_act_on_the_terminal_and_is_seen() -> None:
    session = Session()
    session.call("a", "bash", command="cat \x1b[2J evil")
    session.result("a", "\x1b[31mred\x1b[0m \x1b]0;title\x07 \u202ereversed")
    assert session.text == "✓ bash cat ^[[2J evil · red ^[]0;title^G <U+202E>reversed"


def test_all_of_the_last_result_is_shown_when_asked_for() -> None:
    session = Session()
    session.transcript.expand("tool")
    assert session.text == "there is no tool result to show yet"
    session.call("a", "bash", command="ls")
    session.result("a", "one\ntwo")
    session.transcript.expand("tool")
    assert session.text.endswith("one\ntwo")
