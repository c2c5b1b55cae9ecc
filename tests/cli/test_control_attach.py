"""``dsh attach``: the console on a daemon that runs somewhere else, on a terminal and without one."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from pathlib import Path

import pytest

from dsh.interfaces.dialogue import LEAVE_SECONDS
from tests.cli.kit import TIMEOUT, Place
from tests.cli.test_control import following
from tests.interfaces.control_kit import DEMO, WAIT, controlled, demo_place
from tests.interfaces.fake_daemon import fake_daemon, turn
from tests.interfaces.terminal import console


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return demo_place(tmp_path, NO_COLOR="1")


async def test_a_terminal_talks_to_a_daemon_and_leaves_it_running(place: Place) -> None:
    async with controlled(place) as control:
        await control.prompt("said before")
        await control.idle()
        async with console(place, "main", command="attach") as terminal:
            await terminal.shows(f"attached to main, session {control.main}")
            await terminal.shows("> said before")
            await terminal.stands("main · demo")  # agent and model
            terminal.type("hello from here\r")
            await terminal.shows("You said: hello from here")
            terminal.type('call bash {"command":"echo from-the-shell","description":"d"}\r')
            await terminal.shows("· from-the-shell\n")
            assert (await place.dsh("send", "main", "from elsewhere", "--wait")).code == 0
            await terminal.shows("> from elsewhere")
            terminal.type("/help\r")
            await terminal.shows("/queue [drop|edit N]")
            terminal.type("\x04")
            assert await terminal.ends() == 0
            assert f"detached; daemon {control.daemon.process.pid} (cordis.yml) goes on" in terminal.screen()
        assert control.daemon.process.returncode is None
        assert (await control.ask("GET", "/api/status"))["state"] == "running"


async def test_typing_steering_and_cancelling_while_a_turn_runs(place: Place) -> None:
    async with controlled(place) as control:
        async with console(place, command="attach") as terminal:
            await terminal.shows("\n>")
            terminal.type(WAIT + "\r")
            await control.begun()
            terminal.type("next one\r")
            await terminal.stands("waits: next one\n!TEXT steers the running turn")
            terminal.type("!to the left\r")
            await control.waiting("nextStep")
            terminal.type("/queue\r")
            await terminal.stands("1  steers: to the left\n2  next one")
            terminal.type("half a li")
            await terminal.shows("half a li")
            control.go()
            await terminal.shows("You said: to the left")
            await terminal.shows("You said: next one")
            terminal.type("ne\r")
            await terminal.shows("You said: half a line")
            terminal.type(WAIT + "\r")
            await control.begun()
            terminal.type("typed while it runs")
            first = time.monotonic()
            terminal.type("\x03")
            await terminal.shows("turn ended: aborted")
            terminal.type(" and sent after\r")
            await terminal.shows("You said: typed while it runs and sent after")
            while time.monotonic() < first + LEAVE_SECONDS:  # the next Ctrl-C must not count as the second of two
                await asyncio.sleep(0.1)
            await asyncio.sleep(0.1)
            terminal.type("\x03")
            await terminal.shows("press Ctrl-C again to leave")
            terminal.type("\x03")
            assert await terminal.ends() == 0
        assert control.daemon.process.returncode is None


async def test_text_typed_while_a_prompt_is_sent_outlives_a_ctrl_c(place: Place) -> None:
    async with fake_daemon(place.home, turn("m-1", "hello"), [(99, "stay")]) as daemon:
        async with console(place, "main", command="attach") as terminal:
            await terminal.shows("w w w w w\n")
            daemon.takes_prompts.clear()
            terminal.type("one\r")
            async with asyncio.timeout(TIMEOUT):
                while not daemon.prompts:
                    await asyncio.sleep(0.02)
            terminal.type("tw")
            terminal.type("\x03")
            await terminal.shows("cancelling")
            daemon.takes_prompts.set()
            terminal.type("o\r")
            async with asyncio.timeout(TIMEOUT):
                while len(daemon.prompts) < 2:
                    await asyncio.sleep(0.02)
                    terminal.read()
            assert daemon.prompts == ["one", "two"]
            terminal.type("\x04")
            assert await terminal.ends() == 0


async def test_ctrl_d_leaves_a_stopped_daemon_and_tells_which_prompt_it_did_not_confirm(place: Place) -> None:
    async with controlled(place) as control, console(place, command="attach") as terminal:
        await terminal.shows("\n>")
        pid = control.daemon.process.pid
        control.daemon.signal(signal.SIGSTOP)
        try:
            terminal.type("more\r")
            await terminal.stands("sending: more")
            silent = (
                f"daemon {pid} (cordis.yml) does not answer; waiting for it; what you sent is not confirmed; Ctrl-D"
            )
            await terminal.stands(silent)
            terminal.type("and more\r\x04")
            assert await terminal.ends() == 1
        finally:
            control.daemon.signal(signal.SIGCONT)
        end = terminal.picture()
        assert f"dsh: detached; daemon {pid} (cordis.yml) does not answer; if it was stopped by a signal," in end
        assert "a prompt that the daemon did not confirm; it may still take it up:\nmore\n" in end
        assert end.endswith("in the next console:\nand more")


@pytest.mark.parametrize("leave", ["\x04", "/quit\r", "\x03\x03"])
async def test_a_command_without_an_answer_holds_up_nobody_who_leaves(place: Place, leave: str) -> None:
    async with fake_daemon(place.home, turn("m-1", "hello"), [(99, "stay")]) as daemon:
        async with console(place, "main", command="attach") as terminal:
            await terminal.shows("w w w w w\n")
            daemon.answers.clear()
            terminal.type("/agents\r")
            await terminal.stands("does not answer; waiting for it")
            if leave == "\x04":  # until it does
                daemon.answers.set()
                await terminal.stands("answers again")
                daemon.answers.clear()
                terminal.type("/agents\r")
                await terminal.until(lambda: terminal.picture().count("does not answer") == 2, "it is not said again")
            terminal.type(leave)
            assert await terminal.ends() == 1
            assert "dsh: detached; " in terminal.screen()


async def test_a_turn_that_runs_is_shown_from_its_beginning(place: Place) -> None:
    async with controlled(place) as control:
        await control.prompt(WAIT)
        await control.begun()
        async with console(place, command="attach") as terminal:
            await terminal.shows("> call bash")
            await terminal.shows('bash {"command"')
            control.go()
            await terminal.shows("The tool answered:")
            terminal.type("/quit\r")
            assert await terminal.ends() == 0


async def test_a_long_line_streams_in_place_and_stands_once_when_it_is_whole(place: Place) -> None:
    words = " ".join(f"word{n}" for n in range(200))
    place.write("cordis.yml", DEMO.replace("{paceMs: 0}", json.dumps({"paceMs": 5, "replies": [words]})))
    async with controlled(place) as control:
        async with console(place, command="attach") as terminal:
            await terminal.shows("\n>")
            terminal.type("go\r")
            await terminal.shows("word50 ")
            terminal.type("typed meanwhile")
            await terminal.shows("word199")
            await terminal.shows("typed meanwhile")
            terminal.type("\r")
            async with asyncio.timeout(TIMEOUT):
                while [event["type"] for event in await control.log()].count("turn/start") < 2:
                    await asyncio.sleep(0.05)
            terminal.type("\x04")
            assert await terminal.ends() == 0
            assert f"[demo reply, no model involved] {words} " in " ".join(terminal.picture().split())


async def test_the_end_of_the_daemon_is_the_end_of_the_console(place: Place) -> None:
    async with controlled(place) as control, console(place, command="attach") as terminal:
        await terminal.shows("\n>")
        control.daemon.signal(signal.SIGKILL)
        assert await terminal.ends() == 1
        assert f"dsh: daemon {control.daemon.process.pid} (cordis.yml) ended" in terminal.screen()


async def test_without_a_terminal_lines_are_prompts_and_answers_are_printed(place: Place) -> None:
    async with controlled(place) as control:
        done = await place.dsh("attach", "main", "--tail", "0", stdin="one\n\ntwo\n/queue\nthree")
        assert done.code == 0 and done.err == ""
        for text in ("one", "two", "three"):
            assert f"You said: {text}\n" in done.out
        assert "\x1b" not in done.out
        users = [
            event["data"]["content"][0]["text"] for event in await control.log() if event["type"] == "user/message"
        ]
        assert users == ["one", "two", "three"]


async def test_a_prompt_the_daemon_refuses_is_said(place: Place) -> None:
    async with controlled(place) as control:
        await control.prompt(WAIT)
        await control.begun()
        async with following(place, "attach") as attached:
            await attached.shows("attached to main")
            await control.ask("POST", "/api/stop", {"mode": "drain"}, 202)
            await attached.type("one more\n")
            await attached.shows("the daemon is stopping and takes no new work")
            control.go()
            assert await attached.ends() == 1
            assert "ended" in attached.err
