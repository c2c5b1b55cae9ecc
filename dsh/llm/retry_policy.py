"""When a failed model call is repeated: a provider's policy, part of that provider's configuration."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import Any, Literal

from dsh.cordis.issues import Keys, Walk
from dsh.cordis.jsonio import encode_str
from dsh.cordis.schema import ConfigModel, field

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


class ClosedConfig(ConfigModel):
    """A config that refuses unknown keys instead of warning: a misspelt limit or currency must not silently be the
    default."""

    @classmethod
    def __read_config__(cls, raw: Any, walk: Walk, keys: Keys) -> Any:
        inner = walk.fork()
        inner.strict = True
        value = super().__read_config__(raw, inner, keys)
        walk.join(inner)
        return value


class Backoff(ClosedConfig):
    """How long to wait: doubling from `initial_delay_ms` up to `max_delay_ms`, spread by `jitter_ratio`."""

    initial_delay_ms: float = field(500, max=MAX_DELAY_MS, unit="ms", description="Wait before the first retry")
    max_delay_ms: float = field(10_000, max=MAX_DELAY_MS, unit="ms", description="Longest wait")
    jitter_ratio: float = field(0.1, min=0, max=1, description="Share by which a wait varies in both directions")

    def cross_check(self) -> Iterable[tuple[str, str]]:
        if self.initial_delay_ms <= 0:
            yield "initialDelayMs", "must be above 0 ms"
        if self.initial_delay_ms > self.max_delay_ms:
            yield "initialDelayMs", "must not exceed maxDelayMs"


class RetryPolicy(ClosedConfig):
    """How often and how fast a failed call is repeated.

    ``normal`` repeats the listed failure codes up to `max_retries` times; ``always`` repeats everything without end and
    ignores the keys that only ``normal`` knows.
    """

    mode: Literal["normal", "always"] = field("normal", description="normal: listed codes, a budget; always: no end")
    max_retries: int = field(5, min=0, description="Retries of one call (normal)")
    retryable_codes: list[str] = field(
        default_factory=lambda: list(DEFAULT_RETRYABLE_CODES), description="Failure codes worth repeating (normal)"
    )
    backoff: Backoff

    def cross_check(self) -> Iterable[tuple[str, str]]:
        if not all(self.retryable_codes):
            yield "retryableCodes", "must not hold an empty code"
        if len(set(self.retryable_codes)) != len(self.retryable_codes):
            yield "retryableCodes", "must not repeat a code"

    def to_wire(self, *, redact: bool = False) -> dict[str, Any]:
        wire = super().to_wire(redact=redact)
        return {key: wire[key] for key in ("mode", "backoff")} if self.mode == "always" else wire

    def key(self) -> str:
        """A text equal for equal policies: retries are counted per policy, also after a restart."""
        backoff = self.backoff
        numbers = [_number(n) for n in (backoff.initial_delay_ms, backoff.max_delay_ms, backoff.jitter_ratio)]
        if self.mode == "always":
            return encode_str(["always", *numbers])
        return encode_str(["normal", self.max_retries, sorted(self.retryable_codes), *numbers])

    def delay_ms(self, retry: int, rand: Callable[[], float] = random.random) -> float:
        """The own wait before retry number `retry` (1, 2, …), in milliseconds; `rand` yields 0..1."""
        initial, longest, jitter = self.backoff.initial_delay_ms, self.backoff.max_delay_ms, self.backoff.jitter_ratio
        base = min(initial * 2.0 ** min(retry - 1, 64), longest)
        return min(base * (1 - jitter + 2 * jitter * rand()), longest)


def _number(value: float) -> int | float:
    """A whole float as the integer that JavaScript would print."""
    return int(value) if value == int(value) else value
