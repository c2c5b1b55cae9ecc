"""``dsh acp`` as a process: its standard output, its start, and every way it ends."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.cli.kit import Place
from tests.interfaces.acp_kit import acp, appears, compose, opened, plugin, script, stored_events
from tests.processes import alive


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place.make(tmp_path)


def bash(command: str, call_id: str = "c1") -> dict[str, Any]:
    return {"call": "bash", "id": call_id, "arguments": {"command": command, "description": "run"}}


def lingering(pid_file: Path) -> str:
    """A command that tells its process number and stays."""
    return f"echo $$ > {pid_file}.new; mv {pid_file}.new {pid_file}; exec sleep 300"


async def test_b01_prints_of_plugins_warnings_and_children_are_no_frames(place: Place) -> None:
    noisy = plugin("noisy")
    async with acp(place, "--config", str(compose(place, acp={"presentation": "editor"}, extra=[noisy]))) as client:
        session = await opened(client, place)
        shout = {"call": "shout", "id": "c", "arguments": {}}
        assert await client.prompt(session, script([shout], [{"text": "ok"}])) == "end_turn"
        assert client.texts(session) == ["ok"]
        assert await client.leave() == 0  # and every line was a frame
    for noise in ("at import", "at start", "of a child", "as a warning", "of a tool", "on the descriptor"):
        assert f"noise {noise}" in client.err


async def test_b01_large_frames_and_all_of_unicode_pass_in_both_directions(place: Place) -> None:
    async with acp(place, "--config", str(compose(place, acp={}))) as client:
        session = await opened(client, place)
        text = "line\u2028paragraph\u2029next\u0085 \U0001f600 é \x00 " + "x" * 5_000_000
        assert await client.prompt(session, text) == "end_turn"
        assert client.texts(session) == [f"blind heard: {text}"]
        half = "half a surrogate \ud83d"
        assert await client.prompt(session, half) in ("end_turn", "cancelled")


async def test_b01_a_frame_may_arrive_in_any_pieces(place: Place) -> None:
    async with acp(place, "--config", str(compose(place, acp={}))) as client:
        session = await opened(client, place)
        frame = {"jsonrpc": "2.0", "id": 90, "method": "session/prompt"}
        data = json.dumps(
            {**frame, "params": {"sessionId": session, "prompt": [{"type": "text", "text": "größe"}]}},
            ensure_ascii=False,
        )
        for byte in data.encode() + b"\n":
            client.raw(bytes([byte]))
            assert client.process.stdin is not None
            await client.process.stdin.drain()
        assert (await client.answer(90))["result"] == {"stopReason": "end_turn"}
        assert client.texts(session) == ["blind heard: größe"]


@pytest.mark.parametrize("signalled", [signal.SIGTERM, signal.SIGHUP])
async def test_b02_a_signal_during_a_tool_answers_ends_children_and_closes_the_log(
    place: Place, signalled: signal.Signals
) -> None:
    async with acp(place, "--config", str(compose(place, acp={}))) as client:
        session = await opened(client, place)
        pid = place.work / "pid"
        request = client.begin(session, script([bash(lingering(pid))]))
        await appears(pid)
        client.kill(signalled)
        assert (await client.answer(request))["result"] == {"stopReason": "cancelled"}
        assert await client.gone() == 0
        assert not alive(int(pid.read_text()))
    last = stored_events(place, session)[-1]
    assert last["type"] == "turn/end" and last["data"]["reason"] == {"kind": "aborted", "reason": {"kind": "disposed"}}


async def test_b02_an_interrupt_leaves_with_its_code(place: Place) -> None:
    async with acp(place, "--config", str(compose(place, acp={}))) as client:
        session = await opened(client, place)
        ready = place.work / "ready"
        client.begin(session, script([{"touch": str(ready)}, {"hang": True}]))
        await appears(ready)
        client.kill(signal.SIGINT)
        assert await client.gone() == 130


@pytest.mark.parametrize("delay", [0.0, 0.05, 0.5])
async def test_b02_a_signal_at_any_time_of_the_start_leaves_quietly(place: Place, delay: float) -> None:
    async with acp(place, "--config", str(compose(place, acp={}))) as client:
        await asyncio.sleep(delay)
        client.kill(signal.SIGTERM)
        code = await client.gone()
        assert code in (0, -signal.SIGTERM)  # before Python itself is up nobody can catch it
        assert client.frames == [] and "Traceback" not in client.err


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"id": "broken", "name": "./broken.py"}, ["broken", "broken.py", "will not start"]),
        ({"id": "waiting", "name": "dsh-session-title", "inject": {"nowhere": True}}, ["waiting", "nowhere"]),
        ({"id": "odd", "name": "dsh-no-such-plugin"}, ["odd", "dsh-no-such-plugin"]),
    ],
)
async def test_b03_a_start_that_fails_says_row_and_plugin_and_writes_no_frame(
    place: Place, row: dict[str, Any], said: list[str]
) -> None:
    place.write("broken.py", "def apply(ctx):\n    raise RuntimeError('will not start')\n")
    if row["id"] == "waiting":
        row = {**row, "config": {"fallbackMaxWords": 5, "fallbackMaxBytes": 40, "maxTitleBytes": 80}}
    async with acp(place, "--config", str(compose(place, acp={}, extra=[row]))) as client:
        client.send("initialize", protocolVersion=1)
        assert await client.gone() == 1
        assert client.frames == []
    for word in said:
        assert word in client.err


async def test_b03_refused_variables_and_missing_files_stop_the_start(place: Place) -> None:
    place.write(".env", "DSH_HOME=/elsewhere\n")
    async with acp(place, "--config", str(compose(place, acp={}))) as client:
        assert await client.gone() == 1
        assert client.frames == [] and "DSH_HOME" in client.err
    (place.work / ".env").unlink()
    async with acp(place, "--config", "nowhere.yml") as client:
        assert await client.gone() == 1
        assert client.frames == [] and "nowhere.yml" in client.err


async def test_b12_a_client_waits_for_a_slow_start(place: Place) -> None:
    place.write(
        "slow.py",
        "import asyncio\nfrom pathlib import Path\n\nasync def apply(ctx):\n"
        "    Path('slow').touch()\n    while not Path('go').exists():\n        await asyncio.sleep(0.01)\n",
    )
    config = compose(place, acp={}, extra=[{"id": "slow", "name": "./slow.py"}])
    async with acp(place, "--config", str(config)) as client:
        request = client.send("initialize", protocolVersion=1)
        await appears(place.work / "slow")
        assert client.frames == []
        (place.work / "go").touch()
        assert "result" in await client.answer(request)


async def test_b13_a_client_that_leaves_ends_its_tools_and_what_they_left_running(place: Place) -> None:
    async with acp(place, "--config", str(compose(place, acp={}))) as client:
        session, other = await opened(client, place), await client.session(place.work)
        left, running, idle = (place.work / name for name in ("left", "running", "idle"))
        client.begin(
            session, script([bash(f"sh -c '{lingering(left)}' >/dev/null 2>&1 &")], [bash(lingering(running))])
        )
        client.begin(other, script([{"touch": str(idle)}, {"hang": True}]))
        for path in (left, running, idle):
            await appears(path)
        assert await client.leave() == 0
        assert not alive(int(left.read_text())) and not alive(int(running.read_text()))
    for each in (session, other):
        assert stored_events(place, each)[-1]["data"]["reason"]["kind"] == "aborted"


async def test_b13_a_client_that_is_killed_is_left_too(place: Place) -> None:
    config = compose(place, acp={})
    async with acp(place, "--config", str(config)) as client:
        session = await opened(client, place)
        pid = place.work / "pid"
        client.begin(session, script([bash(lingering(pid))]))
        await appears(pid)
        transport = client.process._transport  # type: ignore[attr-defined]
        for fd in (0, 1):  # both pipes at once, nobody reads or writes any more
            transport.get_pipe_transport(fd).close()
        assert await asyncio.wait_for(client.process.wait(), 40) == 0
        assert not alive(int(pid.read_text()))


async def test_a_composition_without_the_row_serves_editors_and_starts_none_of_its_agents(place: Place) -> None:
    config = compose(place)
    config.write_text(config.read_text("utf-8").replace("agents: []", "agents: [{id: main}]"), "utf-8")
    model = {"id": "agent-default-model", "name": "dsh-agent-default-model"}
    text = json.dumps([{**model, "config": {"provider": "scripted", "model": "eyes"}}])
    config.write_text(config.read_text("utf-8") + f"\n- {text[1:-1]}\n", "utf-8")
    async with acp(place, "--config", "cordis.yml") as client:
        offered = await client.hello()
        assert offered["agentCapabilities"]["loadSession"] is True
        session = await client.session(place.work)
        assert await client.prompt(session, "hi") == "end_turn"
        assert "".join(client.texts(session)) == "eyes heard: hi"
        listed = await client.ask("session/list")
        assert [one["sessionId"] for one in listed["sessions"]] == [session]


async def test_a_row_inside_an_included_file_counts_as_the_compositions_own(place: Place) -> None:
    config = compose(place, acp={})
    config.rename(place.work / "inner.yml")
    include = {"id": "inner", "name": "@deepseek-ai/cordis-plugin-include", "config": {"path": "./inner.yml"}}
    place.write("outer.yml", json.dumps([include]))
    async with acp(place, "--config", "outer.yml") as client:
        offered = await client.hello()
        assert "loadSession" not in offered["agentCapabilities"]
        assert await client.session(place.work)


async def test_without_any_file_the_packaged_composition_answers(place: Place) -> None:
    async with acp(place) as client:
        await client.hello()
        session = await client.session(place.work)
        assert await client.prompt(session, "hello") == "end_turn"
        assert "demo" in "".join(client.texts(session))
        assert await client.leave() == 0


async def test_layers_and_settings_of_the_command_line_apply(place: Place) -> None:
    place.write("more.yml", json.dumps([{"id": "acp", "config": {"provider": "scripted", "model": "eyes"}}]))
    compose(place, acp={})
    async with acp(place, "--patch", "more.yml", "--set", "acp.presentation=editor") as client:
        offered = await client.hello()
        assert offered["agentCapabilities"]["loadSession"] is True
        session = await client.session(place.work)
        assert await client.prompt(session, "hi") == "end_turn"
        assert "".join(client.texts(session)) == "eyes heard: hi"


async def test_a_slow_reader_delays_frames_and_not_the_agent(place: Place) -> None:
    place_ = compose(place, acp={"presentation": "editor"})
    async with acp(place, "--config", str(place_)) as client:
        session = await opened(client, place)
        client._readers[0].cancel()
        done = place.work / "done"
        reply = script([{"text": ["x" * 1000] * 5000}, {"touch": str(done)}])
        client.begin(session, reply)
        await appears(done)  # the model got to its end although nobody reads
        os.kill(client.process.pid, signal.SIGKILL)
        client._readers[0] = asyncio.create_task(client._read_out())


async def test_two_servers_on_one_input_are_refused(place: Place) -> None:
    twice = {"id": "again", "name": "dsh-acp"}
    async with acp(place, "--config", str(compose(place, acp={}, extra=[twice]))) as client:
        assert await client.gone() == 1
        assert client.frames == [] and "acp" in client.err


async def test_b02_requests_written_before_the_input_ends_are_answered(place: Place) -> None:
    async with acp(place, "--config", str(compose(place, acp={}))) as client:
        first = client.send("initialize", protocolVersion=1)
        second = client.send("session/new", cwd=str(place.work), mcpServers=[])
        assert await client.leave() == 0
        assert [frame["id"] for frame in client.frames if "result" in frame] == [first, second]


async def test_the_row_is_no_trouble_to_commands_that_serve_nobody(place: Place) -> None:
    config = compose(place, acp={})
    config.write_text(config.read_text("utf-8").replace("agents: []", "agents: [{id: main}]"), "utf-8")
    done = await place.dsh("exec", "hello", "--config", "cordis.yml", "--model", "scripted/eyes")
    assert (done.code, done.out) == (0, "eyes heard: hello\n"), done.err
    async with place.daemon("cordis.yml") as daemon:
        await daemon.ready()
        daemon.signal(signal.SIGTERM)
        assert await daemon.finish() == 0
        assert {line["type"] for line in daemon.lines} <= {"ready", "session_event", "result", "config"}
