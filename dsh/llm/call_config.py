"""The scalars of a model call: which model, and how it is asked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dsh.cordis.records import record


@record
class CallConfig:
    """Route and options of a call. Two configs are equal field by field; an absent ``stop`` is not an empty one."""

    provider: str
    model: str
    reasoning_effort: str | None = None
    temperature: float | None = None
    max_tokens: int | None = None
    stop: tuple[str, ...] | None = None

    def to_wire(self) -> dict[str, Any]:
        """The camelCase form stored in a request header; absent options are left out."""
        wire = {
            "provider": self.provider,
            "model": self.model,
            "reasoningEffort": self.reasoning_effort,
            "temperature": self.temperature,
            "maxTokens": self.max_tokens,
            "stop": None if self.stop is None else list(self.stop),
        }
        return {key: value for key, value in wire.items() if value is not None}

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> CallConfig:
        """Read the form of `to_wire`. Raises ``KeyError`` without provider or model."""
        stop = wire.get("stop")
        return cls(
            provider=wire["provider"],
            model=wire["model"],
            reasoning_effort=wire.get("reasoningEffort"),
            temperature=wire.get("temperature"),
            max_tokens=wire.get("maxTokens"),
            stop=None if stop is None else tuple(stop),
        )
