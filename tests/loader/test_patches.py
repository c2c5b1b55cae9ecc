"""Patch lists: what each item does, what is skipped with a warning, what stays untouched."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dsh.loader.patches import Composition, Layer, compose
from dsh.loader.yamlio import detach, parse_yaml
from tests.loader.kit import running, write_plugins

BASE = """
- id: a
  name: x
  config: {one: 1, two: {deep: true}}
- id: g
  name: cordis:group
  config:
    - {id: inner, name: y}
- name: nameless
"""


def composed(*layers: str, base: str = BASE) -> Composition:
    rows = parse_yaml(base, file="cordis.yml")
    return compose(
        rows,
        "cordis.yml",
        [Layer(f"layer{n}.yml", parse_yaml(text, file=f"layer{n}.yml")) for n, text in enumerate(layers)],
    )


def row(composition: Composition, row_id: str) -> Any:
    found = [each for each in composition.rows if each.get("id") == row_id]
    found += [
        each
        for g in composition.rows
        if g["name"] == "cordis:group"
        for each in g["config"] or []
        if each.get("id") == row_id
    ]
    return found[0]


def warnings(composition: Composition) -> list[str]:
    return [str(warning) for warning in composition.warnings]


def test_b10a_named_keys_are_replaced_whole() -> None:
    result = composed("- {id: a, config: {three: 3}, disabled: true}\n- {id: inner, label: in}\n")
    assert row(result, "a") == {"id": "a", "name": "x", "config": {"three": 3}, "disabled": True}
    assert row(result, "inner") == {"id": "inner", "name": "y", "label": "in"}
    assert not result.warnings


def test_b10b_rows_are_inserted_at_the_top_and_into_groups() -> None:
    result = composed("- insert: [{id: n, name: z}]\n- {id: g, insert: [{id: m, name: z}, {name: w}]}\n")
    assert [each.get("id") for each in result.rows] == ["a", "g", None, "n"]
    assert [each.get("id") for each in row(result, "g")["config"]] == ["inner", "m", None]


def test_b10c_what_cannot_apply_is_skipped_with_a_warning() -> None:
    result = composed(
        "- {id: a, insert: [{name: z}]}\n"
        "- {id: a, name: other, config: {}}\n"
        "- {id: innr, disabled: true}\n"
        "- {config: {}}\n"
        "- {}\n"
        "- {id: 5, config: {}}\n"
    )
    assert warnings(result) == [
        'layer0.yml:1: patch item 1: row "a" is no group; nothing can be inserted into it',
        'layer0.yml:2: patch item 2: row "a" is x, not other; it is skipped',
        'layer0.yml:3: patch item 3: no row has the id "innr", so it is skipped; did you mean "inner"?',
        "layer0.yml:4: patch item 4: has config but no id; it is skipped",
        "layer0.yml:5: patch item 5: is empty; it is skipped",
        'layer0.yml:6: patch item 6: no row has the id "5", so it is skipped',
    ]
    assert result.warnings[2].nearest == "inner"
    assert result.rows == composed().rows


def test_b10d_a_matching_name_is_an_assertion_only() -> None:
    assert row(composed("- {id: a, name: x, config: null}\n"), "a") == {"id": "a", "name": "x", "config": None}


def test_b10e_a_later_layer_patches_an_earlier_insert() -> None:
    result = composed(
        "- insert: [{id: n, name: z, config: {v: 1}}, {id: h, name: cordis:group, config: [{id: k, name: q}]}]\n",
        "- {id: n, config: {v: 2}}\n- {id: k, disabled: true}\n- {id: h, insert: [{id: l, name: q}]}\n",
    )
    assert row(result, "n")["config"] == {"v": 2} and row(result, "k")["disabled"] is True
    assert row(result, "l")["name"] == "q" and not result.warnings


def test_b10f_one_pass_never_looks_into_a_replaced_group() -> None:
    result = composed(
        "- {id: g, config: [{id: fresh, name: q}]}\n- {id: fresh, disabled: true}\n- {id: inner, disabled: true}\n"
    )
    assert row(result, "g")["config"] == [{"id": "fresh", "name": "q"}]
    assert len(result.warnings) == 2


def test_b10g_inputs_are_never_changed() -> None:
    rows, layer = parse_yaml(BASE), parse_yaml("- {id: a, config: {x: [1]}}\n- {id: g, insert: [{id: m, name: z}]}\n")
    before = detach(rows), detach(layer)
    for _ in range(2):
        result = compose(rows, "cordis.yml", [Layer("l", layer)])
        row(result, "a")["config"]["x"].append(2)
        row(result, "m")["name"] = "changed"
        assert (rows, layer) == before
    assert row(compose(rows, "cordis.yml", [Layer("l", layer)]), "a")["config"] == {"x": [1]}


@pytest.mark.parametrize(
    ("layer", "says"),
    [
        ("a: 1", "layer0.yml:1: a patch must be a list of items, got a mapping"),
        ("- 5\n- {id: a}\n- x\n", "layer0.yml:1: patch item 1 must be a mapping, got 5"),
        ("- insert: 5\n", "layer0.yml:1: key insert: patch item 1: insert must be a list of rows, got 5"),
        ("- insert: [5]\n", "insert must be a list of rows, got a list"),
    ],
)
def test_b10h_a_malformed_patch_is_a_problem_with_its_item(layer: str, says: str) -> None:
    result = composed(layer)
    assert says in str(result.problems[0])
    assert len(result.problems) == (2 if "x" in layer else 1)


def test_an_empty_layer_is_no_layer() -> None:
    assert composed("").rows == composed().rows and not composed("").problems


def test_provenance_says_who_brought_a_row_and_who_changed_it() -> None:
    result = composed(
        "- {id: a, config: {}}\n- insert: [{id: n, name: z}]\n", "- {id: a, disabled: true}\n- {id: n, label: l}\n"
    )
    origin = result.origin(row(result, "a"))
    assert origin is not None and (origin.source, origin.patched_by) == ("cordis.yml", ["layer0.yml", "layer1.yml"])
    origin = result.origin(row(result, "n"))
    assert origin is not None and (origin.source, origin.patched_by) == ("layer0.yml", ["layer1.yml"])
    origin = result.origin(row(result, "inner"))
    assert origin is not None and (origin.source, origin.patched_by) == ("cordis.yml", [])


async def test_b10i_layers_are_read_again_and_a_removed_one_restores_the_lower_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    write_plugins(tmp_path)
    monkeypatch.chdir(tmp_path)
    async with running(tmp_path, "- {id: a, name: ./note.py, config: {text: file}}\n") as it:
        assert it.take() == ["+a file"]
        await it.edit("- {id: a, config: {text: patch}}\n- insert: [{id: b, name: ./note.py}]\n", "cordis.patch.yml")
        assert sorted(it.take()) == ["+a patch", "+b -", "-a"]
        await it.edit("- {id: a, name: ./note.py, config: {text: other}}\n")
        assert it.take() == []
        error = await it.refused("- {id: a, config: {size: 0}}\n", "cordis.patch.yml")
        assert (error.file, error.line, error.row, error.key) == ("cordis.patch.yml", 1, "a", "config.size")
        await it.edit("- {id: aa, config: {}}\n", "cordis.patch.yml")
        assert it.take() == ["-a", "+a other", "-b"]
        assert (
            'cordis.patch.yml:1: patch item 1: no row has the id "aa", so it is skipped; did you mean "a"?'
            in caplog.text
        )
        (tmp_path / "cordis.patch.yml").unlink()
        assert await it.loader.refresh(tmp_path / "cordis.patch.yml")
        assert it.take() == [] and it.states() == {"a": "active"}
