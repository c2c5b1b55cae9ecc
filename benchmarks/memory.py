"""Memory: the peak of a short run, and what an idle agent holds.

python benchmarks/memory.py [AGENTS]
"""

from __future__ import annotations

import subprocess
import sys

from _kit import DSH, Table, best, model, place, run

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


def main(agents: int) -> int:
    """Measure and print; the number of missed targets."""
    with place() as where, model(where, ["success"]):
        config = where.starter()
        once = [*DSH, "run", str(config), "--prompt", "hello", "--exit-when-idle"]
        task = [*DSH, "exec", "hello", "--config", str(config)]
        run(where, once)  # fills the bytecode cache
        table = Table("memory, the least of three runs")
        base = best([run(where, [sys.executable, "-c", LIBRARIES]) for _ in range(3)]).peak
        table.line(LIBRARIES, f"{base:.1f} MB")
        for name, command in (("dsh run, one short turn", once), ("dsh exec, one short turn", task)):
            peak = best([run(where, command) for _ in range(3)]).peak
            table.line(name, f"{peak:.1f} MB", peak / base, "< 70 MB", peak < 70)
        if not sys.platform.startswith("linux"):
            return table.missed
        out = where.root / "out"
        where.env |= {"BENCH_OUT": str(out), "BENCH_AGENTS": str(agents)}
        where.write("crowd.py", CROWD)
        config.write_text(config.read_text("utf-8") + "- {id: crowd, name: ./crowd.py}\n", "utf-8")
        command = [*DSH, "run", str(config), "--no-watch"]
        subprocess.run(command, env=where.env, cwd=where.work, check=True, capture_output=True, timeout=120)
        each = float(out.read_text())
        table.line(f"an idle agent of {agents}", f"{each:.1f} KB", None, "< 100 KB", each < 100)
    return table.missed


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000))
