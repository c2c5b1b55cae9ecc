"""`dsh settings edit`, `path` and `list`: one's own editor on one's own settings, and where each value comes from."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.cli.kit import Place

GOOD = "# mine\nagent-loop: {maxParallelToolCalls: 3}\n"
BREAK_OFF = f"""\
file.write_text({GOOD!r})
import os, signal, time
os.kill(os.getppid(), signal.SIGINT)
time.sleep(60)"""
"""What an editor does that saves, and during which Ctrl-C is pressed."""


@pytest.fixture
def place(tmp_path: Path) -> Place:
    place = Place.make(tmp_path)
    place.write("cordis.yml", "- id: loop\n  name: dsh-agent-loop\n  config:\n    maxParallelToolCalls: 7\n")
    place.home.mkdir()
    return place


def editor(place: Place, text: str | bytes, *, also: str = "") -> dict[str, str]:
    """An editor that writes `text` into the file it is given, and keeps what it was given."""
    data = text.encode() if isinstance(text, str) else text
    script = place.work / "editor.py"
    script.write_text(
        "import pathlib, sys\nfile = pathlib.Path(sys.argv[-1])\n"
        f"pathlib.Path('seen').write_bytes(file.read_bytes())\n{also}\nfile.write_bytes({data!r})\n"
    )
    return {"VISUAL": "", "EDITOR": f"{sys.executable} {script}"}


async def test_what_is_right_is_saved_and_the_first_text_tells_what_may_be_set(place: Place) -> None:
    done = await place.dsh("settings", "edit", env=editor(place, GOOD))
    assert (done.code, done.out, done.err) == (0, "$DSH_HOME/settings.yaml: saved\n", "")
    document = place.home / "settings.yaml"
    assert document.read_text() == GOOD and document.stat().st_mode & 0o777 == 0o600
    given = (place.work / "seen").read_text()
    assert "#   maxParallelToolCalls: 10 " in given and "# shell:\n" in given
    assert all(line.startswith("#") for line in given.splitlines()), "it sets nothing"


async def test_what_is_wrong_is_said_with_its_line_and_nothing_is_lost(place: Place) -> None:
    document = place.home / "settings.yaml"
    document.write_text(GOOD)
    wrong = "# mine\nagent-loop:\n  maxParallelToolCalls: 0\nshell: {timeoutMs: no}\n"
    done = await place.dsh("settings", "edit", env=editor(place, wrong))
    first, second, last = done.err.splitlines()
    assert done.code == 1 and document.read_text() == GOOD
    assert first == "dsh: $DSH_HOME/settings.yaml:3: agent-loop.maxParallelToolCalls: must be ≥ 1, got 0"
    assert second == 'dsh: $DSH_HOME/settings.yaml:4: shell.timeoutMs: must be a whole number, got "no"'
    kept = Path(last.removeprefix("dsh: nothing was changed; your text is in "))
    assert kept.read_text() == wrong
    assert (place.work / "seen").read_text() == GOOD


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("agent-loop: [\n", "$DSH_HOME/settings.yaml:1"),
        ("- a\n", "$DSH_HOME/settings.yaml: must be a mapping of sections"),
        (b"a: \xff\n", "$DSH_HOME/settings.yaml: not UTF-8 text (it has the byte 0xff)"),
    ],
)
async def test_what_is_no_settings_text_at_all_is_not_taken(place: Place, text: str | bytes, said: str) -> None:
    done = await place.dsh("settings", "edit", env=editor(place, text))
    assert done.code == 1 and done.err.startswith(f"dsh: {said}") and "your text is in" in done.err
    assert not (place.home / "settings.yaml").exists()


async def test_oddities_are_told_and_saved(place: Place) -> None:
    text = "agent-loop: {maxParalelToolCalls: 3}\nshel: {}\nllm-deepseek: {apiKey: sk-5ecret}\n"
    done = await place.dsh("settings", "edit", env=editor(place, text))
    assert done.code == 0 and (place.home / "settings.yaml").read_text() == text
    place_of = "dsh: warning: $DSH_HOME/settings.yaml"
    assert done.err.splitlines() == [
        f'{place_of}:1: agent-loop.maxParalelToolCalls: unknown key; did you mean "maxParallelToolCalls"?',
        f'{place_of}:2: shel: no built-in section is called so, it is kept unchecked; did you mean "shell"?',
        f"{place_of}:3: llm-deepseek.apiKey: a secret does not belong into settings; "
        "`dsh credentials set NAME` stores it",
        f'{place_of}:3: llm-deepseek.apiKey: unknown key; did you mean "apiKeyEnv"?',
    ]
    assert "sk-5ecret" not in done.err + done.out


async def test_an_edit_by_somebody_else_meanwhile_is_not_written_over(place: Place) -> None:
    document = place.home / "settings.yaml"
    document.write_text(GOOD)
    also = f"pathlib.Path({str(document)!r}).write_text('shell: {{timeoutMs: 9}}')"
    done = await place.dsh("settings", "edit", env=editor(place, "agent-loop: {}\n", also=also))
    assert done.code == 1 and "was changed by somebody else meanwhile" in done.err and "your text is in" in done.err
    assert document.read_text() == "shell: {timeoutMs: 9}"


async def test_a_text_that_was_left_alone_changes_nothing(place: Place) -> None:
    done = await place.dsh("settings", "edit", env={"VISUAL": "true", "EDITOR": "false"})
    assert (done.code, done.out) == (0, "$DSH_HOME/settings.yaml: nothing was changed\n")
    assert not (place.home / "settings.yaml").exists()


async def test_the_path_is_one_that_other_programs_can_open(place: Place) -> None:
    assert (await place.dsh("settings", "path")).out == f"{place.home / 'settings.yaml'}\n"
    found = (await place.dsh("settings", "path", "--json")).json()
    assert found == {"path": str(place.home / "settings.yaml"), "exists": False}


async def test_each_value_is_listed_with_the_line_that_says_it(place: Place) -> None:
    (place.home / "settings.yaml").write_text("# mine\nshell:\n  timeoutMs: 5000\n")
    listed = {each["key"]: each for each in (await place.dsh("settings", "list", "--json")).json()}
    assert listed["shell.timeoutMs"] == {
        "key": "shell.timeoutMs",
        "value": 5000,
        "layer": "user",
        "place": "$DSH_HOME/settings.yaml:3",
    }
    row = listed["agent-loop.maxParallelToolCalls"]
    assert (row["value"], row["layer"], row["place"]) == (7, "row", "cordis.yml:4")
    unset = listed["llm-deepseek.thinking"]
    assert (unset["value"], unset["layer"], unset["place"]) == (None, "default", None)
    table = (await place.dsh("settings", "list")).out
    assert "user, $DSH_HOME/settings.yaml:3\n" in table and "row, cordis.yml:4\n" in table


async def test_an_editor_that_is_no_command_or_is_broken_off_is_said_and_loses_nothing(place: Place) -> None:
    done = await place.dsh("settings", "edit", env={"VISUAL": "", "EDITOR": "vi 'half"})
    assert (done.code, done.err) == (1, "dsh: $EDITOR is no command: No closing quotation\n")
    done = await place.dsh("settings", "edit", env=editor(place, GOOD, also=BREAK_OFF))
    assert done.code == 130 and not (place.home / "settings.yaml").exists()
    told = next(line for line in done.err.splitlines() if "your text is in" in line)
    kept = Path(told.removeprefix("dsh: nothing was changed; your text is in "))
    assert kept.read_text() == GOOD


async def test_a_key_that_its_section_does_not_know_is_refused_unless_forced(place: Place) -> None:
    document = place.home / "settings.yaml"
    refused = await place.dsh("settings", "set", "agent-loop.maxParalelToolCalls", "1")
    text = 'dsh: agent-loop.maxParalelToolCalls: unknown key; did you mean "maxParallelToolCalls"?'
    assert (refused.code, refused.err.splitlines()[0]) == (1, text) and not document.exists()
    forced = await place.dsh("settings", "set", "--force", "agent-loop.maxParalelToolCalls", "1")
    assert forced.code == 0 and "unknown key" in forced.err and document.exists()
    assert (await place.dsh("settings", "set", "agent-loop.maxParallelToolCalls", "2")).code == 0, "the other is old"
    elsewhere = await place.dsh("settings", "set", "clock.timezone", "UTC")
    assert elsewhere.code == 0 and "is not a built-in one and is stored unchecked" in elsewhere.err
