"""The log of a local model's server never blocks it."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from dsh.cordis import Context
from dsh.llm.failure import LlmError
from dsh.models.local_server import LocalServer

CHATTY = """
import json, sys
settings = sys.stdin.readline()
sys.stderr.write("x" * 1_000_000)            # one line, far longer than a stream buffer
sys.stderr.write("\\n" + "loading\\n" * 100_000)
sys.stderr.flush()
%s
"""


def server(root: Context, after: str) -> LocalServer:
    command = (sys.executable, "-c", CHATTY % after)
    return LocalServer(root, Path("m.gguf"), context_window=512, threads=1, idle_seconds=60, command=command)


async def test_a_log_line_of_any_length_and_a_flood_of_lines_are_drained() -> None:
    answer = "print(json.dumps({'url': 'http://127.0.0.1:1'}), flush=True); sys.stdin.read()"
    async with Context() as root:
        running = server(root, answer)
        async with asyncio.timeout(30), running.use() as endpoint:
            assert endpoint.url == "http://127.0.0.1:1"
        await running.close()
        assert not running.running


async def test_the_last_line_of_the_log_explains_a_failed_start_even_without_a_line_end() -> None:
    async with Context() as root:
        with pytest.raises(LlmError, match="did not start: no such model$"):
            async with asyncio.timeout(30), server(root, "sys.stderr.write('no such model')").use():
                pass


async def test_an_answer_that_is_no_line_is_a_failed_start_and_leaves_no_process() -> None:
    async with Context() as root:
        running = server(root, "sys.stdout.write('y' * 1_000_000); sys.stdout.flush(); sys.stdin.read()")
        with pytest.raises(LlmError, match="did not start"):
            async with asyncio.timeout(30), running.use():
                pass
        assert not running.running
