"""What session storage costs, beside the least that could do the same: bytes written, bytes parsed, files looked at.

    python benchmarks/sessions.py

Prints one line a measurement: our time, the bare time, their ratio.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from pathlib import Path

import orjson
from _kit import fastest
from open_session import conversation, stored

from dsh.cordis import Context
from dsh.core import session_store
from dsh.core.session_header import SessionHeader
from dsh.core.session_store import Sessions
from dsh.sessions import jsonl
from dsh.sessions.jsonl_store import Compression
from dsh.sessions.log_file import LogWriter, read_log
from dsh.sessions.paths import session_dir
from dsh.sessions.stored import HeaderCache, list_stored


def show(what: str, ours: float, bare: float) -> None:
    """One line."""
    print(f"{what:58} {ours * 1000:9.2f} ms   bare {bare * 1000:9.2f} ms   x{ours / bare:.1f}")


def opening(root: str) -> None:
    """Read and decode a log of 100,000 events."""
    events = conversation()
    layouts: tuple[Compression, ...] = ("none", "zstd")
    for compression in layouts:
        place = os.path.join(root, compression)
        lines = stored(place, events, compression, packed=True).read_text("long")
        assert lines is not None
        text = lines[1]
        (path,) = (str(file) for file in Path(place).rglob("session.jsonl*"))

        def ours(path: str = path) -> object:
            return read_log(path, "long")

        def bare(text: bytes = text) -> object:
            return [orjson.loads(line) for line in text.split(b"\n")[:-1]]

        show(f"open 100,000 events, {compression} ({os.path.getsize(path) // 1024} KB)", fastest(ours), fastest(bare))


def listing(root: str, count: int = 10_000) -> None:
    """List many sessions, the first time and again."""
    writer = LogWriter(durable=False)
    paths = []
    for number in range(count):
        header = SessionHeader(f"main-session-{number:05}", 1000 + number, cwd=f"/home/me/project{number % 20}")
        place = session_dir(root, header.cwd, header.id)
        os.makedirs(place)
        paths.append(os.path.join(place, "session.jsonl.zstd"))
        writer.create(paths[-1], header, [])
    bare = fastest(lambda: [os.stat(path) for path in paths])
    show(f"list {count} sessions, cold", fastest(lambda: list_stored(root)), bare)
    cache: HeaderCache = {}
    list_stored(root, cache=cache)
    show(f"list {count} sessions, warm", fastest(lambda: list_stored(root, cache=cache)), bare)


async def flushing(root: str, rounds: int = 200) -> None:
    """One event and its barrier, with and without waiting for the disk; a barrier over nothing."""
    loop = asyncio.get_running_loop()
    for durability in ("os", "fsync"):
        place = os.path.join(root, durability)
        async with Context() as ctx:
            await ctx.plugin(session_store)
            await ctx.plugin(jsonl, {"root": place, "durability": durability})
            sessions = ctx[Sessions]
            session = sessions.create("s", meta={"cwd": "/w"})
            session.append("note", {}, ignorable=True)
            await sessions.flush(session)
            began = time.perf_counter()
            for _ in range(rounds):
                session.append("note", {"text": "x" * 200}, ignorable=True)
                await sessions.flush(session)
            ours = (time.perf_counter() - began) / rounds
            fd = os.open(os.path.join(place, "bare"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)

            def write(fd: int = fd, wait: bool = durability == "fsync") -> None:
                os.write(fd, b"x" * 250)
                if wait:
                    os.fsync(fd)

            began = time.perf_counter()
            for _ in range(rounds):
                await loop.run_in_executor(None, write)
            bare = (time.perf_counter() - began) / rounds
            os.close(fd)
            show(f"append one event and wait, {durability}", ours, bare)
            began = time.perf_counter()
            for _ in range(10_000):
                await sessions.flush(session)
            idle = (time.perf_counter() - began) / 10_000
            began = time.perf_counter()
            for _ in range(10_000):
                await asyncio.sleep(0)
            show("barrier over nothing (bare: one turn of the loop)", idle, (time.perf_counter() - began) / 10_000)


def main() -> None:
    """Run everything in a temporary directory."""
    with tempfile.TemporaryDirectory() as root:
        opening(os.path.join(root, "open"))
        listing(os.path.join(root, "list"))
        asyncio.run(flushing(os.path.join(root, "flush")))


if __name__ == "__main__":
    main()
