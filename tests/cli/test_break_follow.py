"""A daemon follows its file whatever a save leaves in it for a moment."""

from __future__ import annotations

import asyncio
import signal

from dsh.models.mock_server import MockLlmServer
from tests.cli.kit import Place


async def test_half_a_file_that_is_a_valid_one_does_not_make_the_daemon_deaf(place: Place) -> None:
    file = place.work / "cordis.yml"
    text = file.read_text("utf-8")
    half = text[: text.index("# -- guards")]
    assert "id: hmr" not in half
    async with place.daemon("cordis.yml") as daemon:
        ready = await daemon.ready()
        for number in (11, 12):
            file.write_text(half, "utf-8")
            await asyncio.sleep(1.5)  # taken over: most rows are gone now, the one that reports included
            file.write_text(text.replace("maxParallelToolCalls: 10", f"maxParallelToolCalls: {number}"), "utf-8")
            await daemon.wait_for(lambda line: line["type"] == "ready", "being ready again")
        file.write_text(text + "- [", "utf-8")
        assert "cordis.yml" in (await daemon.config("refused"))["error"]
        file.write_text(text, "utf-8")
        await daemon.config("applied")
        assert len([line for line in daemon.lines if line["type"] == "config" and line["status"] == "refused"]) == 1
        daemon.signal(signal.SIGTERM)
        assert await daemon.finish() == 0
    assert daemon.err.count("was not taken over") == 1
    assert [each["label"] for each in ready["agents"]] == ["main"]


async def test_a_session_with_a_turn_survives_half_a_file(place: Place) -> None:
    file = place.work / "cordis.yml"
    text = file.read_text("utf-8")
    wait = {"name": "bash", "arguments": {"command": "sleep 20", "description": "wait"}}
    async with MockLlmServer([{"toolCalls": [wait]}, {"text": "after all"}]) as server:
        place.model(server.url)
        async with place.daemon("cordis.yml", "--prompt", "go") as daemon:
            session = (await daemon.ready())["agents"][0]["sessionId"]
            await daemon.event("tool/call")
            file.write_text(text[: text.index("# -- guards")], "utf-8")
            await asyncio.sleep(1.5)
            file.write_text(text, "utf-8")
            await daemon.wait_for(lambda line: line["type"] == "ready", "being ready again")
            daemon.signal(signal.SIGTERM)
            assert await daemon.finish() == 0
        assert len(server.requests) == 1  # the prompt is not given a second time
        assert (await place.dsh("sessions", "verify")).code == 0
        done = await place.dsh("resume", session, "and now?")
        assert (done.code, done.out) == (0, "after all\n")


async def test_a_prompt_is_given_once_however_often_its_agent_is_restarted(place: Place) -> None:
    file = place.work / "cordis.yml"
    text = file.read_text("utf-8")
    wait = {"name": "bash", "arguments": {"command": "sleep 20", "description": "wait"}}
    async with MockLlmServer([{"toolCalls": [wait]}, {"text": "again"}]) as server:
        place.model(server.url)
        async with place.daemon("cordis.yml", "--prompt", "go", "--exit-when-idle") as daemon:
            await daemon.ready()
            await daemon.event("tool/call")
            file.write_text(text.replace("id: agent-loop", "id: another-loop"), "utf-8")
            assert await daemon.finish() == 1
        assert len(server.requests) == 1
    assert daemon.lines[-1]["type"] == "result" and daemon.lines[-1]["reason"] == "disposed"


async def test_a_mistake_that_was_put_back_to_what_runs_is_said_to_be_over(place: Place) -> None:
    plugin = place.work / "plugins" / "hello.py"
    plugin.write_text("name = 'hello'\n\n\ndef apply(ctx):\n    pass\n")
    file = place.work / "cordis.yml"
    file.write_text(file.read_text("utf-8") + "- {id: hello, name: ./plugins/hello.py}\n", "utf-8")
    async with place.daemon("cordis.yml") as daemon:
        await daemon.ready()
        for each in (file, plugin):
            text = each.read_text("utf-8")
            each.write_text(text + "\n- [", "utf-8")
            await daemon.config("refused")
            each.write_text(text, "utf-8")
            over = await daemon.config("applied")
            assert (over["path"], over["rows"]) == (str(each.relative_to(place.work)), [])
