"""Corners of finding plugins found in review: packages that break while a module inside them is looked for."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dsh.interfaces.offline import check
from dsh.loader.boot import BootError, make_source
from dsh.loader.resolve import PluginImportError, ResolveError, load, resolve
from tests.loader.kit import running, write_plugins


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    write_plugins(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def package(folder: Path, name: str, text: str) -> None:
    (folder / name).mkdir()
    (folder / name / "__init__.py").write_text(text)
    (folder / name / "inner.py").write_text("def apply(ctx): ...\n")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("\n\nraise RuntimeError('broken')\n", "__init__.py:3: RuntimeError: broken"),
        ("import no_such_library\n", "__init__.py:1: ModuleNotFoundError: No module named 'no_such_library'"),
        ("raise SystemExit(3)\n", "__init__.py:1: SystemExit: 3"),
    ],
)
async def test_a_package_that_breaks_is_named_with_its_line(folder: Path, text: str, says: str) -> None:
    package(folder, "brokenpkg", text)
    target = resolve("brokenpkg.inner", folder)
    with pytest.raises(PluginImportError, match=says):
        load(target)
    with pytest.raises(BootError, match=r'cordis\.yml:1: row "a", import of brokenpkg\.inner: ') as caught:
        async with running(folder, "- {id: a, name: brokenpkg.inner}\n"):
            raise AssertionError
    assert says in str(caught.value)
    assert [says in str(problem) for problem in check(make_source("cordis.yml")).problems] == [True]


def test_a_module_or_package_that_is_not_there_is_an_unknown_name(folder: Path) -> None:
    package(folder, "goodpkg", "")
    assert resolve("goodpkg.inner", folder).module == "goodpkg.inner"
    for name in ("goodpkg.missing", "no_such_package.inner", "goodpkg.inner.deeper"):
        with pytest.raises(ResolveError, match="no plugin is called"):
            resolve(name, folder)


def test_a_file_that_is_not_there_is_not_taken_for_one_that_is_no_plugin(folder: Path) -> None:
    (folder / "shelf").mkdir()
    (folder / "shelf" / "__init__.py").touch()
    with pytest.raises(ResolveError, match=r"there is no plugin at \./shelf/mine\.py \(looked in shelf\)"):
        resolve("./shelf/mine.py", folder)


@pytest.mark.parametrize(
    ("stands", "says"),
    [
        ("base/plugins/mine.py", "./plugins/mine.py"),
        ("base/src/plugins/mine.py", "./src/plugins/mine.py"),
        ("base/mine.py", "./mine.py"),
        ("plugin/mine.py", "../plugin/mine.py"),
        ("base/.venv/lib/mine.py", None),
    ],
)
def test_a_plugin_file_that_was_moved_is_found_near_by(tmp_path: Path, stands: str, says: str | None) -> None:
    base = tmp_path / "base"
    base.mkdir()
    file = tmp_path / stands
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("def apply(ctx): ...\n")
    with pytest.raises(ResolveError) as caught:
        resolve("./plugin/mine.py", base)
    assert caught.value.nearest == says
