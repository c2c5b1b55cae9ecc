"""What may stand on a terminal of the texts that others wrote."""

from __future__ import annotations

import logging

import pytest

from dsh.cli.logs import TextFormatter
from dsh.cli.output import CommandFailed, fail, print_table
from dsh.interfaces.stdout import say
from dsh.interfaces.terminal_text import spelled, visible

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
