"""Corners of rows found in review: what programs change again and again, moves into oneself, generations."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from dsh.cordis import Fiber
from dsh.loader.problems import LoadError
from tests.cordis.helpers import errors, turns
from tests.loader.kit import running, write_plugins

GROUP = """
- {id: a, name: ./note.py}
- {id: g, name: cordis:group, config: [{id: h, name: cordis:group, config: [{id: b, name: ./note.py}]}]}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_plugins(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


async def test_changes_that_a_program_makes_again_and_again_do_not_pile_up(folder: Path) -> None:
    async with running(folder, GROUP) as it:
        tree = it.entry("a").tree
        for turn in range(5):
            await it.loader.update("a", {"config": {"text": f"a{turn}"}})
            await it.loader.update("b", {"config": {"text": f"b{turn}"}})
            await it.loader.create({"id": "made", "name": "cordis:group"}, parent="include")
            await it.loader.create({"id": "inner", "name": "./note.py"}, parent="made")
            await it.loader.remove("made")
        await it.loader.written()
        assert tree.source.program == []
        text = (folder / "cordis.yml").read_text()
        assert "made" not in text
        await it.edit(text + "- {id: c, name: ./note.py}\n")
        assert (it.fiber("a").config.text, it.fiber("b").config.text) == ("a4", "b4")
        assert it.states() == {"a": "active", "g": "group", "h": "group", "b": "active", "c": "active"}


async def test_changes_that_stay_in_memory_do_not_pile_up(folder: Path) -> None:
    (folder / "cordis.patch.yml").write_text(
        "- {id: a, config: {text: p}}\n- {id: g, config: [{id: b, name: ./note.py}]}\n"
    )
    async with running(folder, GROUP) as it:
        tree = it.entry("a").tree
        for turn in range(5):
            await it.loader.update("a", {"config": {"text": f"a{turn}"}})
            await it.loader.update("b", {"config": {"text": f"b{turn}"}})
            await it.loader.create({"id": "made", "name": "cordis:group"}, parent="g")
            await it.loader.create({"id": "inner", "name": "./note.py"}, parent="made")
            await it.loader.written()
            await it.loader.remove("made")
        await it.loader.written()
        assert [(each.kind, each.id) for each in tree.source.program] == [("update", "a"), ("update", "b")]
        await it.edit(GROUP + "- {id: c, name: ./note.py}\n")
        assert (it.fiber("a").config.text, it.fiber("b").config.text) == ("a4", "b4")
        assert it.states() == {"a": "active", "g": "group", "b": "active", "c": "active"}


async def test_a_row_of_the_file_that_left_with_a_group_of_the_program_stays_away(folder: Path) -> None:
    async with running(folder, GROUP) as it:
        await it.loader.create({"id": "made", "name": "cordis:group"}, parent="include")
        await it.loader.update("a", {}, parent="made")
        await it.loader.remove("made")
        assert "a" not in it.states()
        await it.loader.written()
        await it.edit((folder / "cordis.yml").read_text() + "- {id: c, name: ./note.py}\n")
        assert "a" not in it.states() and it.states()["c"] == "active"


async def test_a_group_cannot_move_into_itself(folder: Path) -> None:
    async with running(folder, GROUP) as it:
        for inside in ("g", "h"):
            with pytest.raises(LoadError, match='row "g" cannot move into itself'):
                await it.loader.update("g", {}, parent=inside)
        assert it.states() == {"a": "active", "g": "group", "h": "group", "b": "active"}
        await it.loader.update("h", {}, parent="")
        assert it.entry("h").parent is None and it.states()["b"] == "active"


async def test_a_reload_that_is_taken_back_does_not_turn_the_generation_back(folder: Path) -> None:
    async with running(folder, GROUP) as it:
        entry = it.entry("a")

        def version(body: Any) -> Any:
            module: Any = ModuleType("version")
            module.apply = body
            return module

        def broken(ctx: Any) -> None:
            raise RuntimeError("no")

        await it.loader.reload_rows([entry], {"a": version(lambda ctx: None)})
        assert it.fiber("a").generation == 1
        with pytest.raises(LoadError):
            await it.loader.reload_rows([entry], {"a": version(broken)})
        assert it.fiber("a").generation == 1
        await it.loader.reload_rows([entry], {"a": version(lambda ctx: None)})
        assert it.fiber("a").generation == 2


async def test_a_name_change_that_comes_before_waiting_new_code_keeps_its_plugin(folder: Path) -> None:
    text = "- {id: a, name: ./note.py}\n"
    async with running(folder, text) as it:
        entry = it.entry("a")
        async with entry.tree.lock:
            it.write("- {id: a, name: ./provider.py}\n")
            edit = asyncio.ensure_future(it.loader.refresh())
            await turns()
            new = SimpleNamespace(apply=lambda ctx: None)
            reload = asyncio.ensure_future(it.loader.reload_rows([entry], {"a": new}))
            await turns()
        await edit
        assert await reload == []
        assert entry.plugin.__name__.endswith(".provider") and it.states() == {"a": "active"}
        assert it.root["thing"].value == "one"


async def test_a_row_whose_plugin_stopped_itself_stays_down_when_its_code_is_renewed(folder: Path) -> None:
    (folder / "cordis.patch.yml").write_text("- insert: [{id: a, name: ./note.py}]\n")  # nothing is written there
    async with running(folder, "- {id: z, name: ./note.py, disabled: true}\n") as it:
        it.take()
        await it.fiber("a").dispose()
        new = SimpleNamespace(inject=["notes"], apply=lambda ctx: ctx["notes"].append("new code"))
        assert [entry.id for entry in await it.loader.reload_rows([it.entry("a")], {"a": new})] == ["a"]
        assert it.take() == ["-a"] and it.states()["a"] == "disabled"
        await it.edit("- insert: [{id: a, name: ./note.py, config: {text: changed}}]\n", "cordis.patch.yml")
        assert it.take() == ["new code"]


HOLDER = """
def apply(ctx, config):
    ctx.provide("held", object())
"""


async def test_making_room_for_one_row_does_not_let_the_failed_edit_of_another_pass(folder: Path) -> None:
    (folder / "holder.py").write_text(HOLDER)
    before = "- {id: a, name: ./note.py, config: {text: old}}\n- {id: one, name: ./holder.py}\n"
    after = "- {id: a, name: ./note.py, config: {text: new, size: !!js 0 - 1}}\n- {id: two, name: ./holder.py}\n"
    async with running(folder, before) as it:
        it.take()
        error = await it.refused(after)
        assert (error.row, error.key) == ("a", "config.size")
        assert it.fiber("a").config.text == "old" and it.states() == {"a": "active", "one": "active"}
        await it.edit(after.replace("0 - 1", "0 + 2"))
        assert (it.fiber("a").config.text, it.fiber("a").config.size) == ("new", 2)
        assert it.states() == {"a": "active", "two": "active"}


async def test_an_edit_that_breaks_off_unexpectedly_is_taken_back_whole(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = "- {id: a, name: ./note.py}\n- {id: b, name: ./note.py}\n- {id: c, name: ./note.py}\n"
    after = before.replace("{id: a, name: ./note.py}", "{id: a, name: ./provider.py}")
    after = after.replace("{id: c,", "{id: c, isolate: {notes: true},").replace("{id: b,", "{id: b, disabled: true,")
    async with running(folder, before) as it:

        def broken(*_: Any) -> Any:
            raise ZeroDivisionError("a bug")

        with monkeypatch.context() as patch:
            patch.setattr(Fiber, "rebase", broken)
            error = await it.refused(after)
        assert "the edit broke off: a bug" in str(error)
        assert it.states() == {"a": "active", "b": "active", "c": "active"}
        assert it.entry("a").plugin.__name__.endswith(".note")
        assert await it.edit(after)


async def test_a_file_that_fails_in_one_place_is_still_taken_over_in_another(folder: Path) -> None:
    (folder / "shared.yml").write_text("- {id: x, name: ./note.py}\n")
    include = "- {id: %s, name: cordis:include, config: {path: shared.yml, patches: [%s]}}\n"
    patch = "{id: y, config: {size: 0}}"
    async with running(folder, include % ("one", patch) + include % ("two", "")) as it:
        (folder / "shared.yml").write_text("- {id: x, name: ./note.py}\n- {id: y, name: ./note.py}\n")
        with pytest.raises(LoadError, match="size: must be ≥ 1") as caught:
            await it.loader.refresh(folder / "shared.yml")
        assert [problem.row for problem in caught.value.problems] == ["one:y"]
        assert it.states().get("two:y") == "active" and "one:y" not in it.states()


async def test_a_row_that_stopped_itself_is_down_again_after_a_failed_edit_of_it(folder: Path) -> None:
    text = "- {id: b, name: ./note.py, disabled: true}\n"
    (folder / "cordis.patch.yml").write_text(patch := "- insert: [{id: a, name: ./note.py}]\n")
    async with running(folder, text) as it:
        await it.fiber("a").dispose()
        bad = "- insert: [{id: a, name: ./note.py, config: {fail: true}}]\n"
        assert (await it.refused(bad, "cordis.patch.yml")).row == "a"
        it.take()
        it.write(patch, "cordis.patch.yml")
        await it.edit(text.replace("true", "false"))
        assert it.take() == ["+b -"] and it.states() == {"a": "disabled", "b": "active"}


async def test_a_row_that_fails_because_of_another_is_logged_with_its_place_once(folder: Path) -> None:
    text = """
- {id: consumer, name: ./consumer.py, config: {seen: !!js "ctx.thing.parts[0].trim()"}}
- {id: provider, name: ./provider.py, config: {parts: [%s]}}
"""
    async with running(folder, text % "x") as it:
        await it.edit(text % "")
        assert it.states() == {"consumer": "failed", "provider": "active"}
        placed = [line for line in errors(it.root) if "cordis.yml" in line]
        assert len(placed) == 1 and placed[0].startswith('cordis.yml:2: row "consumer", key config.seen: expression')
        await it.edit(text % "x")
        await it.refused(text % "x" + "- {id: bad, name: ./note.py, config: {fail: true}}\n")
        (folder / "inner.yml").write_text("- {id: bad, name: ./note.py, config: {fail: true}}\n")
        await it.refused(text % "x" + "- {id: more, name: cordis:include, config: {path: inner.yml}}\n")
        assert len([line for line in errors(it.root) if "cordis.yml" in line]) == 1
