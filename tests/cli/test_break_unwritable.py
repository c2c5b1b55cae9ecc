"""Places that cannot be written or read: the run says so and ends; nothing waits for ever, nothing hides the rest."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dsh.models.mock_server import MockLlmServer
from tests.cli.kit import Place

NOWHERE = ("--set", "session-persistence-jsonl.root=/dev/null/sessions")


@pytest.fixture
def place(tmp_path: Path) -> Place:
    place = Place.make(tmp_path)
    place.init()
    return place


@pytest.mark.parametrize(
    "command", [("exec", "hi"), ("run", "--prompt", "hi", "--exit-when-idle")], ids=["exec", "run"]
)
async def test_a_log_that_cannot_be_written_fails_the_task(place: Place, command: tuple[str, ...]) -> None:
    async with MockLlmServer(["success"]) as server:
        place.model(server.url)
        done = await place.dsh(*command, *NOWHERE)
        assert server.requests == []
    assert done.code == 1
    assert "/dev/null" in done.err and "Traceback" not in done.err


async def test_a_model_that_cannot_be_stored_is_one_sentence(place: Place) -> None:
    done = await place.dsh("--home", "/dev/null/home", "local", "pull")
    assert done.code == 1 and done.out == "" and "Traceback" not in done.err


async def test_links_in_a_circle_hide_no_session(place: Place) -> None:
    session = (await place.dsh("exec", "hi", "--output", "json")).json()["sessionId"]
    sessions = place.home / "sessions"
    project = next(sessions.iterdir())
    for folder in (sessions / "--circle--", project / "circle"):
        os.symlink(folder, folder)
    listed = await place.dsh("sessions", "list", "--json")
    assert [each["id"] for each in listed.json()["sessions"]] == [session]
    assert (await place.dsh("sessions", "verify")).code == 0
    assert (await place.dsh("resume", session[:12], "again")).code == 0
    assert (await place.dsh("resume", "--last", "again")).code == 0
