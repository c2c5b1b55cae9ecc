"""`bash` with one shell an agent, as a model meets it."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import dsh.shell.env
import dsh.shell.subprocess
import dsh.shell.terminal
import dsh.shell.terminal_bash
import dsh.shell.tool_bash_persistent
from dsh.cordis import AbortController, AbortSignal
from dsh.core.agent import Agent, AgentOptions, CreateAgentOptions
from dsh.core.system_prompt import AssembleContext, SystemPrompt
from dsh.core.tools import ToolInput, ToolResult, Tools
from dsh.llm.message import create_user_message
from dsh.shell import texts
from tests.core.kit import Spine, of_type, spine, text_reply, tool_reply
from tests.files.helpers import told
from tests.files.test_tools import without_descriptions

from .helpers import running, unique_seconds, until_gone, until_running
from .test_turns import command as bash_call

ROUTE = AgentOptions(provider="test", model="m")
_ids = itertools.count(1)


@asynccontextmanager
async def persistent(script: Any = (), **config: Any) -> AsyncIterator[Spine]:
    async with spine(script) as s:
        await s.root.plugin(dsh.shell.subprocess, {})
        await s.root.plugin(dsh.shell.terminal, {})
        await s.root.plugin(dsh.shell.terminal_bash, {"disposeGraceMs": 400, "handoffGraceMs": 50})
        await s.root.plugin(dsh.shell.tool_bash_persistent, {"timeoutMs": 20_000, **config})
        yield s


async def call(s: Spine, agent: Agent | None, command: str, signal: AbortSignal | None = None) -> ToolResult:
    return await s.root[Tools].execute(
        ToolInput(f"call-{next(_ids)}", "bash", {"command": command}, agent=agent, signal=signal)
    )


async def said(s: Spine, agent: Agent, command: str) -> str:
    result = await call(s, agent, command)
    assert not result.is_error, told(result)
    return told(result)


async def test_the_tool_and_its_parameters() -> None:
    async with persistent(description="Run a command in a persistent shell.") as s:
        (schema,) = s.root[Tools].schemas()
        assert (schema["name"], schema["description"]) == ("bash", "Run a command in a persistent shell.")
        assert without_descriptions(schema["parameters"]) == {
            "type": "object",
            "properties": {"command": {"type": "string"}},
            "required": ["command"],
        }
        assembly = await s.root[SystemPrompt].assemble(AssembleContext())
        assert not [section for section in assembly.sections if section.name.startswith("tool:")]


async def test_b10j_state_is_kept_between_calls(tmp_path: Path) -> None:
    async with persistent() as s:
        agent = s.agent()
        count = (
            'counter=$(( ${counter:-0} + 1 )); export counter; printf \'COUNT=%s CWD=%s\\n\' "$counter" "$PWD"; '
            f'if [ "$counter" -eq 1 ]; then cd {tmp_path}; fi'
        )
        assert await said(s, agent, count) == "COUNT=1 CWD=/tmp\n"
        assert await said(s, agent, count) == f"COUNT=2 CWD={tmp_path}\n"
        await said(s, agent, "greet() { echo hi $1; }; shopt -s extglob; exec 5>&1")
        assert await said(s, agent, "greet you; echo five >&5; ls -d !(nothing)* 2>/dev/null; true") == "hi you\nfive\n"


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("true", "(no output)"),
        ("echo hi", "hi\n"),
        ("printf 'no newline'", "no newline"),
        ("echo out; echo err >&2; (exit 3)", "out\nerr\n[exit code: 3]"),
        ("printf x; false", "x\n[exit code: 1]"),
        ("for i in 1 2\ndo\n  echo $i\ndone\ncat <<'E'\nraw $HOME \\ `x`\nE\n", "1\n2\nraw $HOME \\ `x`\n"),
        ("echo 'one\ttab' \"a!b\" $'\\x41' 'q'\"'\"'q' # comment", "one\ttab a!b A q'q\n"),
        ("echo 日本語 é 😀", "日本語 é 😀\n"),
        ("printf '\\033[31mred\\033[0m\\r\\n'", "red\n"),
        ("(", "[exit code: 2]"),
        ("echo ok; printf '\\033['", "ok\n"),
        ("echo ok; printf '\\033]0;half a title'", "ok\n"),
        ("tty >/dev/null && test -t 0 && echo terminal", "terminal\n"),
    ],
)
async def test_b10k_what_a_model_reads_of_a_command(command: str, expected: str) -> None:
    async with persistent() as s:
        shown = await said(s, s.agent(), command)
        assert shown == expected or (command == "(" and shown.endswith(expected) and "syntax error" in shown)


async def test_b10l_redirections_and_prompts_of_a_command_do_not_hide_its_end(tmp_path: Path) -> None:
    async with persistent() as s:
        agent = s.agent()
        assert await said(s, agent, f"exec >{tmp_path}/out 2>/dev/null") == "(no output)"
        assert await said(s, agent, "echo to the file") == "(no output)"
        assert (tmp_path / "out").read_text() == "to the file\n"
        assert await said(s, agent, "exec >/dev/tty 2>&1; PS1='$ '; PROMPT_COMMAND=; stty sane") == "(no output)"
        assert await said(s, agent, "echo back") == "back\n"


@pytest.mark.parametrize(
    ("command", "how"),
    [
        ("echo bye; exit 3", "[shell exited: code 3]"),
        ("exec sh -c 'echo bye'", "[shell exited: code 0]"),
        ("echo bye; kill -9 $$", "[shell killed by signal: SIGKILL]"),
        ("set -e; echo bye; false", "[shell exited: code 1]"),
    ],
)
async def test_b10m_a_shell_that_ends_is_replaced_and_the_model_is_told(command: str, how: str) -> None:
    async with persistent() as s:
        agent = s.agent()
        await said(s, agent, "cd /usr; x=1")
        shown = await said(s, agent, command)
        assert shown.startswith("bye\n") and shown.endswith(f"{how}\n{texts.SHELL_RESET}")
        assert await said(s, agent, "echo $PWD$x") == "/tmp\n"


async def test_b10m_a_shell_that_ends_between_two_calls_is_replaced_and_the_model_is_told() -> None:
    async with persistent() as s:
        agent = s.agent()
        await said(s, agent, "x=1; shell=$$; (sleep 0.1; kill -9 $shell) & echo $!")
        session = s.root[dsh.shell.terminal.Terminals].list(agent)[0]
        async with asyncio.timeout(20):
            while session.exit is None:
                await asyncio.sleep(0.01)
        assert await said(s, agent, "echo fresh$x") == f"{texts.SHELL_RESET}\nfresh\n"


async def test_b10n_a_command_that_takes_too_long_costs_the_shell() -> None:
    seconds = unique_seconds()
    async with persistent(timeoutMs=700) as s:
        agent = s.agent()
        shown = await said(s, agent, f"echo partial; (trap '' HUP TERM; exec sleep {seconds})")
        assert shown == (
            "Your command timed out after 0.7 seconds or experienced an OOM error. Below is partial output:\npartial\n"
            f"{texts.SHELL_RESET}"
        )
        assert not running(seconds)
        assert await said(s, agent, "echo next") == "next\n"


async def test_b10o_a_command_that_wants_input_returns_and_the_shell_stays() -> None:
    async with persistent() as s:
        agent = s.agent()
        await said(s, agent, "x=kept")
        assert await said(s, agent, "read -p 'name? ' name") == f"name? \n{texts.INPUT_WANTED}"
        assert await said(s, agent, "head -1 </dev/tty") == texts.INPUT_WANTED
        assert await said(s, agent, "echo $x") == "kept\n"
        shown = await said(s, agent, "trap '' INT; bash --norc -c 'trap \"\" INT; read y; read z'")
        assert shown == f"{texts.INPUT_WANTED}\n{texts.SHELL_RESET}"
        assert await said(s, agent, "echo ${x-gone}") == "gone\n"


async def test_b10p_cancelling_ends_the_command_and_resets_the_shell() -> None:
    seconds = unique_seconds()
    async with persistent() as s:
        agent, controller = s.agent(), AbortController()
        await said(s, agent, "x=1")
        running_call = asyncio.create_task(
            call(s, agent, f"sleep {seconds} & (trap '' HUP TERM INT; exec sleep {seconds})", controller.signal)
        )
        await until_running(seconds, 2)
        controller.abort({"kind": "user"})
        result = await running_call
        assert result.is_error and told(result) == "Error: tool call aborted"
        assert not running(seconds)
        assert await said(s, agent, "echo ${x-fresh}") == "fresh\n"


async def test_b10p_a_call_cancelled_before_it_began_leaves_the_shell_alone() -> None:
    async with persistent() as s:
        agent, controller = s.agent(), AbortController()
        await said(s, agent, "x=1")
        first = asyncio.create_task(call(s, agent, "sleep 0.5; echo done"))
        await asyncio.sleep(0.1)
        second = asyncio.create_task(call(s, agent, "echo never", controller.signal))
        await asyncio.sleep(0)
        controller.abort()
        assert (await second).is_error
        assert told(await first) == "done\n"
        assert await said(s, agent, "echo $x") == "1\n"


async def test_b10p_a_call_is_cancelled_while_its_shell_starts() -> None:
    async with spine() as s:
        await s.root.plugin(dsh.shell.subprocess, {})
        await s.root.plugin(dsh.shell.terminal, {})
        await s.root.plugin(
            dsh.shell.terminal_bash,
            {"shellArgs": ["-c", "sleep 1000"], "timeoutMs": 600_000, "disposeGraceMs": 400},
        )
        await s.root.plugin(dsh.shell.tool_bash_persistent, {})
        controller = AbortController()
        starting = asyncio.create_task(call(s, s.agent(), "true", controller.signal))
        await asyncio.sleep(0.1)
        controller.abort("enough")
        result = await asyncio.wait_for(starting, 8)  # a body that does not react is given up after 10 s
        assert result.is_error and told(result) == "Error: tool call aborted"


async def test_b10q_calls_of_one_agent_wait_for_each_other_and_agents_share_nothing() -> None:
    async with persistent() as s:
        mine, other = s.agent("mine"), s.agent("other")
        results = await asyncio.gather(
            call(s, mine, "echo a; sleep 0.4; echo b; x=mine"),
            call(s, mine, "echo c$x"),
            call(s, other, "echo d$x; sleep 0.1"),
        )
        assert [told(result) for result in results] == ["a\nb\n", "cmine\n", "d\n"]
        assert await said(s, mine, "echo $$") != await said(s, other, "echo $$")


async def test_b10r_nothing_outlives_the_agent() -> None:
    seconds = unique_seconds()
    async with persistent() as s:
        handle = await s.agents.create(CreateAgentOptions("a", {"cwd": "/tmp"}, agent_options=ROUTE))
        await said(s, handle.agent, f"sleep {seconds} & disown; setsid nohup sleep {seconds} >/dev/null 2>&1 &")
        await until_running(seconds, 2)
        await handle.dispose()
        assert not running(seconds)
        assert (await call(s, handle.agent, "echo")).is_error


async def test_b10r_a_cancelled_turn_leaves_no_process() -> None:
    seconds = unique_seconds()
    line = bash_call(f"(trap '' HUP TERM; sleep {seconds}) & sleep {seconds}")
    async with persistent([tool_reply(("bash", line)), text_reply("fine")]) as s:
        agent = s.agent()
        agent.followup(create_user_message("go"))
        await until_running(seconds, 2)
        agent.cancel({"kind": "user"})
        await agent.when_idle()
        assert not running(seconds)
        assert len(of_type(agent.session, "tool/result")) == 1


HARNESS = """
import asyncio, sys
from tests.shell.test_tool_bash_persistent import persistent, said
async def main():
    async with persistent() as s:
        await said(s, s.agent(), sys.argv[1])
        print("ready", flush=True)
        await asyncio.sleep(600)
asyncio.run(main())
"""


async def test_b10s_nothing_outlives_a_harness_that_is_killed() -> None:
    seconds = unique_seconds()
    harness = await asyncio.create_subprocess_exec(
        sys.executable, "-c", HARNESS, f"sleep {seconds} & disown; setsid nohup sleep {seconds} >/dev/null 2>&1 &",
        stdout=asyncio.subprocess.PIPE, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert harness.stdout is not None
    assert await asyncio.wait_for(harness.stdout.readline(), 60) == b"ready\n"
    await until_running(seconds, 2)
    os.kill(harness.pid, signal.SIGKILL)
    await harness.wait()
    await until_gone(seconds)


async def test_long_output_loses_its_middle_and_very_long_output_its_beginning() -> None:
    async with persistent(maxOutputChars=1000) as s:
        agent = s.agent()
        shown = await said(s, agent, "seq 1000")
        assert shown.startswith("1\n2\n") and shown.endswith("\n999\n1000\n")
        assert "[... 2893 characters left out ...]" in shown
        shown = await said(s, agent, "seq 100000")
        assert shown.startswith(f"{texts.LOST_OUTPUT}\n") and shown.endswith("100000\n")


async def test_a_long_command_is_typed_whole() -> None:
    async with persistent() as s:
        agent = s.agent()
        assert await said(s, agent, f"x='{'é' * 20_000}'; echo ${{#x}}") in ("20000\n", "40000\n")


async def test_commands_that_are_none_are_refused() -> None:
    async with persistent() as s:
        agent = s.agent()
        for command, error in ((" \n", texts.BLANK_COMMAND), ("echo a\0b", texts.NUL_IN_COMMAND)):
            result = await call(s, agent, command)
            assert result.is_error and told(result) == f"Error: {error}"
        assert told(await call(s, None, "echo")) == f"Error: {texts.PERSISTENT_NO_OWNER}"


async def test_the_shell_has_the_variables_of_the_harness_and_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_API_KEY", "secret")
    async with persistent() as s:
        await s.root.plugin(dsh.shell.env, {})
        agent = s.agent("a")
        assert await said(s, agent, "echo $DSH_SHELL $DSH_SESSION_ID ${MY_API_KEY-none} $HISTFILE") == (
            "1 a none /dev/null\n"
        )


async def test_reloading_a_row_replaces_the_shell() -> None:
    async with spine() as s:
        await s.root.plugin(dsh.shell.subprocess, {})
        await s.root.plugin(dsh.shell.terminal, {})
        backend = s.root.plugin(dsh.shell.terminal_bash, {"disposeGraceMs": 400})
        await backend
        tool = s.root.plugin(dsh.shell.tool_bash_persistent, {})
        await tool
        agent = s.agent()
        await said(s, agent, "x=1")
        await backend.restart()
        assert await said(s, agent, "echo fresh$x") == f"{texts.SHELL_RESET}\nfresh\n"
        await said(s, agent, "x=2")
        await tool.restart()
        assert await said(s, agent, "echo fresh$x") == "fresh\n"
        assert len(s.root[dsh.shell.terminal.Terminals].list(agent)) == 1
