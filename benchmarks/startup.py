"""How long the command takes to be there: the default composition up to its first model request, and the short answers.

Real processes, a real model server beside them, bytecode cached, the best of several rounds taken in turns. The unit is
a bare interpreter that imports what dsh stands on (typer, yaml, schema, httpx, anyio, watchfiles), or typer alone.

    python benchmarks/startup.py [ROUNDS]
"""

from __future__ import annotations

import subprocess
import sys
import time

from _kit import DSH, Cost, Model, Place, Table, best, cpu_of, model, place, run

LIBRARIES = "import typer, yaml, schema, httpx, anyio, watchfiles"
SHORT = {
    "dsh --help": ["--help"],
    "dsh --version": ["--version"],
    "usage error: unknown option": ["--nope"],
    "usage error: unknown command": ["nope"],
    "usage error: option of a command": ["run", "--nope"],
    "usage error: missing argument": ["exec"],
}


def first_request(where: Place, server: Model, command: list[str]) -> Cost:
    """From the start of the process to its first model request at the server."""
    started = time.monotonic()
    process = where.spawn(command, stdout=subprocess.DEVNULL)
    try:
        wall = server.next_request() - started
        return Cost(wall, cpu_of(process.pid), 0.0)
    finally:
        process.wait()


def main(rounds: int) -> int:
    """Measure and print; the number of missed targets."""
    with place() as where, model(where, ["success"]) as server:
        config = str(where.starter())
        once = ["--prompt", "hello", "--exit-when-idle"]
        runs = {
            "dsh run, default composition": [*DSH, "run", config, *once],
            "dsh run --no-watch": [*DSH, "run", config, "--no-watch", *once],
            "dsh exec": [*DSH, "exec", "hello", "--config", config],
        }
        bare = {"pass": "pass", "typer": "import typer", "libraries": LIBRARIES}
        spent: dict[str, list[Cost]] = {}
        for round_ in range(rounds + 1):
            for name, code in bare.items():
                cost = run(where, [sys.executable, "-c", code])
                spent.setdefault(name, []).append(cost)
            for name, arguments in SHORT.items():
                spent.setdefault(name, []).append(run(where, [*DSH, *arguments]))
            for name, command in runs.items():
                spent.setdefault(name, []).append(first_request(where, server, command))
            if round_ == 0:
                spent.clear()  # filled the bytecode cache
    figures = {name: best(costs) for name, costs in spent.items()}
    table = Table(f"startup, best of {rounds}: wall ms (processor ms), ratio of wall times")

    def line(name: str, unit: str, limit: float, seconds: float = 10.0) -> None:
        cost, base = figures[name], figures[unit]
        ratio = cost.wall / base.wall
        target = f"<= {limit}x {unit}" + (f", < {seconds:g} s" if seconds < 10 else "")
        measured = f"{cost.wall * 1e3:.0f} ({cost.cpu * 1e3:.0f})"
        table.line(name, measured, ratio, target, ratio <= limit and cost.wall < seconds)

    for name, what in (("pass", "python -c pass"), ("typer", "import typer"), ("libraries", LIBRARIES)):
        table.line(what, f"{figures[name].wall * 1e3:.0f} ({figures[name].cpu * 1e3:.0f})")
    for name in runs:
        line(f"{name}", "libraries", 2, 0.7)
    for name in SHORT:
        line(name, "typer", 1.3)
    return table.missed


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 8))
