"""The plugins of the starter composition do what their first line says."""

from __future__ import annotations

import subprocess

from dsh.models.mock_server import MockLlmServer
from tests.cli.kit import Place


async def test_the_git_context_tells_branch_and_changed_files(place: Place) -> None:
    subprocess.run(["git", "init", "-q", "-b", "topic"], cwd=place.work, check=True)
    async with MockLlmServer(["success", "success"]) as server:
        place.model(server.url)
        session_id = (await place.dsh("exec", "one", "--output", "json")).json()["sessionId"]
        first = [m["content"] for m in server.bodies[0]["messages"] if m["role"] == "user"]
        assert first[0] == "one"
        assert "git branch No commits yet on topic" in first[1] and "?? cordis.yml" in first[1]
        await place.dsh("resume", session_id, "two")
        second = [m["content"] for m in server.bodies[1]["messages"] if m["role"] == "user"]
        assert second == [*first, "two"]  # nothing changed, so nothing is said again


async def test_the_clock_is_a_tool_with_a_setting(place: Place) -> None:
    call = {"toolCalls": [{"name": "now", "arguments": "{}"}]}
    async with MockLlmServer([call, "success", call, "success"]) as server:
        place.model(server.url)
        assert (await place.dsh("exec", "when?", "--set", "clock.timezone=Asia/Tokyo")).code == 0
        assert server.bodies[1]["messages"][-1]["content"].endswith("+09:00")
        assert (await place.dsh("exec", "when?", "--set", "clock.timezone=Nowhere/Land")).code == 0
        assert "unknown time zone 'Nowhere/Land'" in server.bodies[3]["messages"][-1]["content"]


async def test_the_turn_log_gets_a_line_per_turn(place: Place) -> None:
    async with MockLlmServer(["success", "auth_error"]) as server:
        place.model(server.url)
        await place.dsh("exec", "one")
        await place.dsh("exec", "two")
    lines = (place.home / "turns.log").read_text().splitlines()
    assert [line.split(" turn ")[1] for line in lines] == ["1 completed, 1 steps", "1 error, 1 steps"]
