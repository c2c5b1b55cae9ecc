"""``dsh run``: a daemon in a real process, edited, signalled, killed and resumed."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import textwrap
from pathlib import Path
from typing import Any

import pytest

from dsh.models.mock_server import MockLlmServer
from tests.cli.compositions import SHELL, SPINE
from tests.cli.kit import PYTHON, Daemon, Place
from tests.interfaces.control_kit import DEMO

CORDIS = (
    SPINE
    + """\
- {id: settings, name: dsh-settings-file}
- {id: credentials, name: dsh-credentials-local}
- {id: llm-deepseek, name: dsh-llm-deepseek}
- {id: llm-retry, name: dsh-llm-retry}
- {id: default-model, name: dsh-agent-default-model, config: {provider: deepseek-official, model: deepseek-flash}}
- {id: persistence, name: dsh-session-persistence-jsonl, config: {root: !!js dshHomePath('sessions')}}
- {id: checkpoints, name: dsh-session-checkpoint-policy}
"""
    + SHELL
    + """\
- {id: hmr, name: '@deepseek-ai/cordis-plugin-hmr', config: {debounce: 30}}
- {id: hello, name: ./hello.py}
"""
)

HELLO = """\
from dsh.cordis import Context
from dsh.core.tools import Tools

def apply(ctx: Context, config, tools: Tools):
    @tools.tool
    async def hello() -> str:
        "Say hello."
        return "hello one"
"""

UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"


@pytest.fixture
def place(tmp_path: Path) -> Place:
    place = Place.make(tmp_path)
    place.write("cordis.yml", CORDIS)
    place.write("hello.py", HELLO)
    return place


def edit(place: Place, name: str, old: str, new: str) -> None:
    """Save a file as editors do: write beside it, then rename."""
    path = place.work / name
    text = path.read_text("utf-8")
    assert old in text
    temporary = path.with_name(f".{name}.tmp")
    temporary.write_text(text.replace(old, new), "utf-8")
    os.replace(temporary, path)


def bash(*commands: str) -> Any:
    return {
        "toolCalls": [
            {"name": "bash", "arguments": json.dumps({"command": c, "description": "test"})} for c in commands
        ]
    }


async def send_waiting(daemon: Daemon) -> None:
    await daemon.event("tool/call")


# -- agents and their sessions ----------------------------------------------------------------------------------------


async def test_each_configured_agent_gets_a_session_named_after_its_label(place: Place) -> None:
    edit(place, "cordis.yml", "      - id: main\n", "      - id: main\n      - id: helper\n")
    async with place.daemon("cordis.yml") as daemon:
        first = await daemon.ready()
        daemon.signal(signal.SIGTERM)
        assert await daemon.finish() == 0
    assert first["pid"] == daemon.process.pid
    assert [each["label"] for each in first["agents"]] == ["main", "helper"]
    for each in first["agents"]:
        assert re.fullmatch(f"{each['label']}-session-{UUID}", each["sessionId"])
    async with place.daemon("cordis.yml") as daemon:
        second = await daemon.ready()
    assert {a["sessionId"] for a in first["agents"]} & {a["sessionId"] for a in second["agents"]} == set()


async def test_a_session_id_is_created_once_and_resumed_after(place: Place) -> None:
    edit(place, "cordis.yml", "- id: main", "- {id: main, sessionId: steady}")
    async with MockLlmServer(["success", "success"]) as server:
        place.model(server.url)
        for prompt in ("one", "two"):
            done = await place.dsh(
                "run", "cordis.yml", "--prompt", prompt, "--exit-when-idle", "--output", "stream-json"
            )
            assert done.code == 0, done.err
            assert done.lines()[0]["agents"] == [{"label": "main", "sessionId": "steady"}]
            assert done.lines()[-1]["type"] == "result" and done.lines()[-1]["reason"] == "completed"
    users = [m["content"] for m in server.bodies[1]["messages"] if m["role"] == "user"]
    assert users == ["one", "two"]
    turns = [
        line["event"]["data"]["turn"] for line in done.lines() if line.get("event", {}).get("type") == "turn/start"
    ]
    assert turns == [2]


async def test_resume_session_id_fails_clearly_when_the_session_is_not_there(place: Place) -> None:
    edit(place, "cordis.yml", "- id: main", "- {id: main, resumeSessionId: nowhere}")
    done = await place.dsh("run", "cordis.yml", "--prompt", "x", "--exit-when-idle")
    assert done.code == 1
    assert "nowhere" in done.err and "not found" in done.err


# -- live edits -------------------------------------------------------------------------------------------------------


async def test_an_edit_of_the_cap_changes_the_next_tool_group_and_restarts_no_agent(place: Place) -> None:
    group = bash("sleep 0.3; echo a", "sleep 0.3; echo b", "sleep 0.3; echo c")
    async with MockLlmServer(
        [bash("touch started; while [ ! -e go ]; do sleep 0.05; done"), group, "success"]
    ) as server:
        place.model(server.url)
        async with place.daemon("cordis.yml", "--prompt", "go") as daemon:
            ready = await daemon.ready()
            await daemon.event("tool/call")
            edit(place, "cordis.yml", "maxParallelToolCalls: 10", "maxParallelToolCalls: 1")
            applied = await daemon.config("applied")
            assert applied["rows"] == ["agent-loop"]
            place.write("go", "")
            await daemon.event("turn/end")
            daemon.signal(signal.SIGTERM)
            assert await daemon.finish() == 0
    kinds = [
        line["event"]["type"]
        for line in daemon.lines
        if line["type"] == "session_event" and line["event"]["type"] in ("tool/call", "tool/result")
    ]
    assert kinds == ["tool/call", "tool/result"] * 4
    sessions = {line["sessionId"] for line in daemon.lines if line["type"] == "session_event"}
    assert sessions == {ready["agents"][0]["sessionId"]}
    assert daemon.events("turn/end") == [{"turn": 1, "reason": {"kind": "completed"}}]


async def test_settings_set_from_another_process_changes_the_next_tool_group(place: Place) -> None:
    group = bash("sleep 0.2; echo a", "sleep 0.2; echo b")
    async with MockLlmServer([bash("while [ ! -e go ]; do sleep 0.05; done"), group, "success"]) as server:
        place.model(server.url)
        async with place.daemon("cordis.yml", "--prompt", "go") as daemon:
            await daemon.ready()
            await daemon.event("tool/call")
            stored = await place.dsh("settings", "set", "agent-loop.maxParallelToolCalls", "1")
            assert stored.code == 0
            await asyncio.sleep(0.5)  # the daemon's watcher needs a moment; there is nothing to wait for from outside
            place.write("go", "")
            await daemon.event("turn/end")
    kinds = [
        line["event"]["type"]
        for line in daemon.lines
        if line["type"] == "session_event" and line["event"]["type"] in ("tool/call", "tool/result")
    ]
    assert kinds == ["tool/call", "tool/result"] * 3


@pytest.mark.parametrize("value", ["0", "1.5", '"x"'])
async def test_a_refused_setting_says_why_and_changes_no_byte(place: Place, value: str) -> None:
    assert (await place.dsh("settings", "set", "agent-loop.maxParallelToolCalls", "3")).code == 0
    path = place.home / "settings.yaml"
    before = path.read_bytes()
    done = await place.dsh("settings", "set", "agent-loop.maxParallelToolCalls", value)
    assert done.code == 1 and "maxParallelToolCalls" in done.err
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("maxParallelToolCalls: 10", "maxParallelToolCalls: 0", "maxParallelToolCalls"),
        ("maxParallelToolCalls: 10", "maxParallelToolCalls: 1.5", "maxParallelToolCalls"),
        ("maxParallelToolCalls: 10", 'maxParallelToolCalls: "x"', "maxParallelToolCalls"),
        ("maxParallelToolCalls: 10", "\tbroken: [", "cordis.yml:4"),
        ("name: ./hello.py", "name: ./missing.py", "missing.py"),
        ("name: dsh-tool-bash", "name: dsh-tool-bush", "dsh-tool-bash"),
    ],
)
async def test_a_broken_edit_leaves_everything_running_and_says_where(
    place: Place, old: str, new: str, said: str
) -> None:
    async with MockLlmServer([bash("while [ ! -e go ]; do sleep 0.05; done"), "success"]) as server:
        place.model(server.url)
        async with place.daemon("cordis.yml", "--prompt", "go") as daemon:
            await daemon.ready()
            await daemon.event("tool/call")
            edit(place, "cordis.yml", old, new)
            refused = await daemon.config("refused")
            assert said in refused["error"] and "cordis.yml:" in refused["error"]
            edit(place, "cordis.yml", new, old.replace("10", "9"))
            place.write("go", "")
            await daemon.event("turn/end")
            assert daemon.events("turn/end") == [{"turn": 1, "reason": {"kind": "completed"}}]
            assert daemon.process.returncode is None


async def test_saving_a_plugin_reloads_only_its_row(place: Place) -> None:
    call = {"toolCalls": [{"name": "hello", "arguments": ""}]}
    wait = bash("while [ ! -e go ]; do sleep 0.05; done")
    async with MockLlmServer([call, wait, call, "success"]) as server:
        place.model(server.url)
        async with place.daemon("cordis.yml", "--prompt", "go") as daemon:
            await daemon.ready()
            await daemon.event("tool/call", lambda e: e["data"]["name"] == "bash")
            edit(place, "hello.py", "hello one", "hello two")
            applied = await daemon.config("applied")
            assert applied["rows"] == ["hello"]
            edit(place, "hello.py", "return", "retrun")
            refused = await daemon.config("refused")
            assert "hello.py" in refused["path"] and "hello.py" in refused["error"]
            edit(place, "hello.py", "retrun", "return")
            edit(
                place,
                "hello.py",
                "def apply(ctx: Context, config, tools: Tools):\n",
                "def apply(ctx: Context, config, tools: Tools):\n    1 / 0\n",
            )
            await daemon.wait_for(
                lambda line: (
                    line["type"] == "config" and line["status"] == "refused" and "division by zero" in line["error"]
                ),
                "the raising apply",
            )
            place.write("go", "")
            await daemon.event("turn/end")
    results = [d["message"]["content"][0]["content"][0]["text"] for d in daemon.events("tool/result")]
    assert results[0] == "hello one" and results[2] == "hello two"
    assert daemon.events("turn/end") == [{"turn": 1, "reason": {"kind": "completed"}}]


# -- ends -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
async def test_a_signal_during_a_turn_closes_it_and_ends_its_children(
    place: Place, number: signal.Signals, code: int
) -> None:
    async with MockLlmServer([bash("echo $$ > pid; sleep 300")]) as server:
        place.model(server.url)
        async with place.daemon("cordis.yml", "--prompt", "go") as daemon:
            ready = await daemon.ready()
            await daemon.event("tool/call")
            while not (place.work / "pid").exists() or not (place.work / "pid").read_text().strip():
                await asyncio.sleep(0.02)
            daemon.signal(number)
            assert await daemon.finish() == code
    pid = int((place.work / "pid").read_text())
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    shown = await place.dsh("sessions", "show", ready["agents"][0]["sessionId"], "--events")
    last = shown.lines()[-1]
    assert last["type"] == "turn/end"
    assert last["data"]["reason"] == {"kind": "aborted", "reason": {"kind": "disposed"}}


async def test_resume_goes_on_after_kill_9(place: Place) -> None:
    async with MockLlmServer([bash("sleep 300"), "success"]) as server:
        place.model(server.url)
        async with place.daemon("cordis.yml", "--prompt", "first") as daemon:
            ready = await daemon.ready()
            await daemon.event("tool/call")
            while len(server.bodies) < 1:
                await asyncio.sleep(0.02)
            await asyncio.sleep(0.3)  # let the call reach the disk, as it must before its body starts
            daemon.signal(signal.SIGKILL)
            await daemon.finish()
        session_id = ready["agents"][0]["sessionId"]
        done = await place.dsh("resume", session_id[:20], "second", "--output", "json")
    assert done.code == 0, done.err
    assert done.json()["sessionId"] == session_id
    messages = server.bodies[1]["messages"]
    assert [m["role"] for m in messages] == ["system", "user", "assistant", "tool", "user"]
    assert "Its outcome is unknown" in messages[3]["content"]
    verified = await place.dsh("sessions", "verify", session_id)
    assert verified.code == 0
    shown = await place.dsh("sessions", "show", session_id, "--events")
    events = shown.lines()
    assert [e["seq"] for e in events] == list(range(len(events)))
    assert [e["data"]["turn"] for e in events if e["type"] == "turn/start"] == [1, 2]
    assert [e["data"]["reason"]["kind"] for e in events if e["type"] == "turn/end"] == ["interrupted", "completed"]


async def test_what_had_come_of_a_reply_before_kill_9_is_shown(place: Place) -> None:
    async with MockLlmServer(["pings_only"]) as server:
        place.model(server.url)
        async with place.daemon("cordis.yml", "--prompt", "first") as daemon:
            session_id = (await daemon.ready())["agents"][0]["sessionId"]
            await daemon.event("assistant/chunk")
            for _ in range(200):
                if "Hello" in (await place.dsh("sessions", "show", session_id)).out:
                    break
            daemon.signal(signal.SIGKILL)
            await daemon.finish()
    shown = await place.dsh("sessions", "show", session_id)
    assert "> first\nHello" in shown.out


async def test_resume_last_continues_a_finished_session_as_a_daemon(place: Place) -> None:
    async with MockLlmServer(["success"]) as server:
        place.model(server.url)
        done = await place.dsh("run", "cordis.yml", "--prompt", "one", "--exit-when-idle", "--output", "json")
        assert done.code == 0, done.err
        session_id = done.json()["sessionId"]
        place.write("cordis.yml", f"- id: all\n  name: cordis:group\n  config:\n{textwrap.indent(CORDIS, '    ')}")
        process = await asyncio.create_subprocess_exec(
            PYTHON, "-m", "dsh.cli.main", "resume", "--last", "--output", "stream-json",
            cwd=place.work, env=place.env, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
            stdin=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
        daemon = Daemon(process)
        ready = await daemon.ready()
        assert ready["agents"] == [{"label": "main", "sessionId": session_id}]
        # a second holder is refused in one sentence that names the first
        second = await place.dsh("resume", session_id, "two")
        assert second.code == 1 and f"is open in pid {process.pid}" in second.err and second.err.count("\n") == 1
        daemon.signal(signal.SIGTERM)
        assert await daemon.finish() == 0


async def test_resume_names_candidates_of_an_ambiguous_beginning(place: Place) -> None:
    async with MockLlmServer(["success"], repeat_last=True) as server:
        place.model(server.url)
        ids = [(await place.dsh("exec", "x", "--output", "json")).json()["sessionId"] for _ in range(2)]
    ambiguous = await place.dsh("resume", "session-", "two")
    assert ambiguous.code == 2 and all(each in ambiguous.err for each in ids)
    unknown = await place.dsh("resume", "nothing-like-it", "two")
    assert unknown.code == 1 and "not found" in unknown.err
    neither = await place.dsh("resume")
    assert neither.code == 2


async def test_a_boot_that_cannot_work_names_row_plugin_and_reason(place: Place) -> None:
    edit(place, "cordis.yml", "- {id: llm, name: dsh-llm}\n", "")
    for command in (["run", "cordis.yml"], ["exec", "x"]):
        done = await place.dsh(*command)
        assert done.code == 1 and done.out == ""
        assert 'row "agent-loop"' in done.err and "waiting for services: llm" in done.err


async def test_refused_names_in_dotenv_stop_the_start(place: Place) -> None:
    place.write(".env", "DSH_HOME=/elsewhere\n")
    done = await place.dsh("run", "cordis.yml")
    assert done.code == 1 and "DSH_HOME" in done.err


async def test_a_second_signal_leaves_at_once_and_no_child_behind(place: Place) -> None:
    command = bash("trap '' TERM; echo $$ > pid; while :; do sleep 0.1; done")
    async with MockLlmServer([command]) as server:
        place.model(server.url)
        async with place.daemon("cordis.yml", "--prompt", "go") as daemon:
            await daemon.ready()
            while not (place.work / "pid").exists() or not (place.work / "pid").read_text().strip():
                await asyncio.sleep(0.02)
            daemon.signal(signal.SIGINT)
            await asyncio.sleep(0.2)
            daemon.signal(signal.SIGINT)
            assert await daemon.finish() == 130
    pid = int((place.work / "pid").read_text())
    async with asyncio.timeout(5):
        while Path(f"/proc/{pid}/stat").exists() and " Z " not in Path(f"/proc/{pid}/stat").read_text():
            await asyncio.sleep(0.02)


async def test_without_an_hmr_row_config_edits_are_still_followed_and_no_watch_follows_nothing(place: Place) -> None:
    edit(place, "cordis.yml", "- {id: hmr, name: '@deepseek-ai/cordis-plugin-hmr', config: {debounce: 30}}\n", "")
    async with place.daemon("cordis.yml") as daemon:
        await daemon.ready()
        edit(place, "cordis.yml", "maxParallelToolCalls: 10", "maxParallelToolCalls: 9")
        assert (await daemon.config("applied"))["rows"] == ["agent-loop"]
    async with place.daemon("cordis.yml", "--no-watch") as daemon:
        await daemon.ready()
        edit(place, "cordis.yml", "maxParallelToolCalls: 9", "maxParallelToolCalls: 8")
        await asyncio.sleep(1.5)
        assert [line for line in daemon.lines if line["type"] == "config"] == []


async def test_a_json_log_holds_nothing_but_json_lines(place: Place) -> None:
    place.write("cordis.yml", DEMO)
    once = ("run", "--prompt", "hi", "--exit-when-idle", "--control-port", "0")
    started = [json.loads(line) for line in (await place.dsh("--log-format", "json", *once)).err.splitlines()]
    said = [each["message"] for each in started if each["level"] == "info"]
    assert said[0].startswith("control on http://127.0.0.1:") and said[1].startswith("agent main: session main-")
    assert said[2].startswith("ready (pid ")
    place.write("cordis.yml", DEMO + "- {id: x, name: nowhere}\n")
    for command in (("run",), ("exec", " ")):
        failed = await place.dsh("--log-format", "json", *command)
        assert failed.code and {json.loads(line)["level"] for line in failed.err.splitlines()} == {"error"}, failed
