"""When a failed model call is repeated: a provider's policy, part of that provider's configuration."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from dsh.cordis.jsonio import encode_str

DEFAULT_RETRYABLE_CODES = (
    "EMPTY_RESPONSE",
    "RATE_LIMIT",
    "SERVER",
    "TIMEOUT",
    "TRANSPORT",
    "STREAM_CLOSED",
    "INSUFFICIENT_SYSTEM_RESOURCE",
)
MAX_DELAY_MS = 2_147_483_647
_BACKOFF_KEYS = ("initialDelayMs", "maxDelayMs", "jitterRatio")


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often and how fast a failed call is repeated.

    ``normal`` repeats the listed failure codes up to `max_retries` times; ``always`` repeats everything without end.
    Delays are milliseconds; `jitter_ratio` (0..1) spreads each delay by that share in both directions.
    """

    mode: Literal["normal", "always"] = "normal"
    max_retries: int = 5
    retryable_codes: tuple[str, ...] = DEFAULT_RETRYABLE_CODES
    initial_delay_ms: float = 500
    max_delay_ms: float = 10_000
    jitter_ratio: float = 0.1

    @classmethod
    def parse(cls, raw: Mapping[str, Any] | None) -> RetryPolicy:
        """Read ``retryPolicy`` of a configuration; None is the default policy.

        Raises ``ValueError`` naming the key and what would be right. Mode ``always`` ignores the keys that only
        ``normal`` knows.
        """
        if raw is None:
            return cls()
        if not isinstance(raw, Mapping):
            raise ValueError("retryPolicy must be a mapping")
        _refuse_unknown(raw, ("mode", "maxRetries", "retryableCodes", "backoff"), "retryPolicy")
        mode = raw.get("mode", "normal")
        if mode not in ("normal", "always"):
            raise ValueError('retryPolicy.mode must be "normal" or "always"')
        initial, longest, jitter = _backoff(raw.get("backoff"))
        if mode == "always":
            return cls(mode="always", initial_delay_ms=initial, max_delay_ms=longest, jitter_ratio=jitter)
        budget = raw.get("maxRetries", cls().max_retries)
        if type(budget) is not int or budget < 0:
            raise ValueError("retryPolicy.maxRetries must be an integer of 0 or more")
        codes = raw.get("retryableCodes", DEFAULT_RETRYABLE_CODES)
        if not isinstance(codes, list | tuple) or not all(isinstance(code, str) and code for code in codes):
            raise ValueError("retryPolicy.retryableCodes must be a list of non-empty failure codes")
        if len(set(codes)) != len(codes):
            raise ValueError("retryPolicy.retryableCodes must not repeat a code")
        return cls("normal", budget, tuple(codes), initial, longest, jitter)

    def to_wire(self) -> dict[str, Any]:
        """The camelCase form, as it would stand in a configuration."""
        backoff = {
            "initialDelayMs": self.initial_delay_ms,
            "maxDelayMs": self.max_delay_ms,
            "jitterRatio": self.jitter_ratio,
        }
        if self.mode == "always":
            return {"mode": "always", "backoff": backoff}
        return {
            "mode": "normal",
            "maxRetries": self.max_retries,
            "retryableCodes": list(self.retryable_codes),
            "backoff": backoff,
        }

    @property
    def key(self) -> str:
        """A text equal for equal policies: retries are counted per policy, also after a restart."""
        backoff = [_number(self.initial_delay_ms), _number(self.max_delay_ms), _number(self.jitter_ratio)]
        if self.mode == "always":
            return encode_str(["always", *backoff])
        return encode_str(["normal", self.max_retries, sorted(self.retryable_codes), *backoff])

    def delay_ms(self, retry: int, rand: Callable[[], float] = random.random) -> float:
        """The own wait before retry number `retry` (1, 2, …), in milliseconds; `rand` yields 0..1."""
        base = min(self.initial_delay_ms * 2.0 ** min(retry - 1, 64), self.max_delay_ms)
        spread = 1 - self.jitter_ratio + 2 * self.jitter_ratio * rand()
        return min(base * spread, self.max_delay_ms)


def _backoff(raw: object) -> tuple[float, float, float]:
    if raw is None:
        raw = {}
    if not isinstance(raw, Mapping):
        raise ValueError("retryPolicy.backoff must be a mapping")
    _refuse_unknown(raw, _BACKOFF_KEYS, "retryPolicy.backoff")
    defaults = RetryPolicy()
    initial = _finite(raw.get("initialDelayMs", defaults.initial_delay_ms), "initialDelayMs")
    longest = _finite(raw.get("maxDelayMs", defaults.max_delay_ms), "maxDelayMs")
    jitter = _finite(raw.get("jitterRatio", defaults.jitter_ratio), "jitterRatio")
    if initial <= 0 or longest > MAX_DELAY_MS:
        raise ValueError(f"retryPolicy.backoff delays must be above 0 and at most {MAX_DELAY_MS} ms")
    if initial > longest:
        raise ValueError("retryPolicy.backoff.initialDelayMs must not exceed maxDelayMs")
    if not 0 <= jitter <= 1:
        raise ValueError("retryPolicy.backoff.jitterRatio must be between 0 and 1")
    return initial, longest, jitter


def _finite(value: object, key: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"retryPolicy.backoff.{key} must be a finite number")
    return value


def _refuse_unknown(raw: Mapping[str, Any], known: tuple[str, ...], where: str) -> None:
    unknown = [key for key in raw if key not in known]
    if unknown:
        raise ValueError(f"{where} has no key {', '.join(map(repr, unknown))}; it takes {', '.join(known)}")


def _number(value: float) -> int | float:
    """A whole float as the integer that JavaScript would print."""
    return int(value) if value == int(value) else value
