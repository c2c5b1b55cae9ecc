"""Reading retry policies and computing waits."""

from __future__ import annotations

from typing import Any

import pytest

from dsh.cordis import ConfigError
from dsh.llm.retry_policy import DEFAULT_RETRYABLE_CODES, RetryPolicy


def test_the_default_policy() -> None:
    policy = RetryPolicy.validate(None)
    assert policy == RetryPolicy()
    assert policy.to_wire() == {
        "mode": "normal",
        "maxRetries": 5,
        "retryableCodes": list(DEFAULT_RETRYABLE_CODES),
        "backoff": {"initialDelayMs": 500, "maxDelayMs": 10_000, "jitterRatio": 0.1},
    }


@pytest.mark.parametrize(
    "raw",
    [
        {"maxRetry": 3},
        {"backoff": {"initial": 3}},
        {"mode": "sometimes"},
        {"maxRetries": -1},
        {"maxRetries": True},
        {"retryableCodes": ["A", "A"]},
        {"retryableCodes": [""]},
        {"backoff": {"initialDelayMs": 0}},
        {"backoff": {"initialDelayMs": 20, "maxDelayMs": 10}},
        {"backoff": {"maxDelayMs": 2_147_483_648}},
        {"backoff": {"jitterRatio": 1.1}},
    ],
)
def test_a_wrong_policy_is_refused(raw: Any) -> None:
    with pytest.raises(ConfigError):
        RetryPolicy.validate(raw)


def test_always_ignores_what_only_normal_knows() -> None:
    policy = RetryPolicy.validate({"mode": "always", "maxRetries": 3, "backoff": {"jitterRatio": 0}})
    assert policy.key() == '["always",500,10000,0]'
    assert "maxRetries" not in policy.to_wire()


def test_b49a_the_key_sorts_codes_and_prints_numbers_like_javascript() -> None:
    raw = {"maxRetries": 1, "retryableCodes": ["B", "A"], "backoff": {"initialDelayMs": 1.0, "maxDelayMs": 2.5}}
    assert RetryPolicy.validate(raw).key() == '["normal",1,["A","B"],1,2.5,0.1]'


def test_b45a_delays_double_up_to_the_limit_and_jitter_spreads_them() -> None:
    exact = RetryPolicy.validate({"backoff": {"initialDelayMs": 100, "maxDelayMs": 1000, "jitterRatio": 0}})
    assert [exact.delay_ms(retry) for retry in (1, 2, 3, 4, 5, 5000)] == [100, 200, 400, 800, 1000, 1000]
    spread = RetryPolicy.validate({"backoff": {"initialDelayMs": 100, "maxDelayMs": 1000, "jitterRatio": 1}})
    assert spread.delay_ms(1, lambda: 0.0) == 0
    assert spread.delay_ms(1, lambda: 1.0) == 200
    assert spread.delay_ms(5, lambda: 1.0) == 1000
