"""Which services plugins would provide, as far as their code tells: what the loader names in its advice."""

from __future__ import annotations

import sys
from collections.abc import Collection


class PluginOffers:
    """Told to the loader as `pluginOffers`. Reads code and imports plugins only where something waits or fails."""

    def plugins_for(self, service: str) -> list[str]:
        """The names of built-in plugins that would provide a service. Imports them all."""
        from .known_plugins import providers_of

        return providers_of(service)

    def of(self, module: str | None) -> Collection[str]:
        """The services that the code of an imported module provides."""
        from .service_graph import provided_names

        return provided_names(sys.modules.get(module or ""))[0]
