"""Settings kept in memory: for embedders and tests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dsh.cordis import ConfigModel, Context, field
from dsh.cordis.jsonio import JsonObject
from dsh.settings.base import Apply, LayeredSettings


class MemorySettingsConfig(ConfigModel):
    """Settings in memory."""

    sections: dict[str, dict[str, Any]] = field(default_factory=dict, description="Sections to begin with")
    writable: bool = field(True, description="Whether writes are accepted")


class MemorySettings(LayeredSettings):
    """A document that lives as long as the service."""

    Config = MemorySettingsConfig

    def __init__(self, ctx: Context, config: MemorySettingsConfig) -> None:
        super().__init__(ctx, config)
        self.writable = config.writable
        self._document: dict[str, JsonObject] = dict(config.sections)

    async def load(self) -> Mapping[str, JsonObject]:
        """The sections of the config."""
        return self._document

    async def persist(self, ns: str, apply: Apply) -> JsonObject:
        """Keep the new section."""
        self._document[ns] = section = apply(self._document.get(ns, {}))
        return section

    async def put(self, document: Mapping[str, JsonObject]) -> None:
        """Replace the document as a foreign writer would."""

        async def take_over() -> None:
            self._document = dict(document)
            self.publish(self._document)

        await self.chain.run(take_over)
