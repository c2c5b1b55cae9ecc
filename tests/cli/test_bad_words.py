"""What is given to commands and cannot be used is refused in one sentence, without a process of its own for each."""

from __future__ import annotations

import asyncio
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import typer

from dsh.cli.credentials import unset
from dsh.cli.editor import edit_text
from dsh.cli.init import init
from dsh.cli.last_line import LastLine, last_line
from dsh.cli.local import pull
from dsh.cli.output import CommandFailed, print_table, usable_text
from dsh.cli.resume import _continue as continue_session
from dsh.core.session_header import SessionHeader
from dsh.loader.home import Home
from dsh.models.mock_server import load_script
from dsh.sessions.stored import StoredSession
from dsh.testing.scripted import _over_http
from plugins.git_context import git_status
from tests.cli.kit import PYTHON, Place


@pytest.mark.parametrize(("text", "why"), [(" \n", "is empty"), ("bad \udcff", "is no UTF-8 text")])
def test_a_prompt_that_no_model_could_read_is_refused(text: str, why: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(CommandFailed) as failure:
        usable_text(text, "task")
    assert failure.value.exit_code == 2
    assert capsys.readouterr().err == f"dsh: the task {why}\n"


async def test_exec_and_run_refuse_a_prompt_that_is_no_text(tmp_path: Path) -> None:
    place = Place.make(tmp_path)
    place.init()
    done = await place.dsh("exec", "bad \udcff")
    assert (done.code, done.err) == (2, "dsh: the task is no UTF-8 text\n")


def test_a_wrong_set_is_a_usage_error_of_resume_without_a_task_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "cordis.yml"
    file.write_text("- {id: agent-loop, name: dsh-agent-loop}\n", "utf-8")
    entry = StoredSession("a", SessionHeader("a", 0), "", 0, 0, "")
    with pytest.raises(CommandFailed) as failure:
        continue_session(LastLine(None, "text"), entry, file, [], ["nonsense"], "text", [])
    assert failure.value.exit_code == 2
    assert capsys.readouterr().err == "dsh: --set: nonsense: expected ROW.KEY=VALUE\n"


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("a.yml", b"\xd0\x00", "not UTF-8 text"),
        ("a.yml", b"[", "while parsing a flow"),
        ("a.yml", b"- !!js x", "could not determine a constructor"),
        ("a.json", b"[1", ""),
        ("a.yml", b"a: 1", "a mock script is a list of entries"),
    ],
)
def test_a_mock_script_that_cannot_be_read_is_named(tmp_path: Path, name: str, content: bytes, why: str) -> None:
    file = tmp_path / name
    file.write_bytes(content)
    with pytest.raises(ValueError) as refused:
        load_script(file)
    said = str(refused.value)
    assert said.startswith(f"{file}: ") and why in said and "\n" not in said


def test_init_into_a_file_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("mine", "utf-8")
    with pytest.raises(typer.Exit):
        init(file)
    assert f"{file} is no folder; nothing was written" in capsys.readouterr().err


def test_init_that_cannot_write_everything_leaves_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "plugins").write_text("mine", "utf-8")
    with pytest.raises(typer.Exit):
        init(tmp_path)
    assert "is no folder; nothing was written" in capsys.readouterr().err
    assert os.listdir(tmp_path) == ["plugins"]


def test_a_signal_before_the_run_could_take_it_leaves_a_last_line_for_programs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ends: list[int] = []
    monkeypatch.setattr(LastLine, "conclude", lambda _self, code: ends.append(code))
    with pytest.raises(SystemExit), last_line("json", terminal=True):
        raise SystemExit(130)
    assert ends == [130]


def test_an_interrupted_pull_leaves_its_progress_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def fetch(_home: Home, bar: Any) -> Path:
        bar._terminal = True
        bar("model", 1, 2)
        raise SystemExit(130)

    monkeypatch.setenv("DSH_HOME", str(tmp_path))
    monkeypatch.setattr("dsh.models.local_pull.pull", fetch)
    with pytest.raises(SystemExit):
        pull()
    assert capsys.readouterr().err.endswith("\n")


def test_an_editor_that_fails_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("VISUAL", "false")
    with pytest.raises(CommandFailed):
        edit_text("a.yml", b"a", lambda _: [], lambda _: None)
    assert capsys.readouterr().err == "dsh: the editor false left with code 1; nothing was changed\n"


def test_forgetting_a_key_that_was_never_stored_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DSH_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    unset("NEVER_STORED")
    assert capsys.readouterr().err == "dsh: nothing is stored as NEVER_STORED\n"


def test_columns_stand_below_each_other_whatever_takes_two_cells(capsys: pytest.CaptureFixture[str]) -> None:
    print_table([("日本", "x"), ("abcd", "y")], ("TITLE", "Z"))
    assert capsys.readouterr().out == "TITLE  Z\n日本   x\nabcd   y\n"


def test_a_model_over_http_refuses_an_async_function_before_it_serves() -> None:
    async def answer(_body: Any) -> str:
        return "hi"

    with pytest.raises(TypeError, match="an async function answers in process"):
        _over_http(answer)


async def test_a_reader_that_leaves_is_no_failure(tmp_path: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    command = await asyncio.create_subprocess_exec(
        *(PYTHON, "-m", "dsh.cli.main", "completion", "bash"),
        stdin=subprocess.DEVNULL,
        stdout=write,
        stderr=subprocess.PIPE,
        env=Place.make(tmp_path).env,
    )
    os.close(write)
    _, said = await command.communicate()
    assert (command.returncode, said) == (0, b"")


async def test_looking_at_a_repository_writes_nothing_into_it(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_text("a", "utf-8")
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b"]
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "first"]):
        subprocess.run([*git, *command], cwd=tmp_path, check=True)
    os.utime(file, (1, 1))  # git would note this in its index
    index = (tmp_path / ".git" / "index").read_bytes()
    assert await git_status(str(tmp_path), 10) != []
    assert (tmp_path / ".git" / "index").read_bytes() == index
