"""``dsh config get|set|unset|diff|edit`` in real processes: one value, in the file that says it, or no change."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from dsh.cli.differences import dropped
from dsh.interfaces.drafts import Draft
from dsh.loader.boot import make_source
from dsh.loader.patches import Layer, compose
from dsh.loader.problems import LoadError
from dsh.loader.writeback import FileChangedError
from dsh.loader.yamlio import parse_yaml, same_value
from tests.cli.kit import PYTHON, TIMEOUT, Place
from tests.interfaces.control_kit import DEMO
from tests.interfaces.terminal import on_terminal

PLUGIN = '''
"""A plugin with a config."""
from typing import Literal
from dsh.cordis import ConfigModel, field

class Agent(ConfigModel):
    name: str
    model: str = "m"

class Config(ConfigModel):
    size: int = field(1, min=1)
    mode: Literal["fast", "safe"] = "safe"
    label: str = "none"
    agents: list[Agent] = field(default_factory=list)

def apply(ctx, config): ...
'''

ROWS = """\
# Mine.

- id: a        # the first
  name: ./plug.py
  config:
    size: 4    # enough
    agents:
      # one
      - name: x
        # model: other
- {id: b.c, name: ./plug.py}   # a dot
- id: inner
  name: cordis:include
  config: {path: inner.yml}
"""

INNER = "- {id: i, name: ./plug.py, config: {size: 2}} # in\n"


@pytest.fixture
def place(tmp_path: Path) -> Place:
    place = Place.make(tmp_path)
    place.write("plug.py", PLUGIN)
    place.write("cordis.yml", ROWS)
    place.write("inner.yml", INNER)
    return place


def text(place: Place, name: str = "cordis.yml") -> str:
    return (place.work / name).read_bytes().decode()


async def done(place: Place, *arguments: str, **options: Any) -> str:
    """What a `dsh config` command that must work printed."""
    finished = await place.dsh("config", *arguments, **options)
    assert finished.code == 0, finished.err
    return finished.out + finished.err


async def refused(place: Place, *arguments: str) -> str:
    """What a `dsh config` command said that must change nothing."""
    before = {path.name: path.read_bytes() for path in place.work.iterdir() if path.is_file()}
    finished = await place.dsh("config", *arguments)
    assert (finished.code, finished.out) == (1, "")
    assert {path.name: path.read_bytes() for path in place.work.iterdir() if path.is_file()} == before
    return finished.err


async def test_b06a_a_value_changes_in_place_and_every_other_byte_stays(place: Place) -> None:
    assert await done(place, "set", "a.size", "7") == "a.size = 7 (cordis.yml:6)\n"
    assert text(place) == (changed := ROWS.replace("size: 4 ", "size: 7 "))
    assert await done(place, "get", "a.size") == "7\ncordis.yml:6\n"
    await done(place, "set", "a.agents.0.model", "!!js env.MODEL")
    changed = changed.replace("- name: x\n", "- name: x\n        model: !!js env.MODEL\n")
    assert text(place) == changed
    await done(place, "set", "b.c.disabled", "true")
    await done(place, "set", "inner:i.mode", "fast")
    assert text(place) == changed.replace("./plug.py}   # a", "./plug.py, disabled: true}   # a")
    assert text(place, "inner.yml") == INNER.replace("size: 2", "size: 2, mode: fast")
    assert await done(place, "unset", "a.size") == "a.size = 1 (the default)\n"
    assert "size: 7" not in text(place) and "# one" in text(place)


async def test_b06b_a_value_that_is_refused_leaves_the_file_as_it_was_and_says_what_would_be_right(
    place: Place,
) -> None:
    assert 'cordis.yml:6: row "a", key config.size: must be ≥ 1, got 0' in await refused(place, "set", "a.size", "0")
    said = await refused(place, "set", "a.mode", "quick")
    assert "key config.mode: must be" in said and "fast" in said and "safe" in said
    assert "nothing was changed" in said
    said = await refused(place, "set", "a.siz", "2")
    assert 'key config.siz: unknown key; did you mean "size"?' in said
    assert 'no row has the id "aa"; did you mean "a"?' in await refused(place, "set", "aa.size", "2")
    assert 'did you mean "agents"?' in await refused(place, "unset", "a.agent")
    assert "a.size: " in (said := await refused(place, "set", "a.size", "@x")) and "needs quotes" in said
    assert "a list of 1 items has no item 3" in await refused(place, "set", "a.agents.3.name", "x")
    assert "cordis.yml:4" in (said := await refused(place, "set", "a.name", "./plugg.py")) and "plugg.py" in said
    assert "dsh credentials set" in await refused(place, "set", "a.apiKey", "sk-1")
    assert "name a key" in await refused(place, "set", "a", "1")
    assert "found by their id" in await refused(place, "set", "a.id", "z")


async def test_b06c_a_mistake_that_was_there_before_does_not_stand_in_the_way_of_mending_another(place: Place) -> None:
    place.write("cordis.yml", ROWS.replace("size: 4", "size: 0") + "- {id: bad, name: ./plug.py, config: {size: -1}}\n")
    said = await done(place, "set", "a.size", "3")
    assert "wrong before and still" in said and 'row "bad"' in said
    assert "size: 3" in text(place)


async def test_b06d_a_patched_value_is_changed_in_its_patch_and_the_layers_are_told(place: Place) -> None:
    said = await done(place, "set", "a.size", "9", "--layer", "user")
    assert "a.size = 9 (cordis.patch.yml:3, your patch)" in said and "now holds the whole config of row a" in said
    assert text(place) == ROWS
    assert text(place, "cordis.patch.yml") == "- id: a\n  config:\n    size: 9\n    agents:\n      - name: x\n"
    assert await done(place, "get", "a.size") == "9\ncordis.patch.yml:3, your patch; cordis.yml:6 says 4\n"
    finished = await place.dsh("config", "get", "a.size", "--json")
    where = {"row": "a", "key": "config.size"}
    assert finished.json() == {
        **where, "value": 9, "layer": "user", "file": "cordis.patch.yml", "line": 3,
        "overrides": {**where, "value": 4, "layer": "file", "file": "cordis.yml", "line": 6},
    }  # fmt: skip
    await done(place, "set", "a.size", "8")
    assert "size: 8" in text(place, "cordis.patch.yml") and text(place) == ROWS
    said = await done(place, "set", "a.size", "5", "--layer", "file")
    assert "a.size = 5 (cordis.yml:6)" in said and "not in force: cordis.patch.yml:3, your patch says 8" in said
    place.write("over.yml", "- {id: a, label: over} # mine\n- insert: [{id: n, name: ./plug.py}]\n")
    await done(place, "set", "n.size", "2", "--patch", "over.yml")
    assert "{id: n, name: ./plug.py, config: {size: 2}}" in text(place, "over.yml")
    await done(place, "set", "a.label", "mine", "--layer", "user")
    said = await done(place, "unset", "a.size", "--layer", "user")
    assert "a.size = 5 (cordis.patch.yml" in said and "label: mine" in text(place, "cordis.patch.yml")
    said = await done(place, "unset", "a.label", "--layer", "user")  # what is left is what the file says
    assert text(place, "cordis.patch.yml") == "[]\n" and "(the default)" in said
    await done(place, "set", "b.c.size", "3", "--layer", "user")
    await done(place, "unset", "b.c.size", "--layer", "user")
    assert text(place, "cordis.patch.yml") == "[]\n"
    await done(place, "set", "a.size", "9", "--layer", "user")
    await done(place, "unset", "a.config", "--layer", "user")
    assert text(place, "cordis.patch.yml") == "[]\n"
    assert "into included files" in await refused(place, "set", "inner:i.size", "3", "--layer", "user")
    place.write("cordis.yml", ROWS + "- name: ./plug.py\n")
    assert "the row has no id" in await refused(place, "set", "./plug.py#1.size", "3", "--layer", "user")


async def test_a_patch_that_drops_keys_of_the_file_is_noted_and_the_example_of_the_readme_drops_none(
    place: Place,
) -> None:
    place.write("cordis.patch.yml", "- id: a\n  config: {size: 2}\n")
    note = 'note: cordis.patch.yml:2: row "a", key config: this replaces the whole config, without agents of '
    note += "cordis.yml:5; repeat it to keep it\n"
    checked = await place.dsh("config", "check")
    assert (checked.code, checked.err) == (0, "") and checked.out == f"{note}cordis.yml: 3 rows, nothing wrong\n"
    assert note in await done(place, "diff")
    readme = (Path(__file__).parents[2] / "README.md").read_text("utf-8")
    example = re.search(r"`(- \{id: clock, config: .*?\})`", readme)
    assert example is not None
    rows = parse_yaml((Path(__file__).parents[2] / "cordis.yml").read_text("utf-8"))
    patched = compose(rows, "cordis.yml", [Layer("cordis.patch.yml", parse_yaml(example[1]))]).rows
    assert list(dropped(rows, patched)) == [] and not same_value(rows, patched)


async def test_b06e_a_save_by_somebody_else_between_reading_and_writing_is_not_lost(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place.work)
    draft = Draft(make_source("cordis.yml"))
    draft.set("a.size", 5)
    place.write("cordis.yml", ROWS + "# theirs\n")
    with pytest.raises(FileChangedError, match="cordis.yml: it was changed by somebody else"):
        draft.write()
    assert text(place) == ROWS + "# theirs\n"
    draft = Draft(make_source("cordis.yml"))
    draft.set("a.size", 5)
    draft.write()
    place.write("cordis.yml", "theirs")
    draft.take_back()
    assert text(place) == "theirs"


async def test_of_an_edit_of_several_files_all_are_written_or_none(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place.work)
    place.write("cordis.patch.yml", patch := "- {id: a, config: {size: 2}}\n")
    draft = Draft(make_source("cordis.yml"))
    draft.set("a.disabled", True)
    draft.set("a.size", 5)
    assert [path.name for path in draft.texts] == ["cordis.yml", "cordis.patch.yml"]
    place.write("cordis.patch.yml", patch + "# theirs\n")
    with pytest.raises(FileChangedError):
        draft.write()
    assert (text(place), text(place, "cordis.patch.yml")) == (ROWS, patch + "# theirs\n")


async def test_an_empty_value_is_the_empty_text_and_a_text_like_a_mapping_is_told_to_be_quoted(place: Place) -> None:
    said = await refused(place, "set", "a.label", "plain: colon")
    assert """a text like this needs quotes of its own: '"plain: colon"'\n""" in said
    assert """needs quotes of its own: '"{{name}} x"'\n""" in await refused(place, "set", "a.label", "{{name}} x")
    await done(place, "set", "a.label", "fix issue #5")
    assert "label: 'fix issue #5'" in text(place)
    await done(place, "set", "a.label", '"plain: colon"')
    assert "label: 'plain: colon'" in text(place)
    await done(place, "set", "a.label", "")
    assert "label: ''" in text(place)
    assert 'must be a whole number, got ""' in await refused(place, "set", "a.size", "")
    await done(place, "set", "a.label", "null")
    assert "label: null" in text(place)


async def test_what_is_not_a_file_of_ones_own_is_not_edited(tmp_path: Path) -> None:
    place = Place.make(tmp_path)
    for arguments in (["set", "llm.x", "1"], ["unset", "llm.x"], ["edit"]):
        finished = await place.dsh("config", *arguments)
        assert finished.code == 1 and "`dsh init`" in finished.err
    assert (await place.dsh("config", "get", "agent-loop.maxParallelToolCalls")).out == "10\n"
    place.write("cordis.yml", "[]\n")
    finished = await place.dsh("config", "set", "llm.x", "1", "--layer", "all")
    assert finished.code == 2 and "file, user" in finished.err


async def test_keys_of_rows_and_of_configs_with_the_same_name_are_told_apart(place: Place) -> None:
    assert await done(place, "get", "a.label") == "none\nthe default\n"
    await done(place, "set", "a.label", "config's")
    assert "    label: config's\n" in text(place)
    assert "id: a\n" in await done(place, "get", "a")
    assert "name: x" in await done(place, "get", "a.agents")
    said = (await place.dsh("config", "get", "a.config.siz")).err
    assert 'cordis.yml:5: row "a", key config.siz: there is no such value; did you mean "size"?' in said


async def test_a_setting_of_the_user_over_the_value_is_told(tmp_path: Path) -> None:
    place = Place.make(tmp_path)
    place.write("cordis.yml", DEMO)
    await place.dsh("settings", "set", "agent-loop.maxParallelToolCalls", "4")
    note = "dsh: your settings say 4 ($DSH_HOME/settings.yaml); `dsh settings unset agent-loop.maxParallelToolCalls`"
    finished = await place.dsh("config", "get", "agent-loop.maxParallelToolCalls")
    assert finished.out == "10\n" and note in finished.err
    assert note in (await place.dsh("config", "set", "agent-loop.maxParallelToolCalls", "3")).err


# --- daemons and differences ------------------------------------------------------------------------------------------


async def test_a_daemon_follows_what_is_set_and_diff_says_what_it_did_not_take_over(tmp_path: Path) -> None:
    place = Place.make(tmp_path)
    place.write("cordis.yml", DEMO)
    place.write("cordis.patch.yml", "- {id: bash, config: {timeoutMs: 1000}}\n- {id: gone, label: x}\n")
    async with place.daemon("--set", "agent-loop.maxParallelToolCalls=2") as daemon:
        await daemon.ready()
        await done(place, "set", "tool-bash.allowParallel", "false")

        async def differs(wanted: list[tuple[str, str, Any]]) -> Any:
            async with asyncio.timeout(TIMEOUT):
                while True:
                    found = (await place.dsh("config", "diff", "--json")).json()
                    (running,) = found["daemons"]
                    if [(d["row"], d["key"], d["after"]) for d in running["differences"]] == wanted:
                        return found

        argument = ("agent-loop", "config.maxParallelToolCalls", 2)
        found = await differs([argument])
        assert found["patches"] == ["cordis.patch.yml"]
        assert [(d["row"], d["key"], d["kind"], d["line"]) for d in found["differences"]] == [
            ("bash", "config", "added", 1)
        ]
        place.write("cordis.yml", text(place).replace("allowParallel: false", "allowParallel: maybe"))
        await differs([argument, ("tool-bash", "config.allowParallel", False)])
        shown = await done(place, "diff")
        assert (
            "cordis.yml, changed by cordis.patch.yml\n  + bash.config: {timeoutMs: 1000}  (cordis.patch.yml:1)" in shown
        )
        assert f"daemon {daemon.process.pid} runs something else (files -> daemon)" in shown
        assert "~ tool-bash.allowParallel: maybe -> false" in shown
        assert 'no row has the id "gone"' in shown


# --- one's own editor -------------------------------------------------------------------------------------------------


def editor(place: Place, *steps: tuple[str, str]) -> str:
    """An editor that makes one replacement each time it is started."""
    lines = ["import pathlib, sys", "path = pathlib.Path(sys.argv[-1])", "turns = pathlib.Path('turns')"]
    lines += ["turn = len(turns.read_text()) if turns.exists() else 0", "turns.write_text('x' * (turn + 1))"]
    lines += [f"old, new = {list(steps)!r}[turn]", "text = path.read_bytes().decode()", "assert old in text, text"]
    lines += ["path.write_bytes(text.replace(old, new).encode())"]
    script = place.write("editor.py", "\n".join(lines))
    return f"{PYTHON} {script}"


async def test_edit_offers_the_text_again_until_it_is_right_and_saves_exactly_that(place: Place) -> None:
    place.env["VISUAL"] = editor(
        place, ("size: 4", "size: 0"), ("# Mine.", "# Still mine.\n- ["), ("- [", ""), ("size: 0", "size: 6")
    )
    command = (PYTHON, "-m", "dsh.cli.main", "config", "edit")
    async with on_terminal(*command, cwd=place.work, env=place.env) as terminal:
        await terminal.stands("key config.size: must be ≥ 1, got 0")
        await terminal.stands("Edit again?")
        terminal.type("\n")
        await terminal.stands("cordis.yml:2: the [ here is not closed")
        terminal.type("y\n")
        await terminal.until(lambda: terminal.screen().count("Edit again?") == 3, "not offered again")
        terminal.type("y\n")
        assert await terminal.ends() == 0
        assert "cordis.yml: saved" in terminal.picture()
    assert text(place) == ROWS.replace("size: 4", "size: 6").replace("# Mine.", "# Still mine.\n")


async def test_edit_loses_nothing_when_it_is_given_up_or_the_file_changed(place: Place) -> None:
    place.env["EDITOR"] = editor(place, ("size: 4", "size: 0"), ("size: 4", "size: 5"))
    finished = await place.dsh("config", "edit", stdin="")
    assert finished.code == 1 and "must be ≥ 1" in finished.err
    copy = Path(finished.err.rsplit("your text is in ", 1)[1].strip())
    assert copy.name == "cordis.yml" and copy.read_text() == ROWS.replace("size: 4", "size: 0")
    assert copy.parent.stat().st_mode & 0o077 == 0
    assert text(place) == ROWS
    script = place.work / "editor.py"
    script.write_text(script.read_text() + "\npathlib.Path('cordis.yml').write_text('[]\\n')\n")
    finished = await place.dsh("config", "edit", stdin="")
    assert finished.code == 1 and "changed by somebody else" in finished.err
    assert text(place) == "[]\n"
    copy = Path(finished.err.split("your text is in ", 1)[1].split("\n")[0])
    assert copy.read_text() == ROWS.replace("size: 4", "size: 5")


async def test_edit_of_the_patch_beside_it_starts_with_an_example_and_an_unchanged_text_is_no_change(
    place: Place,
) -> None:
    place.env |= {"EDITOR": "true", "VISUAL": ""}
    assert "nothing was changed" in await done(place, "edit", "--layer", "user")
    assert not (place.work / "cordis.patch.yml").exists()
    place.env["EDITOR"] = editor(place, ("# - {id: agent-loop, disabled: false}", "- {id: a, disabled: true}"))
    assert "cordis.patch.yml: saved" in await done(place, "edit", "--layer", "user")
    assert "\n- {id: a, disabled: true}\n" in text(place, "cordis.patch.yml")
    place.env["EDITOR"] = "no-such-editor"
    finished = await place.dsh("config", "edit")
    assert finished.code == 1 and "cannot be started" in finished.err


def test_a_value_of_the_command_line_or_of_nowhere_cannot_be_edited(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place.work)
    draft = Draft(make_source("cordis.yml", sets=["a.size=3"]))
    assert (draft.find("a.size").layer, draft.find("a.agents").layer) == ("arguments", "file")
    with pytest.raises(LoadError, match="stands in no file"):
        draft.set("a.size", 4)
    draft.set("a.mode", "fast")
    wanted = ROWS.replace("# model: other\n", "# model: other\n    mode: fast\n")
    assert draft.texts == {place.work / "cordis.yml": wanted}, "what --set says is not written with it"
