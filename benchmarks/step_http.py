"""What a `read` step costs over real HTTP, early in a turn and a thousand steps later.

One turn of the default composition in a real process: every reply of the model server calls `read`, so the history
grows with each step. The least a client can do is another process that posts the very same bodies with httpx and reads
the replies. The difference of their processor times (all threads) is our own work: prompt, log, barriers, the tool.
Prints milliseconds a step around several steps, own work as a ratio to the bare client and to that of the first window.

    python benchmarks/step_http.py [--quick]
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from _kit import DSH, Place, Row, cpu_of, model, place, script

HALF = 20
NOTES = "".join(f"line {number} of the notes\n" for number in range(1, 6))
BARE = """
import asyncio, pathlib, sys, time
import httpx, orjson

async def main():
    url, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    windows = [tuple(map(int, window.split("-"))) for window in sys.argv[3:]]
    headers = {"Content-Type": "application/json", "Authorization": "Bearer bench", "Accept": "text/event-stream"}
    async with httpx.AsyncClient(timeout=None, trust_env=False) as client:
        for first, last in [(1, 5), *windows]:
            bodies = [(folder / f"{step}.json").read_bytes() for step in range(first, last)]
            started = time.process_time()
            for body in bodies:
                async with client.stream("POST", url + "/chat/completions", content=body, headers=headers) as reply:
                    rest = b""
                    async for piece in reply.aiter_raw():
                        *events, rest = (rest + piece).split(b"\\n\\n")
                        for event in events:
                            if event != b"data: [DONE]":
                                orjson.loads(event[6:])
            spent = time.process_time() - started
            if first > 1:
                print(spent / len(bodies), flush=True)

asyncio.run(main())
"""


def reply(step: int) -> dict[str, Any]:
    """What the model says in a step."""
    call = {"id": f"call-{step}", "name": "read", "arguments": {"file_path": "notes.txt"}}
    return {"text": "Reading on.", "toolCalls": [call]}


def ours(where: Place, steps: list[int], last: int, bodies: Path) -> list[float]:
    """Seconds of processor time a step, averaged around each of ``steps``, over one turn up to step ``last``."""
    at: dict[int, float] = {}
    wanted = {step + offset for step in steps for offset in (-HALF, HALF)}
    with model(where, [*map(reply, range(1, last + 1)), "success"], bodies) as server:
        limit = ["--set", f"turn-limits.maxStepsPerTurn={last + 10}"]
        config = str(where.work / "cordis.yml")
        process = where.spawn(
            [*DSH, "run", config, "--no-watch", *limit, "--prompt", "Go.", "--exit-when-idle"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            for step in range(1, last + 2):
                server.next_request(process)
                if step in wanted:
                    at[step] = cpu_of(process.pid)
        finally:
            process.wait()
    return [(at[step + HALF] - at[step - HALF]) / (2 * HALF) for step in steps]


def bare(where: Place, steps: list[int], bodies: Path) -> list[float]:
    """The same for a client that sends the stored bodies and reads the replies."""
    windows = [f"{step - HALF}-{step + HALF}" for step in steps]
    with model(where, [reply(1)]) as server:
        command = [sys.executable, "-c", BARE, server.url, str(bodies), *windows]
        done = subprocess.run(command, env=where.env, capture_output=True, check=True)
    return [float(line) for line in done.stdout.split()]


def rows(quick: bool) -> Iterator[Row]:
    """Measure."""
    last, runs = (300, 1) if quick else (1000, 2)
    steps = sorted({2 * HALF + 2, last // 2, last - HALF})
    with place() as where:
        where.starter()
        where.write("notes.txt", NOTES)
        bodies = where.root / "bodies"
        bodies.mkdir()
        rounds = [(ours(where, steps, last, bodies), bare(where, steps, bodies)) for _ in range(runs)]
    mine = [min(each) for each in zip(*(one for one, _ in rounds), strict=True)]
    base = [min(each) for each in zip(*(other for _, other in rounds), strict=True)]
    for step, whole, least in zip(steps, mine, base, strict=True):
        measured = f"{whole * 1e3:.2f} : {least * 1e3:.2f} ms cpu"
        yield Row(
            f"`read` step {step} over HTTP, all of it", measured, whole / least, "<= 2x bare httpx", whole <= 2 * least
        )
    first, own = mine[0] - base[0], mine[-1] - base[-1]
    measured = f"{first * 1e3:.2f}, {own * 1e3:.2f} ms cpu"
    work = f"its own work (without httpx), step {steps[0]} and step {steps[-1]}"
    yield Row(work, measured, own / first, "flat: <= 1.5x", own <= 1.5 * first)


if __name__ == "__main__":
    script(rows)
