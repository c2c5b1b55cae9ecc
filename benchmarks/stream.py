"""A streamed reply through the whole product against the least that could store it.

The product is a real process: DeepSeek route, agent loop, session log on disk, three observers of each event. The
least is httpx, orjson and one JSON line an event written to a file. Both read the same bytes from a model server of
its own, and are timed from the first chunk until all of them are on disk (fsync). Prints chunks a second by the wall
clock and by processor time (all threads), and the ratio to the least.

    python benchmarks/stream.py [--quick]
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from _kit import DSH, Place, Row, model, place, script

GROUPS = {1: "one a piece of the network, as servers send them", 16: "16 a piece, as a proxy may gather them"}
"""Events in one HTTP chunk, which is what a client gets to see at once."""
OBSERVER = """
import json, os, time
from pathlib import Path
from dsh.cordis import Context
from dsh.core.session_store import SessionAppended, Sessions

def apply(ctx: Context, config, sessions: Sessions) -> None:
    counts, began = [0, 0, 0], []

    async def finish(session):
        await sessions.flush(session)
        spent = time.perf_counter() - began[0], time.process_time() - began[1], *counts
        Path(os.environ["BENCH_OUT"]).write_text(json.dumps(spent))

    def observe(number):
        @ctx.on(SessionAppended)
        def seen(happened):
            if happened.event.type == "assistant/chunk":
                counts[number] += 1
                if not began:
                    began[:] = [time.perf_counter(), time.process_time()]
            elif number == 2 and happened.event.type == "turn/end":
                ctx.spawn(finish, happened.session)

    for number in range(3):
        observe(number)
"""
BARE = """
import asyncio, json, os, sys, time
from pathlib import Path
import httpx, orjson

async def main():
    url, count, target, began = sys.argv[1], 0, Path(sys.argv[2]), None
    async with httpx.AsyncClient(timeout=None, trust_env=False) as client:
        async with client.stream("POST", url + "/chat/completions", json={"model": "m"}) as reply:
            with target.open("wb") as file:
                rest = b""
                async for piece in reply.aiter_raw():
                    began = began or (time.perf_counter(), time.process_time())
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


def script_of(count: int, group: int) -> list[Any]:
    """One reply of `count` text deltas, `group` to a piece."""
    delta = '{"id":"c","object":"chat.completion.chunk","created":0,"model":"m","choices":[{"index":0,"delta":%s}]}'
    event = f"data: {delta % json.dumps({'content': ' token'})}\n\n"
    end = 'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
    return [{"chunks": [event * group] * (count // group) + [end]}]


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


def rows(quick: bool) -> Iterator[Row]:
    """Measure."""
    rounds, total = (2, 16_000) if quick else (3, 48_000)
    for group, what in GROUPS.items():
        with place() as where, model(where, script_of(total, group)) as server:
            where.env["BENCH_OUT"] = str(where.root / "out.json")
            config = where.starter()
            where.write("observers.py", OBSERVER)
            config.write_text(config.read_text("utf-8") + "- {id: observers, name: ./observers.py}\n", "utf-8")
            ours(where)  # fills the bytecode cache
            found = [(ours(where), bare(where, server.url)) for _ in range(rounds)]
        assert all(min(one[2:]) >= total and other[2] == total for one, other in found), found
        for at, clock in enumerate(("wall", "cpu")):
            mine, least = (min(pair[side][at] for pair in found) for side in (0, 1))
            measured = f"{total / mine:,.0f} : {total / least:,.0f} /s"
            work = f"chunks stored, 3 observers, {what.partition(',')[0]}, {clock}"
            yield Row(work, measured, least / mine, ">= 0.5x httpx + orjson + JSONL", least / mine >= 0.5)


if __name__ == "__main__":
    script(rows)
