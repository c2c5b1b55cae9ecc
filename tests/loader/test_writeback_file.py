"""Writing config files and home documents: whole or not at all, and never over somebody else's save."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import anyio
import pytest

from dsh.interfaces.drafts import Draft
from dsh.loader import fileio
from dsh.loader.boot import make_source
from dsh.loader.fileio import (
    LockTimeoutError,
    atomic_write,
    document_lock,
    document_lock_async,
    lock_path,
    retry_transient,
)
from dsh.loader.problems import LoadError
from dsh.loader.writeback import WriteBackError, edit_rows
from dsh.loader.yamlio import Expr

CONFIG = """\
# mine
- id: loop
  name: agent-loop
  config: {maxParallelToolCalls: 4} # enough
- name: tool-fs
- id: g
  name: cordis:group
  config:
    - {id: inner, name: tool-bash, disabled: !!js env.X}
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "cordis.yml"
    path.write_text(CONFIG)
    return path


def edit(path: Path, target: str, value: Any = None, *, unset: bool = False) -> list[str]:
    """Set or unset one value of the composition and write it; the warnings."""
    draft = Draft(make_source(path))
    if unset:
        draft.unset(target)
    else:
        draft.set(target, value)
    draft.write()
    return draft.warnings


def test_a_file_that_its_owner_made_read_only_is_not_replaced(config: Path) -> None:
    config.chmod(0o444)
    with pytest.raises(WriteBackError) as refused:
        edit(config, "loop.maxParallelToolCalls", 5)
    assert str(refused.value).endswith(f"cordis.yml: the file is read-only; `chmod u+w {config}` ends that")
    assert config.read_text() == CONFIG
    edit(config, "loop.maxParallelToolCalls", 4)  # what it says already needs no writing


def test_b13n_one_value_of_a_row_is_set_and_unset(config: Path) -> None:
    assert edit(config, "loop.maxParallelToolCalls", 2) == []
    assert config.read_text() == CONFIG.replace("Calls: 4", "Calls: 2")
    edit(config, "tool-fs#1.root", ".")
    edit(config, "inner.disabled", Expr("env.Y"))
    assert config.read_text() == CONFIG.replace("Calls: 4", "Calls: 2").replace(
        "- name: tool-fs\n", "- name: tool-fs\n  config:\n    root: .\n"
    ).replace("env.X", "env.Y")
    edit(config, "tool-fs#1.config", unset=True)
    assert "root" not in config.read_text()
    with pytest.raises(LoadError, match="there is no such value"):
        edit(config, "tool-fs#1.root.deep", unset=True)
    with pytest.raises(LoadError, match='no row has the id "lop"; did you mean "loop"'):
        edit(config, "lop.x", 1)
    with pytest.raises(LoadError, match="and no mapping"):
        edit(config, "loop.maxParallelToolCalls.x", 1)


def test_b13o_nothing_to_change_and_a_refusal_touch_nothing(config: Path) -> None:
    before = config.stat()
    assert edit_rows(config, lambda rows: rows) == []

    def refuse(rows: list[Any]) -> list[Any]:
        rows.clear()
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        edit_rows(config, refuse)
    assert (config.stat().st_ino, config.read_text()) == (before.st_ino, CONFIG)
    assert [entry.name for entry in config.parent.iterdir()] == ["cordis.yml"]


def test_b13p_a_link_is_followed_and_the_permissions_are_kept(config: Path, tmp_path: Path) -> None:
    config.chmod(0o640)
    link = tmp_path / "link.yml"
    link.symlink_to(config)
    edit(link, "loop.config", None)
    assert link.is_symlink()
    assert stat.S_IMODE(config.stat().st_mode) == 0o640
    assert "config:\n" in config.read_text() or "config: null" in config.read_text()


def test_b13q_a_save_between_reading_and_replacing_is_not_lost(config: Path) -> None:
    seen: list[int] = []

    def change(rows: list[Any]) -> list[Any]:
        if not seen:
            config.write_text(CONFIG + "- {id: theirs, name: x}\n")
        seen.append(len(rows))
        return [*rows, {"id": "ours", "name": "y"}]

    edit_rows(config, change)
    assert seen == [3, 4]
    assert config.read_text() == CONFIG + "- {id: theirs, name: x}\n- id: ours\n  name: y\n"


def test_b13r_a_file_that_never_rests_is_an_error(config: Path) -> None:
    count = 0

    def change(rows: list[Any]) -> list[Any]:
        nonlocal count
        count += 1
        config.write_text(CONFIG + f"# {count}\n")
        return []

    with pytest.raises(WriteBackError, match="keeps changing"):
        edit_rows(config, change)
    assert [entry.name for entry in config.parent.iterdir()] == ["cordis.yml"]


def test_b13s_what_could_only_be_dumped_is_said(config: Path) -> None:
    config.write_text("# head\n- ? id\n  : a\n  name: x # inner\n")
    warnings = edit(config, "a.name", "y")
    assert "without its inner comments" in warnings[0]
    assert config.read_text() == "# head\n- id: a\n  name: y\n"


def test_b13t_json_is_written_with_two_spaces(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    path.write_text('[{"id":"a","name":"x","disabled":{"__jsExpr":"env.X"}}]')
    edit(path, "a.config", {"k": [1]})
    assert path.read_text() == (
        '[\n  {\n    "id": "a",\n    "name": "x",\n    "disabled": {\n      "__jsExpr": "env.X"\n    },\n'
        '    "config": {\n      "k": [\n        1\n      ]\n    }\n  }\n]\n'
    )


def test_b13u_a_file_that_is_no_list_of_rows_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "cordis.yml"
    path.write_text("a: 1\n")
    with pytest.raises(WriteBackError, match="not a list of rows"):
        edit_rows(path, lambda rows: rows)
    with pytest.raises(WriteBackError, match="cannot be read"):
        edit_rows(tmp_path, lambda rows: rows)


# --- replacing --------------------------------------------------------------------------------------------------------


def test_b06h_a_replacement_has_exactly_the_asked_mode_and_never_follows_a_link(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("kept")
    target = tmp_path / "doc"
    target.symlink_to(victim)
    old = os.umask(0o077)
    try:
        atomic_write(target, b"new", mode=0o644)
    finally:
        os.umask(old)
    assert victim.read_text() == "kept"
    assert not target.is_symlink()
    assert (target.read_text(), stat.S_IMODE(target.stat().st_mode)) == ("new", 0o644)


@pytest.mark.parametrize("step", ["fsync", "fchmod", "replace"])
def test_b06i_a_failure_at_any_step_keeps_the_old_file_and_leaves_no_draft(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    target = tmp_path / "doc"
    target.write_text("old")

    def broken(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, step, broken)
    with pytest.raises(OSError, match="Input/output"):
        atomic_write(target, b"new", mode=0o600)
    assert target.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["doc"]


def test_b13v_a_file_that_is_briefly_held_is_tried_again_and_other_errors_are_not() -> None:
    pauses: list[float] = []
    failures = [errno.EBUSY, errno.EACCES, errno.EPERM]

    def action() -> str:
        if failures:
            raise OSError(failures.pop(), "held")
        return "done"

    assert retry_transient(action, pause=pauses.append) == "done"
    assert pauses == pytest.approx([0.05, 0.1, 0.15])
    failures[:] = [errno.EBUSY] * 11
    with pytest.raises(OSError):
        retry_transient(action, pause=pauses.append)
    assert len(pauses) == 13
    failures[:] = [errno.ENOSPC, errno.ENOSPC]
    with pytest.raises(OSError):
        retry_transient(action, pause=pauses.append)
    assert len(failures) == 1


# --- locking ----------------------------------------------------------------------------------------------------------


def test_b07d_the_lock_names_its_holder_and_goes_on_failure_too(tmp_path: Path) -> None:
    document = tmp_path / "doc.yaml"
    with pytest.raises(ValueError):
        with document_lock(document):
            assert lock_path(document).read_text() == f"{os.getpid()}\n"
            assert stat.S_IMODE(lock_path(document).stat().st_mode) == 0o600
            raise ValueError
    assert not lock_path(document).exists()


def test_b07e_a_held_lock_is_named_with_its_holder_alive_or_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = tmp_path / "doc.yaml"
    lock_path(document).write_text(f"{os.getpid()}\n")
    with pytest.raises(LockTimeoutError, match=rf"held by the running process {os.getpid()}"):
        with document_lock(document, limit=0.03):
            raise AssertionError
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    lock_path(document).write_text(f"{dead.pid}\n")
    with pytest.raises(
        LockTimeoutError, match="timed out waiting for the writer lock .*no longer runs; remove that file"
    ):
        with monkeypatch.context() as patch:
            patch.setattr(fileio, "LEFT_BEHIND_LIMIT", 0.03)
            with document_lock(document, limit=3600):  # nobody will give it back
                raise AssertionError
    lock_path(document).write_text("")
    with pytest.raises(LockTimeoutError, match="its holder is unknown"):
        with document_lock(document, limit=0.03):
            raise AssertionError
    assert lock_path(document).exists()


def test_b07f_a_denied_lock_is_retried_only_while_one_exists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    document = tmp_path / "doc.yaml"

    def denied(*_: object) -> int:
        raise PermissionError(errno.EACCES, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(fileio.os, "open", denied)
        with pytest.raises(PermissionError):
            fileio.try_lock(document)
    lock_path(document).write_text("1\n")
    with monkeypatch.context() as patch:
        patch.setattr(fileio.os, "open", denied)
        assert fileio.try_lock(document) is False


async def test_b07g_threads_and_tasks_take_turns(tmp_path: Path) -> None:
    document = tmp_path / "doc.yaml"
    inside = 0
    most = 0
    guard = threading.Lock()

    def count(step: int) -> None:
        nonlocal inside, most
        with guard:
            inside += step
            most = max(most, inside)

    def in_thread() -> None:
        for _ in range(3):
            with document_lock(document, limit=10):
                count(1)
                count(-1)

    async def in_task() -> None:
        for _ in range(3):
            async with document_lock_async(document, limit=10):
                count(1)
                await anyio.sleep(0.001)
                count(-1)

    async with anyio.create_task_group() as group:
        for _ in range(2):
            group.start_soon(anyio.to_thread.run_sync, in_thread)
            group.start_soon(in_task)
    assert most == 1
    assert not lock_path(document).exists()


async def test_b07h_a_cancelled_wait_leaves_no_lock(tmp_path: Path) -> None:
    document = tmp_path / "doc.yaml"
    async with document_lock_async(document):
        with anyio.move_on_after(0.05):
            async with document_lock_async(document):
                raise AssertionError
        assert lock_path(document).exists()
    assert not lock_path(document).exists()
