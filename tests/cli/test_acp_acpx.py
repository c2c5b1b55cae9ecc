"""The npm client ``acpx``, unmodified, drives ``dsh acp`` as its agent."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.kit import PYTHON, Finished, Place
from tests.interfaces.acp_kit import appears, compose, plugin, script

ROOT = Path(__file__).parents[2]
TIMEOUT = 50.0


def find_acpx() -> str | None:
    """The client: ``$DSH_ACPX``, what scripts/acpx installed, or one on the path."""
    cached = ROOT / ".cache" / "acpx" / "node_modules" / ".bin" / "acpx"
    return os.environ.get("DSH_ACPX") or (str(cached) if cached.exists() else shutil.which("acpx"))


ACPX = find_acpx()
pytestmark = [
    pytest.mark.skipif(
        ACPX is None or shutil.which("node") is None,
        reason="acpx is not there: scripts/acpx installs it with npm, or $DSH_ACPX names it",
    ),
    pytest.mark.timeout(240),  # each use starts node and an agent
]


class Acpx:
    """The command, with a home of its own, talking to a composition on the scripted model."""

    def __init__(self, place: Place) -> None:
        self._place = place
        config = compose(place, acp={"presentation": "editor"}, extra=[plugin("approval")])
        self._agent = shlex.join([PYTHON, "-m", "dsh.cli.main", "acp", "--config", str(config)])
        self._env = {**place.env, "HOME": str(place.home), "NO_COLOR": "1"}

    async def start(self, *arguments: str) -> asyncio.subprocess.Process:
        assert ACPX is not None
        return await asyncio.create_subprocess_exec(
            ACPX,
            "--agent",
            self._agent,
            "--ttl",
            "2",
            *arguments,
            cwd=self._place.work,
            env=self._env,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=2**24,
        )

    async def finish(self, process: asyncio.subprocess.Process) -> Finished:
        try:
            out, err = await asyncio.wait_for(process.communicate(), TIMEOUT)
        except BaseException:
            process.kill()
            await process.wait()
            raise
        assert process.returncode is not None
        return Finished(process.returncode, out.decode(), err.decode())

    async def __call__(self, *arguments: str) -> Finished:
        return await self.finish(await self.start(*arguments))


@pytest.fixture
async def acpx(tmp_path: Path) -> AsyncIterator[Acpx]:
    client = Acpx(Place.make(tmp_path))
    yield client
    await client("sessions", "close")  # ends the agent that acpx keeps


def results(finished: Finished) -> list[Any]:
    """The results the agent answered with, of ``--format json``."""
    return [frame["result"] for frame in finished.lines() if "result" in frame]


async def test_a_session_and_a_prompt(acpx: Acpx) -> None:
    done = await acpx("--format", "json", "exec", "hello")
    assert done.code == 0, done.err
    assert results(done)[0]["agentInfo"]["name"] == "deepseek-harness-acp"
    assert results(done)[-1] == {"stopReason": "end_turn"}
    said = await acpx("--format", "quiet", "exec", "hello")
    assert said.out.strip() == "blind heard: hello"


async def test_prompts_of_one_session_and_its_list(acpx: Acpx) -> None:
    assert (await acpx("sessions", "new")).code == 0
    for word in ("one", "two"):
        done = await acpx("--format", "quiet", "prompt", word)
        assert done.code == 0 and done.out.strip() == f"blind heard: {word}", done.err
    listed = await acpx("--format", "json", "sessions", "list")
    assert listed.code == 0 and len(json.loads(listed.out)["sessions"]) == 1


async def test_a_cancel(acpx: Acpx, tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    assert (await acpx("sessions", "new")).code == 0
    hanging = await acpx.start("--format", "json", "prompt", script([{"touch": str(ready)}, {"hang": True}]))
    await appears(ready)
    assert (await acpx("cancel")).code == 0
    done = await acpx.finish(hanging)
    assert results(done)[-1] == {"stopReason": "cancelled"}, done.err


@pytest.mark.parametrize(("policy", "ran"), [("--approve-all", True), ("--deny-all", False)])
async def test_a_permission(acpx: Acpx, tmp_path: Path, policy: str, ran: bool) -> None:
    command = f"echo risky; touch {tmp_path / 'ran'}"
    call = {"call": "bash", "id": "c1", "arguments": {"command": command, "description": "try"}}
    done = await acpx(policy, "--format", "json", "exec", script([call], [{"text": "DONE"}]))
    asked = [frame for frame in done.lines() if frame.get("method") == "session/request_permission"]
    assert len(asked) == 1 and asked[0]["params"]["toolCall"]["toolCallId"] == "c1"
    assert results(done)[-1] == {"stopReason": "end_turn"}, done.err
    assert (tmp_path / "ran").exists() == ran


async def test_another_model(acpx: Acpx) -> None:
    done = await acpx("--model", "scripted/eyes", "--format", "quiet", "exec", "hello")
    assert done.code == 0 and done.out.strip() == "eyes heard: hello", done.err
