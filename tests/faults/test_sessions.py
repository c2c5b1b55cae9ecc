"""Stored sessions after a crash, in another folder, without their model: they open, and what is missing is said."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from dsh.models.mock_server import MockLlmServer
from tests.cli.compositions import SHELL
from tests.cli.kit import Place
from tests.faults.kit import read_log, strict

COMPOSITION = (
    """\
- {id: agent-loop, name: dsh-agent-loop, config: {agents: [{id: main}]}}
- {id: llm, name: dsh-llm}
- {id: session, name: dsh-session}
- {id: system-prompt, name: dsh-system-prompt}
- {id: tools, name: dsh-tools}
- {id: agent, name: dsh-agent}
- {id: settings, name: dsh-settings-file}
- {id: credentials, name: dsh-credentials-local}
- {id: llm-deepseek, name: dsh-llm-deepseek}
- {id: llm-demo, name: dsh-llm-demo}
- {id: default-model, name: dsh-agent-default-model, config: {candidates: [
    {provider: deepseek-official, model: deepseek-flash}, {provider: demo, model: demo}]}}
- id: persistence
  name: dsh-session-persistence-jsonl
  config: {root: !!js dshHomePath('sessions'), compression: none, packChunks: false}
- {id: checkpoints, name: dsh-session-checkpoint-policy}
- {id: fs, name: dsh-fs-local}
- {id: tool-fs, name: dsh-tool-fs}
"""
    + SHELL
)
DEEPSEEK_ROW = "- {id: llm-deepseek, name: dsh-llm-deepseek}\n"
PWD = {"toolCalls": [{"name": "bash", "arguments": {"command": "pwd", "description": "x"}}]}


@pytest.fixture
def place(tmp_path: Path) -> Place:
    place = Place.make(tmp_path)
    place.write("cordis.yml", COMPOSITION)
    return place


def log_path(place: Place) -> Path:
    (path,) = place.home.glob("sessions/*/*/session.jsonl")
    return path


async def test_fault22_a_resume_restores_model_and_folder_and_names_what_is_gone(
    place: Place,
) -> None:
    where = place.work / "project x"
    where.mkdir()
    config = str(place.work / "cordis.yml")
    script = [strict(each) for each in ("success", PWD, "success", "success")]
    async with MockLlmServer(script) as server:
        place.model(server.url)
        made = await place.dsh(
            "exec", "one", "--config", config, "--cwd", "project x", "--model", "deepseek-official/deepseek-v4-pro",
            "--output", "json",
        )  # fmt: skip
        session = made.json()["sessionId"]
        assert made.code == 0 and server.bodies[0]["model"] == "deepseek-v4-pro"
        # from another folder: model and directory of the session
        again = await place.dsh("resume", session, "two", "--config", config)
        assert again.code == 0 and again.err == "", again.err
        assert [body["model"] for body in server.bodies] == ["deepseek-v4-pro"] * 3
        assert server.bodies[-1]["messages"][-1]["content"].strip() == str(where)
        # the model's row is gone: named, and the default answers
        place.write("cordis.yml", COMPOSITION.replace(DEEPSEEK_ROW, ""))
        without = await place.dsh("resume", session, "three", "--config", config)
        assert without.code == 0 and "demo reply" in without.out
        assert "deepseek-official/deepseek-v4-pro" in without.err and "default model answers instead" in without.err
        # so is its folder: named too
        place.write("cordis.yml", COMPOSITION)
        where.rename(place.work / "elsewhere")
        moved = await place.dsh("resume", session, "four", "--config", config)
        assert moved.code == 0 and str(where) in moved.err and "staying here" in moved.err
    rows = read_log(log_path(place))
    assert rows[0]["cwd"] == str(where)
    assert [row["data"]["reason"]["kind"] for row in rows if row["type"] == "turn/end"] == ["completed"] * 4


async def test_fault22_a_daemon_that_resumes_restores_them_as_well(place: Place) -> None:
    async with MockLlmServer([strict("success"), strict("success")]) as server:
        place.model(server.url)
        model = "deepseek-official/deepseek-v4-pro"
        session = (await place.dsh("exec", "one", "--model", model, "--output", "json")).json()["sessionId"]
        place.write("first.py", FIRST)
        place.write("cordis.yml", COMPOSITION + "- {id: first, name: ./first.py}\n")
        async with place.daemon(session, command="resume") as daemon:
            await daemon.event("turn/end")
            daemon.signal(signal.SIGTERM)
            assert await daemon.finish() == 0
    assert [body["model"] for body in server.bodies] == ["deepseek-v4-pro"] * 2


FIRST = """\
from dsh.core.agent_events import AgentSessionStart
from dsh.llm.message import create_user_message

def apply(ctx, config):
    ctx.on(AgentSessionStart, lambda event: event.agent.followup(create_user_message("two")))
"""


async def test_fault36_a_live_setting_is_one_for_all_agents_and_no_part_of_a_session(place: Place) -> None:
    key = "agent-loop.maxParallelToolCalls"
    async with MockLlmServer([strict("success"), strict("success")]) as server:
        place.model(server.url)
        session = (await place.dsh("exec", "one", "--output", "json")).json()["sessionId"]
        assert (await place.dsh("settings", "set", key, "2")).code == 0
        assert (await place.dsh("resume", session, "two")).code == 0
        listed = {each["key"]: each for each in json.loads((await place.dsh("settings", "list", "--json")).out)}
        assert (listed[key]["value"], listed[key]["layer"]) == (2, "user")
        assert (await place.dsh("settings", "unset", key)).code == 0
        listed = {each["key"]: each for each in json.loads((await place.dsh("settings", "list", "--json")).out)}
        assert (listed[key]["value"], listed[key]["layer"]) == (10, "default")
    assert "maxParallelToolCalls" not in log_path(place).read_text()


@pytest.mark.parametrize("cut", [1, 20, "line", "zeros"])
async def test_fault19_a_torn_last_line_is_cut_once_and_said_once(place: Place, cut: Any) -> None:
    async with MockLlmServer([strict("success")] * 3) as server:
        place.model(server.url)
        session = (await place.dsh("exec", "one", "--output", "json")).json()["sessionId"]
        path = log_path(place)
        data = path.read_bytes()
        whole = data[: data.rindex(b"\n", 0, -1) + 1]
        torn = {"line": data + b'{"type":"turn/sta', "zeros": whole + b"\0" * 40}.get(cut) or data[: -int(cut)]
        path.write_bytes(torn)
        again = await place.dsh("resume", session, "two")
        assert again.code == 0 and again.err.count("interrupted write") == 1, again.err
        assert (await place.dsh("resume", session, "three")).err == ""
    rows = read_log(path)
    ends = [row["data"]["reason"]["kind"] for row in rows if row["type"] == "turn/end"]
    assert ends == (["completed"] if cut == "line" else ["interrupted"]) + ["completed"] * 2
    assert [m["role"] for m in server.bodies[-1]["messages"] if m["role"] != "system"].count("user") == 3


FUTURE = {"type": "future/thing", "time": 1, "data": {"x": 1}}


async def test_fault24_a_log_of_another_version_is_refused_or_kept_but_never_half_understood(place: Place) -> None:
    async with MockLlmServer([strict("success")] * 3) as server:
        place.model(server.url)
        session = (await place.dsh("exec", "one", "--output", "json")).json()["sessionId"]
        path = log_path(place)
        lines = path.read_text().splitlines()

        def changed(*, header: dict[str, Any] | None = None, more: dict[str, Any] | None = None) -> bytes:
            head = {**json.loads(lines[0]), **(header or {})}
            rest = [*lines[1:], *([json.dumps({**more, "seq": len(lines) - 1})] if more else [])]
            return ("\n".join([json.dumps(head), *rest]) + "\n").encode()

        for bytes_, said in (
            (changed(header={"version": 99}), "99"),
            (changed(more=FUTURE), "future/thing"),
        ):
            path.write_bytes(bytes_)
            refused = await place.dsh("resume", session, "two")
            assert refused.code == 1 and said in refused.err and "Traceback" not in refused.err
            assert path.read_bytes() == bytes_
        path.write_bytes(changed(header={"fromTheFuture": [1]}, more={**FUTURE, "ignorable": True}))
        kept = await place.dsh("resume", session, "two")
        assert kept.code == 0, kept.err
    rows = read_log(path)
    assert rows[0]["fromTheFuture"] == [1]
    assert [row["data"] for row in rows if row["type"] == "future/thing"] == [{"x": 1}]


async def test_fault20_the_lock_of_a_killed_process_holds_nobody_up(place: Place) -> None:
    async with MockLlmServer([strict("success")] * 3) as server:
        place.model(server.url)
        async with place.daemon("--prompt", "one") as daemon:
            await daemon.event("turn/end")
            session = next(line["agents"][0]["sessionId"] for line in daemon.lines if line["type"] == "ready")
            refused = await place.dsh("resume", session, "two")
            assert refused.code == 1 and refused.out == "" and refused.err.count("\n") == 1
            assert f"pid {daemon.process.pid}" in refused.err and os.uname().nodename in refused.err
            daemon.signal(signal.SIGKILL)
            await daemon.finish()
        assert (await place.dsh("resume", session, "two")).code == 0
    read_log(log_path(place))


@pytest.mark.parametrize("root", ["./kept here", "!!js dshHomePath('elsewhere')", "!!js env.NO_SUCH ?? env.PLACE"])
async def test_fault22_a_session_is_found_where_its_composition_keeps_it(place: Place, root: str) -> None:
    place.env["PLACE"] = str(place.work / "by name")
    place.write("cordis.yml", COMPOSITION.replace("!!js dshHomePath('sessions')", root))
    async with MockLlmServer([strict("success")] * 4) as server:
        place.model(server.url)
        session = (await place.dsh("exec", "one", "--output", "json")).json()["sessionId"]
        assert not list(place.home.glob("sessions/*")), "not in the usual place"
        for arguments in (
            ["resume", session, "two"],
            ["resume", "--last", "three"],
            ["exec", "four", "--session", session],
        ):
            done = await place.dsh(*arguments)
            assert done.code == 0, done.err
    assert [m["role"] for m in server.bodies[-1]["messages"]].count("user") == 4
