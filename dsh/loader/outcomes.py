"""Waiting for several things at once, whatever becomes of each."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from typing import Any


async def outcomes(waits: Sequence[Awaitable[Any]], limit: float | None = None) -> list[Exception | None] | None:
    """Wait for all; what each one raised. `None` if one is not done after `limit` seconds (what is waited for goes on).

    The waits are started at once and are over when this returns, also when it is cancelled.
    """

    async def outcome(wait: Awaitable[Any]) -> Exception | None:
        try:
            await wait
        except Exception as error:
            return error
        return None

    if not waits:
        return []
    tasks = [asyncio.ensure_future(outcome(wait)) for wait in waits]
    try:
        _, late = await asyncio.wait(tasks, timeout=limit)
        return None if late else [task.result() for task in tasks]
    finally:
        for task in tasks:
            task.cancel()
