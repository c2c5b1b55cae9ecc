"""What a step costs and what a closed session leaves, counted in operations and objects instead of time."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import weakref
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from dsh.core.agent import CreateAgentOptions, ResumeAgentOptions
from dsh.core.agents import Agents
from dsh.core.session_store import Sessions
from dsh.llm.message import create_user_message
from dsh.models.deepseek import history
from dsh.models.mock_server import MockLlmServer
from tests.faults.kit import living, strict

STEPS = 240
LOOP_ROWS = """\
- {id: echo, name: ./echo.py}
"""
ECHO = """\
from dsh.core.tools import Tools

def apply(ctx, config, tools: Tools):
    @tools.tool
    async def echo() -> str:
        "Say."
        return "said"
"""


@contextmanager
def counted() -> Iterator[Counter[str]]:
    """Counts calls of Python functions of the product, by file, while the block runs."""
    calls: Counter[str] = Counter()
    depth = len("/dsh/")

    def profile(frame: Any, event: str, argument: Any) -> None:
        if event == "call":
            file = frame.f_code.co_filename
            at = file.rfind("/dsh/")
            if at >= 0 and "mock_" not in file:
                calls[file[at + depth :]] += 1

    sys.setprofile(profile)
    try:
        yield calls
    finally:
        sys.setprofile(None)


async def test_fault60_a_late_step_costs_no_more_calls_than_an_early_one(tmp_path: Path) -> None:
    """The same tool again and again: the calls of twenty late steps are those of twenty early ones, give or take a
    twentieth; nothing walks the history."""
    call = {"toolCalls": [{"name": "echo", "arguments": {}}]}
    marks: dict[int, Counter[str]] = {}
    running: Counter[str] = Counter()

    def entry(number: int) -> Any:
        def answer(body: Any) -> Any:
            marks[number] = Counter(running)
            return call if number < STEPS else "success"

        return answer

    async with MockLlmServer([entry(number) for number in range(STEPS + 1)]) as server:
        async with living(tmp_path, server, LOOP_ROWS, {"echo.py": ECHO}) as life:
            with counted() as running:
                assert await life.prompt("go") == {"kind": "completed"}
    assert len(server.requests) == STEPS + 1
    early, late = marks[40] - marks[20], marks[STEPS - 10] - marks[STEPS - 30]
    grown = {file: (early[file], late[file]) for file in late if late[file] > early[file] * 1.05 + 20}
    assert grown == {}
    assert late.total() < early.total() * 1.05


async def test_fault60_a_step_writes_what_it_added_and_reads_nothing_of_the_log(tmp_path: Path) -> None:
    call = {"toolCalls": [{"name": "echo", "arguments": {}}]}
    sizes: list[int] = []
    opened: list[str] = []
    armed = [True]

    def hook(event: str, args: tuple[Any, ...]) -> None:
        if armed[0] and event == "open" and isinstance(args[0], str) and args[0].endswith("session.jsonl"):
            flags = args[2]
            if flags & os.O_ACCMODE == os.O_RDONLY:
                opened.append(args[0])

    def answer(body: Any) -> Any:
        sizes.append(sum(path.stat().st_size for path in tmp_path.glob("sessions/*/s/session.jsonl")))
        return call if len(sizes) <= 120 else "success"

    sys.addaudithook(hook)
    try:
        async with MockLlmServer([answer], repeat_last=True) as server:
            async with living(tmp_path, server, LOOP_ROWS, {"echo.py": ECHO}) as life:
                assert await life.prompt("go") == {"kind": "completed"}
                assert opened == []
    finally:
        armed[0] = False
    steps = [after - before for before, after in zip(sizes[10:], sizes[11:], strict=False)]
    assert max(steps) < min(steps) * 1.2, "a step adds the same to the log whatever came before it"


async def test_fault60_the_own_part_of_a_request_is_encoded_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What an earlier request held is sent again and not encoded again: the encoder sees each message once."""
    seen: Counter[str] = Counter()
    encode = history._encode

    def spy(messages: Any, thinking: bool) -> Any:
        seen.update(message["id"] for message in messages)
        return encode(messages, thinking)

    monkeypatch.setattr(history, "_encode", spy)
    call = {"toolCalls": [{"name": "echo", "arguments": {}}]}
    async with MockLlmServer([strict(call)] * 30 + [strict("success")]) as server:
        async with living(tmp_path, server, LOOP_ROWS, {"echo.py": ECHO}) as life:
            assert await life.prompt("go") == {"kind": "completed"}
    assert len(seen) == 61 and set(seen.values()) == {1}


async def test_fault61_closed_sessions_are_freed(tmp_path: Path) -> None:
    """Sessions one after the other in one process: agent, session and events of a closed one can be collected."""
    call = {"toolCalls": [{"name": "echo", "arguments": {}}]}
    turn = [call, call, "success"]
    gone: list[weakref.ref[Any]] = []
    async with MockLlmServer([strict(entry) for entry in turn * 12]) as server:
        async with living(tmp_path, server, LOOP_ROWS, {"echo.py": ECHO}) as life:
            agents, sessions = life.root[Agents], life.root[Sessions]
            tasks = len(asyncio.all_tasks())
            objects: list[int] = []
            for number in range(12):
                handle = await agents.create(
                    CreateAgentOptions(f"one-{number}", {"cwd": str(tmp_path)}, agent_options=life.agent.options)
                )
                agent = handle.agent
                gone += [weakref.ref(agent), weakref.ref(agent.session)]
                agent.followup(create_user_message("go"))
                await agent.when_idle()
                assert agent.session.events[-1].data["reason"] == {"kind": "completed"}
                await sessions.flush(agent.session)
                await handle.dispose()
                del agent, handle
                await life.root.settle()
                gc.collect()
                if number >= 5:
                    objects.append(len(gc.get_objects()))
            await asyncio.sleep(0)
            gc.collect()
            assert [ref for ref in gone if ref() is not None] == []
            assert len(asyncio.all_tasks()) <= tasks
            assert sessions.get("one-0") is None and agents.get("one-0") is None
            # what is kept of a session (headers, encoded history of the last ones) is small and bounded
            assert objects[-1] - objects[0] < 2000, objects


async def test_fault61_nothing_of_a_closed_conversation_is_kept_for_its_next_request(tmp_path: Path) -> None:
    """What was encoded for the requests of a session goes with the session."""
    async with MockLlmServer([strict("success")] * 4) as server:
        async with living(tmp_path, server) as life:
            handle = await life.root[Agents].create(
                CreateAgentOptions("one", {"cwd": str(tmp_path)}, agent_options=life.agent.options)
            )
            for agent in (life.agent, handle.agent):
                agent.followup(create_user_message("a word that is nowhere else"))
                await agent.when_idle()
            histories = [each for each in gc.get_objects() if isinstance(each, history.EncodedHistory) and each._kept]
            (held,) = [each for each in histories if any(key[0] == "one" for key in each._kept)]
            await handle.dispose()
            assert {key[0] for key in held._kept} == {"s"}


async def test_fault61_resumed_and_closed_sessions_are_freed(tmp_path: Path) -> None:
    gone: list[weakref.ref[Any]] = []
    async with MockLlmServer([strict("success")] * 20) as server:
        async with living(tmp_path, server) as life:
            agents = life.root[Agents]
            for number in range(10):
                handle = await agents.create(
                    CreateAgentOptions(f"one-{number}", {"cwd": str(tmp_path)}, agent_options=life.agent.options)
                )
                handle.agent.followup(create_user_message("go"))
                await handle.agent.when_idle()
                await life.root[Sessions].flush(handle.agent.session)
                await handle.dispose()
                again = await agents.resume(ResumeAgentOptions(f"one-{number}", life.agent.options))
                gone.append(weakref.ref(again.agent.session))
                await again.dispose()
                del handle, again
            await life.root.settle()
            gc.collect()
            await asyncio.sleep(0)
            gc.collect()
            assert sum(ref() is not None for ref in gone) <= 1, "the last one may still be on its way out"
