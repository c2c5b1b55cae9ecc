"""Standard files that are closed, full or not waiting; folders whose names are not text."""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import sys
from pathlib import Path

import pytest

from dsh.models.mock_server import MockLlmServer
from tests.cli.kit import PYTHON, Finished, Place

FULL = pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
RUN = ("run", "cordis.yml", "--prompt", "hi", "--exit-when-idle")


async def shell(place: Place, redirections: str, *arguments: str) -> Finished:
    """Run a command with the shell's redirections."""
    process = await asyncio.create_subprocess_exec(
        "sh", "-c", f'exec "$@" {redirections}', "sh", PYTHON, "-m", "dsh.cli.main", *arguments,
        cwd=place.work, env=place.env, stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, err = await asyncio.wait_for(process.communicate(), 40)
    assert process.returncode is not None
    return Finished(process.returncode, out.decode(), err.decode())


@pytest.mark.parametrize("arguments", [("exec", "hi"), RUN], ids=["exec", "run"])
@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
async def test_a_closed_standard_file_changes_nothing_else(
    place: Place, arguments: tuple[str, ...], closed: str
) -> None:
    call = {"name": "bash", "arguments": {"command": "echo into the log", "description": "say"}}
    async with MockLlmServer([{"toolCalls": [call]}, {"text": "done"}]) as server:
        place.model(server.url)
        done = await shell(place, closed, *arguments)
        assert server.requests[1].body["messages"][-1]["content"].strip() == "into the log"
    assert done.code == 0
    assert done.out == ("" if ">&-" in closed.replace("2>&-", "") else "done\n")
    assert (await place.dsh("sessions", "verify")).code == 0


@FULL
@pytest.mark.parametrize("arguments", [("exec", "hi"), RUN], ids=["exec", "run"])
async def test_a_result_that_cannot_be_written_is_a_failure(place: Place, arguments: tuple[str, ...]) -> None:
    async with MockLlmServer(["success"]) as server:
        place.model(server.url)
        done = await shell(place, ">/dev/full", *arguments)
    assert done.code == 1
    assert "standard output cannot be written: No space left" in done.err


@FULL
@pytest.mark.parametrize("arguments", [("exec", "hi"), RUN], ids=["exec", "run"])
@pytest.mark.parametrize(("reply", "code"), [("success", 0), ("auth_error", 1)])
async def test_a_full_standard_error_stops_nothing(
    place: Place, arguments: tuple[str, ...], reply: str, code: int
) -> None:
    async with MockLlmServer([reply]) as server:
        place.model(server.url)
        done = await shell(place, "2>/dev/full", *arguments)
    assert done.code == code


async def test_a_pipe_that_does_not_wait_loses_no_line(place: Place) -> None:
    text = "word " * 60_000
    async with MockLlmServer([{"text": text}], chunk_size=50_000) as server:
        place.model(server.url)
        read, write = os.pipe()
        os.set_blocking(write, False)
        fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, 4096) if sys.platform == "linux" else None
        process = await asyncio.create_subprocess_exec(
            PYTHON, "-m", "dsh.cli.main", "exec", "hi", cwd=place.work, env=place.env,
            stdin=asyncio.subprocess.DEVNULL, stdout=write, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        os.close(write)
        with open(read, "rb") as file:
            out = await asyncio.to_thread(file.read)
        await process.communicate()
    assert process.returncode == 0
    assert out.decode() == text + "\n"


async def test_an_empty_prompt_and_an_unknown_agent_are_refused(place: Place) -> None:
    empty = await place.dsh("run", "--prompt", "  ", "--exit-when-idle")
    assert (empty.code, empty.err) == (2, "dsh: the prompt is empty\n")
    unknown = await place.dsh("run", "--agent", "mian", "--exit-when-idle")
    assert unknown.code == 1 and 'no agent "mian"; agents: main' in unknown.err


@pytest.mark.skipif(sys.platform == "darwin", reason="file names are UTF-8 there")
async def test_a_folder_whose_name_is_no_text_is_followed_too(place: Place) -> None:
    folder = os.fsencode(place.work) + b"/bad\xff"
    os.mkdir(folder)
    place.work = Path(os.fsdecode(folder))
    place.init()
    file = place.work / "cordis.yml"
    async with place.daemon("cordis.yml") as daemon:
        await daemon.ready()
        await asyncio.sleep(1)
        file.write_text(file.read_text("utf-8").replace("timeoutMs: 60000", "timeoutMs: 61000"), "utf-8")
        assert (await daemon.config("applied"))["rows"] == ["bash"]
        daemon.signal(signal.SIGTERM)
        assert await daemon.finish() == 0


@FULL
@pytest.mark.parametrize("arguments", [("ps",), ("sessions", "list"), ("--help",)], ids=str)
async def test_a_list_that_cannot_be_written_is_one_sentence(place: Place, arguments: tuple[str, ...]) -> None:
    done = await shell(place, ">/dev/full", *arguments)
    assert (done.code, done.err) == (1, "dsh: standard output cannot be written: No space left on device\n")
    assert "Traceback" in (await shell(place, ">/dev/full", "-vv", "ps")).err
