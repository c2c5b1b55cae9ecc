"""Corners of following files found in review: a row `hmr` that restarts at an unlucky moment."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from dsh.cordis import Context
from dsh.loader.hmr import Hmr
from tests.cordis.helpers import errors, turns
from tests.loader.hmr_helpers import Project, running


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


async def test_a_refresh_that_was_cancelled_before_its_first_step_holds_nobody_up(project: Project) -> None:
    project.rows("")
    async with running(project) as run:
        calls: list[int] = []

        async def refresh() -> None:
            calls.append(1)

        hmr = run.root[Hmr]
        again = run.fiber("hmr").restart()
        disposer = hmr.watch_config(project.write("own.txt", "x"), refresh)
        await again
        await asyncio.wait_for(asyncio.ensure_future(_wait(disposer())), 3)
        assert calls == []


async def _wait(awaitable: Any) -> None:
    await awaitable


async def test_rows_that_change_while_the_row_hmr_waits_for_its_users_make_no_noise(project: Project) -> None:
    project.plugin("one")
    project.rows("- {id: one, name: ./plugins/one.py}\n")
    async with running(project) as run:
        gate = asyncio.Event()

        def user(ctx: Context) -> None:
            ctx.defer(gate.wait)

        await run.root.inject([Hmr], user)
        await run.root[Hmr].wait_armed()
        leaving = run.fiber("hmr").restart()
        await turns()
        assert not run.fiber("hmr").is_active
        await run.fiber("one").dispose()
        gate.set()
        await leaving
        await run.root.settle()
        assert errors(run.root) == []
