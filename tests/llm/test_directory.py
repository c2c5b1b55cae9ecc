"""Providers that could be configured, and discovery of models."""

from __future__ import annotations

from typing import Any

import pytest

from dsh.cordis import Context
from dsh.llm.directory import DiscoveryQuery
from dsh.llm.failure import LlmError
from dsh.llm.service import AdaptersUpdated, Llm


def entry(provider: str, **more: Any) -> Any:
    return {"provider": provider, "displayName": provider.upper(), "settingsNs": "ns", "settingsPath": ["a"], **more}


async def test_entries_are_registered_replaced_and_withdrawn_whole() -> None:
    async with Context() as root:
        await root.plugin(Llm)
        llm, seen = root[Llm], []
        root.on(AdaptersUpdated, lambda event: seen.append([e["provider"] for e in llm.list_configurable_providers()]))
        handle = llm.register_configurable_providers([entry("a"), entry("b")])
        with pytest.raises(LlmError) as refused:
            llm.register_configurable_providers([entry("c"), entry("a")])
        assert refused.value.code == "DUPLICATE_DIRECTORY"
        for bad in (
            entry(""),
            entry("c", settingsPath="a"),
            entry("c", settingsPath=[""]),
            entry("c", displayName=None),
        ):
            with pytest.raises(LlmError) as refused:
                handle.replace([bad])
            assert refused.value.code == "INVALID_DIRECTORY"
        handle.replace([entry("b"), entry("c")])
        handle.dispose()
        with pytest.raises(LlmError) as refused:
            handle.replace([])
        assert refused.value.code == "REGISTRATION_DISPOSED"
        assert seen == [["a", "b"], ["b", "c"], []]


async def test_discovery_asks_once_a_namespace_and_drops_what_is_malformed() -> None:
    asked: list[DiscoveryQuery] = []

    async def discover(query: DiscoveryQuery) -> Any:
        asked.append(query)
        return [{"id": "m", "name": "M", "contextWindow": 5, "maxTokens": -1}, {"id": ""}, {"id": "m"}, 3, {"id": "n"}]

    async with Context() as root:
        await root.plugin(Llm)
        llm = root[Llm]
        undo = llm.register_model_discovery("ns", discover)
        for ns, code in (("ns", "DUPLICATE_DISCOVERY"), ("", "INVALID_DISCOVERY")):
            with pytest.raises(LlmError) as refused:
                llm.register_model_discovery(ns, discover)
            assert refused.value.code == code
        with pytest.raises(LlmError) as refused:
            await llm.discover_models("ns", DiscoveryQuery(api_key="k"))
        assert refused.value.code == "INVALID_DISCOVERY" and asked == []
        found = await llm.discover_models("ns", DiscoveryQuery(base_url="http://x"))
        assert found == [{"id": "m", "name": "M", "contextWindow": 5}, {"id": "n"}]
        undo()
        with pytest.raises(LlmError) as refused:
            await llm.discover_models("ns", DiscoveryQuery(provider="p"))
        assert refused.value.code == "NO_DISCOVERY"
