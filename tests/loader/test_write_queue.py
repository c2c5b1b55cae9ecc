"""What a running loader writes into its files: changes by programs, plugins that stopped themselves, nothing else."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dsh.loader import writeback
from dsh.loader.events import TreeRefreshed
from dsh.loader.hmr import mount_watcher
from dsh.loader.writeback import WriteBackError
from tests.loader.kit import Composition, running, write_plugins

ROWS = """\
# My rows.

- id: a   # the first
  name: ./note.py
  config: {text: one,  size: 1}   # of a
- name: ./note.py

# a group
- id: g
  name: cordis:group
  config:
    # of b
    - id: b
      name: ./note.py
"""

BREAKER = """
inject = ["notes"]
def apply(ctx):
    ctx["notes"].append(f"+{ctx.fiber.entry_id}")
    async def leave():
        await ctx.fiber.dispose()
    ctx.root.call_later(0, lambda: ctx.root.spawn(leave))
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_plugins(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def text(folder: Path, name: str = "cordis.yml") -> str:
    return (folder / name).read_text()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.01)


async def rest(it: Composition) -> None:
    """Let every write that was asked for end."""
    await asyncio.sleep(0)
    await it.loader.written()


# --- plugins that stop ------------------------------------------------------------------------------------------------


async def test_b12a_a_plugin_that_disposes_itself_is_written_down_as_disabled(folder: Path) -> None:
    write_plugins(folder, breaker=BREAKER)
    rows = ROWS.replace("- name: ./note.py", "- name: ./breaker.py")
    async with running(folder, rows) as it:
        await until(lambda: "disabled" in text(folder))
        assert text(folder) == rows.replace("./breaker.py\n", "./breaker.py\n  disabled: true\n")
        assert it.states()["./breaker.py#1"] == "disabled"
    async with running(folder) as it:
        assert "+./breaker.py#1" not in it.take() and it.states()["./breaker.py#1"] == "disabled"
        await it.edit(rows.replace("./breaker.py\n", "./breaker.py\n  label: again\n"))
        assert "+./breaker.py#1" in it.take()


async def test_b12b_rows_that_end_by_edit_group_reload_rollback_or_shutdown_are_not(folder: Path) -> None:
    async with running(folder, ROWS) as it:
        await it.loader.reload_rows([it.entry("a")], {"a": it.entry("a").plugin})
        await it.edit(ROWS.replace("name: cordis:group", "name: cordis:group\n  disabled: true"))
        await it.edit(ROWS)
        await it.refused(ROWS.replace("text: one", "text: two") + "- {id: x, name: ./note.py, config: {fail: true}}\n")
        it.write(ROWS)
        assert await it.loader.refresh() is False
        await it.fiber("a").restart()
        await it.loader.update("b", {"label": "b"})
        await rest(it)
        assert text(folder) == ROWS.replace("      name: ./note.py\n", "      name: ./note.py\n      label: b\n")
    assert "disabled" not in text(folder)


async def test_b12c_a_row_of_a_patch_or_of_memory_stays_down_and_nothing_is_written(folder: Path) -> None:
    patch = "- insert: [{id: p, name: ./note.py}]\n- {id: a, disabled: false}\n"
    (folder / "cordis.patch.yml").write_text(patch)
    async with running(folder, ROWS) as it:
        await it.loader.create({"id": "m", "name": "./note.py"})
        for row in ("p", "a", "m"):
            await it.fiber(row).dispose()
        await rest(it)
        assert text(folder) == ROWS and text(folder, "cordis.patch.yml") == patch
        assert [it.states()[row] for row in ("p", "a", "m")] == ["disabled"] * 3
        await it.edit(ROWS + "# more\n")
        assert [it.states()[row] for row in ("p", "a", "m")] == ["disabled"] * 3
        await it.edit(patch.replace("{id: p, ", "{id: p, config: {text: new}, "), "cordis.patch.yml")
        assert it.states()["p"] == "active", "it starts again when its row changes"


async def test_b12d_an_expression_in_its_place_is_overwritten_and_the_boot_is_waited_for(folder: Path) -> None:
    write_plugins(
        folder,
        breaker=BREAKER,
        slow="""
        import asyncio
        from pathlib import Path
        async def apply(ctx):
            await asyncio.sleep(0.2)
            ctx.root["notes"].append(Path("cordis.yml").read_text())
        """,
    )
    rows = "- {id: a, name: ./breaker.py, disabled: !!js env.OFF}\n- {id: s, name: ./slow.py}\n"
    async with running(folder, rows) as it:
        await until(lambda: text(folder) != rows)
        assert it.take() == ["+a", rows]
        assert text(folder) == rows.replace("!!js env.OFF", "true")
        assert it.states()["a"] == "disabled"


# --- changes by programs ----------------------------------------------------------------------------------------------


async def test_b13a_changes_of_one_turn_are_one_write_that_keeps_every_other_byte(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replaced: list[str] = []
    replace = os.replace

    def counting(source: Any, target: Any) -> None:
        replaced.append(os.path.basename(target))
        replace(source, target)

    async with running(folder, ROWS) as it:
        monkeypatch.setattr(os, "replace", counting)
        await asyncio.gather(
            it.loader.update("a", {"config": {"text": "two", "size": 1}}),
            it.loader.update("./note.py#1", {"label": "L"}),
            it.loader.create({"id": "new", "name": "./note.py"}, parent="g"),
        )
        await rest(it)
        assert replaced == ["cordis.yml"]
        assert (
            text(folder)
            == ROWS.replace("text: one", "text: two").replace("- name: ./note.py\n", "- name: ./note.py\n  label: L\n")
            + "    - id: new\n      name: ./note.py\n"
        )
        await it.loader.update("a", {"config": {"text": "one", "size": 1}})
        await it.loader.update("./note.py#1", {"label": None})
        await it.loader.remove("new")
        await rest(it)
        assert text(folder) == ROWS


async def test_b13b_own_writes_cause_no_reload(folder: Path) -> None:
    async with running(folder, ROWS) as it:
        watcher = mount_watcher(it.root, it.loader)
        assert watcher is not None
        await watcher
        await watcher.instance.wait_armed()
        told: list[Any] = []
        it.root.on(TreeRefreshed, told.append)
        await it.loader.update("a", {"config": {"text": "two"}})
        fibers = it.fibers()
        await until(lambda: "two" in text(folder))
        await watcher.instance.refresh()
        assert await it.loader.refresh() is False
        assert told == [] and it.fibers() == fibers


async def test_b13c_an_edit_by_somebody_else_in_between_is_applied_and_both_are_kept(folder: Path) -> None:
    async with running(folder, ROWS) as it:
        add, it.loader.writes.add = it.loader.writes.add, lambda tree: None  # not before the other save
        await it.loader.update("a", {"config": {"text": "two", "size": 1}})
        it.take()
        it.write(ROWS.replace("# My rows.", "# Our rows.") + "- {id: theirs, name: ./note.py}\n")
        await rest(it)
        assert text(folder) == ROWS.replace("# My", "# Our").replace("text: one", "text: two") + (
            "- {id: theirs, name: ./note.py}\n"
        )
        assert it.take() == ["+theirs -"]
        # Half a file cannot be edited: the change waits for the next one that can.
        await it.loader.update("a", {"config": {"text": "three", "size": 1}})
        it.write("- id: [\n")
        with pytest.raises(Exception, match="cordis.yml:1"):
            await rest(it)
        assert text(folder) == "- id: [\n"
        it.loader.writes.add = add
        await it.edit(ROWS)
        await rest(it)
        assert text(folder) == ROWS.replace("text: one", "text: three")
        assert it.entry("a").row.config["text"] == "three"


async def test_b13d_values_of_patches_and_of_the_command_line_are_never_written_into_the_file(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    patch = "- {id: a, config: {text: patched}}\n- {id: g, insert: [{id: p, name: ./note.py}]}\n"
    (folder / "cordis.patch.yml").write_text(patch)
    rows = ROWS + "- {id: s, name: ./note.py, config: {text: s}}\n"
    async with running(folder, rows, sets=["s.size=3"]) as it:
        await it.loader.update("a", {"config": {"text": "mine"}})
        await it.loader.update("p", {"label": "P"})
        await it.loader.update("s", {"config": {"text": "t", "size": 3}})
        await it.loader.update("g", {"config": []})
        await it.loader.create({"id": "m", "name": "./note.py"})
        await rest(it)
        assert text(folder) == rows and text(folder, "cordis.patch.yml") == patch
        assert it.entry("a").row.config["text"] == "mine" and it.entry("s").row.config["text"] == "t"
        said = [record.message for record in caplog.records if "not written" in record.message]
        assert len(said) == 4 and 'row "a"' in said[0] and "config" in said[0]
        await it.loader.update("a", {"label": "A"})
        await rest(it)
        assert text(folder) == rows.replace(
            "  name: ./note.py\n  config: {text: one", "  name: ./note.py\n  label: A\n  config: {text: one"
        )
        await it.edit("[]\n", "cordis.patch.yml")
        assert it.entry("a").row.config["text"] == "mine"
        await rest(it)
        assert "mine" not in text(folder), "it was a change of the patch's value"


async def test_b13e_a_change_goes_to_the_users_patch_when_asked(folder: Path) -> None:
    (folder / "cordis.patch.yml").write_text("# mine\n- {id: b, label: x} # b\n")
    async with running(folder, ROWS) as it:
        await it.loader.update("a", {"config": {"text": "user"}}, layer="user")
        await it.loader.update("b", {"label": "y"}, layer="user")
        it.take()
        await rest(it)
        assert text(folder) == ROWS
        assert text(folder, "cordis.patch.yml") == (
            "# mine\n- {id: b, label: y} # b\n- id: a\n  config:\n    text: user\n"
        )
        assert it.entry("a").row.config == {"text": "user"} and it.take() == []
        with pytest.raises(Exception, match="by id"):
            await it.loader.update("./note.py#1", {"label": "y"}, layer="user")


async def test_b13f_pending_writes_are_made_when_the_tree_is_disposed(folder: Path) -> None:
    (folder / "inner.yml").write_text("- {id: i, name: ./note.py} # inner\n")
    async with running(folder, ROWS + "- {id: inc, name: cordis:include, config: {path: inner.yml}}\n") as it:
        await it.loader.update("inc:i", {"label": "I"})
        it.loader.writes.add = lambda tree: None  # whatever is due is not written for itself
        await it.loader.update("inc:i", {"label": "J"})
        await it.loader.update("a", {"label": "A"})
        await it.fiber("inc").dispose()
        assert text(folder, "inner.yml") == "- {id: i, name: ./note.py, label: J} # inner\n"
    assert "label: A" in text(folder)


def slow_writes(monkeypatch: pytest.MonkeyPatch) -> tuple[threading.Event, threading.Event, list[Any]]:
    """Let writes wait: that one began, that they may go on, and the files that were written."""
    began, go_on, writes = threading.Event(), threading.Event(), list[Any]()
    edit_rows = writeback.edit_rows

    def slow(path: Any, change: Any) -> list[str]:
        began.set()
        assert go_on.wait(20)
        writes.append(path)
        return edit_rows(path, change)

    monkeypatch.setattr(writeback, "edit_rows", slow)
    return began, go_on, writes


async def test_a_write_that_began_is_finished_while_dsh_leaves_and_is_made_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, go_on, writes = slow_writes(monkeypatch)
    async with running(folder, ROWS) as it:
        await it.loader.update("a", {"label": "A"})
        await until(began.is_set)
        leaving = asyncio.ensure_future(it.root.fiber.dispose())
        for _ in range(50):
            await asyncio.sleep(0)
        assert not leaving.done() and not writes
        go_on.set()
        await leaving
    assert "label: A" in text(folder) and len(writes) == 1


async def test_somebody_who_waits_no_longer_for_a_write_does_not_break_it_off(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(folder, ROWS) as it:
        it.loader.writes.add = lambda tree: None
        await it.loader.update("a", {"label": "A"})
        began, go_on, writes = slow_writes(monkeypatch)
        waiting = asyncio.ensure_future(it.loader.written())
        await until(began.is_set)
        waiting.cancel()
        await asyncio.wait({waiting})
        go_on.set()
        await it.loader.written()
        assert "label: A" in text(folder) and len(writes) == 1


async def test_b13g_a_replacement_that_fails_for_a_moment_is_tried_again_and_one_that_goes_on_is_said(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    failures = [errno.EBUSY, errno.EACCES]
    replace = os.replace

    def failing(source: Any, target: Any) -> None:
        if failures:
            raise OSError(failures.pop(), "held")
        replace(source, target)

    async with running(folder, ROWS) as it:
        monkeypatch.setattr(os, "replace", failing)
        await it.loader.update("a", {"label": "A"})
        await rest(it)
        assert failures == [] and "label: A" in text(folder)
        failures[:] = [errno.ENOSPC] * 50
        await it.loader.update("a", {"label": "B"})
        await until(lambda: any("written later" in record.message for record in caplog.records))
        assert it.entry("a").row.label == "B" and "label: A" in text(folder)
        caplog.clear()
    (record,) = caplog.records
    assert record.message == "undo of tree(cordis.yml) failed"
    assert record.exc_info is not None and isinstance(record.exc_info[1], WriteBackError)
    assert "label: A" in text(folder) and not list(folder.glob(".*.tmp"))


async def test_b13h_a_json_file_is_written_with_two_spaces(folder: Path) -> None:
    (folder / "inner.json").write_text('[{"id":"i","name":"./note.py"}]')
    async with running(folder, "- {id: inc, name: cordis:include, config: {path: inner.json}}\n") as it:
        await it.loader.update("inc:i", {"config": {"text": "é"}})
        await rest(it)
    rows = [{"id": "i", "name": "./note.py", "config": {"text": "é"}}]
    assert text(folder, "inner.json") == json.dumps(rows, indent=2, ensure_ascii=False) + "\n"
