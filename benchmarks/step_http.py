"""What a `read` step costs over real HTTP, early in a turn and a thousand steps later.

One turn of the default composition in a real process: every reply of the model server calls `read`, so the history
grows with each step. The least a client can do is another process that posts the very same bodies with httpx and reads
the replies. The difference of their processor times (all threads) is our own work: prompt, log, barriers, the tool.
Prints milliseconds a step around several steps, own work as a ratio to the bare client and to that of the first window.

    python benchmarks/step_http.py [STEPS]
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from _kit import DSH, Place, Table, cpu_of, model, place

HALF = 20
RUNS = 2
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
                server.next_request()
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


def main(last: int) -> int:
    """Measure and print; the number of missed targets."""
    steps = sorted({2 * HALF + 2, last // 2, last - HALF})
    with place() as where:
        where.starter()
        where.write("notes.txt", NOTES)
        bodies = where.root / "bodies"
        bodies.mkdir()
        rounds = [(ours(where, steps, last, bodies), bare(where, steps, bodies)) for _ in range(RUNS)]
    mine = [min(each) for each in zip(*(one for one, _ in rounds), strict=True)]
    base = [min(each) for each in zip(*(other for _, other in rounds), strict=True)]
    table = Table(f"a `read` step over HTTP, best of {RUNS} turns of {last} steps: processor ms a step")
    for step, whole, least in zip(steps, mine, base, strict=True):
        own = whole - least
        table.line(f"bare httpx with the body of step {step}", f"{least * 1e3:.2f}")
        table.line(f"step {step}, everything", f"{whole * 1e3:.2f}", whole / least)
        table.line(f"step {step}, own work", f"{own * 1e3:.2f}", own / least, "<= 2x bare", own <= 2 * least)
        flat = own / (mine[0] - base[0])
        table.line(f"step {step}, own work against step {steps[0]}", "", flat, "<= 1.5x", flat <= 1.5)
    return table.missed


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000))
