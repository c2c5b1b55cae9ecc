"""What a long run must not gather: counted at moments of quiet, judged for being level."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import threading
from typing import Any

PAGE = os.sysconf("SC_PAGE_SIZE")
COUNTED = ("tasks", "threads", "files", "listeners", "services", "effects", "modules", "children")


def census(root: Any) -> dict[str, int]:
    """Counts of a process that is at rest: those in `COUNTED`, objects the collector tracks, resident bytes."""
    gc.collect()
    picture = root.inspect()
    with open("/proc/self/statm", encoding="ascii") as file:
        resident = int(file.read().split()[1]) * PAGE
    with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as file:
        children = len(file.read().split())
    return {
        "tasks": sum(not task.done() for task in asyncio.all_tasks()),
        # Workers that lend themselves to whoever has blocking work come and go with the load, up to a bound.
        "threads": sum(not thread.name.startswith(("AnyIO worker", "asyncio_")) for thread in threading.enumerate()),
        "files": len(os.listdir("/proc/self/fd")),
        "listeners": sum(each["listeners"] for each in picture["events"]),
        "services": len(picture["services"]),
        "effects": _effects(picture["fibers"]),
        "modules": len(sys.modules),
        "children": children,
        "objects": len(gc.get_objects()),
        "resident": resident,
    }


def _effects(fiber: dict[str, Any]) -> int:
    return len(fiber["effects"]) + sum(_effects(child) for child in fiber["children"])


def judge_level(samples: list[dict[str, int]], *, objects: float = 0.02, resident: float = 0.06) -> str:
    """Counts are the same at the first quarter and at the end; objects and memory have levelled off.

    objects, resident: how much more of them than at the half the end may show. Returns a line with the figures.
    """
    assert len(samples) >= 4, samples
    early, half, last = samples[len(samples) // 4], samples[len(samples) // 2], samples[-1]
    line = ", ".join(f"{name} {early[name]} -> {last[name]}" for name in (*COUNTED, "objects"))
    line += (
        f", resident {early['resident'] / 1e6:.1f} -> {half['resident'] / 1e6:.1f} -> {last['resident'] / 1e6:.1f} MB"
    )
    grown = {name: (early[name], last[name]) for name in COUNTED if last[name] > early[name]}
    assert not grown, f"{grown}: {line}"
    assert last["objects"] <= half["objects"] * (1 + objects) + 300, line
    assert last["resident"] <= half["resident"] * (1 + resident) + 2_000_000, line
    return line
