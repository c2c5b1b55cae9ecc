"""A streamed reply through the whole product against the least that could store it.

The product is a real process: DeepSeek route, agent loop, session log on disk, three observers of each event. The
least is httpx, orjson and one JSON line an event written to a file. Both read the same bytes from a model server of
its own. Prints chunks a second by the wall clock and by processor time (all threads), and the ratio to the least.

    python benchmarks/stream.py [CHUNKS]
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from _kit import DSH, Place, Table, model, place

ROUNDS = 3
GROUP = 16
"""Events in one piece of the network."""
OBSERVER = """
import json, os, time
from pathlib import Path
from dsh.cordis import Context
from dsh.core.session_store import SessionAppended

def apply(ctx: Context, config) -> None:
    counts, began = [0, 0, 0], []
    def observe(number):
        @ctx.on(SessionAppended)
        def seen(happened):
            counts[number] += happened.event.type == "assistant/chunk"
            if number == 0 and happened.event.type == "request/header":
                began[:] = [time.perf_counter(), time.process_time()]
            if number == 2 and happened.event.type == "turn/end":
                spent = time.perf_counter() - began[0], time.process_time() - began[1], *counts
                Path(os.environ["BENCH_OUT"]).write_text(json.dumps(spent))
    for number in range(3):
        observe(number)
"""
BARE = """
import asyncio, json, os, sys, time
from pathlib import Path
import httpx, orjson

async def main():
    url, count, target = sys.argv[1], 0, Path(sys.argv[2])
    async with httpx.AsyncClient(timeout=None, trust_env=False) as client:
        began = time.perf_counter(), time.process_time()
        async with client.stream("POST", url + "/chat/completions", json={"model": "m"}) as reply:
            with target.open("wb") as file:
                rest = b""
                async for piece in reply.aiter_raw():
                    *events, rest = (rest + piece).split(b"\\n\\n")
                    for event in events:
                        if event == b"data: [DONE]":
                            continue
                        text = orjson.loads(event[6:])["choices"][0]["delta"].get("content")
                        if text:
                            chunk = {"type": "text-delta", "index": 0, "text": text}
                            data = {"turn": 1, "step": 1, "chunk": chunk}
                            now = int(time.time() * 1e3)
                            line = {"type": "assistant/chunk", "seq": count, "time": now, "data": data}
                            file.write(orjson.dumps(line) + b"\\n")
                            count += 1
                file.flush()
                os.fsync(file.fileno())
        spent = time.perf_counter() - began[0], time.process_time() - began[1], count
    print(json.dumps(spent))

asyncio.run(main())
"""


def script(count: int) -> list[Any]:
    """One reply of `count` text deltas, several to a piece."""
    delta = '{"id":"c","object":"chat.completion.chunk","created":0,"model":"m","choices":[{"index":0,"delta":%s}]}'
    event = f"data: {delta % json.dumps({'content': ' token'})}\n\n"
    end = 'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
    return [{"chunks": [event * GROUP] * (count // GROUP) + [end]}]


def ours(where: Place) -> list[float]:
    """Wall and processor seconds of the turn, and what each observer counted."""
    command = [*DSH, "run", str(where.work / "cordis.yml"), "--no-watch", "--prompt", "Go.", "--exit-when-idle"]
    subprocess.run(
        command, env=where.env, cwd=where.work, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    found: list[float] = json.loads((where.root / "out.json").read_text())
    return found


def bare(where: Place, url: str) -> list[float]:
    """The same of the least client."""
    command = [sys.executable, "-c", BARE, url, str(where.root / "bare.jsonl")]
    found: list[float] = json.loads(subprocess.run(command, env=where.env, check=True, capture_output=True).stdout)
    return found


def main(count: int) -> int:
    """Measure and print; the number of missed targets."""
    count -= count % GROUP
    with place() as where, model(where, script(count)) as server:
        where.env["BENCH_OUT"] = str(where.root / "out.json")
        config = where.starter()
        where.write("observers.py", OBSERVER)
        config.write_text(config.read_text("utf-8") + "- {id: observers, name: ./observers.py}\n", "utf-8")
        rounds = [(ours(where), bare(where, server.url)) for _ in range(ROUNDS)]
    assert all(min(one[2:]) >= count and other[2] == count for one, other in rounds), rounds
    table = Table(f"{count} streamed chunks, logged, persisted, three observers; best of {ROUNDS}: chunks a second")
    for at, clock in enumerate(("wall", "processor")):
        mine, least = (min(pair[side][at] for pair in rounds) for side in (0, 1))
        table.line(f"bare httpx + orjson + JSONL, {clock}", f"{count / least:.0f}")
        table.line(f"dsh, {clock}", f"{count / mine:.0f}", least / mine, ">= 0.5x bare", least / mine >= 0.5)
    return table.missed


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 20_000))
