"""Hot reload of plugin code: real sources, real saves."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.loader.hmr_helpers import Project, forget_local_modules, running


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    forget_local_modules()
    yield Project(tmp_path)
    forget_local_modules()


# --- 17: code -------------------------------------------------------------------------------------------------------


async def test_b17a_an_edit_of_a_plugin_replaces_that_row_alone(project: Project) -> None:
    project.plugin("one", "log.append('one v1')")
    project.plugin("two")
    project.rows("- {id: one, name: ./plugins/one.py, config: {key: 1}}\n- {id: two, name: ./plugins/two.py}\n")
    async with running(project) as run:
        two, plugin = run.fiber("two"), run.entry("two").plugin
        old = run.fiber("one")
        project.plugin("one", "log.append('one v2 %s' % config['key'])")
        done = await run.reloaded(1)
        assert run.log == ["one up", "one v1", "two up", "one down", "one up", "one v2 1"]
        assert done.rows == ("one",)
        assert [name.rpartition(".")[2] for name in done.modules] == ["one"]
        assert run.fiber("two") is two and run.entry("two").plugin is plugin
        assert run.fiber("one") is not old
        assert (old.generation, run.fiber("one").generation, run.fiber("two").generation) == (0, 1, 0)


async def test_b17b_an_edit_of_a_shared_helper_reloads_both_users_in_one_generation_and_not_a_third(
    project: Project,
) -> None:
    project.write("plugins/helper.py", "class Shared:\n    text = 'v1'\n")
    for name in ("one", "two"):
        project.plugin(name, "log.append(Shared)", head="from .helper import Shared")
    project.plugin("three")
    project.rows("".join(f"- {{id: {name}, name: ./plugins/{name}.py}}\n" for name in ("one", "two", "three")))
    async with running(project) as run:
        three = run.fiber("three")
        first = [item for item in run.log if isinstance(item, type)]
        run.log.clear()
        project.write("plugins/helper.py", "class Shared:\n    text = 'v2'\n")
        done = await run.reloaded(1)
        second = [item for item in run.log if isinstance(item, type)]
        assert done.rows == ("one", "two")
        assert sorted(name.rpartition(".")[2] for name in done.modules) == ["helper", "one", "two"]
        assert first[0] is first[1] and second[0] is second[1] and first[0] is not second[0]
        assert second[0].text == "v2"
        assert run.fiber("three") is three


async def test_b17c_an_edit_of_the_same_length_within_a_second_is_taken(project: Project) -> None:
    file = project.plugin("one", "log.append('v1')")
    project.rows("- {id: one, name: ./plugins/one.py}\n")
    async with running(project) as run:
        stamp = time.time() // 1
        os.utime(file, (stamp, stamp))
        for number in range(2, 6):
            text = file.read_text().replace(f"v{number - 1}", f"v{number}")
            draft = file.with_name("draft")
            draft.write_text(text)
            os.utime(draft, (stamp, stamp))
            os.replace(draft, file)
            await run.until(lambda number=number: f"v{number}" in run.log)


async def test_b17d_a_syntax_error_keeps_the_old_code_and_the_fix_recovers(
    project: Project, caplog: pytest.LogCaptureFixture
) -> None:
    project.write("plugins/helper.py", "VALUE = 1\n")
    project.plugin("one", "log.append(VALUE)", head="from .helper import VALUE")
    project.rows("- {id: one, name: ./plugins/one.py}\n")
    async with running(project) as run:
        fiber, plugin, modules = run.fiber("one"), run.entry("one").plugin, set(sys.modules)
        project.write("plugins/helper.py", "VALUE = 2\nif True print(1)\n")
        await run.until(lambda: "was not taken over" in caplog.text)
        assert run.fiber("one") is fiber and run.entry("one").plugin is plugin and fiber.is_active
        assert sys.modules[plugin.__name__] is plugin
        assert set(sys.modules) == modules
        assert "plugins/helper.py:2: SyntaxError" in caplog.text
        assert "> 2 | if True print(1)" in caplog.text
        assert run.log == ["one up", 1]
        project.write("plugins/helper.py", "VALUE = 3\n")
        await run.reloaded(1)
        assert run.log[2:] == ["one down", "one up", 3]


async def test_b17e_new_code_that_does_not_start_goes_back_to_the_old_objects(
    project: Project, caplog: pytest.LogCaptureFixture
) -> None:
    project.write("plugins/extra.py", "VALUE = 'extra'\n")
    project.plugin("one", "log.append('v1')")
    project.plugin("two", "log.append(one.name)", head="from . import one")
    project.rows("- {id: one, name: ./plugins/one.py}\n- {id: two, name: ./plugins/two.py}\n")
    async with running(project) as run:
        plugins = {row: run.entry(row).plugin for row in ("one", "two")}
        before = set(sys.modules)
        project.plugin("one", "from .extra import VALUE\nraise RuntimeError('will not start: ' + VALUE)")
        await run.until(lambda: "was not taken over" in caplog.text)
        assert "will not start: extra" in caplog.text
        for row, plugin in plugins.items():
            assert run.entry(row).plugin is plugin
            assert run.fiber(row).is_active
            assert sys.modules[plugin.__name__] is plugin
            assert getattr(sys.modules[plugin.__name__.rpartition(".")[0]], row) is plugin
        assert set(sys.modules) == before
        assert run.log[-4:] == ["one up", "v1", "two up", "one"]
        assert run.reloads == []
        project.plugin("one", "log.append('v3')")
        await run.reloaded(1)
        assert "v3" in run.log


async def test_b17f_without_rollback_the_failed_row_stays_failed_until_the_next_edit(project: Project) -> None:
    project.plugin("one", "log.append('v1')")
    rows = "- {id: one, name: ./plugins/one.py}\n"
    project.rows(rows, hmr="- {id: hmr, name: hmr, config: {debounce: 20, rollback: false}}\n")
    async with running(project) as run:
        project.plugin("one", "raise RuntimeError('broken')")
        await run.until(lambda: run.entry("one").state == "failed")
        project.plugin("one", "log.append('v3')")
        await run.until(lambda: "v3" in run.log)
        assert run.fiber("one").is_active


async def test_b17g_two_files_saved_together_are_one_reload(project: Project) -> None:
    project.write("plugins/helper.py", "VALUE = 1\n")
    project.plugin("one", "log.append(VALUE)", head="from .helper import VALUE")
    project.plugin("two")
    project.rows("- {id: one, name: ./plugins/one.py}\n- {id: two, name: ./plugins/two.py}\n")
    async with running(project) as run:
        project.write("plugins/helper.py", "VALUE = 2\n")
        project.plugin("two", "log.append('two v2')")
        await run.until(lambda: 2 in run.log and "two v2" in run.log)
        await anyio.sleep(0.15)
        assert len(run.reloads) == 1
        assert run.reloads[0].rows == ("one", "two")


async def test_b17h_a_burst_of_saves_is_at_most_two_reloads_and_the_last_one_counts(project: Project) -> None:
    project.plugin("one", "log.append('v0')")
    hmr = "- {id: hmr, name: hmr, config: {debounce: 60}}\n"
    project.rows("- {id: one, name: ./plugins/one.py}\n", hmr=hmr)
    async with running(project) as run:
        for number in range(1, 6):
            project.plugin("one", f"log.append('v{number}')")
            await anyio.sleep(0.01)
        await run.until(lambda: "v5" in run.log)
        await anyio.sleep(0.2)
        assert len(run.reloads) <= 2


async def test_b17i_dependants_of_a_service_restart_against_the_new_object(project: Project) -> None:
    service = """\
    from dsh.cordis import Service


    class Counter(Service, name="counter"):
        def __init__(self, ctx, config):
            self.step = {step}
    """
    project.replace("plugins/counter.py", service.replace("{step}", "1"))
    project.plugin("user", "log.append(ctx['counter'].step)", head="inject = ['counter']")
    project.rows("- {id: counter, name: ./plugins/counter.py}\n- {id: user, name: ./plugins/user.py}\n")
    async with running(project) as run:
        user = run.fiber("user")
        project.replace("plugins/counter.py", service.replace("{step}", "2"))
        done = await run.reloaded(1)
        assert done.rows == ("counter",)
        assert run.log == ["user up", 1, "user down", "user up", 2]
        assert run.fiber("user") is user


async def test_b17j_a_touch_and_a_save_without_a_change_are_no_reload(project: Project) -> None:
    file = project.plugin("one", "log.append('v1')")
    project.rows("- {id: one, name: ./plugins/one.py}\n")
    async with running(project) as run:
        file.touch()
        project.plugin("one", "log.append('v1')")
        project.config.touch()
        project.plugin("other")
        await run.until(lambda: run.changes)
        await anyio.sleep(0.1)
        assert run.log == ["one up", "v1"]
        assert (run.reloads, run.failures) == ([], [])
        assert run.changes == [str(project.folder / "plugins" / "other.py")]


async def test_b17k_a_module_that_refuses_carries_the_change_to_its_importers_or_asks_for_a_restart(
    project: Project, caplog: pytest.LogCaptureFixture
) -> None:
    project.plugin("base", "log.append('base v1')", head="__dsh_reload__ = False")
    project.plugin("top", "log.append('top')", head="from . import base")
    project.plugin("alone", "log.append('alone v1')", head="__dsh_reload__ = False")
    project.rows("".join(f"- {{id: {name}, name: ./plugins/{name}.py}}\n" for name in ("base", "top", "alone")))
    async with running(project) as run:
        project.plugin("base", "log.append('base v2')", head="__dsh_reload__ = False")
        done = await run.reloaded(1)
        assert done.rows == ("base", "top")
        alone = run.fiber("alone")
        project.plugin("alone", "log.append('alone v2')", head="__dsh_reload__ = False")
        await run.until(lambda: "__dsh_reload__ = False" in caplog.text)
        assert run.fiber("alone") is alone
        assert "alone v2" not in run.log


async def test_b17l_an_edit_of_the_framework_asks_for_a_restart_and_changes_nothing(
    project: Project, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The module is a stand-in with a name below `dsh.loader`, so that no real source is edited."""
    project.write("framework/piece.py", "VALUE = 1\n")
    import importlib.util

    spec = importlib.util.spec_from_file_location("dsh.loader.piece_of_test", project.folder / "framework" / "piece.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "dsh.loader.piece_of_test", module)
    spec.loader.exec_module(module)
    project.plugin("one", head="import dsh.loader.piece_of_test")
    project.rows("- {id: one, name: ./plugins/one.py}\n")
    async with running(project) as run:
        fiber = run.fiber("one")
        file = project.write("framework/piece.py", "VALUE = 2\n")
        await run.until(lambda: run.restarts)
        project.plugin("other")
        await run.until(lambda: run.changes)
        assert run.restarts == [str(file)]
        assert "restart dsh" in caplog.text
        assert run.fiber("one") is fiber
        assert sys.modules["dsh.loader.piece_of_test"] is module and module.VALUE == 1


async def test_b17m_a_row_that_leaves_together_with_its_source_is_no_failure(
    project: Project, caplog: pytest.LogCaptureFixture
) -> None:
    file = project.plugin("one")
    project.rows("- {id: one, name: ./plugins/one.py}\n")
    async with running(project) as run:
        file.unlink()
        project.rows("")
        await run.until(lambda: not run.has("one"))
        await anyio.sleep(0.1)
        assert run.log == ["one up", "one down"]
        assert "not taken over" not in caplog.text


async def test_b17n_an_edit_between_loading_and_watching_is_not_lost(project: Project) -> None:
    project.plugin("one", "log.append('v1')")
    project.rows("- {id: one, name: ./plugins/one.py}\n")
    from dsh.loader.watch import Watch

    original = Watch.run

    async def late(self: Watch) -> None:
        project.plugin("one", "log.append('v2')")
        await original(self)

    Watch.run = late  # type: ignore[method-assign]
    try:
        async with running(project) as run:
            await run.until(lambda: "v2" in run.log)
    finally:
        Watch.run = original  # type: ignore[method-assign]


async def test_b17o_plugins_outside_of_every_root_and_rows_added_later_are_followed(
    project: Project, tmp_path_factory: pytest.TempPathFactory
) -> None:
    elsewhere = Project(tmp_path_factory.mktemp("elsewhere"))
    file = elsewhere.plugin("one", "log.append('v1')")
    project.rows("")
    async with running(project) as run:
        project.rows(f"- {{id: one, name: '{file}'}}\n")
        await run.until(lambda: "v1" in run.log)
        elsewhere.plugin("one", "log.append('v2')")
        await run.reloaded(1)
        assert "v2" in run.log


async def test_b17p_an_empty_root_follows_config_files_only(project: Project) -> None:
    project.plugin("one", "log.append('v1')")
    row = "- {id: one, name: ./plugins/one.py}\n"
    hmr = "- {id: hmr, name: hmr, config: {debounce: 20, root: []}}\n"
    project.rows(row, hmr=hmr)
    async with running(project) as run:
        project.plugin("one", "log.append('v2')")
        project.plugin("two")
        project.rows(row + "- {id: two, name: ./plugins/two.py}\n", hmr=hmr)
        await run.until(lambda: "two up" in run.log)
        assert "v2" not in run.log
        assert run.changes == []


async def test_b17q_ignored_folders_are_left_out(project: Project) -> None:
    project.rows("")
    for folder in (".hidden", "node_modules", "cache", "data", "src/cache"):
        (project.folder / folder).mkdir(parents=True)
    project.write("env/pyvenv.cfg", "")
    async with running(project) as run:
        for folder in (".hidden", "node_modules", "cache", "data", "env"):
            project.write(f"{folder}/x.py", "")
        project.write("src/cache/x.py", "")
        await run.until(lambda: run.changes)
        assert run.changes == [str(project.folder / "src" / "cache" / "x.py")]


# --- neighbours in the field ----------------------------------------------------------------------------------------


async def test_f33_a_package_of_three_files_is_one_unit_and_the_core_is_never_doubled(project: Project) -> None:
    project.write("plugins/box/__init__.py", "from .body import apply\n")
    project.write(
        "plugins/box/body.py",
        """\
        from dsh.cordis import Service
        from .shapes import Item, describe

        def apply(ctx, config):
            ctx.root["log"].append((Item, Service, describe(Item("a"))))
        """,
    )
    project.write(
        "plugins/box/shapes.py",
        """\
        from dataclasses import dataclass

        @dataclass
        class Item:
            name: str

        def describe(item):
            return item.name
        """,
    )
    project.rows("- {id: box, name: ./plugins/box}\n")
    async with running(project) as run:
        old_item, service, text = run.log[0]
        assert text == "a"
        project.write(
            "plugins/box/shapes.py",
            """\
            from dataclasses import dataclass

            @dataclass
            class Item:
                name: str
                size: int = 3

            def describe(item):
                return f"{item.name}:{item.size}" if isinstance(item, Item) else "foreign"
            """,
        )
        done = await run.reloaded(1)
        new_item, same_service, text = run.log[1]
        assert text == "a:3"
        assert (
            sorted(name.rpartition(".")[2] for name in done.modules) == ["body", "box", "shapes"]
            or len(done.modules) == 3
        )
        assert new_item is not old_item and same_service is service
        shapes: Any = sys.modules[new_item.__module__]
        assert shapes.describe(old_item("a")) == "foreign"


async def test_f32a_a_hundred_reloads_leave_nothing_behind(project: Project) -> None:
    """Counts are compared after the second and after the last reload of one plugin file."""
    body = """\
    ctx.on("some/event", lambda e: None)
    ctx.provide("thing", object())
    ctx.spawn(wait)
    log.append("v{number}")
    """
    head = "import asyncio\n\n\nasync def wait():\n    await asyncio.Event().wait()\n"
    project.plugin("one", body.replace("{number}", "0"), head=head)
    project.plugin("user", "log.clear()", head="inject = ['thing']")
    hmr = "- {id: hmr, name: hmr, config: {debounce: 4}}\n"
    project.rows("- {id: one, name: ./plugins/one.py}\n- {id: user, name: ./plugins/user.py}\n", hmr=hmr)
    async with running(project) as run:
        first: Any = None
        for number in range(1, 102):
            project.plugin("one", body.replace("{number}", str(number)), head=head)
            await run.reloaded(number)
            if number in (1, 20):
                now = await run.quiet_census()
                first = first or now
                assert now == first
        assert await run.quiet_census() == first


async def test_f32b_a_row_toggled_a_hundred_times_leaves_nothing_behind(project: Project) -> None:
    project.plugin("one", "ctx.on('some/event', lambda e: None)\nctx.provide('thing', object())")
    hmr = "- {id: hmr, name: hmr, config: {debounce: 4}}\n"
    row = "- {id: one, name: ./plugins/one.py, disabled: %s}\n"
    project.rows(row % "false", hmr=hmr)
    async with running(project) as run:
        first: Any = None
        for number in range(1, 51):
            project.rows(row % "true", hmr=hmr)
            await run.until(lambda number=number: run.log.count("one down") == number)
            project.rows(row % "false", hmr=hmr)
            await run.until(lambda number=number: run.log.count("one up") == number + 1)
            if first is None:
                first = await run.quiet_census()
        assert await run.quiet_census() == first


async def test_a_plugin_file_that_was_removed_is_reported_with_the_line_of_its_row(
    project: Project, caplog: pytest.LogCaptureFixture
) -> None:
    file = project.plugin("one")
    project.rows("- {id: one, name: ./plugins/one.py}\n")
    async with running(project) as run:
        fiber = run.fiber("one")
        os.unlink(file)
        await run.until(lambda: "was not taken over" in caplog.text)
        assert 'cordis.yml:4: row "one", key name: ' in caplog.text
        assert "one.py: the file does not exist" in caplog.text and "generations.py" not in caplog.text
        assert run.fiber("one") is fiber and fiber.is_active
