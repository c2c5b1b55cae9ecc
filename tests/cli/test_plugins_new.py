"""`dsh plugins new` writes plugins that work as written, and never over anything."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.kit import Place

KINDS = ["tool", "listener", "service", "adapter"]


@pytest.fixture
async def place(tmp_path: Path) -> Place:
    place = Place.make(tmp_path)
    assert (await place.dsh("init", ".")).code == 0
    return place


def test_in(place: Place, *arguments: str) -> str:
    """Run pytest as somebody without any settings for it would."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    done = subprocess.run(command, cwd=place.work, env=place.env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


test_in.__test__ = False  # type: ignore[attr-defined]


async def test_each_kind_passes_its_own_test_and_the_check_of_the_composition(place: Place) -> None:
    before = (place.work / "cordis.yml").read_text("utf-8")
    rows = (await place.dsh("config", "check", "--json")).json()["rows"]
    for kind in KINDS:
        done = await place.dsh("plugins", "new", f"a-{kind}", f"--{kind}")
        assert (done.code, done.err) == (0, "")
        assert f"wrote plugins/a_{kind}.py\nwrote plugins/test_a_{kind}.py\nadded the row a-{kind}" in done.out
    assert "9 passed" in test_in(place, "plugins")
    checked = await place.dsh("config", "check", "--json")
    assert checked.json() == {"ok": True, "rows": rows + 4, "problems": [], "warnings": [], "notes": []}
    after = (place.work / "cordis.yml").read_text("utf-8")
    start, end = after.index("- id: a-tool"), after.index("\n# -- guards")
    assert after[:start] + after[end:] == before  # comments and all
    assert after[start:end].startswith("- id: a-tool\n  name: ./plugins/a_tool.py\n  config:\n    greeting: Hello\n")


async def test_the_tests_run_under_the_settings_of_either_async_plugin(place: Place) -> None:
    await place.dsh("plugins", "new", "hello", "--tool")
    for settings in ("anyio_mode = auto", "asyncio_mode = auto"):
        place.write("pytest.ini", f"[pytest]\n{settings}\n")
        assert "3 passed" in test_in(place, "plugins")


async def test_the_new_tool_and_the_new_provider_answer(place: Place) -> None:
    await place.dsh("plugins", "new", "hello")
    await place.dsh("plugins", "new", "parrot", "--adapter")
    called = await place.dsh("exec", 'call hello {"name": "Ada"}', "--set", "llm-demo.paceMs=0")
    assert called.out == "[demo reply, no model involved] The tool answered:\nHello, Ada!\n"
    said = await place.dsh("exec", "good day", "--model", "parrot/any")
    assert (said.code, said.out) == (0, "You said: good day\n")


async def test_a_running_daemon_mounts_it_at_once(place: Place) -> None:
    async with place.daemon("cordis.yml", "--set", "llm-demo.paceMs=0") as daemon:
        await daemon.ready()
        assert (await place.dsh("plugins", "new", "hello")).code == 0
        await daemon.config("applied")
        said = await place.dsh("send", "main", 'call hello {"name": "Ada"}', "--wait")
        assert said.out == "[demo reply, no model involved] The tool answered:\nHello, Ada!\n"


@pytest.mark.parametrize(("kind", "name"), [("tool", "bash"), ("service", "settings"), ("adapter", "demo")])
async def test_a_name_that_the_runtime_uses_for_such_a_thing_is_refused(place: Place, kind: str, name: str) -> None:
    done = await place.dsh("plugins", "new", name, f"--{kind}")
    assert (done.code, done.err) == (
        2,
        f"dsh: '{name}' cannot be the name of a plugin: dsh has something of that name\n",
    )


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("WordCount", "for example word-count"),
        ("2fast", "such as word-count"),
        ("a/b", "for example a-b"),
        ("../up", "for example up"),
        ("", "such as word-count"),
        ("import", "a word of the Python language"),
        ("json", "a module that is installed has it"),
        ("dsh", "a module that is installed has it"),
        ("test-x", "pytest would take the file for a test"),
        ("tools", "dsh has something of that name"),
        ("tool-bash", "dsh has something of that name"),
        ("config", "uses that word itself"),
    ],
)
async def test_a_name_that_cannot_work_is_refused_with_one_that_can(place: Place, name: str, why: str) -> None:
    before = sorted(place.work.rglob("*"))
    done = await place.dsh("plugins", "new", "--", name)
    assert (done.code, done.out) == (2, "")
    assert why in done.err and "cannot be the name of a plugin" in done.err
    assert sorted(place.work.rglob("*")) == before


async def test_nothing_is_overwritten(place: Place) -> None:
    for name in ("plugins/hello.py", "plugins/test_hello.py"):
        file = place.write(name, "mine")
        done = await place.dsh("plugins", "new", "hello")
        assert (done.code, done.err) == (1, f"dsh: {name} exists already; nothing was written\n")
        assert file.read_text() == "mine"
        file.unlink()
    done = await place.dsh("plugins", "new", "turn-log")
    assert (done.code, done.err) == (1, "dsh: plugins/turn_log.py exists already; nothing was written\n")
    done = await place.dsh("plugins", "new", "clock", "--into", "more")
    assert (done.code, done.err) == (1, 'dsh: cordis.yml has a row "clock" already; nothing was written\n')
    assert not (place.work / "more").exists()


async def test_a_broken_composition_is_told_before_anything_is_written(place: Place) -> None:
    file = place.write("cordis.yml", "- id: x\n\tname: y\n")
    done = await place.dsh("plugins", "new", "hello")
    assert done.code == 1 and "cordis.yml" in done.err and "nothing was written" in done.err
    assert file.read_text() == "- id: x\n\tname: y\n" and not (place.work / "plugins/hello.py").exists()


async def test_without_a_composition_the_row_is_printed(tmp_path: Path) -> None:
    place = Place.make(tmp_path)
    done = await place.dsh("plugins", "new", "hello", "--into", "src/mine")
    row = "- id: hello\n  name: ./src/mine/hello.py\n  config:\n    greeting: Hello\n"
    assert done.code == 0 and row in done.out
    assert "3 passed" in test_in(place, "src")
    assert not (place.work / "cordis.yml").exists()


async def test_what_was_written_as_json(place: Place) -> None:
    done = await place.dsh("plugins", "new", "hello", "--service", "--json")
    assert done.json() == {
        "kind": "service",
        "plugin": "plugins/hello.py",
        "test": "plugins/test_hello.py",
        "row": {"id": "hello", "name": "./plugins/hello.py", "config": {"defaultLanguage": "en"}},
        "config": "cordis.yml",
    }


async def test_two_kinds_at_once_are_refused(place: Place) -> None:
    done = await place.dsh("plugins", "new", "hello", "--tool", "--service")
    assert (done.code, done.err) == (2, "dsh: give one of --tool, --service\n")
