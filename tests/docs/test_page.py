"""What executes the pages notices what is not true in them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.docs.page import Block, commands, execute, fits

ENV = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"}


def page(folder: Path, text: str) -> Path:
    file = folder / "page.md"
    file.write_text(text, "utf-8")
    return file


@pytest.mark.parametrize(
    ("shown", "printed", "wanted"),
    [
        (["a"], "a\n", True),
        (["a"], "a", True),
        ([], "", True),
        (["a"], "a\nb\n", False),
        (["a"], "", False),
        (["a", "…"], "a\nb\nc\n", True),
        (["…", "c"], "a\nb\nc\n", True),
        (["…", "c"], "a\nb\n", False),
        (["pid …, up"], "pid 17, up\n", True),
        (["pid …, up"], "pid 17, down\n", False),
        (["2 passed in 0.31s"], "2 passed in 12.05s\n", True),
        (["2 passed in 0.31s"], "3 passed in 0.31s\n", False),
        (["(a.b)*"], "(a.b)*\n", True),
        (["a.b"], "axb\n", False),
    ],
)
def test_what_is_shown_is_compared_with_what_is_printed(shown: list[str], printed: str, wanted: bool) -> None:
    assert fits(shown, printed) is wanted


def test_a_command_goes_on_after_a_backslash() -> None:
    block = Block(1, "console", None, None, ["$ echo a \\", "  b", "a b", "$ true"])
    assert [(each.text, each.shown) for each in commands(block)] == [("echo a \\\n  b", ["a b"]), ("true", [])]


def test_a_page_is_executed_from_top_to_bottom_in_one_shell(tmp_path: Path) -> None:
    text = """
```console
$ mkdir a; cd a
$ x=1
```

```text b/c.txt
one
```

```console
$ echo $x; cat b/c.txt
1
one
$ true
```

<!-- file: as a part -->
```text b/c.txt
one
```
"""
    assert execute(page(tmp_path, text), tmp_path, ENV)[:2] == ["mkdir a; cd a", "x=1"]
    assert (tmp_path / "a/b/c.txt").read_text() == "one\n"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("```console\n$ echo a\nb\n```\n", r"page.md:2: \$ echo a\nthe page shows:\nb\nit printed:\na"),
        ("```console\n$ nothing-of-this-name\n```\n", "page.md:2: .*not found"),
        ("```python\nx = 1\n```\n", "page.md:1: the block names no file"),
        (
            "```python x.py\n1\n```\n<!-- file: as written before -->\n```python x.py\n2\n```\n",
            "page.md:5: x.py is dif",
        ),
        ("```python x.py\n1\n```\n<!-- file: as a part -->\n```python x.py\n2\n```\n", "page.md:5: not in x.py"),
        ("```console\n$ true\n", "the block of line 1 is not closed"),
    ],
)
def test_a_page_that_is_not_true_is_told_by_line(tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(AssertionError, match=f"(?s){why}"):
        execute(page(tmp_path, text), tmp_path, ENV)
