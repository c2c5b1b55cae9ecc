"""The `/` commands of the console: its own, and those of plugins, over one registry."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsh.models.mock_server import MockLlmServer
from tests.cli.kit import Place
from tests.interfaces.console_kit import BOTH, GREETER, HMR, SETTINGS, leaves, opened
from tests.interfaces.control_kit import DEMO, WAIT, begun, demo_place, go
from tests.interfaces.terminal import CTRL_C, CTRL_D, UP, console


@pytest.fixture
def place(tmp_path: Path) -> Place:
    place = demo_place(tmp_path, NO_COLOR="1")
    place.write("cordis.yml", DEMO + SETTINGS + HMR)
    return place


async def test_help_lists_every_command_and_an_unknown_one_is_no_prompt(place: Place) -> None:
    async with console(place) as terminal:
        terminal.type("/help\r")
        for name in ("agents", "switch LABEL", "settings [KEY", "config [ROW", "plugins", "usage", "cancel", "fork"):
            await terminal.stands(f"\n/{name}")
        await terminal.enter("/setings", 'there is no command "/setings"; did you mean "/settings"?; /help lists them')
        await terminal.enter("/usr/bin is a folder", 'there is no command "/usr/bin"')
        assert "You said" not in terminal.picture()
        await terminal.enter(" /usr/bin is a folder", "You said: /usr/bin is a folder")
        await leaves(terminal)


async def test_a_plugin_adds_commands_and_takes_them_with_it(place: Place) -> None:
    place.write("plugins/greeter.py", GREETER)
    place.write("cordis.yml", DEMO + SETTINGS + HMR + "- {id: greeter, name: ./plugins/greeter.py}\n")
    async with console(place) as terminal:
        await terminal.enter("/help", "/greet NAME", "greet somebody")
        terminal.type("/greet al")
        await terminal.stands("\n alice")
        terminal.type("\t\r\r")
        await terminal.stands("hello alice")
        await terminal.enter("/fail", "it went wrong")
        await terminal.enter("/slow", "it starts")
        terminal.type(CTRL_C)
        await terminal.stands("it starts\ncancelled")
        place.write("cordis.yml", DEMO + SETTINGS + HMR)
        await terminal.stands("config applied: greeter")
        await terminal.enter("/greet bob", 'there is no command "/greet"')
        await leaves(terminal)


async def test_a_command_and_ctrl_c_in_one_breath_run_nothing(place: Place) -> None:
    place.write("plugins/greeter.py", GREETER)
    place.write("cordis.yml", DEMO + "- {id: greeter, name: ./plugins/greeter.py}\n")
    async with opened(place) as terminal:
        terminal.type(f"/slow\r{CTRL_C}")
        await terminal.stands("> /slow\ncancelled")
        await leaves(terminal)
        assert "it starts" not in terminal.picture()


async def test_a_plugin_with_commands_also_runs_where_there_is_no_console(place: Place) -> None:
    place.write("plugins/greeter.py", GREETER)
    place.write("cordis.yml", DEMO + "- {id: greeter, name: ./plugins/greeter.py}\n")
    done = await place.dsh("exec", "hello")
    assert done.code == 0 and "You said: hello" in done.out, done.err


async def test_a_setting_is_completed_stored_and_in_force(place: Place) -> None:
    async with console(place) as terminal:
        await terminal.stands("10 at once")
        terminal.type("/settings maxPar")
        await terminal.stands("agent-loop.maxParallelToolCalls  10")
        await terminal.enter("\t 4", "agent-loop.maxParallelToolCalls = 4", "4 at once")
        assert "maxParallelToolCalls: 4" in (place.home / "settings.yaml").read_text("utf-8")
        await terminal.enter("/settings agent-loop", "agent-loop.maxParallelToolCalls  4  user")
        await terminal.enter("/settings agent-loop.maxParallelToolCalls few", "must be a whole number")
        await terminal.enter(
            "/settings agent-loop.maxParalelToolCalls 5", 'unknown key; did you mean "maxParallelToolCalls"?'
        )
        await terminal.enter("/settings unset agent-loop.maxParallelToolCalls", "10 at once")
        await leaves(terminal)


async def test_a_key_of_the_file_is_shown_and_edited_and_a_refused_edit_changes_nothing(place: Place) -> None:
    path = place.work / "cordis.yml"
    async with console(place) as terminal:
        await terminal.enter("/config agent-loop.maxParallelToolCalls", "\n10\n")
        await terminal.enter(
            "/config agent-loop.maxParallelToolCalls 7", "agent-loop.maxParallelToolCalls = 7", "7 at once"
        )
        edited = path.read_text("utf-8")
        assert "maxParallelToolCalls: 7   # live" in edited
        await terminal.enter("/config agent-loop.maxParallelToolCalls few", "must be a whole number")
        assert path.read_text("utf-8") == edited
        await terminal.enter("/config default-model.apiKey sk-1", "keys and passwords do not belong into a composition")
        await terminal.enter("/config agent-lop", 'no row "agent-lop"; did you mean "agent-loop"?')
        await leaves(terminal)


async def test_rows_and_usage_are_shown(tmp_path: Path) -> None:
    place = Place.make(tmp_path, NO_COLOR="1")
    place.init()
    async with MockLlmServer([{"text": "Done."}]) as server:
        place.model(server.url)
        async with console(place, "--prompt", "hi") as terminal:
            await terminal.stands("Done.")
            terminal.type("/usage\r")
            await terminal.stands(
                "turns  1\n\n"
                "model                             calls  input  cached  output\n"
                "deepseek-official/deepseek-flash  1      8      4       6"
            )
            await terminal.stands("12 in, 6 out · 10 at once")  # no price, no cost
            prices = "{input: 250, cachedInput: 10, output: 500}"
            await terminal.enter(
                f"/config llm-deepseek.models [{{id: deepseek-flash, prices: {prices}}}]",
                "12 in, 6 out · $0.0050 · 10 at once",
            )
            await terminal.enter("/usage", "deepseek-official/deepseek-flash  1      8      4       6       $0.0050")
            await terminal.enter("/plugins agent-loop", "state       active")
            await leaves(terminal)


async def test_what_waits_can_be_listed_dropped_and_taken_back(place: Place) -> None:
    async with console(place) as terminal:
        terminal.type(WAIT + "\r")
        await begun(place)
        for text in ("one", "two", "three"):
            terminal.type(f"{text}\r")
        await terminal.stands("waits: one\nwaits: two\nwaits: three\n")
        await terminal.enter("/queue", "1  one\n2  two\n3  three")
        terminal.type("/queue drop 1\r")
        await terminal.gone("waits: one")
        terminal.type(f"\x1b{UP}")
        await terminal.stands("> three")
        await terminal.gone("waits: three")
        await terminal.enter(" and more", "waits: two\nwaits: three and more\n")
        await terminal.enter("/queue edit 9", "nothing waits as number 9")
        go(place)
        await terminal.stands("You said: two")
        await terminal.stands("You said: three and more")
        assert "You said: one" not in terminal.picture()
        await leaves(terminal)


async def test_a_fork_is_another_agent_that_one_can_come_back_from(place: Place) -> None:
    async with console(place) as terminal:
        await terminal.enter("the first", "You said: the first")
        await terminal.enter("/fork", "a copy; /agents lists both")
        await terminal.enter("in the copy", "You said: in the copy")
        await terminal.enter("/agents", "\n  main  main-session-", "\n* -     session-")
        await terminal.enter("/switch nobody", 'no agent "nobody"; agents: main')
        terminal.type("/switch ma\t\r\r")
        await terminal.until(lambda: terminal.visible()[-1].startswith("main") or "\nmain ·" in terminal.picture(), "?")
        await terminal.enter("in the old one", "You said: in the old one")
        await leaves(terminal)


async def test_what_a_command_prints_after_ctrl_d_is_not_lost(place: Place) -> None:
    place.write("plugins/greeter.py", GREETER)
    place.write("cordis.yml", DEMO + "- {id: greeter, name: ./plugins/greeter.py}\n")
    async with console(place) as terminal:
        await terminal.enter("/late", "it waits")
        terminal.type(CTRL_D)
        await terminal.gone("at once")  # the status line, and all else that is drawn
        (place.work / "go").touch()
        assert await terminal.ends() == 0
        assert "it is done" in terminal.screen()


async def test_config_shows_what_runs_also_while_its_file_is_broken(place: Place) -> None:
    async with opened(place) as terminal:
        place.write("cordis.yml", "- {id: half\n")
        await terminal.enter("/config default-model.provider", "\ndemo\n")
        await leaves(terminal)


@pytest.mark.parametrize("command", BOTH)
async def test_config_refuses_a_key_that_the_plugin_does_not_know(place: Place, command: str) -> None:
    before = (place.work / "cordis.yml").read_text("utf-8")
    async with opened(place, command) as terminal:
        await terminal.enter(
            "/config agent-loop.maxParallelToolCals 3", 'unknown key; did you mean "maxParallelToolCalls"?'
        )
        await leaves(terminal)
        assert "maxParallelToolCals = 3" not in terminal.screen()
    assert (place.work / "cordis.yml").read_text("utf-8") == before
