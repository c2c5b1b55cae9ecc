"""Cancel and dispose at the k-th moment of a turn, for every k: what is left is closed, whole and usable.

A moment is a callback of the event loop, so every resumption of every task of the turn is one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tests.fire.judge import entered_ids
from tests.fire.stage import Actor, Stage, say, stage, within
from tests.fire.stepping import SCALE, SteppingLoop, run_stepping

USER = {"kind": "user"}
FAR = 10_000


def every_moment(stride: int, trial: Callable[[SteppingLoop, Stage, int], Any], *, first: int = 1) -> int:
    """Run `trial` for moments first, first + stride, …, until its action comes too late; how many there were."""

    async def main(loop: SteppingLoop) -> int:
        async with stage() as on:
            await (await on.agent("warm")).handle.dispose()
            before = on.census()
            for k in range(first, FAR, stride):
                try:
                    acted = await trial(loop, on, k)
                    await asyncio.sleep(0)
                    assert asyncio.all_tasks() == {asyncio.current_task()}, asyncio.all_tasks()
                    assert on.census() == before
                    assert not [e for e in on.errors if type(e).__name__ == "InvariantError"], on.errors
                except BaseException as error:
                    error.add_note(f"at moment {k}")
                    raise
                on.errors.clear()
                if not acted:
                    return k
        raise AssertionError("the turn has no end")

    moments: int = run_stepping(main)
    assert moments > 200, "hardly anything happened"
    return moments


def stride(short: int) -> int:
    return 1 if SCALE > 1 else short


async def next_turn(actor: Actor) -> None:
    """The agent takes one more prompt, and everything that still waited comes before the end."""
    actor.stage.model.calm.add(actor.agent.id)
    actor.agent.followup(actor.note(say("after")))
    async with within("the next turn"):
        await actor.agent.when_idle()
    assert actor.rows[-1]["type"] == "turn/end"
    assert actor.rows[-1]["data"]["reason"] == {"kind": "completed"}
    actor.judge()
    prompts = [each for each in actor.sent if each not in actor.injected]
    assert [each for each in entered_ids(actor.rows) if each in prompts][-1] == prompts[-1]
    assert not actor.agent.inbox.has_pending


@pytest.mark.timeout(300)
@pytest.mark.parametrize("keep", [False, True])
def test_a_turn_cancelled_at_any_moment_is_closed_and_the_next_one_runs(keep: bool) -> None:
    async def trial(loop: SteppingLoop, on: Stage, k: int) -> bool:
        actor = await on.agent("a")
        loop.arm(k, lambda: actor.agent.cancel(USER, keep_inbox=keep))
        actor.start()
        async with within("the turn"):
            await actor.agent.when_idle()
        acted = loop.disarm()
        actor.judge()
        assert not (keep and actor.discarded)
        await next_turn(actor)
        async with within("disposal"):
            await actor.handle.dispose()
        return acted

    every_moment(stride(3), trial, first=1 + keep)


@pytest.mark.timeout(300)
def test_an_agent_disposed_at_any_moment_leaves_a_closed_log_and_nothing_else() -> None:
    async def trial(loop: SteppingLoop, on: Stage, k: int) -> bool:
        actor = await on.agent("a")
        disposals: list[asyncio.Future[None]] = []
        loop.arm(k, lambda: disposals.append(asyncio.ensure_future(actor.handle.dispose())))
        actor.start()
        async with within("the turn"):
            await actor.agent.when_idle()
        acted = loop.disarm()
        async with within("disposal"):
            await asyncio.gather(*disposals)
            await actor.handle.dispose()
        actor.judge()
        assert not actor.discarded, "disposal keeps what waits"
        assert not on.s.agents.list() and not on.s.sessions.list()
        with pytest.raises(Exception, match="disposed"):
            actor.agent.followup(say("too late"))
        return acted

    every_moment(stride(3), trial)


@pytest.mark.timeout(300)
def test_a_driver_whose_task_the_host_cancels_closes_its_log_and_can_go_on() -> None:
    async def trial(loop: SteppingLoop, on: Stage, k: int) -> bool:
        actor = await on.agent("a")

        def cancel() -> None:
            for task in asyncio.all_tasks():
                if task.get_name() == f"agent {actor.agent.id}":
                    task.cancel()

        loop.arm(k, cancel)
        actor.start()
        async with within("the turn"):
            await actor.agent.when_idle()
        acted = loop.disarm()
        actor.judge()
        assert not actor.discarded
        await next_turn(actor)
        async with within("disposal"):
            await actor.handle.dispose()
        return acted

    every_moment(stride(5), trial)
