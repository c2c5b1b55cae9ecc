"""The loader as a service: rows made by programs, foreign subtrees, new code under old rows."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dsh.cordis import Context
from dsh.loader.events import ConfigUpdated
from dsh.loader.problems import LoadError
from dsh.loader.tree import Loader
from tests.loader.kit import running, write_plugins

TWO = """
- {id: a, name: ./note.py, config: {text: one}}
- {id: g, name: cordis:group, config: [{id: b, name: ./note.py}]}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_plugins(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


async def test_rows_can_be_looked_up(folder: Path) -> None:
    async with running(folder, TWO) as it:
        loader = it.root[Loader]
        assert [entry.address for entry in loader.entries()] == ["include", "a", "g", "b"]
        assert loader.find("b") is it.entry("b") and loader.find("nope") is None
        with pytest.raises(LoadError, match='no row has the id "includ"; did you mean "include"'):
            loader.resolve("includ")
        child = it.fiber("a").ctx.plugin(lambda ctx: None)
        await child
        assert loader.locate(child) == "a" and loader.locate(it.root.fiber) is None
        assert it.fiber("b").entry_id == "b"
        entry = it.entry("a")
        assert entry.target.path == folder / "note.py" and entry.module is not None and entry.module.endswith(".note")
        assert entry.plugin.__name__ == entry.module


async def test_programs_create_update_move_and_remove_rows(folder: Path) -> None:
    async with running(folder, TWO) as it:
        told: list[Any] = []
        it.root.on(ConfigUpdated, told.append)
        it.take()
        assert await it.loader.create({"id": "n", "name": "./note.py", "config": {"text": "new"}}) == "n"
        assert await it.loader.create({"name": "./note.py"}, parent="g") == "./note.py-1"
        assert await it.loader.create({"id": "top", "name": "./note.py"}, parent="include") == "top"
        assert it.take() == ["+n new", "+./note.py-1 -", "+top -"]
        await it.loader.update("a", {"config": {"text": "two"}, "label": "A"})
        assert it.take() == ["-a", "+a two"]
        fiber = it.fiber("a")
        await it.loader.update("a", {}, parent="g")
        assert it.entry("a").parent is it.entry("g") and it.fiber("a") is fiber
        await it.loader.update("a", {"config": None}, parent="")
        assert it.entry("a").parent is None and it.take() == ["-a", "+a -"]
        await it.loader.remove("b")
        await it.loader.remove("n")
        assert it.take() == ["-b", "-n"] and len(told) == 8
        await it.loader.written()
        text = (folder / "cordis.yml").read_text()
        assert "n" not in it.states() and it.states()["top"] == "active"
        await it.edit(text + "- {id: c, name: ./note.py}\n")
        assert it.take() == ["+c -"], "what the program changed stands in the file"
        assert "b" not in it.states() and it.states()["top"] == "active"


async def test_a_refused_change_of_a_program_changes_nothing(folder: Path) -> None:
    async with running(folder, TWO) as it:
        fibers = it.fibers()
        for attempt, says in (
            (it.loader.create({"id": "a", "name": "./note.py"}, parent="include"), 'the id "a" is taken'),
            (it.loader.create({"id": "x", "name": "./nope.py"}), "there is no plugin at ./nope.py"),
            (it.loader.create({"id": "x", "name": "./note.py"}, parent="a"), "no group and no include"),
            (it.loader.create({"id": "x", "name": "./note.py", "config": {"fail": True}}), "x cannot start"),
            (it.loader.update("a", {"config": {"size": 0}}), "must be ≥ 1"),
            (it.loader.update("a", {"name": 5}), "must be the plugin's name"),
            (it.loader.update("a", {}, parent="include"), "group of its own file"),
            (it.loader.remove("nope"), 'no row has the id "nope"'),
        ):
            with pytest.raises(LoadError, match=says):
                await attempt
        assert it.fibers() == fibers
        await it.edit(TWO.replace("one", "two"))
        assert it.states() == {"a": "active", "g": "group", "b": "active"}


async def test_a_plugin_may_add_rows_while_it_starts(folder: Path) -> None:
    write_plugins(
        folder,
        maker="""
        inject = ["loader"]
        async def apply(ctx):
            await ctx["loader"].create({"id": "made", "name": "./note.py"})
        """,
    )
    async with running(folder, "- {id: m, name: ./maker.py}\n") as it:
        assert it.states() == {"m": "active", "made": "active"}


async def test_a_foreign_file_is_mounted_under_a_context_of_the_callers(folder: Path) -> None:
    (folder / "preset.yml").write_text(
        "- {id: p, name: ./provider.py, isolate: {thing: true}}\n- {id: n, name: ./note.py}\n"
    )
    async with running(folder, TWO) as it:
        it.take()

        async def host(ctx: Context) -> None:
            tree = await it.loader.mount(folder / "preset.yml", ctx)
            assert [entry.state for entry in tree.walk()] == ["active", "active"]

        fiber = it.root.plugin(host)
        await fiber
        assert it.take() == ["+n -"] and "n" not in it.states()
        await fiber.dispose()
        assert it.take() == ["-n"]
        for text, says in (
            ("- {id: p, name: ./provider.py}\n", 'publishes the service "thing" for everybody'),
            ("- {id: c, name: ./consumer.py}\n", "waits for services: thing"),
            ("- {id: n, name: ./note.py, config: {fail: true}}\n", "n cannot start"),
            ("- {id: n, name: ./nope.py}\n", "no plugin at ./nope.py"),
            ("- {id: n\n", "preset.yml:1"),
        ):
            (folder / "preset.yml").write_text(text)
            with pytest.raises(LoadError, match=says):
                await it.loader.mount(folder / "preset.yml", it.root)
        assert it.take() == [] and it.root.get("thing") is None


def plugin(label: str, fail: bool = False) -> Any:
    def apply(ctx: Context, config: Any) -> None:
        if fail:
            raise RuntimeError(f"{label} is broken")
        ctx["notes"].append(f"+{ctx.fiber.entry_id} {label} {(config or {}).get('text')}")
        ctx.defer(lambda: ctx["notes"].append(f"-{ctx.fiber.entry_id} {label}"))

    return SimpleNamespace(name=label, inject=["notes"], apply=apply)


async def test_new_plugin_objects_take_over_rows_with_config_realm_and_position(folder: Path) -> None:
    async with running(folder, TWO + "- {id: other, name: ./consumer.py, disabled: true}\n") as it:
        old = it.fibers()
        it.take()
        new = plugin("new")
        done = await it.loader.reload_rows([it.entry("a")], {"a": new})
        assert [entry.address for entry in done] == ["a", "b"], "the other row of that plugin comes along"
        assert sorted(it.take()) == ["+a new one", "+b new None", "-a", "-b"]
        assert it.fiber("a") is not old["a"] and it.fiber("a").generation == 1 and it.entry("a").plugin is new
        assert it.entry("b").parent is it.entry("g")
        await it.loader.reload_rows([it.entry("a")], {"a": plugin("newer")})
        assert it.fiber("a").generation == 2
        it.take()
        await it.edit(TWO.replace("one", "two"))
        assert it.take() == ["-a newer", "+a newer two"]


async def test_code_that_fails_to_start_gives_way_to_the_old_objects(folder: Path) -> None:
    async with running(folder, TWO) as it:
        entry, old = it.entry("a"), it.entry("a").plugin
        restored: list[str] = []
        it.take()
        with pytest.raises(LoadError, match=r'cordis.yml:2: row "a", apply of ./note.py: RuntimeError: new is broken'):
            await it.loader.reload_rows(
                [entry], {"a": plugin("new", fail=True)}, before_rollback=lambda: restored.append("tables")
            )
        assert restored == ["tables"] and it.entry("a") is entry and entry.plugin is old
        assert sorted(it.take()) == ["+a one", "+b -", "-a", "-b"]
        assert it.states() == {"a": "active", "g": "group", "b": "active"}
        await it.loader.reload_rows([entry], {"a": plugin("new", fail=True)}, rollback=False)
        assert it.states() == {"a": "failed", "g": "group", "b": "failed"}
        await it.loader.reload_rows([entry], {"a": plugin("fixed")})
        assert it.states() == {"a": "active", "g": "group", "b": "active"}


async def test_disposed_trees_and_rows_leave_nothing_behind(folder: Path) -> None:
    (folder / "inner.yml").write_text("- {id: x, name: ./note.py}\n")
    include = "- {id: i, name: cordis:include, config: {path: inner.yml}}\n"
    async with running(folder, TWO) as it:
        sizes = []
        for _ in range(3):
            await it.edit(TWO + include)
            await it.edit(TWO)
            await it.loader.reload_rows([it.entry("a")], {"a": plugin("new")})
            sizes.append((len(it.loader._entries), len(list(it.loader.trees())), len(it.root.fiber.effects())))
        assert len(set(sizes)) == 1
