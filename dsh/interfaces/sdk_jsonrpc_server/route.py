"""What a client initialized: the workspace of new sessions and the model they ask."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

from dsh.cordis import HarnessError
from dsh.cordis.records import record
from dsh.core.agent import MAX_SAFE_INTEGER, AgentOptions
from dsh.llm.call_config import CallConfig
from dsh.llm.service import Llm
from dsh.loader.environment import launch_environment_of

from ..params import Params, invalid, optional_text, text

if TYPE_CHECKING:
    from dsh.cordis import Context

OFFICIAL: Final = "deepseek-official"
"""The provider that the runtime brings along when the composition does not."""


@record
class Route:
    """Values of ``initialize``; sessions opened later use the latest."""

    cwd: str
    provider: str
    model: str
    reasoning_effort: str | None = None
    max_tokens: int | None = None

    def options(self) -> AgentOptions:
        """The route as agents take it."""
        return AgentOptions(self.provider, self.model, self.max_tokens)

    def with_effort(self, config: CallConfig) -> CallConfig:
        """The call with the effort asked for, if it goes to the model that this was asked of."""
        if self.reasoning_effort is None or (config.provider, config.model) != (self.provider, self.model):
            return config
        return CallConfig.from_wire({**config.to_wire(), "reasoningEffort": self.reasoning_effort})


def read_route(ctx: Context, params: Params) -> Route:
    """The values of an ``initialize`` request. Raises ``HarnessError`` naming the one that cannot be used."""
    method = "initialize"
    cwd = optional_text(params, method, "cwd") or default_cwd(ctx)
    max_tokens: Any = params.get("maxTokens")
    if max_tokens is not None and not (type(max_tokens) is int and 1 <= max_tokens <= MAX_SAFE_INTEGER):
        raise invalid("initialize maxTokens must be a positive safe integer")
    return Route(
        os.path.abspath(os.path.join(default_cwd(ctx), cwd)),
        text(params, method, "provider"),
        text(params, method, "model"),
        optional_text(params, method, "reasoningEffort"),
        max_tokens,
    )


def default_cwd(ctx: Context) -> str:
    """The workspace of a client that names none: ``$DSH_CWD``, else where the process runs."""
    return os.path.abspath(launch_environment_of(ctx).values.get("DSH_CWD") or os.getcwd())


async def check_route(ctx: Context, route: Route) -> None:
    """Make sure that the model can be asked; mounts the official provider's adapter if nobody has.

    Raises ``HarnessError`` for an unknown provider, and what its adapter says about the model and the effort.
    """
    llm = ctx.get(Llm)
    if llm is None:
        raise HarnessError("the composition has no model service (row llm)", code="NO_LLM")
    if not _is_served(llm, route.provider) and route.provider == OFFICIAL:
        await _mount_official(ctx)
    await llm.resolve_call_config(CallConfig(route.provider, route.model, route.reasoning_effort))


def _is_served(llm: Llm, provider: str) -> bool:
    return any(info["id"] == provider for info in llm.list_providers())


async def _mount_official(ctx: Context) -> None:
    from dsh.models import deepseek

    fiber = ctx.plugin(deepseek, {})
    try:
        await fiber
    except BaseException:
        await fiber.dispose()
        raise
