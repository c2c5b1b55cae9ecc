"""Commands that follow a stream: one that is cut is taken up again, and its end is not the end of the daemon."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsh.interfaces.control import following as follow
from dsh.interfaces.control.client import ControlError, Daemon, DaemonGoneError, Target
from dsh.interfaces.control.run_folder import Entry
from tests.cli.kit import Place
from tests.cli.test_control import following
from tests.interfaces.control_kit import DEMO, WAIT, controlled, demo_place
from tests.interfaces.fake_daemon import Cut, fake_daemon, turn

CUTS: list[Cut] = [(3, "slow"), (4, "end"), (2, "break"), (0, "slow"), (99, "stay")]
AFTER = [-1, 2, 6, 8, 8]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return demo_place(tmp_path)


async def test_waiting_for_a_turn_goes_on_over_every_cut_of_the_stream(place: Place) -> None:
    async with fake_daemon(place.home, turn("m-1", "hello"), CUTS) as daemon:
        done = await place.dsh("send", "main", "hello", "--wait")
        assert (done.code, done.out, done.err) == (0, "w " * 10 + "\n", "")
        assert daemon.asked == AFTER


async def test_following_goes_on_over_every_cut_of_the_stream(place: Place) -> None:
    log = turn("m-1", "hello")
    async with fake_daemon(place.home, log, CUTS) as daemon:
        async with following(place, "tail", "main", "--json", "--from", "0", "--no-wait") as tail:
            await tail.shows('"turn/end"')
            assert [line["event"] for line in tail.lines()] == log and tail.err == ""
        assert daemon.asked == AFTER


async def test_the_console_goes_on_over_every_cut_of_the_stream(place: Place) -> None:
    async with fake_daemon(place.home, turn("m-1", "hello"), CUTS) as daemon:
        async with following(place, "attach", "main") as attached:
            await attached.shows("w " * 10)
            assert attached.process.stdin is not None
            attached.process.stdin.close()
            assert await attached.ends() == 0
            assert attached.err == "" and attached.out.count("> hello\n") == 1
        assert daemon.asked == AFTER


async def test_an_answer_that_is_no_json_is_told_in_a_sentence(place: Place) -> None:
    async with fake_daemon(place.home, turn("m-1", "hello"), CUTS) as daemon:
        daemon.change = lambda path: b"<html>" if path.endswith("/prompt") else None
        async with following(place, "attach", "main") as attached:
            await attached.type("hello\n")
            await attached.shows("answered with something that is no JSON")
            assert "Traceback" not in attached.err


async def test_a_control_row_that_starts_anew_is_not_the_end_of_the_daemon(place: Place) -> None:
    place.write("cordis.yml", DEMO + "- {id: hmr, name: '@deepseek-ai/cordis-plugin-hmr', config: {debounce: 30}}\n")
    async with controlled(place) as control:
        async with (
            following(place, "send", "main", WAIT, "--wait") as waiting,
            following(place, "attach", "main") as attached,
        ):
            await control.begun()
            await attached.shows("touch begun")
            text = (place.work / "cordis.yml").read_text("utf-8")
            place.write("cordis.yml", text + "- {id: control, name: dsh-control, config: {port: 0}}\n")
            assert (await control.daemon.config("applied"))["rows"] == ["control"]
            control.go()
            assert await waiting.ends() == 0, waiting.err
            await attached.shows("The tool answered")
            await attached.type("still here?\n")
            await attached.shows("You said: still here?")


async def test_two_daemons_that_come_back_under_one_label_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """Given the agent's daemon ended, when two others have one of its name, then nobody waits for ever."""
    entry = Entry("", 1, "aa", "/nowhere", "h", "/x/cordis.yml", "/x", 1)
    target = Target(Daemon(entry, {"agents": []}), {"label": "alpha", "sessionId": "s", "status": "idle"})
    told: list[str] = []
    follower = follow.Follower(Path("/x"), target, "alpha", None, wait=True, say=told.append)

    def gone() -> object:
        raise DaemonGoneError("gone")

    def ambiguous(*_: object) -> object:
        raise ControlError("two of them", 2, "AMBIGUOUS")

    monkeypatch.setattr(follow, "LOOK_AGAIN_SECONDS", 0)
    monkeypatch.setattr(follower, "_of_this_daemon", gone)
    monkeypatch.setattr(follow, "find_agent", ambiguous)
    with pytest.raises(ControlError, match="two of them"):
        next(follower.frames())
    assert told == ["gone; waiting for alpha to come back (Ctrl-C leaves)"]


async def test_earlier_messages_are_shown_however_many_words_they_have(place: Place) -> None:
    place.write("cordis.yml", DEMO.replace("{paceMs: 0}", f"{{paceMs: 0, replies: ['{'word ' * 1100}']}}"))
    async with controlled(place) as control:
        for text in ("the first", "the second"):
            assert (await place.dsh("send", "main", text, "--wait")).code == 0
        await control.idle()
        done = await place.dsh("attach", "main", stdin="")
    assert done.code == 0 and "> the first\n" in done.out and "> the second\n" in done.out
    assert done.out.count("word " * 1099) == 2
