"""Looking at a composition without starting it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dsh.interfaces.offline import check, provided_names, show
from dsh.loader.boot import make_source
from dsh.loader.yamlio import parse_yaml, same_value
from tests.loader.kit import running, write_plugins


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_plugins(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


FILE = """
- id: a
  name: ./note.py
  config: {text: !!js "'x' + 1", size: 2}
- {id: p, name: ./provider.py}
- id: g
  name: cordis:group
  config:
    - {id: inner, name: ./note.py}
- {id: last, name: ./note.py, disabled: !!js env.FROM_ENV === 'env'}
"""


async def test_b19_the_dump_equals_what_is_mounted_and_says_where_rows_come_from(folder: Path) -> None:
    (folder / "cordis.patch.yml").write_text("- {id: inner, config: {text: '010'}}\n- {id: nobody, config: {}}\n")
    (folder / "over.yml").write_text("- {id: p, config: {value: over}}\n- insert: [{id: n, name: ./note.py}]\n")
    (folder / "cordis.yml").write_text(FILE)
    source = make_source("cordis.yml", overlays=["over.yml"], sets=["n.text=off"])
    text, warnings = show(source)
    assert re.findall("# == .*", text) == [
        "# == cordis.yml",
        "# == cordis.yml, patched by over.yml",
        "# == cordis.yml, patched by cordis.patch.yml",
        "# == cordis.yml",
        "# == over.yml, patched by --set",
    ]
    assert "text: !!js '''x'' + 1'" in text or "text: !!js 'x' + 1" in text
    assert [str(warning) for warning in warnings] == [
        'cordis.patch.yml:2: patch item 2: no row has the id "nobody", so it is skipped'
    ]
    async with running(folder, overlays=["over.yml"], sets=["n.text=off"]) as it:
        mounted = it.entry("include").subtree
        assert mounted is not None and mounted.reading is not None
        assert same_value(parse_yaml(text), mounted.reading.composition.rows)
        assert it.fiber("inner").config.text == "010" and it.fiber("n").config.text == "off"
    (folder / "dumped.yml").write_text(text)
    assert same_value(make_source("dumped.yml").read().composition.rows, parse_yaml(text))


def test_b19b_without_user_layers_broken_ones_do_not_matter(folder: Path) -> None:
    (folder / "cordis.yml").write_text(FILE)
    (folder / "cordis.patch.yml").write_text("- {broken\n")
    with pytest.raises(Exception, match=r"cordis.patch.yml:1"):
        show(make_source("cordis.yml"))
    text, warnings = show(make_source("cordis.yml"), user_layers=False)
    assert same_value(parse_yaml(text), parse_yaml(FILE)) and not warnings


def test_secrets_are_not_printed(folder: Path) -> None:
    (folder / "cordis.yml").write_text(
        "- id: a\n  name: x\n"
        "  config: {apiKey: sk-123, apiKeyEnv: NAME, maxTokens: 5, key: !!js env.K, deep: [{token: t}]}\n"
    )
    text, _ = show(make_source("cordis.yml"))
    row = parse_yaml(text)[0]["config"]
    assert row["apiKey"] == "***" and row["deep"] == [{"token": "***"}]
    assert row["apiKeyEnv"] == "NAME" and row["maxTokens"] == 5 and row["key"].source == "env.K"


def found(folder: Path, text: str) -> tuple[list[str], list[str]]:
    (folder / "cordis.yml").write_text(text)
    result = check(make_source("cordis.yml"))
    assert result.ok == (not result.problems)
    return [str(each) for each in result.problems], [str(each) for each in result.warnings]


def test_a_good_composition_checks_clean_without_starting(folder: Path) -> None:
    write_plugins(
        folder,
        boom="def apply(ctx): raise RuntimeError('started')\n",
        listing="def apply(ctx): ctx.provide('notes', [])\n",
    )
    (folder / "inner.yml").write_text("- {id: c, name: ./consumer.py}\n")
    problems, warnings = found(
        folder,
        "- {id: boom, name: ./boom.py}\n- {id: i, name: cordis:include, config: {path: inner.yml}}\n"
        "- {id: p, name: ./provider.py, config: {value: !!js env.NOBODY.knows}}\n"
        "- {id: off, name: no-such-thing, disabled: true}\n"
        "- {id: l, name: ./listing.py}\n- {id: n, name: ./notes.py}\n",
    )
    assert problems == ['cordis.yml:6: row "n", key name: there is no plugin at ./notes.py; did you mean "./note.py"?']
    assert warnings == []


def test_a_check_reports_configs_providers_cycles_and_unknown_keys(folder: Path) -> None:
    write_plugins(
        folder,
        x="from dsh.cordis import Service\ninject = ['y']\nclass X(Service, name='x'): ...\n",
        y="inject = ['x']\ndef apply(ctx): ctx.provide('y', 1)\n",
        z="inject = ['z']\ndef apply(ctx): ctx.provide('z', 1)\n",
    )
    problems, warnings = found(
        folder,
        "- {id: a, name: ./consumer.py, config: {sen: 1}}\n"
        "- {id: b, name: ./provider.py, config: {value: 1, parts: x}}\n"
        "- {id: x, name: ./x.py}\n- {id: y, name: ./y.py}\n- {id: z, name: ./z.py}\n",
    )
    assert problems == [
        'cordis.yml:2: row "b", key config.value: must be a string, got 1 (put it in quotes)',
        'cordis.yml:2: row "b", key config.parts: must be a list, got "x" (each item begins with a dash)',
        'cordis.yml:1: row "a": it needs the service "notes", which no row provides',
        'cordis.yml:5: row "z": it needs the service "z", which only it provides: it would wait for itself',
        'cordis.yml:3: row "x": rows wait for each other in a cycle and none can start: '
        "x needs y of row y, y needs x of row x; "
        "take one of these services out of inject, or let another row provide it",
    ]
    assert warnings == ['cordis.yml:1: row "a", key config.sen: unknown key; did you mean "seen"?']


def test_a_check_reads_what_code_provides(folder: Path) -> None:
    write_plugins(
        folder,
        by_code="""
        from dsh.cordis import Service
        class Greeter(Service, name="greeter"): ...
        def apply(ctx):
            greeter = Greeter(ctx)
            ctx.provide(greeter)
            ctx.provide("plain", 1)
        """,
        unclear="def apply(ctx):\n    for name in ['notes']:\n        ctx.provide(name, [])\n",
    )
    from dsh.loader.resolve import load, resolve

    assert provided_names(load(resolve("./by_code.py", folder))) == ({"greeter", "plain"}, False)
    problems, warnings = found(folder, "- {id: a, name: ./note.py}\n- {id: u, name: ./unclear.py}\n")
    assert problems == []
    assert warnings == ['cordis.yml:1: row "a": it needs the service "notes", which no row provides (unless u does)']


def test_a_check_follows_includes_and_reports_their_files(folder: Path) -> None:
    (folder / "inner.yml").write_text("- {id: a, name: ./provider.py, config: {value: 5}}\n")
    (folder / "loop.yml").write_text("- {id: again, name: cordis:include, config: {path: other/loop.yml}}\n")
    (folder / "other").symlink_to(folder)
    problems, _ = found(
        folder,
        "- {id: i, name: cordis:include, config: {path: inner.yml}}\n"
        "- {id: l, name: cordis:include, config: {path: loop.yml}}\n"
        "- {id: m, name: cordis:include, config: {path: missing.yml}}\n"
        "- {id: w, name: cordis:include, config: {pth: x.yml}}\n",
    )
    assert problems == [
        'inner.yml:1: row "i:a", key config.value: must be a string, got 5 (put it in quotes)',
        'loop.yml:1: row "l:again", key config.path: loop.yml would include itself',
        "missing.yml: the file does not exist",
        'cordis.yml:4: row "w", key config.path: required (a string)',
    ]


def test_a_check_finds_names_in_expressions_that_stand_for_nothing(folder: Path) -> None:
    write_plugins(folder, plain="def apply(ctx, config): ...\n")
    problems, warnings = found(
        folder,
        "- {id: p, name: ./provider.py}\n"
        "- id: a\n  name: ./plain.py\n  config:\n    text: !!js dshHomPath('x')\n"
        "- id: b\n  name: ./plain.py\n  config:\n    text: !!js 'env.X ? nobody : cwd()'\n"
        "- id: c\n  name: ./plain.py\n  inject: [thing]\n  config:\n    text: !!js thing.name + ctx.thing.name\n"
        "- id: d\n  name: ./plain.py\n  config:\n    text: !!js ctx.gone.name ?? ctx.get('other')\n",
    )
    said = "is neither a known name nor a service this row declares in inject"
    assert problems == [
        'cordis.yml:5: row "a", key config.text: expression `dshHomPath(\'x\')`: "dshHomPath" '
        f'{said}; did you mean "dshHomePath"?',
        'cordis.yml:18: row "d", key config.text: expression `ctx.gone.name ?? ctx.get(\'other\')`: "gone" ' + said,
    ]
    assert warnings == [
        'cordis.yml:9: row "b", key config.text: expression `env.X ? nobody : cwd()`: "nobody" ' + said,
    ]


MODELS = """
- {id: model, name: dsh-agent-default-model, config: {candidates: [{provider: PROVIDER, model: m}]}}
- {id: demo, name: dsh-llm-demo}
- {id: llm, name: dsh-llm}
"""


@pytest.mark.parametrize(
    ("provider", "said"),
    [
        ("demo", []),
        ("local", []),  # not mounted here: passed over when the model is chosen
        ("dmo", ['no row offers the model provider "dmo"; did you mean "demo"?']),
        ("nowhere", ['no row offers the model provider "nowhere" (there is demo)']),
    ],
)
def test_a_candidate_that_nobody_offers_is_a_mistake(folder: Path, provider: str, said: list[str]) -> None:
    (folder / "cordis.yml").write_text(MODELS.replace("PROVIDER", provider))
    where = 'cordis.yml:2: row "model", key config.candidates[0].provider: '
    assert list(map(str, check(make_source("cordis.yml")).problems)) == [where + each for each in said]


def test_a_plugin_of_ones_own_may_offer_what_its_code_does_not_tell(folder: Path) -> None:
    adapter = "from dsh.llm.service import Llm\ndef apply(ctx, llm: Llm):\n    llm.register_adapter({}, None)\n"
    for names, said in (("['nowhere']", []), ("[n for n in 'x']", [' "nowhere" (unless mine does)'])):
        (folder / f"mine{len(said)}.py").write_text(adapter.format(names))
        row = f"- {{id: mine, name: ./mine{len(said)}.py}}\n"
        (folder / "cordis.yml").write_text(MODELS.replace("PROVIDER", "nowhere") + row)
        result = check(make_source("cordis.yml"))
        assert result.ok and [str(each).partition("provider:")[2] for each in result.warnings] == [
            f" no row offers the model provider{each}" for each in said
        ]
    fixed = "- {id: model, name: dsh-agent-default-model, config: {provider: local, model: m}}\n"
    (folder / "cordis.yml").write_text(fixed + MODELS.split("\n", 2)[2])
    assert str(check(make_source("cordis.yml")).problems[0]).endswith('"local": add one named dsh-llm-local')
