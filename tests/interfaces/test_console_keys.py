"""Keys of the console: what is typed, pasted, completed and found again, on terminals of any kind."""

from __future__ import annotations

import json
import signal
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from dsh.sessions.log_file import read_log
from dsh.sessions.stored import list_stored
from tests.cli.kit import PYTHON, Place
from tests.interfaces.console_kit import BOTH, leaves, opened
from tests.interfaces.control_kit import WAIT, begun, controlled, demo_place, go
from tests.interfaces.terminal import ALT_ENTER, CTRL_C, CTRL_D, CTRL_J, UP, console, on_terminal


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return demo_place(tmp_path, NO_COLOR="1")


def prompts(place: Place) -> list[str]:
    """The prompts in the logs of a place, oldest session first."""
    found = []
    for entry in sorted(list_stored(str(place.home / "sessions")).sessions, key=lambda entry: entry.header.created_at):
        for event in read_log(entry.path, entry.id).events:
            if event.type == "user/message" and event.data["source"]["kind"] == "user":
                found.append(event.data["content"][0]["text"])
    return found


async def test_keys_typed_before_there_is_a_prompt_are_acted_on(place: Place) -> None:
    async with console(place) as terminal:
        terminal.type("the first\rthe seco")
        await terminal.shows("dsh ")
        terminal.type("nd\rhalf")
        await terminal.stands("You said: the first")
        await terminal.stands("You said: the second")
        await terminal.stands("> half")
        terminal.type("\x7f" * 4)
        await leaves(terminal)
    assert prompts(place) == ["the first", "the second"]


async def test_enter_and_ctrl_c_in_one_breath_cancel_the_turn_that_enter_began(place: Place) -> None:
    """What no step has taken up then still waits, as after any cancel that drops nothing."""
    async with opened(place) as terminal:
        terminal.type(f"{WAIT}\r{CTRL_C}")
        await terminal.stands("turn ended: aborted")
        await terminal.stands("waits: call bash")
        terminal.type("/queue drop 1\r")
        await terminal.gone("waits: call bash")
        await terminal.enter("another", "You said: another")
        await leaves(terminal)
    assert prompts(place) == ["another"]


async def test_more_lines_are_written_before_they_are_sent_as_one_prompt(place: Place) -> None:
    async with opened(place) as terminal:
        terminal.type(f"one{ALT_ENTER}two{CTRL_J}three")
        await terminal.stands("> one\n  two\n  three")
        await terminal.enter("", "You said: one")
        await leaves(terminal)
    assert prompts(place) == ["one\ntwo\nthree"]


async def test_a_pasted_text_is_only_text(place: Place) -> None:
    async with opened(place) as terminal:
        terminal.paste("first\r\nsecond\x03\x04\x1b[2Jthird\nfourth\t@")
        await terminal.stands("fourth")
        assert terminal.process.returncode is None and "You said" not in terminal.picture()
        await terminal.enter("", "You said: first")
        await leaves(terminal)
    assert prompts(place) == ["first\nsecond[2Jthird\nfourth\t@"]


async def test_control_characters_that_are_typed_are_sent_to_nobody(place: Place) -> None:
    async with opened(place) as terminal:
        terminal.type("one\x1atwo\x11\x07three\r")  # Ctrl-Z: no shell waits behind this console
        await terminal.stands("You said: onetwothree")
        await leaves(terminal)
    assert prompts(place) == ["onetwothree"]


@pytest.mark.parametrize("command", ["run", "attach main"])
async def test_ctrl_z_goes_back_to_the_shell_and_fg_to_the_console(place: Place, command: str) -> None:
    env = {**place.env, "PS1": "sh$ "}
    async with AsyncExitStack() as stack:
        if command != "run":
            await stack.enter_async_context(controlled(place))
        shell = on_terminal("/bin/bash", "--norc", "-i", cwd=place.work, env=env)
        terminal = await stack.enter_async_context(shell)
        await terminal.enter(f"{PYTHON} -m dsh.cli.main {command}", "\n>\n")
        terminal.type("half a dr\x1a")
        await terminal.shows("Stopped")
        await terminal.enter("echo in the $((40 + 2))nd shell", "\nin the 42nd shell")
        await terminal.enter("fg", "\n> half a dr")
        await terminal.enter("aft", "You said: half a draft")
        terminal.type(CTRL_D)
        await terminal.until(lambda: terminal.visible() and "sh$" in terminal.picture().split("\n")[-1], "no shell")
        terminal.type("exit\r")
        await terminal.ends()
    assert prompts(place) == ["half a draft"]


@pytest.mark.parametrize("number", [signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("command", BOTH)
async def test_a_signal_that_ends_the_console_leaves_the_terminal_as_it_was(
    place: Place, number: signal.Signals, command: str
) -> None:
    async with opened(place, command) as terminal:
        terminal.type("a draft")
        await terminal.stands("> a draft")
        terminal.process.send_signal(number)
        await terminal.ends()  # its modes are as before
        assert terminal.raw.rpartition("\x1b[?2004")[2][0] == "l"


async def test_a_large_paste_is_taken_whole(place: Place) -> None:
    text = "\n".join(f"line {number} of a log" for number in range(4000))
    async with opened(place) as terminal:
        await terminal.feed(f"\x1b[200~{text}\x1b[201~")
        await terminal.stands("line 3999")
        await terminal.enter("", "You said: line 0")
        await leaves(terminal)
    assert prompts(place) == [text]


async def test_what_was_typed_is_found_again_in_the_next_console(place: Place) -> None:
    async with opened(place) as terminal:
        for text in ("keep this", " and not this", "keep this", "two\x1b\rlines"):
            terminal.type(f"{text}\r")
        await terminal.stands("You said: two")
        await leaves(terminal)
    path = place.home / "history"
    assert path.stat().st_mode & 0o777 == 0o600
    assert [json.loads(line) for line in path.read_text("utf-8").split("\n") if line] == ["keep this", "two\nlines"]
    async with opened(place) as terminal:
        terminal.type(UP)
        await terminal.stands("> two\n  lines")
        terminal.type(UP + UP)
        await terminal.stands("> keep this")
        await terminal.enter("", "You said: keep this")
        terminal.type("\x12two")
        await terminal.stands("> two\n  lines")
        terminal.type("\r")  # ends the search
        await terminal.gone("I-search")
        await terminal.enter("", "You said: two")
        await leaves(terminal)


async def test_files_are_completed_by_any_part_of_their_path(place: Place) -> None:
    place.write("src/deep/down/settings_store.py", "")
    place.write("node_modules/settings_store.py", "")
    place.write("ünïcode name.txt", "")
    async with opened(place) as terminal:
        terminal.type("look at @setst")
        await terminal.stands("\n src/deep/down/settings_store.py")
        assert "node_modules" not in terminal.picture()
        terminal.type("\t")
        await terminal.stands("> look at @src/deep/down/settings_store.py")
        terminal.type("\r")  # takes it
        await terminal.gone("\n src/")
        await terminal.enter(" now", "You said: look at @src/deep/down/settings_store.py now")
        terminal.type("in @src/\t")
        await terminal.stands("> in @src/deep/")
        await terminal.until(lambda: terminal.process.returncode is None, "")
        await terminal.enter(f"{CTRL_C}mail me at a@b.c", "You said: mail me at a@b.c")
        await leaves(terminal)


async def test_a_terminal_that_cannot_draw_gets_plain_lines(place: Place) -> None:
    command = (PYTHON, "-m", "dsh.cli.main", "run")
    async with on_terminal(*command, cwd=place.work, env=place.env, term="dumb") as terminal:
        await terminal.stands("/help for commands")
        terminal.type("hello\n")
        await terminal.stands("You said: hello")
        terminal.type("/agents\n")
        await terminal.stands("* main  main-session-")
        assert "\x1b" not in terminal.raw
        terminal.type("/quit\n")
        assert await terminal.ends() == 0


@pytest.mark.parametrize(("rows", "columns"), [(3, 12), (5, 20), (60, 300)])
async def test_windows_of_any_size_show_the_prompt(place: Place, rows: int, columns: int) -> None:
    async with opened(place, rows=rows, columns=columns) as terminal:
        terminal.type(WAIT + "\r")
        await begun(place)
        terminal.type("later\r")
        terminal.type("日本語 ok")
        await terminal.stands("日 本 語  ok" if "日 本" in terminal.picture() else "ok")
        assert "too small" not in terminal.screen()
        terminal.resize(rows + 2, columns + 5)
        go(place)
        terminal.type("!\r")
        await terminal.shows("later", 30)
        await terminal.until(lambda: "ok!" in "\n".join(prompts(place)), "the prompt was not sent")
        await leaves(terminal)


async def test_a_locale_without_utf_8_shows_what_it_can(place: Place) -> None:
    place.env |= {"LC_ALL": "C", "PYTHONIOENCODING": "latin-1"}
    async with opened(place) as terminal:
        await terminal.enter("plain", "You said: plain")
        await leaves(terminal)


@pytest.mark.parametrize("reflows", [True, False])
async def test_a_narrower_window_keeps_what_is_finished_and_draws_what_goes_on_once(
    place: Place, reflows: bool
) -> None:
    async with opened(place, columns=100, reflows=reflows) as terminal:
        await terminal.enter("a first prompt", "You said: a first prompt")
        terminal.type(WAIT + "\r")
        await begun(place)
        for text in ("one that waits " + "and waits " * 7, "two"):
            await terminal.enter(f"{text}", f"waits: {text[:30].strip()}")
        for columns in (80, 61, 44, 30):
            written = len(terminal.raw)
            terminal.resize(40, columns)
            await terminal.until(lambda: "\n>" in terminal.screen_since(written), "not drawn for the new width")
        terminal.type("typed")
        await terminal.stands("> typed")
        picture = terminal.picture()
        for once in ("> a first prompt\n", "bash touch", "waits: one", "waits: two", "!TEXT", "> typed"):
            assert picture.count(once) == 1, picture
        go(place)
        terminal.type("\r")
        await terminal.until(lambda: "typed" in prompts(place), "the prompt was not taken")
        await leaves(terminal)
