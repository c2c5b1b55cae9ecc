"""Texts of servers, clients and plugins: none of them reaches the terminal or standard output as it is."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from dsh.models.mock_server import MockLlmServer
from tests.cli.kit import PYTHON, TIMEOUT, Place
from tests.cli.test_run import CORDIS, HELLO
from tests.interfaces.control_kit import DEMO
from tests.sessions.helpers import header, log_of, write_log


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place.make(tmp_path)


async def test_an_error_of_a_model_server_cannot_control_the_terminal(place: Place) -> None:
    event = '{"error":{"message":"overloaded \\u001b[31m"}}'
    async with MockLlmServer([{"chunks": [f"data: {event}\n\n"]}], repeat_last=True) as server:
        place.model(server.url)
        done = await place.dsh("exec", "Hi", "--set", "llm-deepseek.retryPolicy.maxRetries=0")
    assert done.code == 1 and "overloaded [31m" in done.err and "\x1b" not in done.err


async def test_session_ids_are_listed_with_their_control_characters_as_escapes(place: Place) -> None:
    session = "a\0b\x1b]0;t\x07"
    write_log(place.home / "sessions", header(session, str(place.work)), log_of(1))
    for command in (["list"], ["verify"], ["show", session[:1]]):
        done = await place.dsh("sessions", *command)
        assert done.code == 0 and "a\\x00b\\x1b]0;t\\x07" in done.out, done
        assert not any(each in done.out for each in "\0\x1b\x07")
    assert (await place.dsh("sessions", "list", "--json")).json()["sessions"][0]["id"] == session


async def test_prints_of_plugins_do_not_mix_with_what_a_check_or_show_prints(place: Place) -> None:
    place.write("hello.py", HELLO + "\nprint('noise')\n")
    place.write("cordis.yml", CORDIS)
    for command in (["check"], ["check", "--json"], ["show"]):
        done = await place.dsh("config", *command)
        assert done.code == 0 and "noise" not in done.out
    assert "noise" in (await place.dsh("config", "check")).err


async def test_a_check_with_warnings_does_not_say_that_nothing_is_wrong(place: Place) -> None:
    place.write("hello.py", HELLO)
    place.write("cordis.yml", CORDIS)
    place.write("more.yml", "- {id: nowhere, config: {a: 1}}\n")
    done = await place.dsh("config", "check", "--patch", "more.yml")
    assert (done.code, "nothing wrong" in done.out) == (0, False), done
    assert ", 1 warning\n" in done.out and 'no row has the id "nowhere"' in done.err
    assert "nothing wrong" in (await place.dsh("config", "check")).out


async def test_a_reply_cannot_control_the_terminal_that_exec_prints_it_on(place: Place) -> None:
    reply = "A\x1b]0;PWN\x07B\x1b[2JC\n\tD"
    place.write("cordis.yml", DEMO)
    terminal, its_end = os.openpty()
    process = await asyncio.create_subprocess_exec(
        *(PYTHON, "-m", "dsh.cli.main", "exec", reply), cwd=place.work, env=place.env, stdin=its_end, stdout=its_end
    )
    os.close(its_end)
    assert await asyncio.wait_for(process.wait(), TIMEOUT) == 0
    assert "You said: A]0;PWNB[2JC\r\n\tD\r\n" in os.read(terminal, 4096).decode()
    os.close(terminal)
    assert (await place.dsh("exec", reply)).out.count(reply) == 1
