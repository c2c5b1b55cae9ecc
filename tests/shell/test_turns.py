"""Commands inside a real turn: cancelled means quiet."""

from __future__ import annotations

import json
from typing import Any

import dsh.shell.bash
import dsh.shell.subprocess
import dsh.shell.tool_bash
from dsh.core.session import Session
from dsh.llm.message import create_user_message
from tests.core.kit import of_type, spine, text_reply, tool_reply, types

from .helpers import running, unique_seconds, until_running


def command(line: str) -> str:
    return json.dumps({"command": line, "description": "try"})


def results(session: Session) -> list[tuple[str, bool]]:
    blocks = [data["message"]["content"][0] for data in of_type(session, "tool/result")]
    return [(block["content"][0]["text"], block["isError"]) for block in blocks]


async def mount(s: Any, **tool: Any) -> None:
    await s.root.plugin(dsh.shell.subprocess, {})
    await s.root.plugin(dsh.shell.bash, {"graceMs": 300})
    await s.root.plugin(dsh.shell.tool_bash, tool)


async def test_f16_a_cancelled_turn_leaves_no_process_and_one_result_a_call() -> None:
    seconds = unique_seconds()
    stubborn = command(f"sh -c 'sleep {seconds} & (trap \"\" TERM; sleep {seconds}) & wait'")
    script = [tool_reply(("bash", stubborn), ("bash", stubborn), ("bash", command("echo never"))), text_reply("fine")]
    async with spine(script) as s:
        await mount(s)
        agent = s.agent()
        agent.followup(create_user_message("go"))
        await until_running(seconds, 2)
        agent.cancel({"kind": "user"})
        await agent.when_idle()
        assert not running(seconds)
        log = agent.session
        assert [error for _, error in results(log)] == [True, True, True]
        assert results(log)[0][0] == "Error: tool call aborted"
        assert types(log)[-1] == "turn/end"
        assert of_type(log, "turn/end")[0]["reason"]["kind"] == "aborted"
        agent.followup(create_user_message("and now"))  # the next turn is accepted
        await agent.when_idle()
        assert of_type(log, "turn/end")[1]["reason"] == {"kind": "completed"}


async def test_f16_commands_that_overlap_are_all_ended() -> None:
    seconds = unique_seconds()
    line = command(f"sleep {seconds} & wait")
    async with spine([tool_reply(("bash", line), ("bash", line))]) as s:
        await mount(s, allowParallel=True)
        agent = s.agent()
        agent.followup(create_user_message("go"))
        await until_running(seconds, 2)
        agent.cancel({"kind": "user"})
        await agent.when_idle()
        assert not running(seconds)
        assert len(results(agent.session)) == 2


async def test_f45_a_process_left_behind_ends_with_its_agent() -> None:
    seconds = unique_seconds()
    line = command(f"setsid sleep {seconds} >/dev/null 2>&1 & echo hi")
    async with spine([tool_reply(("bash", line)), text_reply("ok")]) as s:
        await mount(s)
        agent = s.agent()
        agent.followup(create_user_message("go"))
        await agent.when_idle()
        assert results(agent.session)[0][0].startswith("hi\n[a process started by this command is still running")
        assert running(seconds)
    assert not running(seconds)
