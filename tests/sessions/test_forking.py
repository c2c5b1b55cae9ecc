"""Copies of stored sessions: what they take over, and that the original does not notice."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsh.core.fork import SessionForkError
from dsh.sessions.errors import SessionPersistenceError
from dsh.sessions.forking import fork_stored
from dsh.sessions.lease import probe
from dsh.sessions.log_file import read_log
from dsh.sessions.stored import list_stored, read_entry
from tests.sessions.helpers import LogBuilder, header, log_of, store_at, write_log


def bytes_of(path: str) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in Path(path).parent.iterdir()}


@pytest.mark.parametrize("compression", ["zstd", "none"])
def test_a_copy_takes_over_everything_and_leaves_the_original_alone(tmp_path: Path, compression: str) -> None:
    name = "main-session-01234567-0123-0123-0123-0123456789ab"
    path = write_log(tmp_path, header(name), log_of(1, 2), compression=compression)  # type: ignore[arg-type]
    before = bytes_of(path)
    copy = fork_stored(str(tmp_path), read_entry(path, name))
    made = read_log(copy.entry.path, copy.entry.id)
    assert made.events == log_of(1, 2) and (copy.events, copy.left_out) == (len(made.events), 0)
    assert made.header.parent_session == name and made.header.seed_length == len(made.events)
    assert made.header.cwd == header(name).cwd
    assert copy.entry.id.startswith("main-session-") and copy.entry.id != name
    assert Path(copy.entry.path).name == Path(path).name
    assert bytes_of(path) == before
    assert not probe(copy.entry.directory).locked


def test_an_original_that_is_being_written_is_copied_without_its_open_turn(tmp_path: Path) -> None:
    head = header("busy")
    hold = store_at(tmp_path).hold(head.id, head.cwd)
    try:
        hold.append(head, 0, log_of(1, 2, end=False))
        assert hold.path is not None
        with open(hold.path, "ab") as file:
            file.write(b"\x28\xb5\x2f\xfd\x00")  # a write that is under way
        before = bytes_of(hold.path)
        copy = fork_stored(str(tmp_path), read_entry(hold.path, "busy"))
        assert bytes_of(hold.path) == before
    finally:
        hold.release()
    made = read_log(copy.entry.path, copy.entry.id)
    assert made.events == log_of(1) and copy.left_out == len(log_of(1, 2, end=False)) - len(log_of(1))
    assert copy.entry.id.startswith("session-")


def test_an_earlier_end_must_exist_and_lie_between_turns(tmp_path: Path) -> None:
    path = write_log(tmp_path, header("s"), log_of(1, 2))
    entry = read_entry(path, "s")
    first = len(log_of(1)) - 1
    assert read_log(fork_stored(str(tmp_path), entry, first).entry.path, "").events == log_of(1)
    with pytest.raises(SessionForkError, match="ends inside open turn 2"):
        fork_stored(str(tmp_path), entry, first + 1)
    with pytest.raises(SessionForkError, match="does not exist"):
        fork_stored(str(tmp_path), entry, 1000)
    assert len(list_stored(str(tmp_path)).sessions) == 2, "a refusal leaves nothing behind"


def test_without_a_finished_turn_there_is_nothing_to_copy(tmp_path: Path) -> None:
    builder = LogBuilder()
    builder.prompt("waiting")
    builder.turn(1, end=False)
    path = write_log(tmp_path, header("s"), builder.events)
    with pytest.raises(SessionPersistenceError, match="has no finished turn"):
        fork_stored(str(tmp_path), read_entry(path, "s"))
