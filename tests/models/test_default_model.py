"""Which model answers for agents that name none."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from dsh.cordis import ConfigError, Context
from dsh.core.seams import AgentDefaultModel, Settings
from dsh.llm.service import Llm
from dsh.models import default_model
from dsh.settings.memory import MemorySettings
from tests.llm.helpers import FakeAdapter

CANDIDATES = {"candidates": [{"provider": "a", "model": "m1"}, {"provider": "b", "model": "m2"}]}


class Moody(FakeAdapter):
    """Usable when told so."""

    reason: str | None = "no key"

    def usable(self, provider: str) -> str | None:
        return self.reason


@asynccontextmanager
async def mounted(config: dict[str, Any], settings: dict[str, Any] | None = None) -> AsyncIterator[Any]:
    async with Context() as root:
        await root.plugin(Llm)
        if settings is not None:
            await root.plugin(MemorySettings, {"sections": settings})
        await root.plugin(default_model, config)
        await root.settle()
        yield root, root[AgentDefaultModel]


async def test_a_single_route_answers_without_any_check() -> None:
    async with mounted({"provider": "p", "model": "m"}) as (_, service):
        assert service.current_selection() == {"provider": "p", "model": "m"}
        await service.save_selection({"provider": "x", "model": "y"})  # nowhere to store it
        assert service.current_selection() == {"provider": "p", "model": "m"}


async def test_the_first_usable_candidate_wins_and_is_looked_up_each_time() -> None:
    async with mounted(CANDIDATES) as (root, service):
        # Nothing is usable: the first candidate, whose failure says what is missing.
        assert service.current_selection() == {"provider": "a", "model": "m1"}
        first = Moody()
        root[Llm].register_adapter(["a"], first)
        root[Llm].register_adapter(["b"], FakeAdapter())
        assert service.current_selection() == {"provider": "b", "model": "m2"}
        first.reason = None
        assert service.current_selection() == {"provider": "a", "model": "m1"}


async def test_the_users_choice_comes_first_and_saving_clears_an_old_effort() -> None:
    stored = {"agent-default-model": {"provider": "u", "model": "v", "reasoningEffort": "low"}}
    async with mounted(CANDIDATES, stored) as (root, service):
        assert service.current_selection() == {"provider": "u", "model": "v", "reasoningEffort": "low"}
        await service.save_selection({"provider": "n", "model": "o"})
        await root.settle()
        assert service.current_selection() == {"provider": "n", "model": "o"}
        await root[Settings].replace("agent-default-model", {})
        await root.settle()
        assert service.current_selection() == {"provider": "a", "model": "m1"}


async def test_a_route_is_the_base_of_the_section() -> None:
    async with mounted({"provider": "p", "model": "m"}, {"agent-default-model": {"model": "other"}}) as (_, service):
        assert service.current_selection() == {"provider": "p", "model": "other"}


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"provider": "p"},
        {"model": "m"},
        {"provider": "p", "model": "m", **CANDIDATES},
        {"candidates": [{"model": "m"}]},
    ],
)
async def test_an_incomplete_row_is_refused(config: dict[str, Any]) -> None:
    async with Context() as root:
        await root.plugin(Llm)
        with pytest.raises(ConfigError):
            await root.plugin(default_model, config)
