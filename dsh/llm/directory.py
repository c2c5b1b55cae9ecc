"""What could be configured: providers a person may set up, and asking a draft endpoint for its models.

A front end reads this to offer providers that do not run yet; nothing here takes part in a call.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NotRequired, TypedDict

from dsh.cordis.records import record
from dsh.llm.failure import LlmError

if TYPE_CHECKING:
    from dsh.cordis import AbortSignal


class ConfigurableProvider(TypedDict):
    """A provider that could run: `settingsPath` leads to its place in the settings section `settingsNs`."""

    provider: str
    displayName: str
    settingsNs: str
    settingsPath: Sequence[str]
    declared: NotRequired[bool]


class DiscoveredModel(TypedDict):
    """A model an endpoint says it has."""

    id: str
    name: NotRequired[str]
    contextWindow: NotRequired[int]
    maxTokens: NotRequired[int]


@record
class DiscoveryQuery:
    """A draft endpoint to ask: a known `provider`, a `base_url`, or both."""

    provider: str | None = None
    base_url: str | None = None
    api: str | None = None
    api_key: str | None = None
    signal: AbortSignal | None = None


Discovery = Callable[[DiscoveryQuery], Awaitable[Sequence[Mapping[str, Any]]]]


class Directory:
    """Entries by owner and discovery functions by settings namespace. `changed` is called after every commit."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self._entries: dict[object, tuple[ConfigurableProvider, ...]] = {}
        self._discoveries: dict[str, Discovery] = {}

    def entries(self) -> list[ConfigurableProvider]:
        """All entries, in registration order, detached."""
        return [{**entry} for owned in self._entries.values() for entry in owned]

    def put(self, owner: object, entries: Sequence[ConfigurableProvider]) -> None:
        """Make `entries` all that `owner` offers, in one step.

        Raises ``INVALID_DIRECTORY`` for a malformed entry, ``DUPLICATE_DIRECTORY`` for a provider offered twice.
        """
        taken = {entry["provider"] for other, owned in self._entries.items() if other is not owner for entry in owned}
        checked: list[ConfigurableProvider] = []
        for entry in entries:
            texts = [entry.get(key) for key in ("provider", "displayName", "settingsNs")]
            path = entry.get("settingsPath")
            sound = all(isinstance(text, str) and text for text in texts) and isinstance(path, list | tuple)
            if not sound or not all(isinstance(key, str) and key for key in path or ()):
                raise LlmError.of("INVALID_DIRECTORY", f"malformed directory entry of provider {texts[0]!r}")
            if entry["provider"] in taken:
                raise LlmError.of("DUPLICATE_DIRECTORY", f'provider "{entry["provider"]}" is already in the directory')
            taken.add(entry["provider"])
            checked.append({**entry, "settingsPath": list(entry["settingsPath"])})
        self._entries[owner] = tuple(checked)
        self._changed()

    def remove(self, owner: object) -> None:
        """Take out what `owner` offers."""
        if self._entries.pop(owner, None) is not None:
            self._changed()

    def add_discovery(self, ns: str, discovery: Discovery) -> Callable[[], None]:
        """Answer for namespace `ns`; returns the undo. Raises ``INVALID_DISCOVERY``, ``DUPLICATE_DISCOVERY``."""
        if not ns:
            raise LlmError.of("INVALID_DISCOVERY", "a model discovery needs a settings namespace")
        if ns in self._discoveries:
            raise LlmError.of("DUPLICATE_DISCOVERY", f'model discovery for "{ns}" is already registered')
        self._discoveries[ns] = discovery

        def undo() -> None:
            if self._discoveries.get(ns) is discovery:
                del self._discoveries[ns]

        return undo

    async def discover(self, ns: str, query: DiscoveryQuery) -> list[DiscoveredModel]:
        """The models of a draft endpoint; malformed and repeated entries are dropped, nothing is stored.

        Raises ``NO_DISCOVERY``, ``INVALID_DISCOVERY`` without provider and URL, and what the asked function raises.
        """
        discovery = self._discoveries.get(ns)
        if discovery is None:
            raise LlmError.of("NO_DISCOVERY", f'nobody can discover models for "{ns}"')
        if not query.provider and not query.base_url:
            raise LlmError.of("INVALID_DISCOVERY", "discovering models needs a provider or a base URL")
        models: dict[str, DiscoveredModel] = {}
        for found in await discovery(query):
            model_id = found.get("id") if isinstance(found, Mapping) else None
            if not isinstance(model_id, str) or not model_id or model_id in models:
                continue
            model: DiscoveredModel = {"id": model_id}
            if isinstance(found.get("name"), str) and found["name"]:
                model["name"] = found["name"]
            if type(found.get("contextWindow")) is int and found["contextWindow"] > 0:
                model["contextWindow"] = found["contextWindow"]
            if type(found.get("maxTokens")) is int and found["maxTokens"] > 0:
                model["maxTokens"] = found["maxTokens"]
            models[model_id] = model
        return list(models.values())
