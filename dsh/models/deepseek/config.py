"""Configuration of the DeepSeek route: a row's config and the user's settings section ``llm-deepseek`` alike."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Literal, get_args
from urllib.parse import urlsplit

from dsh.cordis import ConfigModel, field
from dsh.cordis.fields import CREDENTIAL_NAME
from dsh.llm.prices import Prices
from dsh.llm.retry_policy import MAX_DELAY_MS, RetryPolicy

OFFICIAL_URL = "https://api.deepseek.com"
EFFORTS = ("off", "low", "high", "max")
OptionalField = Literal["stream_options", "thinking", "reasoning_effort", "temperature", "max_tokens", "stop"]
OPTIONAL_FIELDS: tuple[str, ...] = get_args(OptionalField)
"""Fields of a request that a compatible server may not know and that can be left out."""


class ModelEntry(ConfigModel):
    """One model of the catalog."""

    id: str = field(min=1, description="Model id as the service knows it")
    name: str | None = field(None, min=1, description="Display name; the id when left out")
    description: str | None = field(None, description="One line for people")
    context_window: int | None = field(None, min=1, unit="tokens", description="Window; defaultContextWindow if absent")
    max_tokens: int | None = field(None, min=1, unit="tokens", description="Output cap of this model")
    input_modalities: list[str] = field(default_factory=lambda: ["text"], description="What the model reads")
    prices: Prices | None = field(None, description="What a million of its tokens cost; no cost is shown without")


class Config(ConfigModel):
    """DeepSeek's chat-completions service. Every key applies to the next request; running streams keep theirs."""

    api_key_env: str = field(
        "DEEPSEEK_API_KEY",
        pattern=r"^[A-Za-z_][A-Za-z0-9_]*$",
        live=True,
        role=CREDENTIAL_NAME,
        description="Name of the credential that holds the key; never the key itself",
    )
    base_url: str | None = field(
        None, key="baseURL", live=True, description="Endpoint; $DEEPSEEK_BASE_URL, else the official service"
    )
    send_user_id: Literal["official", "always"] = field(
        "official", live=True, description="Whom the anonymous installation id is sent to"
    )
    thinking: Literal["enabled", "disabled"] | None = field(
        None, live=True, description="disabled: lock reasoning off for every request"
    )
    reasoning_effort: Literal["off", "low", "high", "max"] | None = field(
        None, live=True, description="Effort when a request names none: high unless thinking is disabled"
    )
    max_tokens: int = field(256_000, min=1, live=True, unit="tokens", description="Output cap when nothing else says")
    default_context_window: int = field(
        1_000_000, min=1, live=True, unit="tokens", description="Window of models that state none"
    )
    models: list[ModelEntry] | None = field(None, live=True, description="Replaces the built-in catalog; [] is none")
    omit_fields: list[OptionalField] = field(
        default_factory=list, live=True, description="Request fields that a compatible server refuses"
    )
    stream_idle_timeout_ms: float = field(
        300_000, max=MAX_DELAY_MS, live=True, unit="ms", description="Longest silence within a stream"
    )
    stream_progress_timeout_ms: float = field(
        900_000,
        max=MAX_DELAY_MS,
        live=True,
        unit="ms",
        description="Longest wait for a piece of the reply, pings or not",
    )
    connect_timeout_ms: float = field(
        30_000, max=MAX_DELAY_MS, live=True, unit="ms", description="Longest wait for a connection"
    )
    retry_policy: RetryPolicy = field(default_factory=RetryPolicy, live=True, description="How failed calls repeat")

    def cross_check(self) -> Iterable[tuple[str, str]]:
        for key, value in (
            ("streamIdleTimeoutMs", self.stream_idle_timeout_ms),
            ("streamProgressTimeoutMs", self.stream_progress_timeout_ms),
            ("connectTimeoutMs", self.connect_timeout_ms),
        ):
            if value <= 0:
                yield key, "must be above 0 ms"
        if self.base_url is not None and not is_http_url(self.base_url):
            yield "baseURL", "must be an http:// or https:// URL"
        if self.thinking == "disabled" and self.reasoning_effort not in (None, "off"):
            yield "reasoningEffort", 'must be "off" while thinking is disabled'
        ids = [model.id for model in self.models or ()]
        for index, model_id in enumerate(ids):
            if model_id in ids[:index]:
                yield f"models[{index}].id", f'stands twice: "{model_id}"'

    @property
    def effort(self) -> str:
        """The reasoning effort of a request that names none."""
        return self.reasoning_effort or ("off" if self.thinking == "disabled" else "high")

    @property
    def catalog(self) -> Sequence[ModelEntry]:
        """The models to offer, in order."""
        return built_in_catalog() if self.models is None else self.models

    def model(self, model_id: str) -> ModelEntry:
        """The entry of a model; an unlisted id passes through as a text model."""
        known = next((entry for entry in self.catalog if entry.id == model_id), None)
        return known or ModelEntry(id=model_id)


@cache
def built_in_catalog() -> tuple[ModelEntry, ...]:
    """What the service offers. The two flash names of v4 are kept as aliases of ``deepseek-flash``."""
    names = {
        "deepseek-v4-flash": "DeepSeek V4 Flash",
        "deepseek-v4-pro": "DeepSeek V4 Pro",
        "deepseek-v4-flash-vision-exp": "DeepSeek V4 Flash Vision (experimental)",
        "deepseek-flash": "DeepSeek Flash",
    }
    return tuple(ModelEntry(id=model_id, name=name, context_window=1_000_000) for model_id, name in names.items())


def is_http_url(url: str) -> bool:
    """Whether `url` names an HTTP host."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname)
