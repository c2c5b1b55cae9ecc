"""A streamed answer: each line is printed once, as soon as nothing can change it, and rendered as markdown."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsh.interfaces.display import markdown
from dsh.interfaces.display.glyphs import ASCII, UNICODE
from dsh.interfaces.display.markdown_blocks import LONGEST, MarkdownBlocks
from tests.interfaces.display.kit import Session, plain
from tests.interfaces.terminal import COLOUR

ANSWER = """\
# Plan

I **will** look at `main.py` first.

- one
- two, which
  goes on

  and on
- three

```python
def f(x):

    return x
```
Then:

| name | size |
|------|-----:|
| a    |   12 |

Done."""

SHOWN = """\
Plan

I will look at main.py first.

 • one
 • two, which
   goes on
   and on
 • three

```python
def f(x):

    return x
```

Then:

 name  size
 ──────────
 a       12

Done."""

LINES = st.sampled_from(
    ["word", "some words", "- item", "  more", "", "", "```", "```py", "  ```", "1. one", "2. two", "# head", "***",
     "---", "| a | b |", "|---|---|", "> quote", "    code", "~~~", "*x", "`y`"]
)  # fmt: skip


def test_an_answer_is_rendered_block_by_block() -> None:
    session = Session(colour=True)
    session.says(*ANSWER)
    session.chunk("block-end")
    assert session.text == SHOWN
    printed = "\n".join(session.screen.printed)
    assert "\x1b[1mwill\x1b[0m" in printed and "**" not in printed  # bold
    assert "\x1b[94;49mdef\x1b[0m" in printed  # a keyword


def test_what_is_complete_stands_above_and_only_the_rest_in_the_live_region() -> None:
    session = Session()
    session.says("First para", "graph.\n", "still the first")
    assert (session.text, session.live()) == ("", "First paragraph.\nstill the first")
    session.says("\n\nSecond")
    assert (session.text, session.live()) == ("First paragraph.\nstill the first", "Second")
    session.says(" one\n- an item\n- another\n")
    assert session.text.endswith("first\n\nSecond one\n\n • an item")
    assert session.live() == " • another"
    session.chunk("block-end")
    assert session.live() == ""
    assert session.text.endswith(" • an item\n • another")


def test_code_appears_while_it_is_written() -> None:
    session = Session()
    session.says("```python\n", *(f"line {n}\n" for n in range(20)))
    assert session.text == "\n".join(["```python", *(f"line {n}" for n in range(16))])
    assert session.live() == "line 16\nline 17\nline 18\nline 19"


def test_the_rest_is_rendered_too_so_that_nothing_jumps_when_it_is_complete() -> None:
    markdown.rendered("", 20, UNICODE)
    session = Session(colour=True)
    session.says("a **bold** `word` that goes on and on, longer than a row of this screen is wide")
    live = session.transcript.live(60)
    session.chunk("block-end")
    assert live == session.screen.printed[-1].split("\n")
    assert plain(live[0]).startswith("a bold word")


@settings(max_examples=200, deadline=None)
@given(st.lists(LINES.filter(lambda line: line != "|---|---|"), max_size=14), st.data())
def test_however_it_is_cut_into_pieces_no_line_is_lost_or_printed_twice(lines: list[str], data: st.DataObject) -> None:
    source = "\n".join(lines)
    blocks, rest, found = MarkdownBlocks(), source, []
    while rest:
        size = data.draw(st.integers(1, len(rest)))
        found += blocks.feed(rest[:size])
        rest = rest[size:]
    found += blocks.finish()
    shown = [line for block in found for line in block.text.split("\n") if line.strip()]
    assert shown == [line for line in lines if line.strip()]


@settings(max_examples=60, deadline=None)
@given(st.lists(LINES, max_size=14))
def test_pieces_or_whole_are_rendered_alike(lines: list[str]) -> None:
    source = "\n".join(lines)
    whole, pieces = Session(colour=True), Session(colour=True)
    whole.says(source)
    pieces.says(*source)
    for session in (whole, pieces):
        session.chunk("block-end")
    assert whole.text == pieces.text


def test_markup_that_hides_text_does_not() -> None:
    session = Session(width=100, colour=True)
    session.says("see <script>x</script> &#x202e;now [here](https://example.org/a) ![pic](b.png)\n<!-- this -->\n\n")
    for text in ("<script>x</script>", "<U+202E>now", "here (https://example.org/a)", "pic (b.png)", "<!-- this -->"):
        assert text in session.text


def test_without_colours_markdown_is_laid_out_with_bold_text_and_signs_for_code() -> None:
    session = Session(colour=True)
    session.screen.style.colours = False
    session.says("# Title\n\n**bold** and `code`\n- one\n\n| name | size |\n|:-----|----:|\n| 苹果 | 3 |\n\n")
    session.says("```python\nif x:\n```\n")
    session.chunk("block-end")
    printed = "\n".join(session.screen.printed)
    assert session.text == (
        "Title\n\nbold and `code`\n\n • one\n\n name  size\n ──────────\n 苹果     3\n\n```python\nif x:\n```"
    )
    assert "\x1b[1mbold\x1b[0m" in printed and not COLOUR.search(printed)


def test_a_terminal_of_another_encoding_gets_signs_that_it_has() -> None:
    session = Session(colour=True, encoding="latin-1")
    session.says("- item\n\n> quote\n\n| a |\n|---|\n| b |\n\n***\n")
    session.chunk("block-end")
    session.text.encode("latin-1")
    assert " * item" in session.text and "| quote" in session.text
    assert markdown.rendered("- x", 20, ASCII).endswith("x")


@pytest.mark.parametrize("text", ["x" * 3 * LONGEST, "- " + "word " * 3 * LONGEST, "```\n" + "y" * 3 * LONGEST])
def test_text_without_an_end_is_not_kept_for_ever(text: str) -> None:
    session = Session()
    session.says(*(text[at : at + 1000] for at in range(0, len(text), 1000)))
    assert len(session.text) > LONGEST
    assert len(session.live().split("\n")) <= 8


def test_an_answer_below_something_else_stands_apart() -> None:
    session = Session()
    session.user("do it")
    session.says("First.")
    session.chunk("block-end")
    session.call("a", "bash", command="ls")
    session.result("a", "x")
    session.says("Second.")
    session.chunk("block-end")
    session.says("Third.\n\nIt goes on.")
    session.chunk("block-end")
    assert session.text == "> do it\nFirst.\n\n✓ bash ls · x\n\nSecond.\n\nThird.\n\nIt goes on."


def test_an_answer_of_which_no_pieces_were_heard_is_shown_from_its_message() -> None:
    session = Session()
    blocks = [{"type": "reasoning", "text": "hm hm"}, {"type": "text", "text": "All of *it*."}]
    session.event("assistant/message", message={"content": blocks})
    assert session.text == "∴ thought, 2 words\n\nAll of it."
    session.says("Once.")
    session.event("assistant/message", message={"content": [{"type": "text", "text": "Once."}]})
    assert session.text.count("Once.") == 1
