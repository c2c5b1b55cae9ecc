"""JSON schemas for editors: what they pass, what they find, and that they never contradict the loader."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft7Validator

from dsh.interfaces.known_plugins import KnownPlugin, built_in_plugins, find_plugin_named
from dsh.interfaces.schema_export import composition_schema, patch_schema, settings_schema
from dsh.loader import names
from dsh.loader.writeback import json_value
from dsh.loader.yamlio import parse_yaml
from dsh.settings.offline import SECTIONS, schema_of

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def plugins() -> list[KnownPlugin]:
    return list(built_in_plugins())


@pytest.fixture(scope="module")
def composition(plugins: list[KnownPlugin]) -> Draft7Validator:
    schema = composition_schema(plugins)
    Draft7Validator.check_schema(schema)
    return Draft7Validator(schema)


@pytest.fixture(scope="module")
def patch(plugins: list[KnownPlugin]) -> Draft7Validator:
    schema = patch_schema(plugins, {"agent-loop": "dsh-agent-loop", "more": "cordis:group", "own": "./own.py"})
    Draft7Validator.check_schema(schema)
    return Draft7Validator(schema)


@pytest.fixture(scope="module")
def settings() -> Draft7Validator:
    models = {ns: schema_of(ns) for ns in SECTIONS}
    schema = settings_schema({ns: model.json_schema() for ns, model in models.items() if model is not None})
    Draft7Validator.check_schema(schema)
    return Draft7Validator(schema)


def found(validator: Draft7Validator, text: str) -> list[str]:
    """What is marked in a text: place and reason of each error, the deepest ones."""
    errors = validator.iter_errors(json_value(parse_yaml(text)))
    return [f"{'.'.join(map(str, error.absolute_path))}: {error.message}" for error in errors]


COMPOSITIONS = [ROOT / "cordis.yml", *sorted((ROOT / "dsh/cli/profiles").glob("*.yml"))]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("path", COMPOSITIONS, ids=lambda path: path.name)
def test_every_shipped_composition_passes(composition: Draft7Validator, path: Path) -> None:
    assert found(composition, path.read_text()) == []


@pytest.mark.parametrize("short", sorted({**names.PLUGINS, **names.CORDIS_PLUGINS}))
def test_every_spelling_of_a_name_that_is_built_is_known(composition: Draft7Validator, short: str) -> None:
    built = names.is_group(short) or find_plugin_named(short, ROOT) is not None
    for name in names.spellings(short):
        assert names.module_of(name) == names.module_of(short) or name == names.module_of(short)
        marked = [each for each in found(composition, f"- {{name: '{name}'}}") if each.startswith("0.name")]
        assert (marked == []) == built, name


@pytest.mark.parametrize(
    "name", ["./mine.py", "../shared/mine", "/opt/mine.py", "file:///opt/m.py", "my.package", "mine:plugin", "dsh-ui-x"]
)
def test_a_name_that_a_file_or_a_module_may_have_passes(composition: Draft7Validator, name: str) -> None:
    assert found(composition, f"- {{name: '{name}', config: {{any: 1}}}}") == []


@pytest.mark.parametrize(
    "config",
    [
        "!!js ctx.all",
        "{maxParallelToolCalls: !!js Number(env.CALLS)}",
        "{maxParallelToolCalls: !env 'CALLS:4', agents: !expr env.AGENTS}",
        "{agents: [{id: !env NAME}, !expr env.ONE]}",
        "{maxParallelToolCalls: {__jsExpr: env.CALLS}}",
        "{maxParallelToolCalls: ~}",
        "~",
    ],
)
def test_an_expression_may_stand_for_any_value_of_a_config(composition: Draft7Validator, config: str) -> None:
    assert found(composition, f"- {{name: dsh-agent-loop, disabled: !!js env.OFF, config: {config}}}") == []


@pytest.mark.parametrize(
    ("row", "marked"),
    [
        ("{name: dsh-agent-loop, config: {maxParalelToolCalls: 3}}", "0.config: Additional properties"),
        ("{name: agent-loop, config: {max_parallel_tool_calls: 3}}", "0.config: Additional properties"),
        ("{name: '@deepseek-ai/dsh-agent-loop', config: {maxParallelToolCalls: 0}}", "0.config.maxParallelToolCalls:"),
        ("{name: dsh-agent-loop, config: {maxParallelToolCalls: many}}", "is not of type 'integer'"),
        ("{name: dsh-agent-loop, config: {agents: {id: main}}}", "0.config.agents:"),
        ("{name: dsh-agent-loop, config: {agents: [{id: main, modl: x}]}}", "0.config.agents.0: Additional"),
        ("{name: dsh-agent-loop, confg: {}}", "0: Additional properties"),
        ("{name: dsh-agent-loop, maxParallelToolCalls: 3}", "0: Additional properties"),
        ("{nam: dsh-agent-loop}", "'name' is a required property"),
        ("{name: dsh-agent-lop}", "0.name:"),
        ("{name: !!js env.NAME}", "0.name:"),
        ("{id: 'a:b', name: dsh-llm}", "0.id:"),
        ("{id: 12, name: dsh-llm}", "0.id:"),
        ("{name: dsh-session-persistence-jsonl}", "'config' is a required property"),
        ("{name: dsh-session-persistence-jsonl, config: {}}", "'root' is a required property"),
        ("{name: dsh-llm-deepseek, config: {apiKeyEnv: sk-0123456789}}", "0.config.apiKeyEnv:"),
        ("{name: 'cordis:group', config: {a: 1}}", "0.config:"),
        ("{name: 'cordis:group', config: [{name: dsh-agent-lop}]}", "0.config.0.name:"),
        ("{name: ./x, group: true, config: [{nam: x}]}", "0.config.0: "),
        ("{name: 'cordis:include', config: {paht: x.yml}}", "0.config: "),
        ("{name: 'cordis:include', config: {path: x.yml, patches: [{config: {}}]}}", "0.config.patches.0: "),
        ("{name: dsh-llm, disabled: 'off'}", "0.disabled:"),
        ("{name: dsh-llm, inject: 3}", "0.inject:"),
        ("{name: dsh-llm, inject: {shell: !!js env.X}}", "0.inject.shell:"),
        ("{name: dsh-llm, isolate: [shell]}", "0.isolate:"),
    ],
)
def test_a_mistake_in_a_row_is_found_where_it_stands(composition: Draft7Validator, row: str, marked: str) -> None:
    errors = found(composition, f"- {row}")
    assert any(marked in error for error in errors), errors


def test_the_file_of_a_composition_is_a_list(composition: Draft7Validator) -> None:
    assert found(composition, "id: x\nname: dsh-llm") and found(composition, "")


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_every_patch_that_a_page_shows_passes(plugins: list[KnownPlugin], path: Path) -> None:
    shown = re.findall(r"^```yaml .*patch.*\n(.*?)^```", path.read_text(), re.M | re.S)
    rows = {row["id"]: row["name"] for row in parse_yaml((ROOT / "cordis.yml").read_text())}
    own = find_plugin_named("./plugins/clock.py", ROOT)
    assert own is not None and (shown or path.name != "plugins.md")
    validator = Draft7Validator(patch_schema([*plugins, own], rows))
    assert [found(validator, text) for text in shown] == [[]] * len(shown)


def test_a_patch_knows_the_rows_of_its_composition(patch: Draft7Validator) -> None:
    assert found(patch, "- {id: agent-loop, config: {maxParallelToolCalls: 4}}\n- {id: more, disabled: true}") == []
    assert found(patch, "- insert: [{id: mine, name: ./mine.py}]\n- {id: more, insert: [{name: dsh-llm}]}") == []
    assert found(patch, "- {id: agent-lop, config: {}}")
    assert found(patch, "- {id: agent-loop, config: {maxParalelToolCalls: 4}}")
    assert found(patch, "- {id: own, config: {whatever: 4}}") == []
    assert found(patch, "- {id: more, config: {a: 1}}")
    assert found(patch, "- {config: {}}") and found(patch, "- {insert: {id: mine}}") and found(patch, "id: agent-loop")


def test_the_settings_know_their_sections(settings: Draft7Validator) -> None:
    assert found(settings, "agent-loop: {maxParallelToolCalls: 4}\nui-theme: {dark: true}") == []
    assert found(settings, "agent-default-model: {provider: demo}") == [], "the row may say the rest"
    assert found(settings, "") == []
    assert found(settings, "agent-loop: {maxParallelToolCalls: 0}")
    assert found(settings, "agent-loop: {agents: []}")
    assert found(settings, "agent_loop: {}") and found(settings, "agent-loop: 4")


def test_marks_say_what_applies_without_a_restart_and_what_is_for_people(plugins: list[KnownPlugin]) -> None:
    schema: dict[str, Any] = composition_schema(plugins)["definitions"]["config-of-dsh-agent-loop"]["else"]
    calls, agents = schema["properties"]["maxParallelToolCalls"], schema["properties"]["agents"]
    assert calls["x-dsh-live"] is True and calls["default"] == 10 and calls["description"]
    assert "x-dsh-live" not in agents
