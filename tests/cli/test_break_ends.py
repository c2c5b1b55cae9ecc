"""How runs end that do not end well: signals, time limits, starts that fail; and what they say then."""

from __future__ import annotations

import asyncio
import signal

import pytest

from dsh.models.mock_server import MockLlmServer
from tests.cli.jsonrpc_kit import STALL
from tests.cli.kit import PYTHON, Place


@pytest.mark.parametrize(
    "arguments", [("exec", "hi"), ("run", "--prompt", "hi", "--exit-when-idle")], ids=["exec", "run"]
)
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129)], ids=str
)
async def test_a_task_that_a_signal_ends_is_a_failure(
    place: Place, arguments: tuple[str, ...], number: signal.Signals, code: int
) -> None:
    async with MockLlmServer([STALL]) as server:
        place.model(server.url)
        process = await place.start(*arguments, "--output", "stream-json", fresh=False)
        await server.wait_for_requests(1)
        process.send_signal(number)
        out, err = await asyncio.wait_for(process.communicate(), 30)
    assert process.returncode == code, err
    if arguments[0] == "exec":
        last = out.decode().splitlines()[-1]
        assert '"type":"result"' in last and '"reason":"disposed"' in last
        assert "the turn ended as disposed" in err.decode()


async def test_a_run_under_nohup_outlives_its_terminal(place: Place) -> None:
    process = await asyncio.create_subprocess_exec(
        "sh", "-c", 'trap "" HUP; exec "$@"', "sh", PYTHON, "-m", "dsh.cli.main", "run", cwd=place.work, env=place.env,
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stderr is not None
    while b"ready" not in await asyncio.wait_for(process.stderr.readline(), 30):
        pass
    process.send_signal(signal.SIGHUP)
    await asyncio.sleep(0.3)
    assert process.returncode is None
    process.send_signal(signal.SIGTERM)
    assert await asyncio.wait_for(process.wait(), 30) == 0


async def test_a_time_limit_is_named(place: Place) -> None:
    async with MockLlmServer([STALL]) as server:
        place.model(server.url)
        done = await place.dsh("exec", "hi", "--timeout", "1.5")
    assert (done.code, done.err) == (1, "dsh: the turn ended as aborted: timeout after 1.5 s\n")


@pytest.mark.parametrize(
    "command", [("exec", "hi"), ("run", "--prompt", "hi", "--exit-when-idle")], ids=["exec", "run"]
)
async def test_a_start_that_fails_gives_no_work_to_anybody(place: Place, command: tuple[str, ...]) -> None:
    place.write("late.py", "async def apply(ctx):\n    raise RuntimeError('not today')\n")
    place.write("cordis.patch.yml", "- insert: [{id: late, name: ./late.py}]\n")
    async with MockLlmServer(["success"]) as server:
        place.model(server.url)
        done = await place.dsh(*command)
        assert server.requests == []
    assert done.code == 1 and done.out == ""
    assert "not today" in done.err and "headless" not in done.err and "NO_FACTORY" not in done.err
    assert not list(place.home.rglob("session.jsonl*"))


async def test_an_agent_that_cannot_start_is_not_listed_as_ready(place: Place) -> None:
    text = (place.work / "cordis.yml").read_text("utf-8")
    row = "      - id: main "
    place.write("cordis.yml", text.replace(row, f"      - {{id: gone, resumeSessionId: nowhere}}\n{row}", 1))
    async with place.daemon("cordis.yml") as daemon:
        ready = await daemon.ready()
        daemon.signal(signal.SIGTERM)
        await daemon.finish()
    assert [each["label"] for each in ready["agents"]] == ["main"]
    assert '"nowhere" not found' in daemon.err
