"""What is on disk before a model is asked, a tool runs, or a step begins."""

from __future__ import annotations

import errno
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from dsh.core.agent import Agent
from dsh.core.agent_events import AgentPreStep
from dsh.core.session_event import SessionEvent
from dsh.core.session_store import SessionFlush
from dsh.core.tools import ToolInput, ToolRun
from dsh.llm.call_config import CallConfig
from dsh.llm.message import create_user_message
from dsh.llm.types import LlmRequest
from dsh.sessions import checkpoint_policy, jsonl
from tests.core.kit import Entry, Spine, of_type, spine, text_reply, tool_reply, types
from tests.sessions.helpers import store_at


@asynccontextmanager
async def checkpointed(root: Path, script: list[Entry], **config: Any) -> AsyncIterator[Spine]:
    async with spine(script) as spine_:
        defaults = {"root": str(root), "durability": "os", "writeBatchMaxDelayMs": 600_000}
        await spine_.root.plugin(jsonl, {**defaults, **config})
        await spine_.root.plugin(checkpoint_policy)
        yield spine_


def stored(root: Path, session_id: str = "a") -> list[SessionEvent]:
    return store_at(root).read(session_id).events


async def ask(agent: Agent, text: str = "go") -> None:
    agent.followup(create_user_message(text))
    await agent.when_idle()


async def test_b15a_the_prompt_is_on_disk_before_the_first_chunk(tmp_path: Path) -> None:
    seen: list[list[str]] = []

    def reply(request: LlmRequest) -> Any:
        seen.append([event.type for event in stored(tmp_path)])
        return text_reply("hello")

    async with checkpointed(tmp_path, [reply]) as s:
        agent = s.agent()
        await ask(agent)
        (at_request,) = seen
        assert {"user/message", "step/start", "request/header"} <= set(at_request)
        assert at_request == types(agent.session)[: len(at_request)]


async def test_b15b_a_tool_body_sees_its_call_on_disk(tmp_path: Path) -> None:
    seen: list[list[Any]] = []
    async with checkpointed(tmp_path, [tool_reply(("look", "{}")), text_reply("done")]) as s:

        @s.tools.tool
        async def look() -> str:
            """Looks at the disk."""
            seen.append([event.data["callId"] for event in stored(tmp_path) if event.type == "tool/call"])
            return "seen"

        await ask(s.agent())
        assert seen == [["call-1"]]


async def test_b15c_with_a_full_disk_no_tool_body_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []
    write = os.write

    def full(fd: int, data: Any) -> int:
        if len(data) > 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(fd, data)

    def reply(request: LlmRequest) -> Any:
        monkeypatch.setattr(os, "write", full)
        return tool_reply(("look", "{}"))

    async with checkpointed(tmp_path, [reply]) as s:

        @s.tools.tool
        async def look() -> str:
            """Must not run."""
            ran.append("look")
            return "seen"

        agent = s.agent()
        await ask(agent)
        monkeypatch.undo()
        assert ran == []
        (result,) = of_type(agent.session, "tool/result")
        assert "No space left on device" in result["message"]["content"][0]["content"][0]["text"]
        (end,) = of_type(agent.session, "turn/end")
        assert end["reason"]["kind"] == "error"  # the next request could not leave either


async def test_with_a_full_disk_no_request_leaves_and_no_step_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = os.write

    def full(fd: int, data: Any) -> int:
        if len(data) > 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(fd, data)

    async with checkpointed(tmp_path, [text_reply("never")]) as s:
        agent = s.agent()
        monkeypatch.setattr(os, "write", full)
        await ask(agent)
        monkeypatch.undo()
        assert s.model.requests == []
        assert "step/start" not in types(agent.session)
        (end,) = of_type(agent.session, "turn/end")
        assert "No space left on device" in end["reason"]["error"]["message"]
        s.model.script = [text_reply("works again")]
        await ask(agent)
        assert of_type(agent.session, "turn/end")[1]["reason"] == {"kind": "completed"}


async def test_a_stream_is_flushed_when_it_is_pulled_not_when_it_is_made(tmp_path: Path) -> None:
    async with checkpointed(tmp_path, [text_reply("hello")]) as s:
        agent = s.agent()
        agent.session.append("note", {}, ignorable=True)
        request = LlmRequest(CallConfig("test", "m"), [create_user_message("hi")], session_id="a")
        stream = s.llm.stream(request)
        assert not list(tmp_path.iterdir())
        chunks = [chunk async for chunk in stream]
        assert chunks[-1]["type"] == "finish"
        assert len(stored(tmp_path)) == 1
        s.model.script = [text_reply("x")]
        unused = s.llm.stream(request)
        await unused.aclose()  # type: ignore[attr-defined]
        assert len(s.model.requests) == 1


async def test_streams_of_no_live_session_pass(tmp_path: Path) -> None:
    async with checkpointed(tmp_path, [text_reply("one"), text_reply("two")]) as s:
        for session_id in (None, "nobody"):
            request = LlmRequest(CallConfig("test", "m"), [create_user_message("hi")], session_id=session_id)
            assert [chunk async for chunk in s.llm.stream(request)][-1]["type"] == "finish"


async def test_d23_a_tool_step_has_two_barriers_and_parallel_tools_share_theirs(tmp_path: Path) -> None:
    calls = [("look", "{}", f"c{number}") for number in range(5)]
    script = [tool_reply(*calls), tool_reply(*calls), tool_reply(*calls), text_reply("done")]
    async with checkpointed(tmp_path, script) as s:

        @s.tools.tool(is_concurrency_safe=True)
        async def look() -> str:
            """Does nothing."""
            return "seen"

        batches: list[int] = []
        persistence: Any = s.root["sessionPersistence"]
        submit = persistence._writer.submit

        def counting(job: Any) -> Any:
            batches.append(len(s.model.requests))
            return submit(job)

        persistence._writer.submit = counting
        await ask(s.agent())
        assert len(s.model.requests) == 4
        # First step: one before hooks see the prompt, one before the request; then one a batch and one a request.
        assert batches == [0, 0, 1, 1, 2, 2, 3, 3]


async def test_a_call_made_from_inside_a_tool_needs_no_barrier(tmp_path: Path) -> None:
    flushes: list[str] = []
    async with checkpointed(tmp_path, []) as s:

        def inner() -> str:
            """Is called by the other."""
            return "inner"

        s.tools.tool(inner)
        agent = s.agent()
        s.root.on(SessionFlush, lambda event: flushes.append(event.session.id))
        outer = s.tools.start(ToolInput("outer", "inner", {}, agent=agent))
        await s.tools.execute(ToolInput("sub", "inner", {}, agent=agent, parent=outer.run.token))
        assert flushes == []
        await s.tools.execute(ToolInput("top", "inner", {}, agent=agent))
        assert flushes == ["a"]
        await s.tools.execute(ToolInput("nobody's", "inner", {}))
        assert flushes == ["a"]


async def test_a_call_cancelled_while_its_record_is_written_does_not_run(tmp_path: Path) -> None:
    from dsh.cordis import AbortController

    ran: list[str] = []
    abort = AbortController()
    async with checkpointed(tmp_path, []) as s:

        def look() -> str:
            """Must not run."""
            ran.append("look")
            return "seen"

        s.tools.tool(look)
        agent = s.agent()

        async def cancel_meanwhile(event: SessionFlush) -> None:
            abort.abort("user")

        s.root.on(SessionFlush, cancel_meanwhile)
        result = await s.tools.execute(ToolInput("c", "look", {}, agent=agent, signal=abort.signal))
        assert ran == [] and result.is_error
        assert result.content == [{"type": "text", "text": "Error: tool call aborted before dispatch"}]
        assert result.error is not None
        assert result.error.info == {"name": "AbortError", "code": "ABORTED_BEFORE_DISPATCH"}


async def test_the_prompt_is_on_disk_before_anybody_judges_it(tmp_path: Path) -> None:
    seen: list[list[str]] = []

    async def judge(event: AgentPreStep, proceed: Any) -> Any:
        seen.append([entry.type for entry in stored(tmp_path)])
        return await proceed()

    async with checkpointed(tmp_path, [text_reply("hello")]) as s:
        s.root.on(AgentPreStep, judge)
        await ask(s.agent())
        assert "agent/inbox/spliced" in seen[0] and "turn/start" in seen[0]


async def test_a_tool_does_not_start_on_a_lease_that_is_about_to_run_out(tmp_path: Path) -> None:
    ran: list[float] = []
    async with checkpointed(tmp_path, [], lease="expiry", leaseTtlMs=1500, leaseRenewMs=600_000) as s:
        persistence: Any = s.root["sessionPersistence"]
        agent = s.agent()

        def look(run: ToolRun) -> str:
            """Notes how long the lease lives."""
            ran.append(persistence.lease_left_ms(agent.session))
            return "seen"

        s.tools.tool(look)
        agent.session.append("note", {}, ignorable=True)
        await s.sessions.flush(agent.session)
        hold = persistence._live.of(agent.session).hold
        hold.lease._renewed_at -= 1.0
        result = await s.tools.execute(ToolInput("c", "look", {}, agent=agent))
        assert not result.is_error and ran[0] > 1000  # it was renewed first
        os.unlink(next(tmp_path.rglob("lease.json")))
        result = await s.tools.execute(ToolInput("d", "look", {}, agent=agent))
        assert result.is_error and len(ran) == 1
        assert result.error is not None and result.error.info is not None
        assert result.error.info["code"] == "SESSION_FENCED"
