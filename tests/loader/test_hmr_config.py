"""Following config files: real files, every kind of save, bad edits, edits in bad moments."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from dsh.cordis import Context
from dsh.loader.boot import BootError, boot
from dsh.loader.environment import LaunchEnvironment
from dsh.loader.hmr import Hmr, HmrConfigUpdateFailed, mount_watcher
from dsh.loader.tree import Loader
from tests.loader.hmr_helpers import HMR, LIMIT, Project, forget_local_modules, running

ONE = "- {id: one, name: ./plugins/one.py, config: {n: %s}}\n"


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    forget_local_modules()
    project = Project(tmp_path)
    project.plugin("one", "log.append(config['n'])")
    project.plugin("two")
    yield project
    forget_local_modules()


def numbers(log: list[Any]) -> list[int]:
    return [item for item in log if isinstance(item, int)]


# --- 16: watching -----------------------------------------------------------------------------------------------------


async def test_b16i_every_kind_of_save_is_applied_once(project: Project) -> None:
    project.rows(ONE % 0)
    async with running(project) as run:
        for n in range(1, 6):
            project.rows(ONE % n)
            await run.until(lambda n=n: n in run.log)
        project.write("cordis.yml", HMR + ONE % 6)
        await run.until(lambda: 6 in run.log)
        project.config.unlink()
        await run.until(lambda: run.failures)
        assert run.fiber("one").is_active
        project.rows(ONE % 7)
        await run.until(lambda: 7 in run.log)
        assert numbers(run.log) == list(range(8))
        assert "does not exist" in str(run.failures[0].error)


async def test_f30b_a_link_as_config_follows_its_target_and_its_exchange(project: Project) -> None:
    (project.folder / "releases").mkdir()
    for name, n in (("a", 1), ("b", 2)):
        project.write(f"releases/{name}.yml", HMR + ONE % n)
    project.config.symlink_to("releases/a.yml")
    async with running(project) as run:
        project.replace("releases/a.yml", HMR + ONE % 3)
        await run.until(lambda: 3 in run.log)
        link = project.folder / "link"
        link.symlink_to("releases/b.yml")
        os.replace(link, project.config)
        await run.until(lambda: 2 in run.log)
        project.replace("releases/b.yml", HMR + ONE % 4)
        await run.until(lambda: 4 in run.log)
        assert numbers(run.log) == [1, 3, 2, 4]


async def test_b16j_layers_and_included_files_are_followed_also_when_they_come_later(project: Project) -> None:
    project.write("more/rows.yml", "- {id: two, name: ../plugins/two.py}\n")
    project.rows(ONE % 1 + "- {id: more, name: 'cordis:include', config: {path: more/rows.yml}}\n")
    async with running(project) as run:
        project.write("cordis.patch.yml", "- {id: one, config: {n: 2}}\n")
        await run.until(lambda: 2 in run.log)
        project.replace("cordis.patch.yml", "- {id: one, config: {n: 3}}\n")
        await run.until(lambda: 3 in run.log)
        (project.folder / "cordis.patch.yml").unlink()
        await run.until(lambda: numbers(run.log) == [1, 2, 3, 1])
        project.replace("more/rows.yml", "- {id: two, name: ../plugins/two.py, disabled: true}\n")
        await run.until(lambda: "two down" in run.log)
        project.write("later.yml", "- {id: two, name: ./plugins/two.py}\n")
        project.rows(ONE % 1 + "- {id: more, name: 'cordis:include', config: {path: later.yml}}\n")
        await run.until(lambda: run.log.count("two up") == 2)
        project.replace("later.yml", "[]\n")
        await run.until(lambda: run.log.count("two down") == 2)
        assert run.failures == []


async def test_b16k_an_edit_during_the_boot_is_applied_once(project: Project) -> None:
    project.plugin(
        "slow",
        "project.rows(config['next'])",
        head="from tests.loader.hmr_helpers import Project\nfrom pathlib import Path\n"
        f"project = Project(Path({str(project.folder)!r}))\n",
    )
    after = ONE % 2
    project.rows(ONE % 1 + f"- {{id: slow, name: ./plugins/slow.py, config: {{next: {json.dumps(after)}}}}}\n")
    async with running(project) as run:
        await run.until(lambda: 2 in run.log)
        await run.until(lambda: not run.has("slow"))
        await anyio.sleep(0.1)
        assert numbers(run.log) == [1, 2]


async def test_b16l_an_edit_during_a_boot_that_fails_does_not_hang(project: Project) -> None:
    project.plugin("bad", "project.rows('')\nraise RuntimeError('no start')", head=(
        "from tests.loader.hmr_helpers import Project\nfrom pathlib import Path\n"
        f"project = Project(Path({str(project.folder)!r}))\n"
    ))  # fmt: skip
    project.rows(ONE % 1 + "- {id: bad, name: ./plugins/bad.py}\n")
    with anyio.fail_after(LIMIT):
        with pytest.raises(BootError, match="no start"):
            async with running(project):
                raise AssertionError("a boot with a failing row must not succeed")


async def test_b16m_an_edit_of_the_hmr_row_itself_is_applied_and_followed_further(project: Project) -> None:
    project.rows(ONE % 1)
    async with running(project) as run:
        project.rows(ONE % 2, hmr="- {id: hmr, name: hmr, config: {debounce: 10}}\n")
        await run.until(lambda: 2 in run.log)
        hmr = run.root[Hmr]
        await hmr.wait_armed()
        project.rows(ONE % 3)
        await run.until(lambda: 3 in run.log)
        project.rows(ONE % 4, hmr="")
        await run.until(lambda: 4 in run.log)
        await run.until(lambda: run.root.get(Hmr) is None)
        assert run.failures == []


async def test_b16n_without_an_hmr_row_the_launcher_follows_the_config_only(project: Project) -> None:
    project.rows(ONE % 1, hmr="")
    async with running(project) as run:
        watcher = mount_watcher(run.root, run.app.loader)
        assert watcher is not None
        await watcher
        project.rows(ONE % 2, hmr=HMR)
        await run.until(lambda: 2 in run.log)
        await run.until(lambda: run.has("hmr"))
        assert mount_watcher(run.root, run.app.loader) is None


# --- 31: bad edits ----------------------------------------------------------------------------------------------------

BAD_EDITS = {
    "broken text": ("- id: [\n", "cordis.yml:1"),
    "no list": ("key: value\n", "cordis.yml"),
    "empty": ("", "cordis.yml"),
    "wrong type": (HMR + ONE % 9 + "- {id: 3, name: ./plugins/two.py}\n", "cordis.yml:5"),
    "bad config": (HMR.replace("20", "zero") + ONE % 9, "hmr"),
    "unknown plugin": (HMR + ONE % 9 + "- {id: x, name: llm-depseek}\n", 'did you mean "llm-deepseek"'),
    "missing file": (HMR + ONE % 9 + "- {id: x, name: ./plugins/onee.py}\n", "onee.py"),
    "same id twice": (HMR + ONE % 9 + ONE % 9, "one"),
}


@pytest.mark.parametrize("kind", BAD_EDITS)
async def test_f31_a_bad_edit_changes_nothing_says_why_and_the_next_good_one_applies(
    project: Project, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    text, said = BAD_EDITS[kind]
    project.rows(ONE % 1 + "- {id: two, name: ./plugins/two.py}\n")
    async with running(project) as run:
        before = [run.fiber("one"), run.fiber("two"), run.fiber("hmr")]
        project.replace("cordis.yml", text)
        await run.until(lambda: run.failures)
        assert [run.fiber("one"), run.fiber("two"), run.fiber("hmr")] == before
        assert all(fiber.is_active for fiber in before)
        assert run.log == ["one up", 1, "two up"]
        assert run.failures[0].path == str(project.config)
        assert said in str(run.failures[0].error) and said in caplog.text
        project.rows(ONE % 2)
        await run.until(lambda: 2 in run.log and not run.has("two"))
        assert run.fiber("one") is before[0] or run.fiber("one").is_active
        assert len(run.failures) == 1


async def test_f31b_a_start_that_fails_rolls_the_whole_edit_back(project: Project) -> None:
    project.plugin("bad", "raise RuntimeError('no start')")
    project.rows(ONE % 1)
    async with running(project) as run:
        project.rows(ONE % 2 + "- {id: two, name: ./plugins/two.py}\n- {id: bad, name: ./plugins/bad.py}\n")
        await run.until(lambda: run.failures)
        assert not run.has("two") and not run.has("bad")
        assert numbers(run.log)[-1] == 1
        assert run.fiber("one").is_active


async def test_f31c_a_failed_edit_is_tried_again_when_the_source_it_failed_for_is_mended(project: Project) -> None:
    project.write("plugins/new.py", "def apply(ctx, config) ctx.root['log'].append('new')\n")
    project.rows(ONE % 1)
    async with running(project) as run:
        project.rows(ONE % 2 + "- {id: new, name: ./plugins/new.py}\n")
        await run.until(lambda: run.failures)
        assert numbers(run.log) == [1]
        project.write("plugins/new.py", "def apply(ctx, config): ctx.root['log'].append('new')\n")
        await run.until(lambda: "new" in run.log)
        assert numbers(run.log) == [1, 2]


async def test_b16o_observers_of_a_failure_are_contained(project: Project, caplog: pytest.LogCaptureFixture) -> None:
    project.rows(ONE % 1)
    async with running(project) as run:

        async def broken(_event: HmrConfigUpdateFailed) -> None:
            raise RuntimeError("observer broke")

        run.root.on(HmrConfigUpdateFailed, broken)
        project.replace("cordis.yml", "no: list\n")
        await run.until(lambda: "observer broke" in caplog.text)
        project.rows(ONE % 2)
        await run.until(lambda: 2 in run.log)


async def test_f38c_without_notifications_config_and_code_are_polled_and_a_refresh_by_hand_works(
    project: Project, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("watchfiles._rust_notify.RustNotify", broken)
    project.rows(ONE % 1)
    async with running(project) as run:
        assert "not available" in caplog.text
        project.rows(ONE % 2)
        await run.until(lambda: 2 in run.log)
        project.plugin("one", "log.append('by hand')")
        await run.root[Hmr].refresh()
        assert "by hand" in run.log
        project.plugin("one", "log.append('polled')")
        await run.until(lambda: "polled" in run.log)


# --- watch_config -----------------------------------------------------------------------------------------------------


async def test_b16p_a_plugin_watches_a_file_of_its_own(project: Project) -> None:
    project.rows("")
    file = project.folder / "own" / "rules.txt"
    async with running(project) as run:
        seen: list[str | None] = []

        async def refresh() -> None:
            seen.append(file.read_text() if file.exists() else None)

        def apply(ctx: Context) -> None:
            ctx[Hmr].watch_config(file, refresh)

        fiber = run.root.inject([Hmr], apply)
        await fiber
        await anyio.sleep(0.05)
        assert seen == []
        file.parent.mkdir()
        file.write_text("1")
        await run.until(lambda: seen == ["1"])
        file.write_text("1")
        os.utime(file)
        file.write_text("22")
        await run.until(lambda: seen[-1] == "22")
        file.unlink()
        await run.until(lambda: seen[-1] is None)
        assert len(seen) == 3
        await fiber.dispose()
        file.write_text("3")
        await anyio.sleep(0.1)
        assert len(seen) == 3


async def test_b16q_refreshes_never_overlap_are_coalesced_and_the_disposer_waits(project: Project) -> None:
    project.rows("")
    file = project.write("rules.txt", "0")
    async with running(project) as run:
        log: list[str] = []
        gate = asyncio.Event()

        async def refresh() -> None:
            log.append(f"start {file.read_text()}")
            await gate.wait()
            log.append("end")

        disposers: list[Any] = []
        run.root.inject([Hmr], lambda ctx: disposers.append(ctx[Hmr].watch_config(file, refresh)) or None)
        await run.until(lambda: log == ["start 0"])
        for text in "12345":
            file.write_text(text)
            await anyio.sleep(0.03)
        await anyio.sleep(0.1)
        assert log == ["start 0"]
        gate.set()
        await run.until(lambda: len(log) == 4)
        assert log == ["start 0", "end", "start 5", "end"]
        gate.clear()
        file.write_text("6")
        await run.until(lambda: log[-1] == "start 6")
        ended = asyncio.ensure_future(disposers[0]())
        file.write_text("7")
        await anyio.sleep(0.1)
        assert not ended.done()
        gate.set()
        await ended
        await anyio.sleep(0.05)
        assert log[4:] == ["start 6", "end"]


async def test_b16r_a_failing_refresh_is_reported_and_the_next_change_works(
    project: Project, caplog: pytest.LogCaptureFixture
) -> None:
    project.rows("")
    file = project.write("rules.txt", "bad")
    async with running(project) as run:
        seen: list[str] = []

        async def refresh() -> None:
            if file.read_text() == "bad":
                raise ValueError("cannot use this")
            seen.append(file.read_text())

        run.root.inject([Hmr], lambda ctx: ctx[Hmr].watch_config(file, refresh) and None)
        await run.until(lambda: run.failures)
        assert (run.failures[0].path, str(run.failures[0].error)) == (str(file), "cannot use this")
        assert "cannot use this" in caplog.text
        file.write_text("good")
        await run.until(lambda: seen == ["good"])


# --- 21: the loop's row -----------------------------------------------------------------------------------------------


async def test_b21a_a_live_field_is_changed_in_place_and_a_bad_value_keeps_the_old_one(project: Project) -> None:
    project.write(
        "plugins/live.py",
        """\
        from dsh.cordis import ConfigModel, field

        class Config(ConfigModel):
            max_parallel: int = field(10, min=1, live=True)

        def apply(ctx, config):
            ctx.root["log"].append("start")
            ctx.provide("limit", config)
        """,
    )
    row = "- {id: live, name: ./plugins/live.py, config: {maxParallel: %s}}\n"
    project.rows(row % 4)
    async with running(project) as run:
        config, fiber = run.root["limit"], run.fiber("live")
        project.rows(row % 2)
        await run.until(lambda: config.max_parallel == 2)
        for count, bad in enumerate(("0", "1.5", "x"), 1):
            project.rows(row % bad)
            await run.until(lambda count=count: len(run.failures) == count)
            assert "cordis.yml:4" in str(run.failures[-1].error)
            assert "maxParallel" in str(run.failures[-1].error)
            assert config.max_parallel == 2
        project.rows(row % 3)
        await run.until(lambda: config.max_parallel == 3)
        assert run.fiber("live") is fiber
        assert run.log == ["start"]


async def test_b16s_the_loader_alone_can_be_followed(tmp_path: Path) -> None:
    """`mount_watcher` needs no more than a root with a loader."""
    config = tmp_path / "cordis.yml"
    config.write_text("[]\n")
    async with boot(config, environment=LaunchEnvironment([]), cwd=tmp_path) as app:
        watcher = mount_watcher(app.root, app.root[Loader])
        assert watcher is not None
        await watcher
        config.write_text("- {id: t, name: timer}\n")
        with anyio.fail_after(LIMIT):
            while app.loader.find("t") is None:
                await anyio.sleep(0.01)
