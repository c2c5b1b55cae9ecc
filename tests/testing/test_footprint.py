"""Whatever a plugin leaves behind fails its test, by name."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dsh.cordis import Context
from dsh.core.session_store import SessionAppended
from dsh.core.tools import Tools, define_tool
from dsh.testing import footprint as module
from dsh.testing import nothing_left, run_plugin

OPEN: list[Any] = []
"""What the plugins of these tests left behind, for the tests to clear away."""


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(module, "PATIENCE", 0.3)
    yield
    while OPEN:
        OPEN.pop()()


async def left_by(plugin: Callable[..., Any], **options: Any) -> str:
    """What the check says of a plugin."""
    with pytest.raises(AssertionError) as caught:
        async with run_plugin(plugin, **options):
            pass
    return str(caught.value)


async def test_a_task_is_named() -> None:
    def plugin(ctx: Context) -> None:
        task = asyncio.get_running_loop().create_task(asyncio.sleep(60), name="forgotten")
        OPEN.append(task.cancel)

    assert await left_by(plugin) == "left behind: task forgotten"


async def test_a_thread_is_named() -> None:
    def plugin(ctx: Context) -> None:
        end = threading.Event()
        threading.Thread(target=end.wait, name="forgotten").start()
        OPEN.append(end.set)

    assert await left_by(plugin) == "left behind: thread forgotten"


async def test_an_open_file_and_a_socket_are_named(tmp_path: Path) -> None:
    def plugin(ctx: Context) -> None:
        file, sock = (tmp_path / "log").open("w"), socket.socket()
        OPEN.extend([file.close, sock.close])

    said = await left_by(plugin)
    assert "open file" in said and str(tmp_path / "log") in said and "socket:" in said


async def test_a_child_process_is_named() -> None:
    def plugin(ctx: Context) -> None:
        child = subprocess.Popen(["sleep", "60"])
        OPEN.extend([child.wait, child.kill])

    assert "left behind: child process " in await left_by(plugin)


async def test_what_it_registered_elsewhere_than_on_its_own_context_is_named() -> None:
    def plugin(ctx: Context, config: None, tools: Tools) -> None:
        ctx.root.on(SessionAppended, lambda event: None)
        ctx.root.provide("forgotten", object())
        ctx.root[Tools].register(define_tool("forgotten", "", {}, _output(), lambda args, exec: ""))
        ctx.root.inject(["never"], lambda child: None)

    said = await left_by(plugin)
    for part in ("listener of session/event by", "service forgotten of root", "effect ", "waiting for never"):
        assert part in said, said


async def test_what_is_on_its_way_out_may_take_a_moment() -> None:
    def plugin(ctx: Context) -> None:
        child = subprocess.Popen(["sleep", "0.05"])
        thread = threading.Thread(target=child.wait)
        thread.start()

    async with run_plugin(plugin):
        pass


async def test_a_test_that_fails_itself_says_its_own_reason() -> None:
    def plugin(ctx: Context) -> None:
        OPEN.append(asyncio.get_running_loop().create_task(asyncio.sleep(60)).cancel)

    with pytest.raises(AssertionError, match="the reason of the test"):
        async with run_plugin(plugin):
            raise AssertionError("the reason of the test")


async def test_the_check_by_itself() -> None:
    with pytest.raises(AssertionError, match="left behind: task mine"):
        async with nothing_left():
            task = asyncio.create_task(asyncio.sleep(60), name="mine")
    task.cancel()
    async with nothing_left():
        await asyncio.create_task(asyncio.sleep(0))


def _output() -> Any:
    from dsh.core.tools import Output, text

    return Output({}, lambda args, value: [text(str(value))])
