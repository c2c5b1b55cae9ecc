"""Noticing changes of files: real folders, real saves."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from dsh.loader.watch import Watch

LIMIT = 10.0


class Seen:
    """Collects what a watch reports and waits for it."""

    def __init__(self) -> None:
        self.reports: list[frozenset[Path]] = []
        self.said: list[str] = []
        self._event = anyio.Event()

    def note(self, paths: frozenset[Path]) -> None:
        self.reports.append(paths)
        self._event.set()
        self._event = anyio.Event()

    @property
    def paths(self) -> set[Path]:
        return {path for report in self.reports for path in report}

    async def until(self, condition: Callable[[], bool]) -> None:
        with anyio.fail_after(LIMIT):
            while not condition():
                await self._event.wait()

    async def next(self, path: Path) -> None:
        """Wait for a report of `path` after the ones so far."""
        done = len(self.reports)
        await self.until(lambda: any(path in report for report in self.reports[done:]))


@asynccontextmanager
async def watching(*files: Path, tree: Path | None = None, heartbeat: float = 30.0) -> AsyncIterator[Seen]:
    seen = Seen()
    watch = Watch(seen.note, say=seen.said.append, debounce=0.02, heartbeat=heartbeat, poll=0.05)
    for file in files:
        watch.add_file(file)
    if tree is not None:
        watch.add_tree(tree, lambda folder: folder.name.startswith((".", "__")))
    async with anyio.create_task_group() as group:
        group.start_soon(watch.run)
        with anyio.fail_after(LIMIT):
            await watch.wait_armed()
        await seen.until(lambda: seen.paths >= set(files))
        seen.reports.clear()
        yield seen
        watch.stop()


def save_by_rename(path: Path, text: str) -> None:
    draft = path.with_name(path.name + "~")
    draft.write_text(text)
    os.replace(draft, path)


async def test_b16a_saves_in_place_by_rename_and_deletion_are_seen(tmp_path: Path) -> None:
    file = tmp_path / "cordis.yml"
    file.write_text("1")
    async with watching(file) as seen:
        for change in (
            lambda: file.write_text("2"),
            lambda: save_by_rename(file, "3"),
            lambda: save_by_rename(file, "4"),
            file.unlink,
            lambda: file.write_text("5"),
        ):
            with anyio.fail_after(LIMIT):
                async with anyio.create_task_group() as group:
                    group.start_soon(seen.next, file)
                    await anyio.lowlevel.checkpoint()
                    change()
        assert seen.paths == {file}


async def test_b16b_a_file_and_a_folder_that_come_later_are_seen(tmp_path: Path) -> None:
    file = tmp_path / "a" / "b" / "cordis.yml"
    async with watching(file) as seen:
        file.parent.mkdir(parents=True)
        file.write_text("1")
        await seen.until(lambda: file in seen.paths)
        seen.reports.clear()
        save_by_rename(file, "2")
        await seen.until(lambda: file in seen.paths)


async def test_b16c_a_folder_that_is_removed_and_made_again_is_watched_again(tmp_path: Path) -> None:
    file = tmp_path / "a" / "cordis.yml"
    file.parent.mkdir()
    file.write_text("1")
    async with watching(file) as seen:
        file.unlink()
        file.parent.rmdir()
        await seen.until(lambda: file in seen.paths)
        seen.reports.clear()
        file.parent.mkdir()
        file.write_text("2")
        await seen.until(lambda: file in seen.paths)
        seen.reports.clear()
        file.write_text("33")
        await seen.until(lambda: file in seen.paths)


async def test_b16d_an_alias_of_the_folder_reports_the_configured_path(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    alias = tmp_path / "alias"
    alias.symlink_to(tmp_path / "real")
    file = alias / "cordis.yml"
    async with watching(file) as seen:
        (tmp_path / "real" / "cordis.yml").write_text("1")
        await seen.until(lambda: bool(seen.reports))
        assert seen.paths == {file}


async def test_f30_a_change_of_the_target_of_a_link_and_of_the_link_is_seen(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    (tmp_path / "one" / "x.yml").write_text("1")
    (tmp_path / "two" / "y.yml").write_text("two")
    file = tmp_path / "cordis.yml"
    file.symlink_to(tmp_path / "one" / "x.yml")
    async with watching(file) as seen:
        save_by_rename(tmp_path / "one" / "x.yml", "22")
        await seen.until(lambda: file in seen.paths)
        seen.reports.clear()
        link = tmp_path / "new-link"
        link.symlink_to(tmp_path / "two" / "y.yml")
        os.replace(link, file)
        await seen.until(lambda: file in seen.paths)
        seen.reports.clear()
        save_by_rename(tmp_path / "two" / "y.yml", "three")
        await seen.until(lambda: file in seen.paths)


async def test_b16e_an_edit_before_the_watch_is_armed_is_reported(tmp_path: Path) -> None:
    file = tmp_path / "cordis.yml"
    file.write_text("1")
    seen = Seen()
    watch = Watch(seen.note, say=seen.said.append, debounce=0.02)
    watch.add_file(file)
    file.write_text("22")
    async with anyio.create_task_group() as group:
        group.start_soon(watch.run)
        await seen.until(lambda: file in seen.paths)
        watch.stop()


async def test_b16f_a_file_added_while_running_is_watched_and_its_undo_ends_that(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    seen = Seen()
    watch = Watch(seen.note, say=seen.said.append, debounce=0.02)
    watch.add_file(first)
    async with anyio.create_task_group() as group:
        group.start_soon(watch.run)
        await watch.wait_armed()
        undo = watch.add_file(second)
        second.write_text("1")
        await seen.until(lambda: second in seen.paths)
        undo()
        undo()
        seen.reports.clear()
        second.write_text("22")
        first.write_text("1")
        await seen.until(lambda: first in seen.paths)
        assert second not in seen.paths
        watch.stop()


async def test_b16g_sources_of_a_tree_are_seen_also_in_folders_made_later_and_skipped_folders_are_not(
    tmp_path: Path,
) -> None:
    (tmp_path / "__pycache__").mkdir()
    async with watching(tree=tmp_path) as seen:
        (tmp_path / "__pycache__" / "no.py").write_text("")
        (tmp_path / "notes.txt").write_text("")
        (tmp_path / "later").mkdir()
        (tmp_path / "later" / "a.py").write_text("")
        await seen.until(lambda: tmp_path / "later" / "a.py" in seen.paths)
        (tmp_path / "later" / "b.py").write_text("")
        await seen.until(lambda: tmp_path / "later" / "b.py" in seen.paths)
        assert seen.paths == {tmp_path / "later" / "a.py", tmp_path / "later" / "b.py"}


async def test_b16h_a_burst_of_saves_is_one_report_or_two(tmp_path: Path) -> None:
    file = tmp_path / "cordis.yml"
    async with watching(file) as seen:
        for number in range(20):
            save_by_rename(file, str(number))
        await seen.until(lambda: file in seen.paths)
        await anyio.sleep(0.2)
        assert len(seen.reports) <= 2


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), RuntimeError("inotify limit reached")])
async def test_f38a_a_watcher_that_cannot_start_falls_back_to_polling_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def broken(*_args: object) -> None:
        raise error

    monkeypatch.setattr("watchfiles._rust_notify.RustNotify", broken)
    file = tmp_path / "later" / "cordis.yml"
    async with watching(file, tree=tmp_path) as seen:
        file.parent.mkdir()
        file.write_text("1")
        await seen.until(lambda: file in seen.paths)
        (tmp_path / "a.py").write_text("")
        await seen.until(lambda: tmp_path / "a.py" in seen.paths)
        assert len(seen.said) == 1
        assert "not available" in seen.said[0]


async def test_f38b_a_mount_without_notifications_is_followed_by_looking(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Silent:
        def __init__(self, *_args: object) -> None: ...

        def watch(self, _debounce: int, _step: int, timeout: int, stop: object) -> str:
            import time

            time.sleep(min(timeout, 50) / 1000)
            return "timeout"

        def close(self) -> None: ...

    monkeypatch.setattr("watchfiles._rust_notify.RustNotify", Silent)
    file = tmp_path / "cordis.yml"
    async with watching(file) as seen:
        file.write_text("1")
        await seen.until(lambda: file in seen.paths)
        assert seen.said == []


async def test_b16t_a_tree_that_is_too_large_is_given_up_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dsh.loader.watch._MOST_FOLDERS", 3)
    for name in "abc":
        (tmp_path / "tree" / name).mkdir(parents=True)
    file = tmp_path / "tree" / "a" / "loaded.py"
    async with watching(file, tree=tmp_path / "tree") as seen:
        assert len(seen.said) == 1 and "more than 3 folders" in seen.said[0]
        file.write_text("1")
        await seen.until(lambda: file in seen.paths)
        assert len(seen.said) == 1
