"""What a session has used of its models and what that costs: a fold over its log, and the words that tell it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from dsh.cordis.records import struct

from .display.amounts import thousands

if TYPE_CHECKING:
    from dsh.llm.prices import Prices

    Rates = Mapping[str, Prices]
    """Stated prices by route, written ``provider/model``."""

UNIT: Final = 10**15
"""Parts of a dollar, or of another unit, that are counted: with whole numbers no sum drifts."""


@struct
class Used:
    """Tokens of one route. input: what came from no cache, also what was written into one."""

    calls: int = 0
    input: int = 0
    cached: int = 0
    output: int = 0

    def add(self, other: Used, times: int = 1) -> None:
        """Count another in, or with -1 out again."""
        self.calls += times * other.calls
        self.input += times * other.input
        self.cached += times * other.cached
        self.output += times * other.output

    def cost(self, prices: Prices) -> int:
        """What it costs, in parts of the currency's unit."""
        rated = ((self.input, prices.input), (self.cached, prices.cached_input), (self.output, prices.output))
        return sum(tokens * round(price * (UNIT // 1_000_000)) for tokens, price in rated)

    @property
    def tokens(self) -> int:
        """All of them; those of reasoning are a part of the output."""
        return self.input + self.cached + self.output


class Spending:
    """Follows the log of one session. Each answered call counts once, also one whose answer was refused and asked for
    again; calls that report no usage are not known."""

    def __init__(self, turns: int = 0, route: str = "", routes: Mapping[str, Used] | None = None) -> None:
        self.turns = turns
        self.routes: dict[str, Used] = dict(routes or {})
        self._route = route
        self._step: tuple[Any, Any] | None = None
        self._last = ("", Used())
        self._answered = False

    @classmethod
    def of(cls, events: Iterable[tuple[str, Any]]) -> Spending:
        """Of events given as type and data."""
        spending = cls()
        for kind, data in events:
            spending.event(kind, data)
        return spending

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> Spending:
        """Read what `to_wire` made."""
        routes = {route: Used(**counts) for route, counts in wire["routes"].items()}
        return cls(wire["turns"], wire["route"], routes)

    def to_wire(self) -> dict[str, Any]:
        """``{turns, route, routes: {route: {calls, input, cached, output}}}``, with ``route`` the one used now."""
        routes = {route: asdict(used) for route, used in self.routes.items()}
        return {"turns": self.turns, "route": self._route, "routes": routes}

    def event(self, kind: str, data: Any) -> int:
        """Take in one event; the tokens of the call of a step that it tells of, 0 for none."""
        if kind == "assistant/chunk":
            chunk = data["chunk"]
            if chunk["type"] == "usage":
                return self._call(data, self._route, chunk["usage"])
            if chunk["type"] == "finish":
                self._answered = True
        elif kind == "assistant/message" and "usage" in data:
            step = data.get("turn"), data.get("step")
            if not (self._answered and step == self._step):  # else the stream has told it
                used = self._call(data, _route(data.get("message", {}).get("source", {})) or self._route, data["usage"])
                self._answered = True
                return used
        elif kind == "request/context":
            self._route = _route(data)
        elif kind == "compaction/summary" and "usage" in data:
            self._add(_route(data), _used(data["usage"]))
        elif kind == "turn/end":
            self.turns += 1
            self._step = None
        return 0

    def _call(self, where: Mapping[str, Any], route: str, usage: Mapping[str, Any]) -> int:
        step = where.get("turn"), where.get("step")
        if step == self._step and not self._answered:  # more about the same call
            self._add(*self._last, -1)
        self._step, self._answered, self._last = step, False, (route, _used(usage))
        self._add(*self._last)
        return self._last[1].tokens

    def _add(self, route: str, used: Used, times: int = 1) -> None:
        total = self.routes.setdefault(route, Used())
        total.add(used, times)
        if not total.calls:
            del self.routes[route]


def cost_text(spending: Spending, rates: Rates) -> str:
    """The cost so far, one sum for each currency, and how many tokens are not in it; empty when no price is known."""
    sums: dict[str, int] = {}
    for route, used in spending.routes.items():
        if (prices := rates.get(route)) is not None:
            sums[prices.currency] = sums.get(prices.currency, 0) + used.cost(prices)
    amounts = [money(amount, currency) for currency, amount in sums.items() if amount]
    amounts = amounts or [money(0, currency) for currency in sums][:1]
    rest = sum(used.tokens for route, used in spending.routes.items() if route not in rates)
    if amounts and rest:
        amounts.append(f"{thousands(rest)} tokens without a price")
    return " + ".join(amounts)


def usage_rows(spending: Spending, rates: Rates) -> list[tuple[str, ...]]:
    """A table of what each model was used for, with costs as far as prices are known."""
    total, rows = Used(), []
    for route, used in spending.routes.items():
        prices = rates.get(route)
        rows.append(
            (route or "unknown", used, "no price" if prices is None else money(used.cost(prices), prices.currency))
        )
        total.add(used)
    cost = cost_text(spending, rates)
    if len(rows) > 1:
        rows.append(("total", total, cost))
    head = ("model", "calls", "input", "cached", "output", "cost")
    told = [
        (name, *(f"{n:,}" for n in (used.calls, used.input, used.cached, used.output)), text)
        for name, used, text in rows
    ]
    return [row if cost else row[:-1] for row in (head, *told)] if rows else []


def money(amount: int, currency: str) -> str:
    """Parts of a unit as people write them: ``$0.0042``, ``$1.27``, ``0.35 CNY``."""
    value = amount / UNIT
    digits = 2 if value >= 0.0995 else 3 if value >= 0.00995 else 4
    if 0 < value < 0.00005:
        return f"<{_in(currency, '0.0001')}"
    return _in(currency, f"{value:,.{digits}f}" if amount else "0")


def price_text(prices: Mapping[str, Any]) -> str:
    """Stated prices in their wire form as words."""
    told = ((prices["input"], "in"), (prices["cachedInput"], "cached"), (prices["output"], "out"))
    if not any(price for price, _ in told):
        return "costs nothing"
    return ", ".join(f"{_in(prices['currency'], f'{price:g}')} {what}" for price, what in told) + " per million tokens"


def _in(currency: str, number: str) -> str:
    return f"${number}" if currency == "USD" else f"{number} {currency}"


def _route(data: Mapping[str, Any]) -> str:
    return f"{data['provider']}/{data['model']}" if "provider" in data and "model" in data else ""


def _used(usage: Mapping[str, Any]) -> Used:
    def count(name: str) -> int:
        found = usage.get(name, 0)
        return found if isinstance(found, int) else 0

    return Used(1, count("inputTokens") + count("cacheWriteTokens"), count("cacheReadTokens"), count("outputTokens"))
