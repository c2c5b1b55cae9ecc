"""Line ends, byte order marks and edits that touch nothing but their match."""

import random

import pytest

from dsh.files.text import count_matches, line_end, splice, valid_text

BOM = "\ufeff"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a\nb\n", "\n"),
        ("a\r\nb\r\n", "\r\n"),
        ("a\r\nb\nc\r\n", "\r\n"),
        ("a\r\nb\n", "\n"),
        ("a\rb\rc", "\r"),
        ("one line", "\n"),
        ("\n" * 3000 + "\r\n" * 4000, "\n"),  # only the first 4096 characters decide
    ],
)
def test_b03a_new_lines_take_the_dominant_line_end(text: str, expected: str) -> None:
    assert line_end(text) == expected


@pytest.mark.parametrize(
    ("text", "old", "new", "expected"),
    [
        ("a\r\nb\r\nc\r\n", "b", "B", "a\r\nB\r\nc\r\n"),
        ("a\r\nb\r\nc\r\n", "a\nb", "a\nx\nb", "a\r\nx\r\nb\r\nc\r\n"),
        ("a\r\nb\nc\r\nd\n", "c", "C", "a\r\nb\nC\r\nd\n"),
        ("a\r\nb\nc\r\nd\n", "a\nb\nc", "a\nB\nc", "a\r\nB\nc\r\nd\n"),  # kept line ends inside the match
        (BOM + "one\ntwo\n", "one", "1", BOM + "1\ntwo\n"),
        ("no end", "end", "final newline", "no final newline"),
        ("a\rb\rc", "b", "B\nB", "a\rB\rB\rc"),
        ("x\r\n", "x\r\n", "y\r\n", "y\r\n"),
        ("lone\rcr\nlf\n", "cr", "CR", "lone\rCR\nlf\n"),
        ("a\r\n\r\nb\r\n", "\n\n", "\n", "a\r\nb\r\n"),
        ("aXbXc", "X", "", "abXc"),
    ],
    ids=[
        "crlf",
        "crlf-new-line",
        "mixed",
        "mixed-match",
        "bom",
        "no-final",
        "cr-only",
        "crlf-args",
        "lone-cr",
        "ends",
        "first",
    ],
)
def test_b03b_an_edit_changes_only_its_match(text: str, old: str, new: str, expected: str) -> None:
    assert splice(text, old, new, every=False).text == expected


def test_b03c_every_occurrence_is_replaced_without_overlap() -> None:
    result = splice("aaaa\r\naa\r\n", "aa", "b", every=True)
    assert result.text == "bb\r\nb\r\n"
    assert (result.before, result.after) == ("aaaa\naa\n", "bb\nb\n")
    assert count_matches("aaaa\r\naa\r\n", "aa") == 3


def test_b03d_a_reader_never_sees_the_bom_or_crlf() -> None:
    result = splice(BOM + "a\r\nb\r\n", "b", "c\nd", every=False)
    assert result.text == BOM + "a\r\nc\r\nd\r\n"
    assert (result.before, result.after) == ("a\nb\n", "a\nc\nd\n")


def test_b03e_bytes_outside_a_match_never_change_in_any_mixture() -> None:
    """Random mixtures of line ends: what surrounds the edited character is the original, byte for byte."""
    random.seed(7)
    for _ in range(300):
        before = "".join(random.choice(["a", "\r\n", "\n", "\r", "ä"]) for _ in range(random.randrange(40)))
        after = "".join(random.choice(["a", "\r\n", "\n", "\r", "ä"]) for _ in range(random.randrange(40)))
        if before.endswith("\r") or after.startswith("\n"):
            continue
        text = f"{before}#{after}"
        assert splice(text, "#", "@", every=False).text == f"{before}@{after}"


def test_b14a_lone_surrogates_become_replacement_characters() -> None:
    assert valid_text("a\ud800b\udcffc") == "a\ufffdb\ufffdc"
    assert valid_text("ok 😀") == "ok 😀"
