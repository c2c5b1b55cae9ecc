"""Corners of rows found in review: what programs change again and again, moves into oneself, generations."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from dsh.loader.problems import LoadError
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
        assert [(each.kind, each.id) for each in tree.source.program] == [("update", "a"), ("update", "b")]
        await it.edit(GROUP + "- {id: c, name: ./note.py}\n")
        assert (it.fiber("a").config.text, it.fiber("b").config.text) == ("a4", "b4")
        assert it.states() == {"a": "active", "g": "group", "h": "group", "b": "active", "c": "active"}


async def test_a_row_of_the_file_that_left_with_a_group_of_the_program_stays_away(folder: Path) -> None:
    async with running(folder, GROUP) as it:
        await it.loader.create({"id": "made", "name": "cordis:group"}, parent="include")
        await it.loader.update("a", {}, parent="made")
        await it.loader.remove("made")
        assert "a" not in it.states()
        await it.edit(GROUP + "- {id: c, name: ./note.py}\n")
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
