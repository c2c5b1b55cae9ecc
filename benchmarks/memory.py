"""Memory: the peak of a short run and of one that streams 100,000 chunks, and what an idle agent holds.

python benchmarks/memory.py [--quick]
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

from _kit import DSH, Place, Row, best, model, place, run, script
from stream import script_of

CHUNKS = 100_000
LIBRARIES = "import typer, yaml, schema, httpx, anyio, watchfiles"
CROWD = """
import asyncio, gc, os
from pathlib import Path
from dsh.cordis import Context
from dsh.core.agent import CreateAgentOptions
from dsh.core.agents import Agents

def resident():
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")

def apply(ctx: Context, config, agents: Agents) -> None:
    async def fill():
        await ctx.get("loader").settle()
        count, kept = int(os.environ["BENCH_AGENTS"]), []
        kept.append(await agents.create(CreateAgentOptions("first", {"cwd": os.getcwd()})))
        before = resident()
        for number in range(count):
            kept.append(await agents.create(CreateAgentOptions(f"idle-{number}", {"cwd": os.getcwd()})))
        await asyncio.sleep(0.5)
        Path(os.environ["BENCH_OUT"]).write_text(str((resident() - before) / count / 1024))
        ctx.get("appExit")(0)
    ctx.spawn(fill, name="crowd")
"""


def rows(quick: bool) -> Iterator[Row]:
    """Measure."""
    rounds = 1 if quick else 3
    with place() as where, model(where, ["success"]):
        config = where.starter()
        once = [*DSH, "run", str(config), "--prompt", "hello", "--exit-when-idle"]
        task = [*DSH, "exec", "hello", "--config", str(config)]
        run(where, once)  # fills the bytecode cache
        base = best([run(where, [sys.executable, "-c", LIBRARIES]) for _ in range(rounds)]).peak
        for name, command in (("dsh run", once), ("dsh exec", task)):
            peak = best([run(where, command) for _ in range(rounds)]).peak
            yield Row(f"peak memory of a short run, {name}", f"{peak:.0f} MB", peak / base, "< 70 MB", peak < 70)
        with model(where, script_of(CHUNKS, 16)):
            peak = best([run(where, [*once, "--no-watch"]) for _ in range(rounds)]).peak
        yield Row(f"peak memory after {CHUNKS:,} chunks", f"{peak:.0f} MB", peak / base, "< 160 MB", peak < 160)
        if sys.platform.startswith("linux"):
            agents = 200 if quick else 1000
            each = crowd(where, agents)
            yield Row(f"one of {agents:,} idle agents in a process", f"{each:.1f} KB", None, "< 100 KB", each < 100)


def crowd(where: Place, agents: int) -> float:
    """KB that an idle agent holds, on average."""
    out, config = where.root / "out", where.work / "cordis.yml"
    where.env |= {"BENCH_OUT": str(out), "BENCH_AGENTS": str(agents)}
    where.write("crowd.py", CROWD)
    config.write_text(config.read_text("utf-8") + "- {id: crowd, name: ./crowd.py}\n", "utf-8")
    command = [*DSH, "run", str(config), "--no-watch"]
    subprocess.run(command, env=where.env, cwd=where.work, check=True, capture_output=True, timeout=120)
    return float(out.read_text())


if __name__ == "__main__":
    script(rows)
