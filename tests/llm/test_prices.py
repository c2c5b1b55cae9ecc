"""Prices of models: what a row may state, and how what is wrong is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dsh.cordis import ConfigError
from dsh.llm.prices import Prices
from dsh.loader.yamlio import detach, parse_yaml
from dsh.models.deepseek.config import Config

RIGHT = {"input": 0.3, "cachedInput": 0.006, "output": 1.2}


def read(prices: Any) -> Config:
    return Config.validate({"models": [{"id": "m", "prices": prices}]}, where="row llm-deepseek")


def test_prices_are_numbers_for_a_million_tokens_in_dollars_unless_another_currency_is_named() -> None:
    stated = read(RIGHT).model("m").prices
    assert stated is not None and stated.to_wire() == {**RIGHT, "currency": "USD"}
    free = read({"input": 0, "cachedInput": 0, "output": 0, "currency": "CNY"}).model("m").prices
    assert free is not None and (free.input, free.currency) == (0, "CNY")
    assert read(None).model("m").prices is None


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"input": -0.1}, "models[0].prices.input: must be ≥ 0, got -0.1"),
        ({"input": "0.3"}, 'models[0].prices.input: must be a number, got "0.3" (remove the quotes)'),
        ({"output": float("nan")}, "models[0].prices.output: must be a number, got nan"),
        ({"output": float("inf")}, "models[0].prices.output: must be ≤ 1000000000, got inf"),
        ({"cachedInput": None}, "models[0].prices.cachedInput: required (a number)"),
        ({"cached_input": 1}, 'models[0].prices.cached_input: unknown key; did you mean "cachedInput"?'),
        ({"curency": "EUR"}, 'models[0].prices.curency: unknown key; did you mean "currency"?'),
        (
            {"currency": "$"},
            'models[0].prices.currency: must be a code of three capital letters, such as USD or CNY, got "$"',
        ),
    ],
)
def test_what_is_wrong_with_a_price_is_told_with_its_place(change: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read({**RIGHT, **change})
    assert str(refused.value) == f"row llm-deepseek: {said}"


def test_a_list_of_prices_is_told_what_to_write() -> None:
    with pytest.raises(ConfigError, match=r"models\[0\].prices: must be a mapping"):
        read([0.3])


def test_the_example_in_the_shipped_composition_can_be_uncommented() -> None:
    text = (Path(__file__).parents[2] / "cordis.yml").read_text("utf-8")
    example = text.partition("name: dsh-llm-deepseek\n")[2].partition("\n- id:")[0]
    lines = [line.removeprefix("  # ") for line in example.split("\n")]
    row: Any = detach(parse_yaml("\n".join(lines), file="cordis.yml"))
    config = Config.validate(row["config"], strict=True)
    assert config.model("deepseek-flash").prices == Prices(input=0.3, cached_input=0.006, output=1.2)
