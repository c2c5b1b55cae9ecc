"""The console in a real pseudo-terminal."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsh.models.mock_server import MockLlmServer
from tests.cli.kit import Place
from tests.interfaces.terminal import COLOUR, Terminal, console

__all__ = ["Terminal", "console"]


@pytest.fixture
async def place(tmp_path: Path) -> Place:
    place = Place.make(tmp_path)
    assert (await place.dsh("init", ".")).code == 0
    return place


async def test_a_prompt_is_answered_and_tools_are_shown(place: Place) -> None:
    call = {"toolCalls": [{"name": "bash", "arguments": '{"command":"echo from-the-shell","description":"d"}'}]}
    async with MockLlmServer([call, {"text": "It says from-the-shell."}]) as server:
        place.model(server.url)
        async with console(place) as terminal:
            await terminal.shows("\n>")
            terminal.type("run it\r")
            await terminal.shows("bash")
            await terminal.shows("It says from-the-shell.")
            terminal.type("/agents\r")
            await terminal.shows("main-session-")
            terminal.type("/quit\r")
            assert await terminal.ends() == 0


async def test_ctrl_c_cancels_the_turn_and_twice_leaves(place: Place) -> None:
    async with MockLlmServer(["stall", {"text": "Back again."}]) as server:
        place.model(server.url)
        async with console(place) as terminal:
            await terminal.shows("\n>")
            terminal.type("wait for ever\r")
            await server.wait_for_requests(1)
            terminal.type("\x03")
            await terminal.shows("turn ended: aborted")
            terminal.type("a slip")
            await terminal.shows("> a slip")
            terminal.type("\x03")
            await terminal.shows("press Ctrl-C again to leave")  # what was typed since tells that it is no second one
            terminal.type("still there?\r")
            await terminal.stands("Back again.\n\n>")  # nothing goes on any more
            terminal.type("\x03")
            await terminal.stands("press Ctrl-C again to leave\n\n>")
            terminal.type("\x03")
            assert await terminal.ends() == 0


@pytest.mark.parametrize("way", ["SIGTERM", "Ctrl-D"])
async def test_who_leaves_in_the_middle_of_a_reply_keeps_what_came_of_it_on_the_screen(place: Place, way: str) -> None:
    async with MockLlmServer(["pings_only"]) as server:
        place.model(server.url)
        async with console(place) as terminal:
            await terminal.shows("\n>")
            terminal.type("tell me\r")
            await terminal.shows("Hello")
            if way == "SIGTERM":
                terminal.process.terminate()
                await terminal.ends()
            else:
                terminal.type("\x04")
                assert await terminal.ends() == 0
                assert "ends with this process; `dsh resume main-" in " ".join(terminal.picture().split())
            assert "Hello" in terminal.picture()


async def test_ctrl_d_leaves_and_no_colour_is_written_when_unwanted(place: Place) -> None:
    place.env["NO_COLOR"] = "1"
    async with MockLlmServer([{"reasoning": "hm", "text": "Plain."}]) as server:
        place.model(server.url)
        async with console(place, "--prompt", "hello") as terminal:
            await terminal.shows("Plain.")
            assert not COLOUR.search(terminal.raw)
            await terminal.shows("\n>")
            terminal.type("\x04")
            assert await terminal.ends() == 0


async def test_control_characters_of_a_model_never_reach_the_terminal(place: Place) -> None:
    async with MockLlmServer([{"text": "before\x1b]52;c;aGFjaw==\x07after\x9b31m end."}]) as server:
        place.model(server.url)
        async with console(place, "--prompt", "hello") as terminal:
            await terminal.shows("end.")
            assert "\x1b]52" not in terminal.raw and "\x9b" not in terminal.raw


async def test_a_refused_edit_is_one_message_and_the_agent_goes_on(place: Place) -> None:
    async with MockLlmServer([{"text": "Still fine."}]) as server:
        place.model(server.url)
        async with console(place) as terminal:
            await terminal.shows("\n>")
            path = place.work / "cordis.yml"
            path.write_text(path.read_text().replace("maxParallelToolCalls: 10", "maxParallelToolCalls: many"))
            await terminal.shows('cordis.yml:11: row "agent-loop", key config.maxParallelToolCalls')
            await terminal.shows("what ran before runs on")
            terminal.type("hello\r")
            await terminal.shows("Still fine.")
