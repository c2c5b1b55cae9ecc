"""Hunks for people: right, with context, and cheap for any input."""

import random
import time

from dsh.files.diff import MAX_DIFF_CHARS, MAX_SPREAD, hunks


def apply(before: str, diffs: list) -> str:
    """Put the new text of each hunk where its old text stands."""
    lines = before.split("\n")
    for hunk in reversed(diffs):
        old = hunk["oldText"].split("\n") if hunk["oldText"] else []
        new = hunk["newText"].split("\n") if hunk["newText"] else []
        places = [i for i in range(len(lines) - len(old) + 1) if lines[i : i + len(old)] == old]
        assert places, hunk
        at = places[-1]
        lines[at : at + len(old)] = new
    return "\n".join(lines)


def test_one_line_changed() -> None:
    assert hunks("color: blue\n", "color: green\n") == [{"oldText": "color: blue", "newText": "color: green"}]


def test_a_missing_final_newline_is_no_part_of_the_text() -> None:
    assert hunks("original contents\n", "replaced") == [{"oldText": "original contents", "newText": "replaced"}]


def test_three_lines_of_context_and_separate_hunks() -> None:
    before = "".join(f"line {i}\n" for i in range(30))
    after = before.replace("line 5\n", "LINE 5\n").replace("line 20\n", "line 20\nadded\n")
    assert hunks(before, after) == [
        {
            "oldText": "line 2\nline 3\nline 4\nline 5\nline 6\nline 7\nline 8",
            "newText": "line 2\nline 3\nline 4\nLINE 5\nline 6\nline 7\nline 8",
        },
        {
            "oldText": "line 18\nline 19\nline 20\nline 21\nline 22\nline 23",
            "newText": "line 18\nline 19\nline 20\nadded\nline 21\nline 22\nline 23",
        },
    ]


def test_changes_with_touching_context_share_a_hunk() -> None:
    before = "".join(f"{i}\n" for i in range(12))
    after = before.replace("2\n", "two\n", 1).replace("8\n", "eight\n", 1)
    assert len(hunks(before, after)) == 1


def test_insertion_before_a_line_that_begins_alike() -> None:
    assert hunks("a\nb", "a\nXb") == [{"oldText": "a\nb", "newText": "a\nXb"}]
    assert hunks("", "new\n") == [{"oldText": "", "newText": "new"}]
    assert hunks("same\n", "same\n") == []


def test_random_edits_can_be_replayed() -> None:
    random.seed(3)
    for _ in range(200):
        old = [f"{random.randrange(1000)}" for _ in range(random.randrange(1, 400))]
        new = list(old)
        for _ in range(random.randrange(1, 6)):
            at = random.randrange(len(new) + 1)
            new[at : at + random.randrange(3)] = [f"n{random.randrange(10**9)}" for _ in range(random.randrange(1, 4))]
        before, after = "\n".join(old) + "\n", "\n".join(new) + "\n"
        assert apply(before, hunks(before, after)) == after


def test_a_change_at_both_ends_of_a_large_file_stays_small() -> None:
    middle = "".join(f"line number {i}\n" for i in range(10_000))
    assert len(hunks(f"first\n{middle}last\n", f"FIRST\nmore\n{middle}LAST\n")) == 2


def test_a_change_in_a_huge_file_is_found_at_once() -> None:
    head, tail = "a line\n" * 1_000_000, "another line\n" * 1_000_000
    started = time.process_time()
    assert hunks(f"{head}x\n{tail}", f"{head}y\n{tail}") == [
        {
            "oldText": "a line\na line\na line\nx\nanother line\nanother line\nanother line",
            "newText": "a line\na line\na line\ny\nanother line\nanother line\nanother line",
        }
    ]
    assert time.process_time() - started < 2


def test_a_diff_too_large_to_read_is_left_out() -> None:
    assert hunks("a\n" * MAX_DIFF_CHARS, "b\n" * MAX_DIFF_CHARS) == []
    far = "".join(f"{i}\n" for i in range(MAX_SPREAD // 4))
    assert hunks(f"a\n{far}b\n", f"A\n{far}B\n") == []


def test_repetitive_text_costs_no_quadratic_time() -> None:
    started = time.process_time()
    hunks("x\n" * 50_000 + "y\n", "z\n" + "x\n" * 40_000 + "w\n")
    hunks("x\ny\n" * 50_000, "y\nx\nx\n" * 30_000)
    assert time.process_time() - started < 2
