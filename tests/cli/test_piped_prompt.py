"""Text that is piped into `dsh run`: a prompt for a run that leaves, told of by one that stays."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dsh.cli import piped_prompt as piped
from tests.interfaces.control_kit import demo_place


async def test_text_piped_into_a_run_that_leaves_is_its_prompt(tmp_path: Path) -> None:
    place = demo_place(tmp_path)
    done = await place.dsh("run", "--exit-when-idle", stdin="hi\nthere\n")
    assert done.code == 0 and "You said: hi\nthere" in done.out, done.err
    given = await place.dsh("run", "--exit-when-idle", "--prompt", "mine", stdin="hi\n")
    assert given.code == 0 and "You said: mine" in given.out and "hi" not in given.out, given.err


def test_a_run_that_stays_tells_of_text_that_waits_and_reads_none(capsys: pytest.CaptureFixture[str]) -> None:
    ours, theirs = os.pipe()
    try:
        piped.tell_unread(ours)
        assert capsys.readouterr().err == ""
        os.write(theirs, b"hi\n")
        piped.tell_unread(ours)
        assert "standard input is not read by a run that stays" in capsys.readouterr().err
        assert os.read(ours, 10) == b"hi\n"
    finally:
        os.close(ours)
        os.close(theirs)


def test_a_pipe_that_stays_empty_is_not_waited_for(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(piped, "PATIENCE_SECONDS", 0.01)
    ours, theirs = os.pipe()
    try:
        assert piped.piped_prompt(ours) is None
        assert "nothing came on standard input" in capsys.readouterr().err
        os.close(theirs)
        assert piped.piped_prompt(ours) is None
        assert capsys.readouterr().err == ""
    finally:
        os.close(ours)


def test_devices_and_closed_descriptors_hold_no_prompt(capsys: pytest.CaptureFixture[str]) -> None:
    null = os.open(os.devnull, os.O_RDONLY)
    try:
        assert piped.piped_prompt(null) is None
        piped.tell_unread(null)
    finally:
        os.close(null)
    assert piped.piped_prompt(null) is None
    piped.tell_unread(null)
    assert capsys.readouterr().err == ""
