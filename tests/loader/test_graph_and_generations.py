"""Import edges read from text, and fresh module objects with the way back."""

from __future__ import annotations

import importlib
import linecache
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dsh.loader.generations import ModuleSwap, drop_stale_bytecode, source_of
from dsh.loader.graph import ImportGraph, ModuleSource, closure, imported_names, reversed_edges

# --- 17: the graph ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("import a.b.c", {"a", "a.b", "a.b.c"}),
        ("import a as x, b", {"a", "b"}),
        ("from a import b", {"a", "a.b"}),
        ("from a import *", {"a"}),
        ("from . import s", {"p", "p.s"}),
        ("from .s import t", {"p", "p.s", "p.s.t"}),
        ("from ..q import t", {"p", "q", "q.t"}),
        ("def f():\n    from .late import x", {"p", "p.late", "p.late.x"}),
        ("import importlib\nimportlib.import_module('a.b')", {"importlib", "a", "a.b"}),
        ("from importlib import import_module\nimport_module('.b', __package__)", {"importlib", "p", "p.b"}),
        ("import_module(name)", {"p"}),
        ("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import hidden\nelse:\n    import seen", {"seen"}),
        ("import typing\nif typing.TYPE_CHECKING:\n    import hidden", set()),
        ("try:\n    import a\nexcept ImportError:\n    import b", {"a", "b"}),
        ("if True print(1)", set()),
    ],
)
def test_b17r_imports_are_read_from_text(text: str, names: set[str]) -> None:
    found = imported_names(text, "p.m") - {"typing", "typing.TYPE_CHECKING", "importlib.import_module"}
    assert found - {"p"} == names - {"p"} and (names <= found | {"p"})


def test_b17s_a_package_resolves_its_own_siblings_and_needs_the_packages_around() -> None:
    assert imported_names("from .a import x", "top.pkg", is_package=True) == {"top", "top.pkg.a", "top.pkg.a.x"}


def test_b17v_texts_that_cannot_mean_a_module_are_not_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[str] = []

    def parse(text: str, module: str, *, is_package: bool = False) -> frozenset[str]:
        parsed.append(module)
        return imported_names(text, module, is_package=is_package)

    monkeypatch.setattr("dsh.loader.graph.imported_names", parse)
    sources = {
        name: ModuleSource(name, f"/{name}.py", text)
        for name, text in {
            "app.one": "",
            "app.two": "from . import one",
            "main": "import app.one",
            "far.away": "one = 'the word, in a text that never says where it would come from'",
        }.items()
    }
    assert ImportGraph().importers(sources, ["app.one"])["app.one"] == {"app.two", "main"}
    assert sorted(parsed) == ["app.two", "main"]


def test_b17t_ways_to_a_change_are_found_from_its_importers() -> None:
    sources = {
        name: ModuleSource(name, f"/{name}.py", text)
        for name, text in {
            "row": "import mid, other",
            "mid": "import leaf",
            "two": "import leaf",
            "leaf": "import json",
            "other": "leaf = 1  # the word alone is no import",
            "leaf.child": "",
        }.items()
    }
    importers = ImportGraph().importers(sources, ["leaf", "unknown"])
    assert importers == {
        "leaf": {"mid", "two", "leaf.child"}, "mid": {"row"}, "two": set(), "row": set(), "leaf.child": set(),
    }  # fmt: skip
    assert closure(importers, ["leaf"]) == {"leaf", "leaf.child", "mid", "two", "row"}
    assert closure(reversed_edges(importers), ["row"]) == {"row", "mid", "leaf"}
    cycle = {"a": {"b"}, "b": {"a"}}
    assert closure(cycle, ["a"]) == {"a", "b"}


def test_b17u_only_texts_that_hold_the_name_are_parsed_and_each_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from dsh.loader import graph

    sources = {
        "a": ModuleSource("a", "/a.py", "import leaf"),
        "b": ModuleSource("b", "/b.py", "import json"),
        "leaf": ModuleSource("leaf", "/leaf.py", ""),
    }
    parsed: list[str] = []
    original = graph.imported_names

    def counting(text: str, module: str, *, is_package: bool = False) -> frozenset[str]:
        parsed.append(module)
        return original(text, module, is_package=is_package)

    monkeypatch.setattr(graph, "imported_names", counting)
    built = ImportGraph()
    for _ in range(2):
        assert built.importers(sources, ["leaf"])["leaf"] == {"a"}
    assert parsed == ["a"]
    sources["a"] = ModuleSource("a", "/a.py", "leaf = 0")
    assert built.importers(sources, ["leaf"])["leaf"] == set()
    assert parsed == ["a", "a"]


# --- 17: generations --------------------------------------------------------------------------------------------------


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package `swapped` with the modules `top` and `leaf`, importable."""
    folder = tmp_path / "swapped"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "top.py").write_text("from . import leaf\n\n\ndef value():\n    return leaf.VALUE\n")
    (folder / "leaf.py").write_text("VALUE = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield folder
    for name in [name for name in sys.modules if name.partition(".")[0] == "swapped"]:
        del sys.modules[name]


def ours(folder: Path) -> Callable[[str], bool]:
    return lambda file: file.startswith(str(folder))


def swap_of(folder: Path) -> ModuleSwap:
    return ModuleSwap(["swapped.top", "swapped.leaf"], ours(folder))


def test_b17v_new_objects_stand_under_the_old_names_and_the_old_ones_keep_their_globals(package: Path) -> None:
    old = importlib.import_module("swapped.top")
    (package / "leaf.py").write_text("VALUE = 2\n")
    swap = swap_of(package)
    new = swap.run(lambda: importlib.import_module("swapped.top"))
    swap.accept()
    swap.restore()
    assert new is not old and sys.modules["swapped.top"] is new
    assert (old.value(), new.value()) == (1, 2)
    assert sys.modules["swapped"].top is new and sys.modules["swapped"].leaf is new.leaf


def test_b17w_the_way_back_restores_every_name_and_forgets_what_was_new(package: Path) -> None:
    old = importlib.import_module("swapped.top")
    leaf = sys.modules["swapped.leaf"]
    (package / "extra.py").write_text("import colorsys\n")
    (package / "leaf.py").write_text("from . import extra\nVALUE = 2\n")
    sys.modules.pop("colorsys", None)
    swap = swap_of(package)
    assert swap.run(lambda: importlib.import_module("swapped.top")).value() == 2
    assert "swapped.extra" in sys.modules
    swap.restore()
    swap.restore()
    parent = sys.modules["swapped"]
    assert (sys.modules["swapped.top"], sys.modules["swapped.leaf"]) == (old, leaf)
    assert (parent.top, parent.leaf, old.leaf) == (old, leaf, leaf)
    assert "swapped.extra" not in sys.modules and not hasattr(parent, "extra")
    assert "colorsys" in sys.modules
    assert old.value() == 1


def test_b17x_an_import_that_fails_is_undone_at_once_and_old_tracebacks_show_old_text(package: Path) -> None:
    (package / "top.py").write_text("def value():\n    raise RuntimeError('old text')\n")
    old = importlib.import_module("swapped.top")
    importlib.import_module("swapped.leaf")
    assert source_of(old) is not None
    (package / "top.py").write_text("first = 1\nsecond = 2\nthis is no python\n")
    with pytest.raises(SyntaxError):
        swap_of(package).run(lambda: importlib.import_module("swapped.top"))
    assert sys.modules["swapped.top"] is old
    with pytest.raises(RuntimeError) as caught:
        old.value()
    assert "raise RuntimeError('old text')" in "".join(traceback.format_exception(caught.value))


def test_b17y_code_is_compiled_from_text_whatever_the_cached_byte_code_says(
    package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.setattr(sys, "pycache_prefix", None)
    stamp = 1_700_000_000
    os.utime(package / "leaf.py", (stamp, stamp))
    importlib.import_module("swapped.top")
    assert [name for name in os.listdir(package / "__pycache__") if name.startswith("leaf.")]
    for number in (2, 3):
        (package / "leaf.py").write_text(f"VALUE = {number}\n")
        os.utime(package / "leaf.py", (stamp, stamp))
        swap = swap_of(package)
        new = swap.run(lambda: importlib.import_module("swapped.top"))
        swap.accept()
        assert new.value() == number
        assert linecache.getline(str(package / "leaf.py"), 1) == f"VALUE = {number}\n"
    drop_stale_bytecode(str(package / "leaf.py"))
    assert not [name for name in os.listdir(package / "__pycache__") if name.startswith("leaf.")]


def test_b17z_the_text_a_module_was_loaded_from_is_remembered(package: Path) -> None:
    module = importlib.import_module("swapped.leaf")
    first = source_of(module)
    (package / "leaf.py").write_text("VALUE = 2\n")
    assert first is not None and source_of(module) == first
    assert (first.name, first.file, first.text, first.is_package) == (
        "swapped.leaf", str(package / "leaf.py"), "VALUE = 1\n", False,
    )  # fmt: skip
    parent = source_of(sys.modules["swapped"])
    assert parent is not None and parent.is_package
    assert source_of(sys) is None
