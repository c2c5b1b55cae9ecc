"""What a conversation does with keys and commands that take their time, without a terminal."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from dsh.interfaces.builtin_commands import table
from dsh.interfaces.commands import Command
from dsh.interfaces.front import Waiting
from dsh.interfaces.history import InputHistory
from dsh.interfaces.prompt_line import PromptLine
from tests.interfaces.console_kit import Talk


def slow(talk: Talk, began: asyncio.Event) -> Command:
    """A command without an end."""

    async def run(argument: str, screen: Any) -> None:
        began.set()
        await asyncio.Event().wait()

    return Command("slow", run, "takes for ever")


async def test_ctrl_c_cancels_the_command_that_runs_also_after_a_key_has_begun_something() -> None:
    talk, began = Talk(), asyncio.Event()
    talk.table.add(slow(talk, began))
    talk.front.waiting = [Waiting("m", "later")]
    running: Any = asyncio.create_task(talk.dialogue.run(talk.typed()))  # type: ignore[arg-type]
    talk.type("/slow")
    async with asyncio.timeout(10):
        await began.wait()
        talk.dialogue.edit_last()  # Alt-Up
        await asyncio.sleep(0)
        assert talk.dialogue.interrupt()
        talk.type("/help", None)
        await running
    assert talk.text.startswith("cancelled\ncancelled\nTEXT ")
    assert talk.left == []


async def test_a_cancel_of_nothing_says_so() -> None:
    talk = Talk()
    talk.type("/cancel", None)
    await talk.dialogue.run(talk.typed())
    assert talk.text.strip() == "nothing runs, and nothing waits"


async def test_what_a_key_began_is_waited_for_and_a_prompt_taken_back_is_kept(tmp_path: Path) -> None:
    talk = Talk(tmp_path)
    talk.front.waiting = [Waiting("m", "taken back")]
    talk.dialogue.prompt_line._left = ""  # its line has ended
    running = asyncio.create_task(talk.dialogue.run(talk.typed()))  # type: ignore[arg-type]
    talk.dialogue.edit_last()
    talk.type(None)
    for _ in range(5):
        await asyncio.sleep(0)
    assert not running.done()
    talk.front.taking.set()
    async with asyncio.timeout(10):
        await running
    assert InputHistory(tmp_path / "history").load() == ["taken back"]


async def test_nothing_that_a_key_began_outlives_a_conversation_that_is_cut_off() -> None:
    talk, before = Talk(), asyncio.all_tasks()
    talk.front.waiting = [Waiting("m", "later")]
    running = asyncio.create_task(talk.dialogue.run(talk.typed()))  # type: ignore[arg-type]
    await asyncio.sleep(0)
    talk.dialogue.edit_last()
    running.cancel()
    await asyncio.wait({running}, timeout=10)
    assert running.cancelled()
    assert asyncio.all_tasks() == before


def test_lines_of_others_are_broken_at_words_where_the_screen_ends(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    PromptLine(lambda: False).say("dsh: error: the file could not be read\n  short\n\x1b[31mcoloured " + "x" * 20)
    assert capsys.readouterr().out == (
        "dsh: error: the file\ncould not be read\n  short\n\x1b[31mcoloured xxxxxxxxxxxxxxxxxxxx\n"
    )


def test_the_last_column_of_a_table_is_broken_at_words_where_it_has_room() -> None:
    rows = [("tool", "failed", "no such file or directory, alas"), ("\u6d4b\u8bd5", "active", "")]
    assert table(rows, 36).split("\n") == [
        "tool  failed  no such file or",
        "              directory, alas",
        "\u6d4b\u8bd5  active",
    ]
    assert (
        table(rows, 20).split("\n")[0] == "tool  failed  no such file or directory, alas" == table(rows).split("\n")[0]
    )
