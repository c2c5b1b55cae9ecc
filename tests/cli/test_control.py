"""The commands for running daemons, from another terminal: real daemons, nothing shared but the home folder."""

from __future__ import annotations

import asyncio
import json
import os
import select
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.cli.kit import PYTHON, TIMEOUT, Place
from tests.interfaces.control_kit import DEMO, WAIT, controlled, demo_place

CALL = 'call bash {"command":"echo from-the-shell","description":"d"}'


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return demo_place(tmp_path)


class Following:
    """A command that goes on, and the lines it printed."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.out = ""
        self.err = ""
        self._news = asyncio.Event()
        self.readers = [asyncio.create_task(self._read("out")), asyncio.create_task(self._read("err"))]

    async def _read(self, name: str) -> None:
        stream = getattr(self.process, f"std{name}")
        while data := await stream.read(65536):
            setattr(self, name, getattr(self, name) + data.decode())
            self._news.set()

    async def shows(self, text: str, where: str = "out") -> None:
        """Wait until the output holds a text."""
        async with asyncio.timeout(TIMEOUT):
            while text not in getattr(self, where):
                self._news.clear()
                await self._news.wait()

    def lines(self) -> list[Any]:
        """The output as JSON lines."""
        return [json.loads(line) for line in self.out.split("\n") if line]

    async def type(self, text: str) -> None:
        """Write to its standard input."""
        assert self.process.stdin is not None
        self.process.stdin.write(text.encode())
        await self.process.stdin.drain()

    async def ends(self) -> int:
        """The exit code."""
        code = await asyncio.wait_for(self.process.wait(), TIMEOUT)
        await asyncio.gather(*self.readers)
        return code


@asynccontextmanager
async def following(place: Place, *arguments: str) -> AsyncIterator[Following]:
    """A command that runs while the block does."""
    pipe = asyncio.subprocess.PIPE
    process = await place.start(*arguments, stdin=pipe, fresh=False)
    command = Following(process)
    try:
        yield command
    finally:
        if process.returncode is None:
            process.kill()
        await command.ends()


# -- ps ---------------------------------------------------------------------------------------------------------------


async def test_daemons_are_listed_with_their_agents(place: Place) -> None:
    async with controlled(place) as control:
        shown = await place.dsh("ps")
        as_json = (await place.dsh("ps", "--json")).json()["daemons"]
        pid = control.daemon.process.pid
    header, row = shown.out.splitlines()
    assert header.split() == ["PID", "UP", "AGENT", "STATUS", "QUEUED", "SESSION", "COMPOSITION"]
    assert row.split()[0] == str(pid) and row.split()[2:] == ["main", "idle", "-", control.main, "cordis.yml"]
    assert "\x1b" not in shown.out
    assert [(each["pid"], each["state"], each["config"]) for each in as_json] == [
        (pid, "running", str(place.work / "cordis.yml"))
    ]
    assert as_json[0]["agents"][0]["sessionId"] == control.main


async def test_an_agent_that_did_not_start_is_listed_with_its_failure(place: Place) -> None:
    place.write("cordis.yml", DEMO.replace("- id: main", "- {id: lost, resumeSessionId: nowhere}\n      - id: main"))
    async with place.daemon("cordis.yml") as daemon:
        await daemon.ready()
        (found,) = (await place.dsh("ps", "--json")).json()["daemons"]
        sent, attached = await asyncio.gather(
            place.dsh("send", "lost", "hello"), place.dsh("attach", "lost", stdin="hello\n")
        )
    assert [(agent["label"], agent["status"]) for agent in found["agents"]] == [("lost", "failed"), ("main", "idle")]
    assert "nowhere" in found["agents"][0]["error"]
    assert sent.code == 1 and 'session "nowhere" is not open in this daemon' in sent.err
    assert (attached.code, attached.err) == (1, 'dsh: session "nowhere" not found\n')


async def test_without_a_daemon_one_sentence_says_what_to_do(place: Place) -> None:
    commands = (["send", "main", "x"], ["cancel", "main"], ["attach"], ["attach", "main"], ["tail", "main"])
    for done in await asyncio.gather(*(place.dsh(*command) for command in commands)):
        assert (done.code, done.out, done.err) == (1, "", "dsh: no daemon is running; start one with `dsh run`\n")


async def test_stopping_nothing_is_said(place: Place) -> None:
    done = await place.dsh("stop")
    assert (done.code, done.err) == (1, "dsh: no daemon is running\n")
    every = await place.dsh("stop", "--all")
    assert (every.code, every.out) == (0, "no daemon is running\n")


# -- send -------------------------------------------------------------------------------------------------------------


async def test_a_prompt_is_sent_by_label_id_or_beginning(place: Place) -> None:
    async with controlled(place) as control:
        ids = []
        for name, text in (("main", "one"), (control.main, "two"), (control.main[:15], "three"), ("mai", "-")):
            sent = await place.dsh("send", name, text, stdin="four\n" if text == "-" else None)
            assert sent.code == 0, sent.err
            ids.append(sent.out.strip())
        await control.idle()
        users = [event["data"] for event in await control.log() if event["type"] == "user/message"]
    assert [message["id"] for message in users] == ids
    assert [message["content"][0]["text"] for message in users] == ["one", "two", "three", "four\n"]


async def test_waiting_prints_the_final_text_and_tells_how_the_turn_ended(place: Place) -> None:
    async with controlled(place) as control:
        done = await place.dsh("send", "main", CALL, "--wait")
        assert (done.code, done.out) == (0, "[demo reply, no model involved] The tool answered:\nfrom-the-shell\n\n")
        as_json = await place.dsh("send", "main", "hello", "--wait", "--json")
        assert as_json.json()["status"] == "completed" and "You said: hello" in as_json.json()["output"]
        async with following(place, "send", "main", WAIT, "--wait") as waiting:
            await control.begun()
            async with following(place, "send", "main", "behind it", "--wait") as queued:
                (message,) = await control.waiting("nextTurn")
                await control.ask("DELETE", f"/api/sessions/{control.main}/queue/{message['id']}")
                assert await queued.ends() == 1
                assert queued.err == "dsh: the prompt was taken out of the queue unread\n"
            assert (await place.dsh("cancel", "main")).out == "cancelled the turn of main\n"
            assert await waiting.ends() == 1
            assert waiting.err == "dsh: the turn ended as aborted\n"


async def test_a_failed_turn_is_told_as_such(place: Place) -> None:
    place.write("cordis.yml", DEMO.replace("model: demo}", "model: demo}, disabled: true"))
    async with controlled(place):
        done = await place.dsh("send", "main", "hello", "--wait")
    assert done.code == 1 and done.out == "" and done.err.startswith("dsh: ")


async def test_a_daemon_that_ends_under_a_waiting_command_is_told(place: Place) -> None:
    async with controlled(place) as control:
        async with following(place, "send", "main", WAIT, "--wait") as waiting:
            await control.begun()
            control.daemon.signal(signal.SIGKILL)
            assert await waiting.ends() == 1
            assert waiting.err == f"dsh: daemon {control.daemon.process.pid} (cordis.yml) ended\n"


async def test_steering_reaches_the_turn_that_runs(place: Place) -> None:
    async with controlled(place) as control:
        await control.prompt(WAIT)
        await control.begun()
        queued = await place.dsh("send", "main", "the next turn's")
        async with following(place, "send", "main", "to the left", "--steer", "--wait") as steering:
            await control.waiting("nextStep")
            control.go()
            assert await steering.ends() == 0
            assert "You said: to the left" in steering.out
        await control.idle()
        log = await control.log()
    turns = [event["seq"] for event in log if event["type"] == "turn/start"]
    users = {event["data"]["content"][0]["text"]: event["seq"] for event in log if event["type"] == "user/message"}
    assert users["to the left"] < turns[1] < users["the next turn's"] and queued.code == 0


async def test_an_empty_prompt_and_an_unknown_agent_are_refused(place: Place) -> None:
    async with controlled(place):
        empty = await place.dsh("send", "main", " \n")
        assert (empty.code, empty.err) == (2, "dsh: the prompt is empty\n")
        unknown = await place.dsh("send", "nobody", "x")
        text = 'dsh: no running daemon has an agent or session "nobody" open; agents: main\n'
        assert (unknown.code, unknown.err) == (1, text)


# -- several daemons --------------------------------------------------------------------------------------------------


async def test_with_two_daemons_what_may_be_several_is_listed_and_nothing_done(place: Place) -> None:
    place.write("other.yml", DEMO.replace("- id: main", "- id: main\n      - id: helper"))
    async with controlled(place) as one, controlled(place, config="other.yml") as two:
        pids = {one.daemon.process.pid, two.daemon.process.pid}
        unclear = (["send", "main", "x"], ["cancel", "main"], ["tail", "main"], ["attach", "main"], ["attach"])
        refused = await asyncio.gather(*(place.dsh(*command) for command in unclear))
        for command, done in zip(unclear, refused, strict=True):
            assert done.code == 2 and done.out == "", command
            assert all(f"  in daemon {pid} (" in done.err for pid in pids)
            assert one.main in done.err and two.main in done.err
        for command in (["stop"], ["inspect"]):
            done = await place.dsh(*command)
            assert done.code == 2 and all(f"\n  {pid}  " in done.err for pid in pids), command
        assert (await place.dsh("send", two.main, "to the second", "--wait")).code == 0
        assert (await place.dsh("send", "help", "to the helper", "--wait")).code == 0
        assert (await one.ask("GET", f"/api/sessions/{one.main}"))["lastSeq"] == -1
        rows = (await place.dsh("inspect", str(one.daemon.process.pid), "--json")).json()
        assert rows["config"] == str(place.work / "cordis.yml")
        assert (await place.dsh("stop", "other.yml")).out == f"stopped daemon {two.daemon.process.pid} (other.yml)\n"
        assert await two.daemon.finish() == 0
        assert [each["pid"] for each in (await place.dsh("ps", "--json")).json()["daemons"]] == [one.daemon.process.pid]
        assert (await place.dsh("stop")).code == 0
        assert await one.daemon.finish() == 0


# -- tail -------------------------------------------------------------------------------------------------------------


async def test_events_are_followed_as_lines_from_any_seq_on(place: Place) -> None:
    async with controlled(place) as control:
        await control.prompt("before")
        await control.idle()
        before = await control.log()
        async with (
            following(place, "tail", "main", "--json", "--from", "0") as whole,
            following(place, "tail", "main", "--json", "--from", "5") as part,
            following(place, "tail", "main") as person,
        ):
            await whole.shows('"turn/end"')
            await part.shows('"turn/end"')
            await asyncio.sleep(0.5)  # the third one prints nothing that tells when it listens
            await control.prompt(CALL)
            await control.idle()
            await person.shows("[demo")
            log = await control.log()
            for each, start in ((whole, 0), (part, 5)):
                await each.shows(f'"seq":{len(log) - 1},')
                each.process.send_signal(signal.SIGINT)
                assert await each.ends() == 130 and each.err == ""
                lines = each.lines()
                assert [line["event"] for line in lines] == log[start:] and len(before) < len(log)
                assert {(line["type"], line["sessionId"]) for line in lines} == {("session_event", control.main)}
        assert f"> {CALL}\nbash echo from-the-shell\n" in person.out
        assert "\x1b" not in person.out and "before" not in person.out


async def test_a_session_that_nobody_has_open_is_printed_from_its_log(place: Place) -> None:
    async with controlled(place) as control:
        await control.prompt("remember")
        await control.idle()
        log = await control.log()
        await control.ask("POST", "/api/stop", {}, 202)
        await control.daemon.finish()
    done = await place.dsh("tail", control.main[:20], "--json", "--from", "3")
    assert done.code == 0 and [line["event"] for line in done.lines()] == log[3:]
    assert done.err == f"dsh: session {control.main} is not open; this is its log\n"
    assert "> remember\n" in (await place.dsh("tail", control.main)).out
    (path,) = (place.home / "sessions").rglob("session.jsonl*")
    path.write_bytes(path.read_bytes()[:-40] + b"\0" * 40 + path.read_bytes()[-10:])
    damaged = await place.dsh("tail", control.main)
    assert damaged.code == 1 and damaged.out == "" and f'session "{control.main}" failed validation' in damaged.err


async def test_following_ends_with_the_reader_of_its_output(place: Place) -> None:
    async with controlled(place) as control:
        await control.prompt("hello")
        await control.idle()
        line = f"{PYTHON} -m dsh.cli.main tail main --from 0 | head -n 1"
        shell = await asyncio.create_subprocess_exec(
            "bash", "-c", line, cwd=place.work, env=place.env, stdout=asyncio.subprocess.PIPE
        )
        out, _ = await asyncio.wait_for(shell.communicate(), TIMEOUT)
        assert out == b"> hello\n"


async def test_following_goes_on_when_the_daemon_is_back(place: Place) -> None:
    rows = DEMO.replace("- id: main", "- {id: main, sessionId: steady}")
    # What a tool acts on is on disk then: without the row, what was followed last could be lost with the daemon.
    place.write("cordis.yml", rows + "- {id: checkpoints, name: dsh-session-checkpoint-policy}\n")
    async with controlled(place) as control:
        async with following(place, "tail", "steady", "--json", "--from", "0") as tail:
            await control.prompt(WAIT)
            await control.begun()
            await tail.shows('"tool/call"')
            control.daemon.signal(signal.SIGKILL)
            await tail.shows("waiting for steady to come back", "err")
            (place.work / "begun").unlink()
            async with controlled(place) as again:
                await tail.shows("steady is back in", "err")
                await again.prompt("hello again")
                await again.idle()
                log = await again.log()
                await tail.shows(f'"seq":{len(log) - 1},')
            assert [line["event"] for line in tail.lines()] == log, "also what closed the turn that was killed"


async def test_ids_and_labels_of_any_text_are_followed_and_shown(place: Place) -> None:
    place.write("cordis.yml", DEMO.replace("- id: main", "- {id: \"main\\e[2J\", sessionId: 'a,b%41 ä'}"))
    async with controlled(place):
        assert (await place.dsh("send", "main", "hello", "--wait")).code == 0
        assert (await place.dsh("cancel", "main")).out == "main\\x1b[2J was not working\n"


async def test_a_label_is_followed_into_its_next_session(place: Place) -> None:
    async with controlled(place) as control:
        async with (
            following(place, "tail", "main", "--from", "0") as tail,
            following(place, "tail", "main", "--from", "0", "--no-wait") as once,
        ):
            await control.prompt("first life")
            await tail.shows("You said: first life")
            await once.shows("You said: first life")
            assert (await place.dsh("stop")).code == 0
            assert await once.ends() == 1
            async with controlled(place) as again:
                await tail.shows(f"main is back with the new session {again.main}", "err")
                await again.prompt("second life")
                await tail.shows("You said: second life")


# -- cancel and stop --------------------------------------------------------------------------------------------------


async def test_cancelling_keeps_what_waits_unless_told_otherwise(place: Place) -> None:
    async with controlled(place) as control:
        assert (await place.dsh("cancel", "main")).out == "main was not working\n"
        for more, left in (([], 1), (["--drop"], 0)):
            await control.prompt(WAIT)
            await control.begun()
            await control.prompt("later")
            done = await place.dsh("cancel", "main", *more)
            waits = "1 prompt waits for the next one; --drop drops\n" if left else ""
            assert (done.code, done.out) == (0, "cancelled the turn of main\n" + waits)
            async with control.frames(f"sessions={control.main}") as frames:
                if (await frames.next())["status"] == "running":
                    await frames.until("host/session-status", status="idle")
            queue = await control.ask("GET", f"/api/sessions/{control.main}/queue")
            assert len(queue["nextTurn"]) == left
            (place.work / "begun").unlink()
            if left:
                await control.ask("DELETE", f"/api/sessions/{control.main}/queue/{queue['nextTurn'][0]['id']}")


async def test_draining_waits_for_the_running_turn_and_takes_no_more(place: Place) -> None:
    async with controlled(place) as control:
        await control.prompt(WAIT)
        await control.begun()
        async with following(place, "stop", "--drain") as stop:
            await stop.shows("waiting for main; ", "err")
            refused = await place.dsh("send", "main", "one more")
            assert (refused.code, refused.err) == (1, "dsh: the daemon is stopping and takes no new work\n")
            assert "running, draining" in (await place.dsh("ps")).out
            assert stop.process.returncode is None
            control.go()
            assert await stop.ends() == 0
            assert stop.out == f"stopped daemon {control.daemon.process.pid} (cordis.yml)\n"
        assert await control.daemon.finish() == 0
    shown = await place.dsh("tail", control.main, "--json")
    ends = [line["event"]["data"]["reason"] for line in shown.lines() if line["event"]["type"] == "turn/end"]
    assert ends == [{"kind": "completed"}]


async def test_stopping_at_once_ends_the_turn_and_waits_for_the_process(place: Place) -> None:
    async with controlled(place) as control:
        await control.prompt(WAIT)
        await control.begun()
        process = os.pidfd_open(control.daemon.process.pid)
        try:
            done = await place.dsh("stop", "main")
            assert done.code == 0
            assert select.select([process], [], [], 0)[0], "the process had ended before the command did"
        finally:
            os.close(process)
        assert await control.daemon.finish() == 0
    shown = await place.dsh("tail", control.main, "--json")
    assert shown.lines()[-1]["event"]["data"]["reason"] == {"kind": "aborted", "reason": {"kind": "disposed"}}


async def test_stop_usage(place: Place) -> None:
    done = await place.dsh("stop", "main", "--all")
    assert (done.code, done.err) == (2, "dsh: name a daemon or use --all, not both\n")


# -- inspect ----------------------------------------------------------------------------------------------------------


async def test_a_running_composition_is_shown_as_it_is(place: Place) -> None:
    async with controlled(place) as control:
        shown = await place.dsh("inspect")
        assert shown.code == 0 and f"cordis.yml: daemon {control.daemon.process.pid}\n" in shown.out
        assert "\nServices, " in shown.out and "\n  agentLoop: agent-loop" in shown.out
        (place.work / "cordis.yml").write_text(DEMO.replace("paceMs: 0", "paceMs: 1"))
        by_file = (await place.dsh("inspect", "cordis.yml", "--json")).json()
        assert by_file["pid"] == control.daemon.process.pid
        assert {row["id"]: row["state"] for row in by_file["rows"]}["control"] == "active"


async def test_a_composition_nobody_runs_is_started_for_the_look_without_agents(place: Place) -> None:
    place.write("cordis.yml", DEMO.replace("- id: main", "- {id: main, sessionId: steady}"))
    shown = await place.dsh("inspect", "cordis.yml", "--json")
    assert shown.code == 0, shown.err
    assert shown.json()["pid"] is None
    states = {row["id"]: row["state"] for row in shown.json()["rows"]}
    assert states["agent-loop"] == "active" and "control" not in states
    assert not (place.home / "run").exists() and not (place.home / "sessions").exists()
    assert "not running; started for this look and stopped again" in (await place.dsh("inspect")).out
    place.write("broken.yml", DEMO + "- {id: broken, name: dsh-tool-fs}\n")
    broken = await place.dsh("inspect", "broken.yml")
    assert broken.code == 1 and "waiting for services" in broken.err and broken.out == ""
    nothing = await place.dsh("inspect", "nothing.yml")
    assert nothing.code == 1 and nothing.err.startswith("dsh: ")


async def test_prompts_left_waiting_are_shown_and_said_to_run_before_the_next_task(place: Place) -> None:
    async with controlled(place) as control:
        await control.prompt(WAIT)
        await control.begun()
        for text in ("parked one", "parked two"):
            await control.prompt(text)
        await control.ask("POST", "/api/stop", {}, 202)
        assert await control.daemon.finish() == 0
    shown = await place.dsh("sessions", "show", control.main)
    assert shown.out.endswith("  (2 prompts wait and run first when the session goes on: parked one, parked two)\n")
    done = await place.dsh("resume", control.main, "new task")
    assert (done.code, done.err) == (0, "dsh: 2 prompts left waiting in this session will run first\n")
    assert "wait" not in (await place.dsh("sessions", "show", control.main)).out.splitlines()[-1]
