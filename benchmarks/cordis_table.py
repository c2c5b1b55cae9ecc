"""Measures the plugin runtime against its budgets, each operation beside the bare Python that does the same work.

Run: python benchmarks/cordis_table.py [--check]
With --check the exit code is 1 if a budget is missed. Times are processor time, the best of several rounds, in
microseconds.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from dsh.cordis import Context, Emit, Service, Waterfall, owned, unwrap

ROUNDS = 7


class Ping(Emit, name="bench/ping"):
    first: int
    second: str
    third: object


class ScopedPing(Emit, name="bench/scoped", scoped_by="agent"):
    agent: object


class Wave(Waterfall[int], name="bench/wave"):
    value: int


class Tools(Service, name="tools"):
    def plain(self) -> int:
        return 1

    @owned
    def register(self, caller: Context) -> int:
        return 2


class Agent:
    __slots__ = ("__scope__", "__weakref__")


@dataclass(slots=True, eq=False)
class BarePing:
    first: int
    second: str
    third: object


@dataclass
class Row:
    """One line of the table; times in microseconds."""

    name: str
    measured: float
    budget: float
    bare: float


def per_call(fn: Callable[[], object], count: int = 20_000) -> float:
    """Microseconds a call, best round; the cost of the measuring loop is taken off."""

    def once(body: Callable[[], object]) -> float:
        start = time.process_time()
        for _ in range(count):
            body()
        return time.process_time() - start

    empty = min(once(_nothing) for _ in range(ROUNDS))
    return max(0.0, min(once(fn) for _ in range(ROUNDS)) - empty) / count * 1e6


async def per_await(fn: Callable[[], Awaitable[object]], count: int = 5_000) -> float:
    best = float("inf")
    for _ in range(ROUNDS):
        start = time.process_time()
        for _ in range(count):
            await fn()
        best = min(best, time.process_time() - start)
    return best / count * 1e6


def _nothing() -> None:
    return None


def _listener(event: object) -> None:
    return None


def _call_all(calls: tuple[Callable[[object], None], ...], event: object) -> None:
    for call in calls:
        call(event)


def emit_rows() -> list[Row]:
    rows: list[Row] = []
    root = Context()
    ping = Ping(1, "two", None)
    bare_none: tuple[Callable[[object], None], ...] = ()
    rows.append(
        Row("emit, no listener", per_call(lambda: root.emit(ping)), 0.5, per_call(lambda: _call_all(bare_none, ping)))
    )
    rows.append(
        Row(
            "emit, no listener, building the payload",
            per_call(lambda: root.emit(Ping(1, "two", None))),
            1.0,
            per_call(lambda: _call_all(bare_none, BarePing(1, "two", None))),
        )
    )
    for count, budget in ((1, 1.0), (5, 2.5)):
        root = Context()
        for _ in range(count):
            root.on(Ping, _listener)
        calls = (_listener,) * count
        rows.append(
            Row(
                f"emit, {count} sync listener{'s' if count > 1 else ''}",
                per_call(lambda root=root: root.emit(ping)),  # type: ignore[misc]
                budget,
                per_call(lambda calls=calls: _call_all(calls, ping)),  # type: ignore[misc]
            )
        )
    return rows


def scoped_row() -> Row:
    root = Context()
    agent, other = Agent(), Agent()
    event = ScopedPing(agent)
    root.on(ScopedPing, _listener)
    plain = per_call(lambda: root.emit(event))
    root.scope(agent).ctx.on(ScopedPing, _listener)
    root.scope(other).ctx.on(ScopedPing, _listener)
    two = Context()
    two.on(ScopedPing, _listener)
    two.on(ScopedPing, _listener)
    return Row(
        "scoped routing on top",
        max(0.0, per_call(lambda: root.emit(event)) - per_call(lambda: two.emit(event))),
        0.3,
        plain,
    )


async def waterfall_rows() -> list[Row]:
    rows: list[Row] = []

    async def pass_on(event: Wave, next: Callable[[], Awaitable[int]]) -> int:
        return await next()

    async def default() -> int:
        return 1

    wave = Wave(1)
    for count, budget in ((0, 1.5), (1, 4.0), (3, 8.0)):
        root = Context()
        for _ in range(count):
            root.on(Wave, pass_on)

        def bare(left: int) -> Callable[[], Awaitable[int]]:
            rest = bare(left - 1) if left else default
            return (lambda: pass_on(wave, rest)) if left else default

        rows.append(
            Row(
                f"await waterfall, {count} listeners",
                await per_await(lambda root=root: root.waterfall(wave, default)),  # type: ignore[misc]
                budget,
                await per_await(lambda count=count, bare=bare: bare(count)()),  # type: ignore[misc]
            )
        )
    return rows


async def service_rows() -> list[Row]:
    async with Context() as root:
        seen: list[Context] = []

        def reader(ctx: Context, config: object, tools: Tools) -> None:
            seen.append(ctx)

        root.plugin(Tools)
        await root.plugin(reader)
        await root.settle()
        (ctx,) = seen
        table = {Tools: unwrap(root[Tools])}
        return [
            Row(
                "ctx[Tools].plain()", per_call(lambda: ctx[Tools].plain()), 0.8, per_call(lambda: table[Tools].plain())
            ),
            Row(
                "ctx[Tools].register(), owned",
                per_call(lambda: ctx[Tools].register()),
                0.8,
                per_call(lambda: table[Tools].plain()),
            ),
        ]


async def mount_rows() -> list[Row]:
    def body(ctx: Context) -> None:
        ctx.on(Ping, _listener)

    async def bare() -> None:
        await asyncio.get_running_loop().create_task(asyncio.sleep(0))

    async with Context() as root:

        async def mount() -> None:
            fiber = root.plugin(body)
            await fiber
            await fiber.dispose()

        rows = [
            Row(
                "mount + activate + dispose, sync plugin (bare: one asyncio task)",
                await per_await(mount, 200),
                700.0,
                await per_await(bare, 2000),
            )
        ]
        few = per_call(lambda: _provide(root), 2000)
        for index in range(1000):
            root.plugin(body, inject=[f"unrelated{index}"])
        await root.settle()
        many = per_call(lambda: _provide(root), 2000)
        rows.append(Row("provide + withdraw: added by 1000 unrelated fibers", max(0.0, many - few), 5.0, few))
    return rows


def _provide(root: Context) -> None:
    root.provide("bench", root)()


async def boot_row() -> Row:
    def make(index: int) -> Callable[[Context], None]:
        def row(ctx: Context) -> None:
            ctx.on(Ping, _listener)

        return row

    plugins = [make(index) for index in range(100)]
    best = float("inf")
    for _ in range(ROUNDS):
        start = time.process_time()
        async with Context() as root:
            for plugin in plugins:
                root.plugin(plugin)
            await root.settle()
            best = min(best, time.process_time() - start)

    async def bare() -> None:
        await asyncio.gather(*(asyncio.sleep(0) for _ in plugins))

    return Row("boot of 100 trivial rows (bare: 100 tasks)", best * 1e6, 150_000.0, await per_await(bare, 50))


async def measure() -> list[Row]:
    rows = [*emit_rows(), scoped_row(), *await waterfall_rows(), *await service_rows()]
    gc.collect()
    return [*rows, *await mount_rows(), await boot_row()]


def print_table(rows: list[Row]) -> None:
    wide = max(len(row.name) for row in rows)
    print(f"{'operation':<{wide}} {'µs':>10} {'budget':>10} {'bare µs':>9} {'ratio':>7}")
    for row in rows:
        ratio = f"{row.measured / row.bare:.1f}x" if row.bare > 0.005 else "-"
        late = "" if row.measured < row.budget else "  OVER BUDGET"
        print(f"{row.name:<{wide}} {row.measured:>10.2f} {row.budget:>10g} {row.bare:>9.2f} {ratio:>7}{late}")


def main() -> int:
    rows = asyncio.run(measure())
    print_table(rows)
    missed = any(row.measured >= row.budget for row in rows)
    return 1 if missed and "--check" in sys.argv[1:] else 0


if __name__ == "__main__":
    _code: Any = main()
    raise SystemExit(_code)
