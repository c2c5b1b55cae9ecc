"""Continuing on a copy: of a session that is open elsewhere, and from an earlier point."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from dsh.models.mock_server import MockLlmServer
from dsh.sessions.log_file import read_log
from dsh.sessions.stored import list_stored
from tests.cli.kit import TIMEOUT, Place
from tests.cli.test_run import CORDIS, HELLO


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place.make(tmp_path)


def logs(place: Place) -> dict[str, bytes]:
    return {path.parent.name: path.read_bytes() for path in place.home.glob("sessions/*/*/session.jsonl*")}


async def on_disk(place: Place, session_id: str, kind: str) -> None:
    """Wait until the stored log of a session has an event of this type."""
    async with asyncio.timeout(TIMEOUT):
        while True:
            for entry in list_stored(str(place.home / "sessions")).sessions:
                if entry.id == session_id and kind in [each.type for each in read_log(entry.path, entry.id).events]:
                    return
            await asyncio.sleep(0.02)


async def test_b07a_a_copy_of_a_session_that_is_open_elsewhere_goes_on(place: Place) -> None:
    place.write("hello.py", HELLO)
    place.write("cordis.yml", CORDIS)
    async with MockLlmServer([{"text": "one"}, {"text": "two"}, {"text": "three"}]) as server:
        place.model(server.url)
        async with place.daemon("cordis.yml", "--no-watch", "--prompt", "first") as daemon:
            source = (await daemon.ready())["agents"][0]["sessionId"]
            await daemon.event("turn/end")
            await on_disk(place, source, "turn/end")  # a copy has what is there, which is a moment later
            refused = await place.dsh("resume", source, "second")
            assert refused.code == 1 and "continue on a copy with --fork" in refused.err
            before = logs(place)
            done = await place.dsh("resume", source, "second", "--fork", "--output", "json")
            again = await place.dsh("exec", "third", "--session", source, "--fork", "--output", "json")
            after = logs(place)
    assert (done.code, again.code) == (0, 0), done.err + again.err
    copy = done.json()["sessionId"]
    assert copy != source and copy.startswith("main-session-")
    assert f"continuing {source} as {copy}" in done.err
    said = [m["content"] for m in server.bodies[1]["messages"] if m["role"] != "system"]
    assert "first" in said[0] and said[1:] == ["one", "second"]
    assert [m["content"] for m in server.bodies[2]["messages"]][-1] == "third"
    assert {name: after[name] for name in before} == before
    shown = (await place.dsh("sessions", "show", copy, "--json")).json()
    assert shown["header"]["parentSession"] == source
    assert [e["data"]["turn"] for e in shown["events"] if e["type"] == "turn/start"] == [1, 2]
    assert (await place.dsh("sessions", "verify")).code == 0


async def test_b07b_a_copy_may_end_earlier_but_not_inside_a_turn(place: Place) -> None:
    async with MockLlmServer([{"text": "one"}, {"text": "two"}, {"text": "three"}]) as server:
        place.model(server.url)
        session = (await place.dsh("exec", "first", "--output", "json")).json()["sessionId"]
        assert (await place.dsh("resume", session, "second")).code == 0
        events = (await place.dsh("sessions", "show", session, "--events")).lines()
        end = next(event["seq"] for event in events if event["type"] == "turn/end")
        before = logs(place)
        for wrong, told in (("1000", "does not exist"), (str(end - 1), "inside open turn 1")):
            refused = await place.dsh("resume", session, "third", "--fork", "--at", wrong)
            assert refused.code == 2 and told in refused.err, refused.err
        assert "needs --fork" in (await place.dsh("resume", session, "third", "--at", "1")).err
        assert "needs --session" in (await place.dsh("exec", "third", "--fork")).err
        assert logs(place) == before
        done = await place.dsh("resume", session, "third", "--fork", "--at", str(end))
    assert (done.code, done.out) == (0, "three\n")
    said = [m["content"] for m in server.bodies[2]["messages"] if m["role"] != "system"]
    assert "first" in said[0] and said[1:] == ["one", "third"]
