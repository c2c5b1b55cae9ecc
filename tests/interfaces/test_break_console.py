"""The console at its edges: a short session continued, edits of the configuration, leaving with Ctrl-C."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsh.models.mock_server import MockLlmServer
from tests.cli.kit import Place
from tests.interfaces.terminal import console


@pytest.fixture
async def place(tmp_path: Path) -> Place:
    place = Place.make(tmp_path)
    assert (await place.dsh("init", ".")).code == 0
    return place


async def test_a_short_session_is_shown_from_its_start(place: Place) -> None:
    async with MockLlmServer([{"text": "first answer"}, {"text": "second answer"}]) as server:
        place.model(server.url)
        session = (await place.dsh("exec", "first question", "--output", "json")).json()["sessionId"]
        assert (await place.dsh("resume", session, "second question")).code == 0
        async with console(place, session, command="resume") as terminal:
            await terminal.shows("second answer")
            screen = terminal.screen()
            terminal.type("/quit\r")
            assert await terminal.ends() == 0
    for line in ("> first question", "first answer", "> second question"):
        assert line in screen


async def test_an_applied_edit_is_told(place: Place) -> None:
    async with console(place, "cordis.yml") as terminal:
        await terminal.shows("/help for commands")
        path = place.work / "cordis.yml"
        path.write_text(path.read_text("utf-8").replace("timeoutMs: 60000", "timeoutMs: 61000"), "utf-8")
        await terminal.shows("config applied: bash")
        terminal.type("/quit\r")
        assert await terminal.ends() == 0


async def test_a_log_that_cannot_be_written_is_told_and_the_console_stays(place: Place) -> None:
    where = "session-persistence-jsonl.root=/dev/null/sessions"
    async with MockLlmServer(["success"]) as server:
        place.model(server.url)
        async with console(place, "cordis.yml", "--set", where) as terminal:
            await terminal.shows("/help for commands")
            terminal.type("hi\r")
            await terminal.shows("/dev/null")
            terminal.type("/quit\r")
            assert await terminal.ends() == 0
