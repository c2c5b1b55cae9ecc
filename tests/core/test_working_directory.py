"""A session's working directory: entered by an event, kept by the log, recovered when it is gone."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsh.cordis import HarnessError
from dsh.core.session import Session
from dsh.core.session_header import SessionHeader
from dsh.core.working_directory import enter_directory, working_directory


@pytest.fixture
def session(tmp_path: Path) -> Session:
    (tmp_path / "a" / "b").mkdir(parents=True)
    return Session("s", header=SessionHeader(id="s", created_at=1, cwd=str(tmp_path)))


def test_a_session_works_in_its_workspace_until_a_folder_is_entered(session: Session, tmp_path: Path) -> None:
    assert working_directory(session) == str(tmp_path)
    assert enter_directory(session, "a") == str(tmp_path / "a")
    assert enter_directory(session, "b") == str(tmp_path / "a" / "b")
    assert enter_directory(session, "../..") == str(tmp_path)
    assert enter_directory(session, str(tmp_path / "a")) == working_directory(session) == str(tmp_path / "a")
    assert session.header.cwd == str(tmp_path)
    assert [event.data["cwd"] for event in session.events] == [
        str(tmp_path / "a"), str(tmp_path / "a" / "b"), str(tmp_path), str(tmp_path / "a"),
    ]  # fmt: skip
    assert all(event.ignorable for event in session.events)


def test_entering_the_same_folder_again_logs_nothing(session: Session) -> None:
    enter_directory(session, ".")
    enter_directory(session, "a")
    enter_directory(session, ".")
    assert len(session.events) == 1


@pytest.mark.parametrize("path", ["missing", "file", "nul\0byte"])
def test_what_is_no_folder_is_refused_and_changes_nothing(session: Session, tmp_path: Path, path: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(HarnessError, match="not a directory"):
        enter_directory(session, path)
    assert working_directory(session) == str(tmp_path) and not session.events


def test_a_folder_that_vanished_gives_way_to_the_workspace(session: Session, tmp_path: Path) -> None:
    enter_directory(session, "a/b")
    (tmp_path / "a" / "b").rmdir()
    assert working_directory(session) == str(tmp_path)
    assert enter_directory(session, "a") == str(tmp_path / "a")


def test_the_log_alone_brings_the_folder_back(session: Session, tmp_path: Path) -> None:
    enter_directory(session, "a")
    again = Session("s", header=session.header, seed=list(session.events), seed_source="persistence")
    assert working_directory(again) == str(tmp_path / "a")
