"""The display in pseudo-terminals of several kinds: narrow ones, without colours, of other encodings, dumb ones."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from dsh.models.mock_server import MockLlmServer
from tests.cli.kit import PYTHON, Place
from tests.interfaces.terminal import COLOUR, on_terminal
from tests.interfaces.test_recorded_session import COMPOSITION

ANSWER = "Ein **fetter** Satz und 中文字符一二三四五六七八九十 👍.\n\n- eins\n- zwei\n\n```python\nx = 1\n```\n\nEnde."
SCRIPT: list[dict[str, Any]] = [
    {"toolCalls": [{"name": "bash", "arguments": json.dumps({"command": "printf '\\033[31mhi'", "description": "d"})}]},
    {"text": ANSWER},
]
TIMES = re.compile(r" [·-] \d+(\.\d)? s(?=\n)")
"""How long a call took, on a slow machine."""


async def shown(tmp_path: Path, *, columns: int = 80, term: str = "xterm-256color", **env: str) -> tuple[str, str]:
    """What stands on the terminal after the answer, and everything that was written to it."""
    place = Place.make(tmp_path, **{"LANG": "C.UTF-8", **env})
    place.write("cordis.yml", COMPOSITION)
    async with MockLlmServer(SCRIPT, chunk_size=3, delay_ms=2) as server:
        place.model(server.url)
        command = (PYTHON, "-m", "dsh.cli.main", "run", "cordis.yml", "--prompt", "go")
        window = {"rows": 30, "columns": columns}
        async with on_terminal(*command, cwd=place.work, env=place.env, term=term, **window) as terminal:
            await terminal.stands("Ende.")
            terminal.type("\x04")
            assert await terminal.ends() == 0
            return TIMES.sub("", terminal.picture().replace("\r", "")), terminal.raw


def without_greeting(picture: str) -> str:
    return picture[picture.index("> go") :]


async def test_a_wide_terminal(tmp_path: Path) -> None:
    picture, raw = await shown(tmp_path)
    assert without_greeting(picture).startswith(
        "> go\n✓ bash printf '\\033[31mhi' · hi\n\nEin fetter Satz und 中文字符一二三四五六七八九十 👍.\n\n"
        " • eins\n • zwei\n\n```python\nx = 1\n```\n\nEnde."
    )
    assert "\x1b[1mfetter" in raw


async def test_a_narrow_terminal(tmp_path: Path) -> None:
    picture, _ = await shown(tmp_path, columns=20)
    assert without_greeting(picture).startswith(
        "> go\n✓ bash printf … · hi\n\nEin fetter Satz und\n中文字符一二三四五六\n七八九十 👍.\n\n • eins\n • zwei\n\n"
    )


async def test_no_colours_where_they_are_not_wanted(tmp_path: Path) -> None:
    picture, raw = await shown(tmp_path, NO_COLOR="1")
    assert "Ein fetter Satz" in picture and " • eins\n • zwei" in picture
    assert "\x1b[1mfetter" in raw  # no colour
    assert not COLOUR.search(raw)


@pytest.mark.parametrize("encoding", ["latin-1", "ascii"])
async def test_an_encoding_without_the_signs(tmp_path: Path, encoding: str) -> None:
    picture, raw = await shown(tmp_path, PYTHONIOENCODING=encoding)
    assert "ok bash printf '\\033[31mhi' - hi" in picture and " * eins" in picture
    assert raw.isascii() and "?" in raw


async def test_a_dumb_terminal_gets_text_as_it_comes(tmp_path: Path) -> None:
    picture, raw = await shown(tmp_path, term="dumb")
    assert "\x1b" not in raw
    assert f"✓ bash printf '\\033[31mhi' · hi\n\n{ANSWER}" in picture


async def test_reasoning_stays_whole_for_a_user_who_sets_that(tmp_path: Path) -> None:
    place = Place.make(tmp_path, LANG="C.UTF-8")
    place.write("cordis.yml", COMPOSITION)
    replies = [{"reasoning": "first one way", "text": "One."}, {"reasoning": "then another way", "text": "Two."}]
    async with MockLlmServer(replies) as server:
        place.model(server.url)
        command = (PYTHON, "-m", "dsh.cli.main", "run", "cordis.yml", "--prompt", "go")
        async with on_terminal(*command, cwd=place.work, env=place.env) as terminal:
            await terminal.stands("3 words; Ctrl-O shows it")
            await terminal.stands("One.\n\n>")
            await terminal.enter("/settings console.reasoning whole", "console.reasoning")
            await terminal.enter("again", "then another way\n\nTwo.")
            terminal.type("\x04")
            assert await terminal.ends() == 0


LINES = [f"line number {n} of the answer" for n in range(1, 25)]
LONG = "\n\n".join(
    [
        f"A **{LINES[0]}** that is long enough to be broken into rows, once it has come so far. {LINES[1]}",
        "\n".join(f"- {line}" for line in LINES[2:10]),
        "```text\n" + "\n".join(LINES[10:22]) + "\n```",
        f"{LINES[22]}\n{LINES[23]}",
        "The end.",
    ]
)


@pytest.mark.parametrize("columns", [40, 100])
async def test_at_no_moment_of_a_stream_does_a_line_stand_twice_or_vanish(tmp_path: Path, columns: int) -> None:
    place = Place.make(tmp_path, LANG="C.UTF-8")
    place.write("cordis.yml", COMPOSITION)
    async with MockLlmServer([{"text": LONG}], chunk_size=5, delay_ms=4) as server:
        place.model(server.url)
        command = (PYTHON, "-m", "dsh.cli.main", "run", "cordis.yml", "--prompt", "go")
        async with on_terminal(*command, cwd=place.work, env=place.env, rows=24, columns=columns) as terminal:
            seen: list[str] = []

            def ends() -> bool:
                picture = " ".join(terminal.picture().split())
                for line in LINES:
                    assert picture.count(f"{line} ") <= 1, terminal.picture()
                known = [line for line in LINES if line in picture]
                assert set(seen) <= set(known), terminal.picture()
                seen[:] = known
                return "The end. >" in picture

            await terminal.until(ends, "the answer did not come to its end")
            assert seen == LINES
            terminal.type("\x04")
            assert await terminal.ends() == 0
