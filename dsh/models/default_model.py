"""The row ``agent-default-model``: the model of every agent that names none.

Either one route, or candidates in order of preference: the first whose provider is usable now answers, so that one
composition works with a key, with a local model, or with nothing. The user's section of the same name comes first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from dsh.cordis import ConfigModel, Context, field
from dsh.core.seams import AgentDefaultModel, Settings, install_settings_section
from dsh.llm.service import Llm

SECTION = "agent-default-model"


class Candidate(ConfigModel):
    """One route worth trying."""

    provider: str = field(min=1, description="Provider name")
    model: str = field(min=1, description="Model id")


class Selection(ConfigModel):
    """The settings section: a user's choice over the row's."""

    provider: str | None = field(None, min=1, description="Provider name")
    model: str | None = field(None, min=1, description="Model id")
    reasoning_effort: str | None = field(None, min=1, description="Effort to ask for; the provider's default if absent")

    def cross_check(self) -> Iterable[tuple[str, str]]:
        if (self.provider is None) != (self.model is None):
            yield "model" if self.model is None else "provider", "provider and model go together"

    def route(self) -> dict[str, Any] | None:
        """The choice as a selection, or None when nothing is chosen."""
        if self.provider is None or self.model is None:
            return None
        route: dict[str, Any] = {"provider": self.provider, "model": self.model}
        if self.reasoning_effort is not None:
            route["reasoningEffort"] = self.reasoning_effort
        return route


class DefaultModelConfig(ConfigModel):
    """One route (`provider`, `model`) or several `candidates`."""

    provider: str | None = field(None, min=1, description="Provider name")
    model: str | None = field(None, min=1, description="Model id")
    candidates: list[Candidate] = field(default_factory=list, description="Routes in order; the first usable one wins")

    def cross_check(self) -> Iterable[tuple[str, str]]:
        if self.candidates and (self.provider is not None or self.model is not None):
            yield "candidates", "give either provider and model or candidates"
        elif not self.candidates:
            for key, value in (("provider", self.provider), ("model", self.model)):
                if value is None:
                    yield key, "required unless candidates are given"


class DefaultModel(AgentDefaultModel):
    """Answers what the next turn of an agent without a route should use."""

    Config = DefaultModelConfig

    def __init__(self, ctx: Context, config: DefaultModelConfig, llm: Llm) -> None:
        super().__init__(ctx)
        self._llm = llm
        self._candidates = config.candidates
        base = Selection(provider=config.provider, model=config.model)
        self._section = install_settings_section(ctx, SECTION, Selection, base)

    def current_selection(self) -> Mapping[str, Any] | None:
        """The route in force now. Without any usable candidate the first one: its failure says what is missing."""
        chosen = self._section.get().route()
        if chosen is not None:
            return chosen
        routes = [(candidate.provider, candidate.model) for candidate in self._candidates]
        usable = (route for route in routes if self._llm.usable(route[0]) is None)
        provider, model = next(usable, routes[0])
        return {"provider": provider, "model": model}

    async def save_selection(self, selection: Mapping[str, Any]) -> None:
        """Make ``{provider, model, reasoningEffort?}`` the user's choice; an old effort does not survive.

        Does nothing without a settings service. Raises what the service raises for a refused write.
        """
        settings = self.ctx.get(Settings)
        if settings is not None:
            kept = {key: selection[key] for key in ("provider", "model", "reasoningEffort") if selection.get(key)}
            await settings.replace(SECTION, kept)
