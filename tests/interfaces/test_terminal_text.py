"""What may stand on a terminal of the texts that others wrote."""

from __future__ import annotations

import io
import logging

import pytest

from dsh.cli.logs import TextFormatter
from dsh.cli.output import CommandFailed, fail, print_table
from dsh.interfaces.stdout import say
from dsh.interfaces.terminal_text import Style, spelled, visible

EVIL = "over\x1b]0;owned\x07loaded\x9b31m\u202e"
HIDDEN = ("\x1b", "\x07", "\x9b", "\u202e", "\0")


def test_every_error_line_is_free_of_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    say(EVIL)
    with pytest.raises(CommandFailed):
        fail(EVIL)
    record = logging.LogRecord("dsh.llm", logging.WARNING, __file__, 1, "retrying: %s", (EVIL,), None)
    print(TextFormatter(traceback=False).format(record))
    written = capsys.readouterr()
    for text in (written.err, written.out):
        assert "over]0;ownedloaded31m" in text
        assert not any(each in text for each in HIDDEN)
    assert written.err.count("dsh: over") == 2


def test_names_in_a_table_keep_what_is_hidden_in_them_as_escapes(capsys: pytest.CaptureFixture[str]) -> None:
    print_table([("a\0b", "x\ny"), ("\x1b[2J", "z")], ("ID", "TITLE"))
    assert capsys.readouterr().out == "ID       TITLE\na\\x00b   x\\ny\n\\x1b[2J  z\n"
    assert spelled("ä 目录\ud800") == "ä 目录\\ud800"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain\nä 目录", "plain\nä 目录"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b[2J\x1b]0;t\x07", "^[[2J^[]0;t^G"),
        ("10%\r20%\r\ndone", "10%\n20%\ndone"),
        ("a\tb\x7f\0", "a   b^?^@"),
        ("\x9b31m\u202e\u2028\U000e0041", "<U+009B>31m<U+202E><U+2028><U+E0041>"),
        ("\ud800", "?"),
    ],
)
def test_what_others_wrote_acts_on_nothing_and_is_seen(text: str, shown: str) -> None:
    assert visible(text) == shown


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("code", "kept"),
    [
        ("31", ""),
        ("1", "1"),
        ("1;31", "1"),
        ("94;49", ""),
        ("38;5;208;4", "4"),
        ("38;2;1;2;3", ""),
        ("2;48;5;1;7", "2;7"),
    ],
)
def test_no_color_takes_colours_and_nothing_else(monkeypatch: pytest.MonkeyPatch, code: str, kept: str) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    style, coloured = Style(_Terminal()), f"\x1b[{code}mx\x1b[0m"
    assert style(code, "x") == (f"\x1b[{kept}mx\x1b[0m" if kept else "x")
    assert style.fitted(coloured) == (f"\x1b[{kept}m" if kept else "") + "x\x1b[0m"
    monkeypatch.setenv("NO_COLOR", "")
    assert Style(_Terminal()).fitted(coloured) == coloured == Style(_Terminal())(code, "x")
    assert Style(io.StringIO()).fitted(coloured) == "x" == Style(io.StringIO())(code, "x")
