"""Cancel and dispose at the k-th moment of a turn, for every k: what is left is closed, whole and usable.

A moment is a callback of the event loop, so every resumption of every task of the turn is one.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from dsh.core.agent import ResumeAgentOptions
from dsh.core.seams import SessionPersistence
from tests.core.kit import of_type, types
from tests.fire.judge import entered_ids, judge_log, strict_rows
from tests.fire.stage import ROUTE, Actor, Stage, say, stage, within
from tests.fire.stepping import LONG, SEED, SteppingLoop, at_every_moment, count, run_stepping

USER = {"kind": "user"}
MOMENTS = 150
"""The least that a turn has."""
LEAP = 1 if LONG else 6
"""The slower trials look at every sixth moment in the short form."""


def every_moment(
    step: int,
    trial: Callable[[SteppingLoop, Stage, int], Any],
    *,
    first: int = 1,
    make: Callable[[], AbstractAsyncContextManager[Stage]] = stage,
) -> None:
    """Run `trial` for moments first, first + step, …, until its action comes too late."""

    async def main(loop: SteppingLoop) -> None:
        async with make() as on:
            await (await on.agent("warm")).handle.dispose()
            before = on.census()

            async def at(k: int) -> bool:
                acted: bool = await trial(loop, on, k)
                await on.judge_left(before)
                return acted

            await at_every_moment(at, step=step, first=first, at_least=MOMENTS)

    run_stepping(main)


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


def test_undisturbed_the_turn_uses_everything() -> None:
    async def main(loop: SteppingLoop) -> None:
        async with stage() as on:
            actor = await on.agent("a")
            actor.start()
            await actor.agent.when_idle()
            session = actor.agent.session
            codes = [(data.get("error") or {}).get("code") for data in of_type(session, "tool/result")]
            assert codes == [None, None, None, None, None, "UNKNOWN_TOOL", None, None, None]
            assert types(session).count("request/header") == 1 and types(session).count("step/start") == 5
            assert [data["reason"]["kind"] for data in of_type(session, "turn/end")] == ["completed", "completed"]
            assert len(entered_ids(actor.rows)) == 6 and not on.errors
            actor.judge()

    run_stepping(main)


@pytest.mark.timeout(3600 if LONG else 180)
@pytest.mark.parametrize("keep", [False, True])
def test_a_turn_cancelled_at_any_moment_is_closed_and_the_next_one_runs(keep: bool) -> None:
    async def trial(loop: SteppingLoop, on: Stage, k: int) -> bool:
        actor = await on.agent("a")
        loop.arm({k: lambda: actor.agent.cancel(USER, keep_inbox=keep)})
        actor.start()
        async with within("the turn"):
            await actor.agent.when_idle()
        acted = loop.disarm()
        actor.judge()
        if keep:
            assert not actor.discarded
        elif acted:
            waiting = {message["id"] for message in actor.agent.inbox.next_turn}
            assert not waiting, "the cancel cleared the inbox, and yet a prompt waits"
        await next_turn(actor)
        async with within("disposal"):
            await actor.handle.dispose()
        return acted

    every_moment(1, trial, first=1 + keep)


@pytest.mark.timeout(3600 if LONG else 180)
def test_an_agent_disposed_at_any_moment_leaves_a_closed_log_and_nothing_else() -> None:
    async def trial(loop: SteppingLoop, on: Stage, k: int) -> bool:
        actor = await on.agent("a")
        disposals: list[asyncio.Future[None]] = []
        loop.arm({k: lambda: disposals.append(asyncio.ensure_future(actor.handle.dispose()))})
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

    every_moment(1, trial)


@pytest.mark.timeout(3600 if LONG else 180)
def test_a_driver_whose_task_the_host_cancels_closes_its_log_and_can_go_on() -> None:
    async def trial(loop: SteppingLoop, on: Stage, k: int) -> bool:
        actor = await on.agent("a")

        def cancel() -> None:
            for task in asyncio.all_tasks():
                if task.get_name() == f"agent {actor.agent.id}":
                    task.cancel()

        loop.arm({k: cancel})
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

    every_moment(1, trial)


@pytest.mark.timeout(3600 if LONG else 180)
@pytest.mark.parametrize("wake", ["followup", "steer"])
def test_a_wake_right_after_a_cancel_at_any_moment_is_not_lost(wake: str) -> None:
    async def trial(loop: SteppingLoop, on: Stage, k: int) -> bool:
        actor = await on.agent("a")
        late: list[str] = []

        def act() -> None:
            actor.agent.cancel(USER)
            on.model.calm.add(actor.agent.id)
            message = actor.note(say("instead"))
            late.append(message["id"])
            getattr(actor.agent, wake)(message)

        loop.arm({k: act})
        actor.start()
        async with within("the turn"):
            await actor.agent.when_idle()
        acted = loop.disarm()
        actor.judge()
        assert set(late) <= set(entered_ids(actor.rows)), "the wake was lost"
        assert not actor.agent.inbox.has_pending
        async with within("disposal"):
            await actor.handle.dispose()
        return acted

    every_moment(1, trial)


@pytest.mark.timeout(3600 if LONG else 180)
def test_a_loop_unloaded_at_any_moment_takes_its_agents_along() -> None:
    async def main(loop: SteppingLoop) -> None:
        async def trial(k: int) -> bool:
            async with stage() as on:
                actor = await on.agent("a")
                gone: list[Any] = []
                loop.arm({k: lambda: gone.append(asyncio.ensure_future(_dispose(on)))})
                actor.start()
                async with within("the turn"):
                    await actor.agent.when_idle()
                    acted = loop.disarm()
                    await asyncio.gather(*gone)
                actor.judge()
                if acted:
                    assert not on.s.agents.list() and not on.s.sessions.list()
                    assert asyncio.all_tasks() == {asyncio.current_task()}
                return acted

        await at_every_moment(trial, step=LEAP, at_least=MOMENTS)

    async def _dispose(on: Stage) -> None:
        await on.s.loop.ctx.fiber.dispose()

    run_stepping(main)


@pytest.mark.timeout(3600 if LONG else 180)
@pytest.mark.parametrize("act", ["cancel", "dispose"])
def test_on_disk_too_the_log_is_closed_and_the_session_goes_on(tmp_path: Path, act: str) -> None:
    """Persistence and checkpoints mounted: the waits for the disk are moments too."""

    async def trial(loop: SteppingLoop, on: Stage, k: int) -> bool:
        actor = await on.agent("a", reserve=True)
        ends: list[asyncio.Future[None]] = []

        def now() -> None:
            if act == "cancel":
                actor.agent.cancel(USER)
            else:
                ends.append(asyncio.ensure_future(actor.handle.dispose()))

        loop.arm({k: now})
        actor.start()
        async with within("the turn"):
            await actor.agent.when_idle()
        acted = loop.disarm()
        async with within("disposal"):
            await asyncio.gather(*ends, actor.handle.dispose())
        actor.judge()
        rows, kept = actor.rows, actor.sent
        on.model.calm.add(actor.agent.id)
        async with within("resume"):
            resumed = await on.s.agents.resume(ResumeAgentOptions(actor.agent.id, agent_options=ROUTE))
            again = Actor(on, resumed, calm=True)
            again.sent += kept
            again.injected += actor.injected
            again.discarded += actor.discarded
            assert again.rows[: len(rows)] == rows
            await next_turn(again)
            await again.handle.dispose()
            await on.s.root[SessionPersistence].load(actor.agent.id)  # which waits until the last of it is written
        (path,) = tmp_path.glob(f"*/{actor.agent.id}/session.jsonl*")
        stored = strict_rows(path)
        judge_log(stored)
        assert stored == again.rows
        return acted

    every_moment(LEAP, trial, make=lambda: stage(tmp_path))


@pytest.mark.timeout(3600 if LONG else 180)
def test_several_acts_at_random_moments() -> None:
    """Two to four of everything that may come from outside, at moments of one turn and the next."""

    async def main(loop: SteppingLoop) -> None:
        async with stage() as on:
            await (await on.agent("warm")).handle.dispose()
            before = on.census()
            for seed in range(SEED, SEED + count(150)):
                try:
                    await trial(loop, on, random.Random(seed))
                    await on.judge_left(before)
                except BaseException as error:
                    error.add_note(f"play it again with FIRE_SEED={seed} FIRE_COUNT=1")
                    raise

    async def trial(loop: SteppingLoop, on: Stage, chance: random.Random) -> None:
        actor = await on.agent("a")
        agent = actor.agent
        disposals: list[asyncio.Future[None]] = []

        def send(how: str) -> None:
            message = say(how)
            if disposals and disposals[0].done():
                return
            (actor.sent if how == "followup" else actor.injected).append(message["id"])
            if how != "followup":
                actor.sent.append(message["id"])
            getattr(agent, how)(message)

        def host_cancel() -> None:
            for task in asyncio.all_tasks():
                if task.get_name() == f"agent {agent.id}":
                    task.cancel()

        acts: dict[str, Callable[[], Any]] = {
            "cancel": lambda: agent.cancel(USER),
            "keep": lambda: agent.cancel(USER, keep_inbox=True),
            "dispose": lambda: disposals.append(asyncio.ensure_future(actor.handle.dispose())),
            "followup": lambda: send("followup"),
            "steer": lambda: send("steer"),
            "inject": lambda: send("inject"),
            "host": host_cancel,
        }
        chosen = chance.choices(sorted(acts), k=chance.randint(2, 4))
        moments = chance.sample(range(1, 240), len(chosen))
        if chance.random() < 0.5:  # close together
            first = moments[0]
            moments = [first + n for n in range(len(chosen))]
        loop.arm({moment: acts[name] for moment, name in zip(moments, chosen, strict=True)})
        actor.start()
        async with within(f"the turn under {dict(zip(moments, chosen, strict=True))}"):
            await agent.when_idle()
            loop.disarm()
            await asyncio.gather(*disposals)
            await agent.when_idle()
        actor.judge()
        if disposals:
            assert not on.s.agents.list() and not on.s.sessions.list()
            return
        await next_turn(actor)
        async with within("disposal"):
            await actor.handle.dispose()

    run_stepping(main)
