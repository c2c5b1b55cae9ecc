"""Corners of layers: files that cannot be read at all, and where rows of a replaced group come from."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsh.loader.boot import BootError
from tests.loader.kit import running, write_plugins
from tests.loader.test_patches import composed, row

TWO = "- {id: a, name: ./note.py}\n- {id: b, name: ./note.py}\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_plugins(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", ["cordis.yml", "cordis.patch.yml"])
async def test_b06_a_folder_in_the_place_of_a_file_changes_nothing(folder: Path, name: str) -> None:
    (folder / "cordis.patch.yml").write_text("- {id: a, config: {text: patched}}\n")
    async with running(folder, TWO) as it:
        fibers = it.fibers()
        (folder / name).unlink()
        (folder / name).mkdir()
        with pytest.raises(Exception, match=name):
            await it.loader.refresh(folder / name)
        assert it.fibers() == fibers and it.fiber("a").config.text == "patched"
        (folder / name).rmdir()
        await it.edit(TWO if name == "cordis.yml" else "- {id: a, config: {text: again}}\n", name)
        assert it.fiber("a").config.text == ("patched" if name == "cordis.yml" else "again")


async def test_b14_a_folder_in_the_place_of_the_file_is_named_at_the_start(folder: Path) -> None:
    (folder / "cordis.yml").mkdir()
    with pytest.raises(BootError, match=r"plugin tree failed to load: cordis\.yml"):
        async with running(folder):
            pass


def test_b10_rows_of_a_replaced_group_come_from_the_layer_that_brought_them() -> None:
    result = composed("- {id: g, config: [{id: fresh, name: q}, {id: h, name: cordis:group, config: [{name: r}]}]}\n")
    for found in (row(result, "fresh"), row(result, "h"), row(result, "h")["config"][0]):
        origin = result.origin(found)
        assert origin is not None and origin.source == "layer0.yml"
    origin = result.origin(row(result, "g"))
    assert origin is not None and (origin.source, origin.patched_by) == ("cordis.yml", ["layer0.yml"])
