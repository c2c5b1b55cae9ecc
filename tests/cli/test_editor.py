"""`dsh config schema`: tables for people, and schemas by which a real YAML language server finds mistakes.

The server is the one that editors run; scripts/yaml-language-server installs it.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from jsonschema import Draft7Validator

from dsh.interfaces.schema_export import CUSTOM_TAGS
from dsh.loader.writeback import json_value
from dsh.loader.yamlio import YamlError, parse_yaml
from tests.cli.bad_inputs import BAD_INPUTS, COMPOSITION, lay_out
from tests.cli.kit import Place
from tests.cli.language_server import LanguageServer, find_server, language_server

ROOT = Path(__file__).parents[2]

needs_server = pytest.mark.skipif(
    find_server() is None or shutil.which("node") is None,
    reason="the YAML language server is not there: scripts/yaml-language-server installs it with npm",
)


@pytest.fixture
async def place(tmp_path: Path) -> Place:
    place = Place.make(tmp_path)
    lay_out(place.work, ROOT / "plugins")
    return place


@pytest.fixture
async def schemas(place: Place) -> Place:
    """A place with the schemas written."""
    done = await place.dsh("config", "schema", "--out", "cordis.schema.json")
    assert done.code == 0, done.err
    return place


# --- the command ------------------------------------------------------------------------------------------------------


async def test_a_row_or_a_plugin_is_told_as_a_table(place: Place) -> None:
    for name in ("agent-loop", "dsh-agent-loop", "@deepseek-ai/dsh-agent-loop"):
        done = await place.dsh("config", "schema", name)
        assert done.code == 0 and done.out.startswith("dsh-agent-loop: The agent loop")
    assert re.search(r"^maxParallelToolCalls +whole number, ≥ 1 +10 +live +Tool calls of one step", done.out, re.M), (
        done.out
    )
    assert re.search(r"^agents\[\]\.id +string, ≥ 1 characters +required +Label", done.out, re.M)
    own = await place.dsh("config", "schema", "clock")
    assert re.search(r"^timezone +string +local +live +IANA name", own.out, re.M)


async def test_a_name_that_is_none_gets_the_nearest_and_json_is_the_schema(place: Place) -> None:
    wrong = await place.dsh("config", "schema", "agent-lop")
    assert (wrong.code, wrong.out) == (1, "")
    assert wrong.err == 'dsh: no row and no plugin is called "agent-lop"; did you mean "agent-loop"?\n'
    schema = (await place.dsh("config", "schema", "agent-loop", "--json")).json()
    assert schema["properties"]["maxParallelToolCalls"]["x-dsh-live"] is True
    whole = (await place.dsh("config", "schema")).json()
    Draft7Validator.check_schema(whole)
    assert "config-of-.-plugins-clock.py" in whole["definitions"], "the composition's own plugins are in it"


async def test_a_composition_that_is_broken_still_gives_what_comes_with_dsh(place: Place) -> None:
    place.write("cordis.yml", "- {id: a\n")
    done = await place.dsh("config", "schema", "--json")
    assert done.code == 0 and "cordis.yml:" in done.err
    assert "config-of-dsh-agent-loop" in done.json()["definitions"]


async def test_the_hints_for_an_editor_are_printed(place: Place) -> None:
    done = await place.dsh("config", "schema", "--out", "cordis.schema.json")
    assert done.code == 0
    assert "\ncordis.yml\n# yaml-language-server: $schema=cordis.schema.json\n" in done.out
    assert "\ncordis.patch.yml\n# yaml-language-server: $schema=cordis.patch.schema.json\n" in done.out
    settings = place.work / "cordis.settings.schema.json"
    assert f"\n$DSH_HOME/settings.yaml\n# yaml-language-server: $schema={settings}\n" in done.out
    for name in ("cordis", "cordis.patch", "cordis.settings"):
        Draft7Validator.check_schema(json.loads((place.work / f"{name}.schema.json").read_text()))
    refused = await place.dsh("config", "schema", "--out", "nowhere/cordis.schema.json")
    assert refused.code == 1 and refused.err == (
        "dsh: nowhere/cordis.schema.json: cannot be written (No such file or directory)\n"
    )


# --- what the schemas find --------------------------------------------------------------------------------------------


async def test_every_mistake_that_a_schema_can_see_is_found(schemas: Place) -> None:
    rows = Draft7Validator(json.loads((schemas.work / "cordis.schema.json").read_text()))
    patch = Draft7Validator(json.loads((schemas.work / "cordis.patch.schema.json").read_text()))
    assert rows.is_valid(json_value(parse_yaml(COMPOSITION)))
    for mistake in BAD_INPUTS:
        if mistake.patch is not None:
            assert not patch.is_valid(json_value(parse_yaml(mistake.patch))), mistake.name
        elif mistake.content is None and not mistake.folder:
            try:
                value = json_value(parse_yaml(mistake.text()))
            except YamlError:
                continue  # no YAML: an editor says so without a schema
            assert rows.is_valid(value) == (mistake.marked is None), mistake.name
    assert sum(mistake.marked is not None for mistake in BAD_INPUTS) >= 14


@pytest.fixture
async def server(schemas: Place) -> AsyncIterator[tuple[LanguageServer, Path]]:
    async with language_server(schemas.work, CUSTOM_TAGS) as running:
        yield running, schemas.work


HINT = "# yaml-language-server: $schema=cordis.schema.json\n"


@needs_server
@pytest.mark.timeout(180)
async def test_a_yaml_language_server_marks_each_of_them_on_its_line(server: tuple[LanguageServer, Path]) -> None:
    running, folder = server
    assert await running.problems(folder / "right.yml", HINT + COMPOSITION) == []
    shipped = (ROOT / "cordis.yml").read_text("utf-8")
    assert await running.problems(folder / "shipped.yml", HINT + shipped) == []
    for mistake in BAD_INPUTS:
        if mistake.marked is not None:
            found = await running.problems(folder / f"{mistake.name}.yml", HINT + mistake.text())
            assert mistake.marked + 1 in [line for line, _ in found], (mistake.name, found)


@needs_server
@pytest.mark.timeout(180)
async def test_a_yaml_language_server_takes_expressions_and_names_the_key(server: tuple[LanguageServer, Path]) -> None:
    running, folder = server
    text = COMPOSITION.replace("Calls: 10", "Calls: !!js Number(env.CALLS)").replace(": local", ": !env ZONE")
    assert await running.problems(folder / "expressions.yml", HINT + text) == []
    [(line, said)] = await running.problems(folder / "misspelt.yml", HINT + COMPOSITION.replace("timezone", "timezon"))
    assert (line, said) == (22, "Property timezon is not allowed.")
    patch = (
        "# yaml-language-server: $schema=cordis.patch.schema.json\n- {id: agent-loop, config: {maxParalelToolCalls: 1}}"
    )
    [(line, said)] = await running.problems(folder / "one.patch.yml", patch)
    assert (line, said) == (2, "Property maxParalelToolCalls is not allowed.")


@needs_server
@pytest.mark.timeout(180)
async def test_a_yaml_language_server_completes_keys_names_and_values(server: tuple[LanguageServer, Path]) -> None:
    running, folder = server
    text = "- name: dsh-agent-loop\n  config:\n    \n- name: \n- name: dsh-llm-deepseek\n  config:\n    thinking: \n"
    file = folder / "completed.yml"
    await running.problems(file, HINT + text)
    assert {"maxParallelToolCalls", "agents"} <= set(await running.completions(file, 4, 5))
    assert {"dsh-agent-loop", "./plugins/clock.py"} <= set(await running.completions(file, 5, 9))
    assert {"enabled", "disabled"} <= set(await running.completions(file, 8, 15))
    assert "Tool calls of one step" in await _hover(running, folder)


async def _hover(running: LanguageServer, folder: Path) -> str:
    file = folder / "hovered.yml"
    await running.problems(file, HINT + COMPOSITION)
    return await running.hover(file, 6, 8)
