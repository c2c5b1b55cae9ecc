"""The tool `bash` as a model meets it."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import dsh.shell.bash
import dsh.shell.env
import dsh.shell.subprocess
import dsh.shell.tool_bash
from dsh.cordis import AbortController, Context
from dsh.cordis.jsonio import encode, thaw
from dsh.core.agent_events import AgentDisposed
from dsh.core.system_prompt import AssembleContext, SystemPrompt
from dsh.core.tools import ToolInput, Tools
from tests.files.helpers import FakeAgent, call, code, root_with_tools, told

from .helpers import running, unique_seconds, until_gone, until_running


@asynccontextmanager
async def root_with_bash(
    tool: Mapping[str, Any] | None = None, shell: Mapping[str, Any] | None = None
) -> AsyncIterator[Context]:
    async with root_with_tools(
        (dsh.shell.subprocess, {}),
        (dsh.shell.bash, {"graceMs": 300, **(shell or {})}),
        (dsh.shell.env, {"dshHome": "/the/home"}),
        (dsh.shell.tool_bash, tool or {}),
    ) as root:
        yield root


async def bash(root: Context, command: str, agent: Any = None, signal: Any = None, **more: Any) -> Any:
    return await call(root, "bash", {"command": command, "description": "try", **more}, agent, signal)


async def test_the_tool_and_its_guidance() -> None:
    async with root_with_bash() as root:
        (schema,) = root[Tools].schemas()
        parameters = thaw(schema["parameters"])
        for prop in parameters["properties"].values():
            assert prop.pop("description")
        assert parameters == {
            "type": "object",
            "properties": {
                "command": {"type": "string"},
                "description": {"type": "string"},
                "timeoutMs": {"type": "number"},
                "workdir": {"type": "string"},
            },
            "required": ["command", "description"],
        }
        assembly = await root[SystemPrompt].assemble(AssembleContext())
        assert ("tool:bash", 105) in [(section.name, section.order) for section in assembly.sections]


@pytest.mark.parametrize(
    ("command", "text"),
    [
        ("echo TERMINAL_OK", "TERMINAL_OK\n"),
        ("printf CLI", "CLI"),
        ("true", "(no output)"),
        ("exit 3", "(no output)\n[exit code: 3]"),
        ("echo out; exit 3", "out\n[exit code: 3]"),
        ("printf out; exit 3", "out\n[exit code: 3]"),
        ("echo bad >&2", "[stderr]\nbad\n"),
        ("printf out; echo bad >&2; false", "out\n[stderr]\nbad\n[exit code: 1]"),
        ("echo out; printf bad >&2", "out\n[stderr]\nbad"),
        ("kill -9 $$", "(no output)\n[killed by signal: SIGKILL]"),
    ],
)
async def test_b09j_what_a_model_reads(command: str, text: str) -> None:
    async with root_with_bash() as root:
        result = await bash(root, command)
        assert (result.is_error, told(result)) == (False, text)


async def test_b09k_the_value_of_a_command() -> None:
    async with root_with_bash(shell={"timeoutMs": 5000}) as root:
        assert (await bash(root, "echo out; exit 3")).value == {
            "kind": "foreground",
            "exitCode": 3,
            "signal": None,
            "timedOut": False,
            "aborted": False,
            "timeoutMs": 5000,
            "stdout": {"text": "out\n", "truncated": False},
            "stderr": {"text": "", "truncated": False},
        }


async def test_f46_b09l_a_time_out_is_told_with_the_output_so_far() -> None:
    async with root_with_bash() as root:
        result = await bash(root, "echo begun; exec sleep 60", timeoutMs=250)
        assert told(result) == "begun\n[timed out after 250ms]\n[killed by signal: SIGTERM]"
        assert not result.is_error
        trapped = await bash(root, "trap 'exit 0' TERM; sleep 60 & wait", timeoutMs=250.5)
        assert told(trapped) == "(no output)\n[timed out after 250.5ms]"


async def test_b09m_truncated_streams_name_their_file() -> None:
    async with root_with_bash(shell={"maxOutputBytes": 8, "maxSpillBytes": 100}) as root:
        result = await bash(root, "printf 0123456789; seq 1 200 >&2; exit 1")
        path = result.value["stdout"]["spillPath"]
        assert Path(path).read_text() == "0123456789"
        assert told(result) == (
            f"23456789\n[output truncated; full output: {path}]\n"
            "[stderr]\n199\n200\n\n[output truncated; full output: (unavailable)]\n[exit code: 1]"
        )


async def test_b09n_a_fired_signal_starts_nothing_and_a_late_one_ends_everything(tmp_path: Path) -> None:
    seconds = unique_seconds()
    agent = FakeAgent(tmp_path)
    async with root_with_bash() as root:
        controller = AbortController()
        task = asyncio.ensure_future(bash(root, f"echo x; sleep {seconds} & wait", agent, controller.signal))
        await until_running(seconds)
        controller.abort()
        result = await task
        assert (told(result), code(result)) == ("Error: tool call aborted", ("AbortError", "ABORTED"))
        assert not running(seconds)
        late = await bash(root, "touch made", agent, controller.signal)
        assert code(late) == ("AbortError", "ABORTED_BEFORE_DISPATCH")
        assert os.listdir(tmp_path) == []


async def test_b09o_each_session_has_its_own_directory(tmp_path: Path) -> None:
    first, second = tmp_path / "one", tmp_path / "two"
    (first / "sub").mkdir(parents=True)
    second.mkdir()
    async with root_with_bash(tool={"allowParallel": True}) as root:
        results = await asyncio.gather(
            bash(root, "pwd -P", FakeAgent(first)),
            bash(root, "pwd -P", FakeAgent(second)),
            bash(root, "pwd -P", FakeAgent(first), workdir="sub"),
            bash(root, "pwd -P", FakeAgent(first), workdir=str(second)),
        )
        real = tmp_path.resolve()
        assert [told(result) for result in results] == [
            f"{real}/one\n",
            f"{real}/two\n",
            f"{real}/one/sub\n",
            f"{real}/two\n",
        ]
        missing = await bash(root, "pwd", FakeAgent(first), workdir="nowhere")
        assert told(missing) == f'Error: the working directory "{first}/nowhere" does not exist'


async def test_b09p_what_a_model_adds_to_the_arguments_is_ignored(tmp_path: Path) -> None:
    async with root_with_bash() as root:
        result = await bash(
            root, 'echo "[$EVIL]"; cat', env={"EVIL": "1"}, stdin="typed", stdoutMaxBytes=1, run_in_background=True
        )
        assert told(result) == "[]\n"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"command": " ", "description": "x"}, "invalid command: expected a non-empty string"),
        ({"command": "true", "description": ""}, "invalid description: expected a non-empty string"),
        (
            {"command": "true", "description": "x", "timeoutMs": 0},
            "invalid timeoutMs: expected a positive number, got 0",
        ),
        (
            {"command": "true", "description": "x", "timeoutMs": -1.5},
            "invalid timeoutMs: expected a positive number, got -1.5",
        ),
        ({"command": "true"}, 'invalid arguments: missing required property "description"'),
        ({"command": "true", "description": "x", "timeoutMs": True}, 'invalid arguments: "timeoutMs" must be a number'),
    ],
)
async def test_b09q_bad_arguments(arguments: dict[str, Any], text: str) -> None:
    async with root_with_bash() as root:
        result = await call(root, "bash", arguments)
        assert (result.is_error, told(result)) == (True, f"Error: {text}")


async def test_commands_overlap_only_where_the_row_says_so() -> None:
    given = ToolInput(call_id="c", name="bash", arguments={"command": "true", "description": "x"})
    for tool, mode in (
        ({}, "exclusive"),
        ({"allowParallel": False}, "exclusive"),
        ({"allowParallel": True}, "parallel"),
    ):
        async with root_with_bash(tool=tool) as root:
            assert root[Tools].execution_mode(given) == mode


async def test_commands_are_told_where_they_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DSH_LEAK", "1")
    monkeypatch.setenv("PROVIDER_API_KEY", "1")
    agent = FakeAgent(tmp_path, "session-1")
    async with root_with_bash() as root:
        lines = told(await bash(root, "env", agent)).split("\n")
        ours = sorted(line for line in lines if line.startswith("DSH_") and not line.startswith("DSH_PROCESS_TREE="))
        assert ours == ["DSH_HOME=/the/home", "DSH_SESSION_ID=session-1", "DSH_SHELL=1"]
        assert not any("API_KEY" in line for line in lines)


@pytest.mark.parametrize("start", ["{} & echo hi", "nohup {} >/dev/null 2>&1 & echo hi", "setsid {} & echo hi"])
async def test_f45_b09r_a_process_left_behind_is_named_and_ends_with_its_session(tmp_path: Path, start: str) -> None:
    seconds, kept = unique_seconds(), unique_seconds()
    agent, other = FakeAgent(tmp_path), FakeAgent(tmp_path)
    async with root_with_bash() as root:
        result = await bash(root, start.format(f"sleep {seconds}"), agent)
        assert told(result) == (
            "hi\n[a process started by this command is still running; "
            "it ends when this session ends or the turn is cancelled]"
        )
        assert not result.is_error
        await bash(root, start.format(f"sleep {kept}"), other)
        root.emit(AgentDisposed(agent=agent))  # type: ignore[arg-type]
        await until_gone(seconds)
        assert running(kept)
    assert not running(kept)


async def test_f45_b09s_cancelling_the_turn_ends_what_its_commands_left(tmp_path: Path) -> None:
    seconds = unique_seconds()
    controller = AbortController()
    async with root_with_bash() as root:
        await bash(root, f"nohup sleep {seconds} >/dev/null 2>&1 &", FakeAgent(tmp_path), controller.signal)
        assert running(seconds)
        controller.abort()
        await until_gone(seconds)


async def test_f58c_any_directory_works(tmp_path: Path) -> None:
    folder = tmp_path / "ä 目录 'q' 😀"
    folder.mkdir()
    async with root_with_bash() as root:
        result = await bash(root, "touch 'ö'; ls; pwd", FakeAgent(folder))
        assert told(result) == f"ö\n{folder}\n"


async def test_b14g_odd_output_and_commands_never_break_a_log_line(tmp_path: Path) -> None:
    async with root_with_bash() as root:
        for command in (r"printf '\xff\xfe\x00ok\x1b[31m'", "head -c 4000 /dev/urandom", "echo \ud800", "echo a\0b"):
            result = await bash(root, command, FakeAgent(tmp_path))
            line = encode(thaw([list(result.content), result.value]))
            assert b"\n" not in line and json.loads(line)
            told(result).encode()


async def test_cards_for_people() -> None:
    async with root_with_bash() as root:
        tool = root[Tools].get("bash")
        arguments = {"command": "make", "description": "Build", "workdir": "sub"}
        assert tool.present_call(arguments) == {
            "card": "terminal",
            "title": "make",
            "description": "Build",
            "cwd": "sub",
        }

        def card(text: str, is_error: bool = False) -> Any:
            return tool.present_result(arguments, {"content": [{"type": "text", "text": text}], "isError": is_error})

        assert card("out\n[exit code: 2]") == {"card": "terminal", "output": "out", "exitCode": 2}
        assert card("out\n[killed by signal: SIGTERM]") == {"card": "terminal", "output": "out", "signal": "SIGTERM"}
        assert card("[exit code: 2] was printed\n") == {
            "card": "terminal",
            "output": "[exit code: 2] was printed\n",
            "exitCode": 0,
        }
        assert card("Error: no", True)["card"] == "generic"
