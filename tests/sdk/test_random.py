"""Prompts, steers and cancels at random moments: every run ends, and as the log says."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest

from dsh.models.mock_server import MockLlmServer
from dsh.sdk import Event, Run, TurnEnd, UserMessage
from tests.cli.kit import TIMEOUT

from .kit import WAYS, call, made

STEPS = 40
TOOL = call("bash", '{"command": "sleep 0.0$((RANDOM % 5))", "description": "try"}')


def fates(history: list[Event]) -> dict[str, tuple[int, str]]:
    """Number and end of the turn that each message entered, by its id."""
    entered: list[str] = []
    found = {}
    for event in history:
        if isinstance(event, UserMessage):
            entered.append(event.message_id)
        elif isinstance(event, TurnEnd):
            found |= dict.fromkeys(entered, (event.turn, event.status))
            entered = []
    return found


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("seed", range(2))
async def test_every_run_ends_as_its_turn_in_the_log(tmp_path: Path, way: str, seed: int) -> None:
    chance = random.Random(seed)
    place = made(tmp_path / "place")

    def answer(_: Any) -> Any:
        return chance.choice(["success", "reasoning_success", "slow_success", TOOL, TOOL, "auth_error"])

    async with MockLlmServer([answer], repeat_last=True, slow_delay_ms=3) as server:
        async with WAYS[way](place, server) as h:
            session = await h.session("main")
            runs: list[Run] = []
            for number in range(STEPS):
                match chance.randrange(6):
                    case 0 | 1:
                        runs.append(session.prompt(f"prompt {number}"))
                    case 2:
                        runs.append(session.steer(f"steer {number}"))
                    case 3 if runs:
                        chance.choice(runs).cancel()
                    case 4:
                        session.cancel() if chance.random() < 0.2 else await asyncio.sleep(0)
                    case _:
                        await asyncio.sleep(chance.random() * 0.03)
            async with asyncio.timeout(TIMEOUT):
                last = session.prompt("the last one")
                results = [await run.result() for run in runs]
                for _ in range(STEPS):  # what a failed turn left in the queue goes first
                    if (await last.result()).status != "parked":
                        break
                    last = session.prompt("the last one")
            history = await session.history()
    ended = fates(history)
    for run, result in zip(runs, results, strict=True):
        turn, status = ended.get(run.message_id, (None, None))
        events = [event async for event in run]
        if result.status in ("parked", "discarded"):
            assert result.turns == 0 and not any(isinstance(event, UserMessage) for event in events)
            assert result.status == "parked" or status is None
        elif status is None:  # cancelled between its claim and its step
            assert result.status == "aborted"
        else:
            assert result.status == status
            assert [event.turn for event in events if isinstance(event, TurnEnd)] == [turn]
            assert run.message_id in [event.message_id for event in events if isinstance(event, UserMessage)]
        assert [event.raw.seq for event in events] == sorted({event.raw.seq for event in events})
        assert all(history[event.raw.seq] == event for event in events)
