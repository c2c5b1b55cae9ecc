"""Names that mean no daemon or agent, daemons that cannot say what they have, and ends that were not what was asked."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from dsh.cli import stop
from dsh.interfaces.control.client import Daemon
from dsh.interfaces.control.run_folder import Entry, host_name
from tests.cli.kit import PYTHON, Place
from tests.cli.test_control import following
from tests.interfaces.control_kit import DEMO, WAIT, controlled, demo_place


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return demo_place(tmp_path)


async def test_what_looks_like_a_file_or_a_pid_is_refused_as_such(place: Place) -> None:
    place.write("idle.yml", DEMO)
    async with controlled(place) as control:
        pid = control.daemon.process.pid
        told = {
            ("inspect", "/tmp/nope.yml"): (1, "no such file: /tmp/nope.yml"),
            ("inspect", "99999999"): (1, f"no daemon with pid 99999999 (running: {pid})"),
            ("stop", "1"): (1, f"no daemon with pid 1 (running: {pid})"),
            ("stop", "./idle.yml"): (1, "no daemon runs ./idle.yml"),
            **dict.fromkeys(
                [("send", "", "x"), ("stop", ""), ("inspect", " "), ("cancel", ""), ("tail", "")],
                (2, "the name is empty"),
            ),
        }
        for command, done in zip(told, await asyncio.gather(*(place.dsh(*each) for each in told)), strict=True):
            code, text = told[command]
            assert (done.code, done.err) == (code, f"dsh: {text}\n"), command
    gone = await place.dsh("inspect", "nope.yml")
    assert (gone.code, gone.err) == (1, "dsh: no such file: nope.yml\n")


async def test_a_daemon_that_does_not_answer_is_named_where_an_agent_is_not_found(place: Place) -> None:
    place.write("two.yml", DEMO.replace("- id: main", "- id: gamma"))
    async with controlled(place), controlled(place, config="two.yml") as two:
        two.daemon.signal(signal.SIGSTOP)
        try:
            sent, stopped, inside = await asyncio.gather(
                place.dsh("send", "gamma", "hi"), place.dsh("stop", "two.yml"), place.dsh("inspect", "two.yml")
            )
            pid = two.daemon.process.pid
            assert sent.code == 1
            assert sent.err.endswith(f"agents: main; daemon {pid} (two.yml) does not answer and may have it\n")
            assert stopped.code == 1 and f"if process {pid} is dsh still, `kill -CONT {pid}`" in stopped.err
            assert inside.code == 1 and f"daemon {pid} (two.yml) does not answer; if it was" in inside.err
        finally:
            two.daemon.signal(signal.SIGCONT)


async def test_a_drain_that_is_cut_short_is_no_success(place: Place) -> None:
    async with controlled(place) as control:
        await control.prompt(WAIT)
        await control.begun()
        async with following(place, "stop", "--drain") as drain:
            await drain.shows("waiting for main; ", "err")
            hard = await place.dsh("stop")
            assert hard.code == 0
            assert await drain.ends() == 1
            assert drain.out == "" and "was stopped before main had finished" in drain.err
        await control.daemon.finish()


def test_a_daemon_that_answers_nobody_and_lives_on_was_not_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(stop, "STOP_SECONDS", 0.01)
    entry = Entry("", os.getpid(), "aa", str(tmp_path / "gone.sock"), host_name(), "/x/cordis.yml", "/x", 1)
    assert not stop._stop(Daemon(entry, {"agents": []}), drain=False)
    assert f"daemon {os.getpid()} (/x/cordis.yml) is still there after 0.01 s" in capsys.readouterr().err


async def test_bytes_that_are_no_text_are_a_usage_error(place: Place) -> None:
    async with controlled(place) as control:
        for command in (["send", "main", "-"], ["exec", "-"]):
            process = await asyncio.create_subprocess_exec(
                PYTHON, "-m", "dsh.cli.main", *command,
                cwd=place.work, env=place.env,
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
            )  # fmt: skip
            out, err = await asyncio.wait_for(process.communicate(b"\xff\xfe bad"), 40)
            assert (process.returncode, out, err) == (2, b"", b"dsh: standard input is no UTF-8 text\n")
        sent = await place.dsh("send", "main", "bad \udcff")
        assert (sent.code, sent.err) == (2, "dsh: the prompt is no UTF-8 text\n")
        assert await control.log() == []


async def test_an_agent_that_could_not_open_its_session_does_not_stand_in_the_way_of_the_one_that_has_it(
    place: Place,
) -> None:
    place.write("cordis.yml", DEMO.replace("- id: main", "- id: main\n        sessionId: my-agent"))
    async with controlled(place) as control, controlled(place) as second:
        for name in ("main", "my-agent", f"{control.daemon.process.pid}:main"):
            assert (await place.dsh("send", name, "hi", "--wait")).code == 0, name
        failed = await place.dsh("send", f"{second.daemon.process.pid}:my-agent", "hi")
        assert failed.code == 1 and "my-agent" in failed.err and "may be several" not in failed.err
