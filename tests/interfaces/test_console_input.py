"""The console takes input at any time: what is typed while a turn runs waits, steers or stays in the line."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.cli.kit import Place
from tests.interfaces.console_kit import leaves, opened
from tests.interfaces.control_kit import WAIT, begun, demo_place, go
from tests.interfaces.terminal import Terminal


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return demo_place(tmp_path, NO_COLOR="1")


@asynccontextmanager
async def waiting_turn(place: Place) -> AsyncIterator[Terminal]:
    """A console whose agent is in the turn of `WAIT`."""
    async with opened(place) as terminal:
        terminal.type(WAIT + "\r")
        await begun(place)
        yield terminal


async def test_lines_typed_during_a_turn_become_the_next_prompts_or_steer_it(place: Place) -> None:
    async with waiting_turn(place) as terminal:
        await terminal.enter("a prompt for later", "waits: a prompt for later")
        terminal.type("!to the left\r/steer and then right\r")
        await terminal.stands("steers: to the left\nsteers: and then right\nwaits: a prompt for later\n!TEXT steers")
        terminal.type("still being ty")
        go(place)
        await terminal.shows("You said: and then right")
        await terminal.shows("You said: a prompt for later")
        terminal.type("ped\r")
        await terminal.shows("You said: still being typed")
        await leaves(terminal)


async def test_a_prompt_from_elsewhere_is_shown_and_typed_ones_are_shown_once(place: Place) -> None:
    async with opened(place) as terminal:
        assert (await place.dsh("send", "main", "from elsewhere", "--wait")).code == 0
        await terminal.shows("> from elsewhere")
        terminal.type("typed here\r")
        await terminal.shows("You said: typed here")
        assert terminal.picture().count("> typed here") == 1
        assert (await place.dsh("stop")).code == 0
        assert await terminal.ends() == 0


async def test_cancelling_keeps_the_typed_line_and_what_waits(place: Place) -> None:
    async with waiting_turn(place) as terminal:
        await terminal.enter("waiting", "waits: ")
        terminal.type("half")
        terminal.type("\x03")
        await terminal.shows("turn ended: aborted")
        terminal.type(" and whole\r")
        await terminal.shows("You said: waiting")
        await terminal.shows("You said: half and whole")
        await leaves(terminal)


async def test_twice_ctrl_c_in_a_turn_leaves_with_130(place: Place) -> None:
    async with waiting_turn(place) as terminal:
        terminal.type("\x03")
        await terminal.shows("cancelling; Ctrl-C again leaves")
        terminal.type("\x03")
        assert await terminal.ends() == 130


async def test_cancel_as_a_command_drops_what_waits(place: Place) -> None:
    async with waiting_turn(place) as terminal:
        await terminal.enter("never", "waits: ")
        terminal.type("/cancel\r")
        await terminal.shows("turn ended: aborted")
        terminal.type("afterwards\r")
        await terminal.shows("You said: afterwards")
        assert "You said: never" not in terminal.screen()
        await leaves(terminal)
