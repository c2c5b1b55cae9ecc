"""What a session has used and what that costs, as a fold over its log and as words."""

from __future__ import annotations

from typing import Any

import pytest

from dsh.interfaces.context_use import totals
from dsh.interfaces.spending import UNIT, Spending, Used, cost_text, money, price_text, usage_rows
from dsh.llm.prices import Prices

Events = list[tuple[str, Any]]
FLASH = Prices(input=0.3, cached_input=0.006, output=1.2)
FREE = Prices(input=0, cached_input=0, output=0)
YUAN = Prices(input=2, cached_input=0.04, output=8, currency="CNY")


def context(route: str) -> tuple[str, Any]:
    provider, model = route.split("/")
    return "request/context", {"provider": provider, "model": model}


def chunk(step: int, kind: str, **more: Any) -> tuple[str, Any]:
    return "assistant/chunk", {"turn": 1, "step": step, "chunk": {"type": kind, **more}}


def usage(sent: int, received: int, **more: int) -> dict[str, int]:
    return {"inputTokens": sent, "outputTokens": received, **more}


def message(step: int, said: dict[str, int], **source: str) -> tuple[str, Any]:
    return "assistant/message", {"turn": 1, "step": step, "message": {"content": [], "source": source}, "usage": said}


END = ("turn/end", {"reason": {"kind": "completed"}})
ONE = usage(10, 5)


@pytest.mark.parametrize(
    ("events", "routes"),
    [
        ([], {}),
        ([context("a/m"), chunk(1, "usage", usage=ONE), chunk(1, "finish"), message(1, ONE)], {"a/m": (1, 10, 0, 5)}),
        # A message without a stream, as of an imported log, and one whose stream was cut before its end.
        ([message(1, ONE, provider="b", model="n")], {"b/n": (1, 10, 0, 5)}),
        ([context("a/m"), chunk(1, "usage", usage=ONE), message(1, usage(10, 7))], {"a/m": (1, 10, 0, 7)}),
        # Counts that grow within one call; a call that is asked again was answered, and paid for, twice.
        ([context("a/m"), *[chunk(1, "usage", usage=usage(10, n)) for n in (1, 2, 3)]], {"a/m": (1, 10, 0, 3)}),
        ([context("a/m"), *[chunk(1, "usage", usage=ONE), chunk(1, "finish")] * 2], {"a/m": (2, 20, 0, 10)}),
        ([context("a/m"), chunk(1, "finish"), message(1, ONE)], {"a/m": (1, 10, 0, 5)}),
        # The model changes within the session; the same step of another turn is another call.
        (
            [context("a/m"), message(1, ONE), END, message(1, ONE), context("b/n"), message(2, ONE)],
            {"a/m": (2, 20, 0, 10), "b/n": (1, 10, 0, 5)},
        ),
        # Tokens written to a cache are input, those of reasoning a part of the output.
        (
            [
                context("a/m"),
                message(1, usage(10, 5, cacheReadTokens=4, cacheWriteTokens=2, reasoningTokens=3)),
            ],
            {"a/m": (1, 12, 4, 5)},
        ),
        ([("compaction/summary", {"provider": "a", "model": "m", "usage": ONE})], {"a/m": (1, 10, 0, 5)}),
        ([message(1, ONE)], {"": (1, 10, 0, 5)}),
    ],
)
def test_each_answered_call_counts_once_for_its_route(events: Events, routes: dict[str, tuple[int, ...]]) -> None:
    spending = Spending.of(events)
    assert spending.routes == {route: Used(*counts) for route, counts in routes.items()}
    assert spending.turns == events.count(END)
    taken_over = Spending.from_wire(Spending.of(events[:1]).to_wire())
    for event in events[1:]:
        taken_over.event(*event)
    assert taken_over.routes == spending.routes


@pytest.mark.parametrize(
    ("used", "prices", "shown"),
    [
        (Used(1, 1_000_000, 0, 0), FLASH, "$0.30"),
        (Used(1, 0, 1_000_000, 0), FLASH, "$0.0060"),
        (Used(1, 10_000, 100_000, 500), FLASH, "$0.0042"),
        (Used(1, 3_000_000, 0, 308_333), FLASH, "$1.27"),
        (Used(1, 1, 0, 0), FLASH, "<$0.0001"),
        (Used(3, 5_000, 7, 900), FREE, "$0"),
        (Used(1, 100_000, 0, 18_750), YUAN, "0.35 CNY"),
        (Used(1, 10**10, 0, 10**9), FLASH, "$4,200.00"),
    ],
)
def test_a_cost_is_exact_and_shown_with_the_digits_that_matter(used: Used, prices: Prices, shown: str) -> None:
    assert money(used.cost(prices), prices.currency) == shown


def test_many_small_sums_do_not_drift() -> None:
    tenth = Prices(input=0.1, cached_input=0.1, output=0.1)
    total = Used()
    for _ in range(10_000):
        total.add(Used(1, 1, 1, 1))
    assert total.cost(tenth) == 10_000 * Used(1, 1, 1, 1).cost(tenth) == 3 * UNIT // 1000


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0, "$0"),
        (0.00004, "<$0.0001"),
        (0.00005, "$0.0001"),
        (0.00994, "$0.0099"),
        (0.00996, "$0.010"),
        (0.0994, "$0.099"),
        (0.0996, "$0.10"),
        (0.999, "$1.00"),
        (1234.5, "$1,234.50"),
    ],
)
def test_amounts_next_to_a_change_of_digits(value: float, shown: str) -> None:
    assert money(round(value * UNIT), "USD") == shown


@pytest.mark.parametrize(
    ("routes", "text"),
    [
        ({}, ""),
        ({"other/m": Used(1, 3000, 0, 100)}, ""),
        ({"d/flash": Used(1, 30_000, 0, 2500)}, "$0.012"),
        (
            {"d/flash": Used(1, 30_000, 0, 2500), "other/m": Used(1, 3000, 0, 100)},
            "$0.012 + 3.1k tokens without a price",
        ),
        ({"d/flash": Used(1, 30_000, 0, 2500), "local/m": Used(1, 3000, 0, 100)}, "$0.012"),
        ({"local/m": Used(1, 3000, 0, 100)}, "$0"),
        ({"local/m": Used(1, 3000, 0, 100), "d/cn": Used(1, 100_000, 0, 0)}, "0.20 CNY"),
        ({"d/flash": Used(1, 30_000, 0, 2500), "d/cn": Used(1, 100_000, 0, 0)}, "$0.012 + 0.20 CNY"),
    ],
)
def test_the_cost_so_far_says_what_is_not_in_it(routes: dict[str, Used], text: str) -> None:
    rates = {"d/flash": FLASH, "d/cn": YUAN, "local/m": FREE}
    assert cost_text(Spending(routes=routes), rates) == text


def test_the_table_has_a_row_for_each_model_and_a_total_for_several() -> None:
    one, two = Used(2, 30_000, 0, 2500), Used(1, 3000, 40, 60)
    assert usage_rows(Spending(), {}) == []
    assert usage_rows(Spending(routes={"other/m": two}), {"d/flash": FLASH}) == [
        ("model", "calls", "input", "cached", "output"),
        ("other/m", "1", "3,000", "40", "60"),
    ]
    assert usage_rows(Spending(routes={"d/flash": one, "other/m": two}), {"d/flash": FLASH}) == [
        ("model", "calls", "input", "cached", "output", "cost"),
        ("d/flash", "2", "30,000", "0", "2,500", "$0.012"),
        ("other/m", "1", "3,000", "40", "60", "no price"),
        ("total", "3", "33,000", "40", "2,560", "$0.012 + 3.1k tokens without a price"),
    ]


def test_prices_are_told_as_they_were_stated() -> None:
    assert price_text(FLASH.to_wire()) == "$0.3 in, $0.006 cached, $1.2 out per million tokens"
    assert price_text(YUAN.to_wire()) == "2 CNY in, 0.04 CNY cached, 8 CNY out per million tokens"
    assert price_text(FREE.to_wire()) == "costs nothing"


def test_what_a_context_holds_is_known_until_the_conversation_is_made_shorter() -> None:
    window = ("request/context", {"provider": "a", "model": "m", "contextWindow": 100})
    asked = [window, message(1, usage(10, 5)), END, message(2, usage(20, 6))]
    assert totals(asked)["context"] == {"window": 100, "used": 26}
    assert totals([*asked, ("compaction/end", {}), context("b/n")])["context"] == {"window": None, "used": 0}
    assert totals([*asked, ("compaction/end", {})])["routes"] == totals(asked)["routes"]
