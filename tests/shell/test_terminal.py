"""Terminals of agents: real shells on real pseudo terminals."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import dsh.shell.subprocess
import dsh.shell.terminal
import dsh.shell.terminal_bash
from dsh.cordis import AbortController, AbortError
from dsh.core.agent import Agent, AgentOptions, CreateAgentOptions
from dsh.shell.service import SpawnError
from dsh.shell.terminal import TerminalError, Terminals, TerminalSession
from tests.core.kit import Spine, spine

from .helpers import running, unique_seconds, until_gone, until_running

FAST = {"idleSilenceMs": 400, "handoffGraceMs": 50, "disposeGraceMs": 400}


@asynccontextmanager
async def terminals(**config: Any) -> AsyncIterator[Spine]:
    async with spine() as s:
        await s.root.plugin(dsh.shell.subprocess, {})
        await s.root.plugin(dsh.shell.terminal, {})
        await s.root.plugin(dsh.shell.terminal_bash, {**FAST, **config})
        yield s


async def opened(s: Spine, agent: Agent | None = None, **options: Any) -> TerminalSession:
    return await s.root[Terminals].open(agent or s.agent(), "shell", cwd=options.pop("cwd", "/"), **options)


def refused(error: pytest.ExceptionInfo[TerminalError]) -> str:
    return error.value.code or ""


async def test_b10b_a_command_returns_when_the_prompt_is_back() -> None:
    async with terminals() as s:
        session = await opened(s, cwd="/usr")
        assert session.terminal.motd == "dsh> "
        sent = await session.send("pwd; (exit 3)")
        assert (sent.output, sent.reason, sent.lossy) == ("pwd; (exit 3)\n/usr\ndsh> ", "stdin_read", False)
        assert (await session.send("PS1=mine PROMPT=x")).reason == "stdin_read"
        assert (await session.send("echo $?$TERM")).output == "echo $?$TERM\n0dumb\ndsh> "


async def test_b10c_a_program_that_reads_the_terminal_is_found_waiting() -> None:
    async with terminals(idleSilenceMs=60_000) as s:
        session = await opened(s)
        assert (await session.send("read -p 'name? ' x")).output == "read -p 'name? ' x\nname? "
        assert (await session.send("you; echo")).output.endswith("dsh> ")
        assert (await session.send("echo $x")).output == "echo $x\nyou; echo\ndsh> "
        waiting = await session.send("cat")
        assert (waiting.output, waiting.reason) == ("cat\n", "stdin_read")
        assert session.terminal.signal(signal.SIGINT) != session.terminal.pid
        back = await session.send("", submit=False)
        assert back.reason == "stdin_read" and back.output.endswith("dsh> ")


async def test_b10d_silence_and_the_time_limit_end_a_wait_but_not_the_program() -> None:
    seconds = unique_seconds()
    async with terminals() as s:
        session = await opened(s)
        assert (await session.send(f"sleep {seconds}")).reason == "inferred_idle"
        sent = await session.send("", submit=False, timeout_ms=600, patient=True)
        assert (sent.reason, sent.output) == ("timeout", "")
        assert running(seconds)
        controller = AbortController()
        task = asyncio.create_task(session.send("", submit=False, signal=controller.signal, patient=True))
        await asyncio.sleep(0)
        controller.abort("enough")
        with pytest.raises(AbortError):
            await task
        await until_gone(seconds)  # SIGINT went to what was in the foreground
        assert (await session.send("", submit=False)).reason == "stdin_read"
        assert session.terminal.read(None, 1).text.endswith("dsh> ")  # the prompt may have come before that send
        assert (await session.send("echo still here")).output.endswith("still here\ndsh> ")


async def test_b10d_an_abort_ends_a_send_that_the_terminal_takes_no_more_of() -> None:
    async with terminals() as s:
        session = await opened(s)
        await session.send("sleep 1000", timeout_ms=200, patient=True)
        controller = AbortController()
        typing = asyncio.create_task(
            session.send("line\n" * 20_000, signal=controller.signal, timeout_ms=60_000, patient=True)
        )
        await asyncio.sleep(0.1)
        assert not typing.done()
        controller.abort("enough")
        with pytest.raises(AbortError):
            await asyncio.wait_for(typing, 20)
        with pytest.raises(AbortError):
            await session.send("never typed", signal=controller.signal)


async def test_b10e_one_send_at_a_time() -> None:
    async with terminals() as s:
        session = await opened(s)
        first = asyncio.create_task(session.send("read x"))
        await asyncio.sleep(0)
        with pytest.raises(TerminalError) as error:
            await session.send("echo")
        assert refused(error) == "SEND_ACTIVE"
        assert (await first).reason == "stdin_read"


async def test_b10f_a_terminal_belongs_to_its_agent() -> None:
    async with terminals() as s:
        service = s.root[Terminals]
        mine, other = s.agent("mine"), s.agent("other")
        session = await opened(s, mine, name="main")
        assert service.get(mine, session.id) is session
        assert (service.list(mine), service.list(other)) == ([session], [])
        for owner, id, code in ((other, session.id, "FOREIGN_SESSION"), (mine, "pty-99", "NO_SESSION")):
            with pytest.raises(TerminalError) as error:
                service.get(owner, id)
            assert refused(error) == code
        with pytest.raises(TerminalError) as error:
            await opened(s, mine, name="main")
        assert refused(error) == "DUPLICATE_NAME"
        assert (await opened(s, other, name="main")).id == "pty-2"
        with pytest.raises(TerminalError) as error:
            await service.open(mine, "fax", cwd="/")
        assert refused(error) == "NO_BACKEND"
        await session.close()
        await session.close()
        assert service.list(mine) == []


async def test_b10g_terminals_end_with_their_agent_and_it_waits_for_that() -> None:
    seconds = unique_seconds()
    async with terminals() as s:
        options = CreateAgentOptions("a", {"cwd": "/tmp"}, agent_options=AgentOptions(provider="test", model="m"))
        handle = await s.agents.create(options)
        session = await opened(s, handle.agent)
        await session.send(f"(trap '' HUP TERM INT; exec sleep {seconds}) & setsid nohup sleep {seconds} &")
        await until_running(seconds, 2)
        await handle.dispose()
        assert not running(seconds)
        assert session.exit is not None
        with pytest.raises(TerminalError) as error:
            await opened(s, handle.agent)
        assert refused(error) == "OWNER_NOT_LIVE"


async def test_b10h_closing_during_a_send_ends_it() -> None:
    async with terminals() as s:
        session = await opened(s)
        sending = asyncio.create_task(session.send("sleep 100", patient=True))
        await asyncio.sleep(0.05)
        await session.close()
        assert (await sending).reason == "session_exit"
        assert (await session.send("echo")).reason == "session_exit"


async def test_b10i_the_end_of_the_shell_is_told() -> None:
    async with terminals() as s:
        session = await opened(s)
        assert (await session.send("exit 7")).reason == "session_exit"
        assert session.exit is not None and session.exit.exit_code == 7
        other = await opened(s, session.owner)
        await other.send("kill -9 $$")
        assert other.exit is not None and other.exit.signal == "SIGKILL"


async def test_a_shell_that_does_not_start_is_an_error_and_leaves_nothing() -> None:
    async with terminals() as s:
        agent = s.agent()
        await opened(s, agent)
        before = set(os.listdir("/proc/self/fd"))
        with pytest.raises(SpawnError, match="does not exist"):
            await opened(s, agent, cwd="/nowhere/at/all")
        assert set(os.listdir("/proc/self/fd")) == before
    async with terminals(shellPath="/no/such/shell") as s:
        with pytest.raises(TerminalError, match="ended at once.*not found"):
            await opened(s)
    async with terminals(shellArgs=["-c", "sleep 100"], timeoutMs=300) as s:
        with pytest.raises(TerminalError, match="no prompt"):
            await opened(s)


async def test_nothing_is_left_open_in_the_harness() -> None:
    async with terminals() as s:
        agent = s.agent()
        await opened(s, agent)
        before = set(os.listdir("/proc/self/fd"))
        for _ in range(5):
            session = await opened(s, agent)
            await session.send("echo x")
            await session.close()
        assert set(os.listdir("/proc/self/fd")) == before


async def test_rows_that_leave_close_their_terminals() -> None:
    seconds = unique_seconds()
    async with terminals() as s:
        session = await opened(s)
        await session.send(f"sleep {seconds} & disown")
        await until_running(seconds)
    assert not running(seconds)
    async with terminals() as s:
        with pytest.raises(TerminalError) as error:
            await s.root.plugin(dsh.shell.terminal_bash, {})
        assert refused(error) == "DUPLICATE_BACKEND"


async def test_what_a_program_printed_can_be_read_again() -> None:
    async with terminals(scrollbackLines=50, maxReadBytes=40) as s:
        session = await opened(s)
        sent = await session.send("seq 100")
        assert sent.lossy and sent.output.endswith("99\n100\ndsh> ") and len(sent.output) <= 40
        lines = session.terminal.read(None, 3)
        assert lines.text == "99\n100\ndsh> "
        assert session.terminal.read(0, 1).first > 0
