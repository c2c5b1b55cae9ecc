"""How long the command takes to be there: the default composition up to its first model request, and the short answers.

Real processes, a real model server beside them, bytecode cached, the best of several rounds taken in turns; ratios are
of processor time, all threads. The unit is a bare interpreter that imports what dsh stands on (typer, yaml, schema,
httpx, anyio, watchfiles), or typer alone.

    python benchmarks/startup.py [--quick]
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator

from _kit import DSH, Cost, Model, Place, Row, best, cpu_of, model, place, run, script

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
        wall = server.next_request(process) - started
        return Cost(wall, cpu_of(process.pid), 0.0)
    finally:
        process.wait()


def rows(quick: bool) -> Iterator[Row]:
    """Measure."""
    rounds = 3 if quick else 10
    with place() as where, model(where, ["success"]) as server:
        config = str(where.starter())
        once = ["--prompt", "hello", "--exit-when-idle"]
        runs = {
            "start to first model request, dsh run": [*DSH, "run", config, *once],
            "start to first model request, dsh exec": [*DSH, "exec", "hello", "--config", config],
        }
        bare = {"pass": "pass", "typer": "import typer", "libraries": LIBRARIES}
        spent: dict[str, list[Cost]] = {}
        for round_ in range(rounds + 1):
            for name, code in bare.items():
                cost = run(where, [sys.executable, "-c", code])
                spent.setdefault(name, []).append(cost)
            for name, arguments in SHORT.items():
                cost = run(where, [*DSH, *arguments], 2 if name.startswith("usage error") else 0)
                spent.setdefault(name, []).append(cost)
            for name, command in runs.items():
                spent.setdefault(name, []).append(first_request(where, server, command))
            if round_ == 0:
                spent.clear()  # filled the bytecode cache
    figures = {name: best(costs) for name, costs in spent.items()}

    def line(name: str, unit: str, limit: float, target: str, seconds: float = 10.0) -> Row:
        cost, base = figures[name], figures[unit]
        ratio = cost.cpu / base.cpu  # the time of the wall on a quiet machine, and of a busy one the part that is ours
        return Row(name, _ms(cost), ratio, target, ratio <= limit and cost.wall < seconds)

    for name, what in (("libraries", LIBRARIES.removeprefix("import ")), ("typer", "typer")):
        yield Row(f"(importing {what})", _ms(figures[name]))
    for name in runs:
        yield line(name, "libraries", 2, "<= 2x libraries, < 0.7 s", 0.7)
    for name in SHORT:
        yield line(name, "typer", 1.3, "<= 1.3x importing typer")


def _ms(cost: Cost) -> str:
    return f"{cost.wall * 1e3:.0f} ms (cpu {cost.cpu * 1e3:.0f})"


if __name__ == "__main__":
    script(rows)
