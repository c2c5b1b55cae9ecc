"""Which model a session talks to, and which others it could."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dsh.cordis import Context, HarnessError
from dsh.core.agent import AgentOptions
from dsh.interfaces.model_route import route_of
from dsh.llm.service import Llm

from .checks import invalid_params

OPTION = "model"
"""Id of the configuration option that stands for the model."""


async def model_state(ctx: Context, llm: Llm, options: AgentOptions) -> dict[str, Any]:
    """The fields of an opened session about its model, in both forms clients know; none without a route."""
    route = route_of(ctx, options)
    if route is None:
        return {}
    current = "/".join(route)
    names = await _routed_models(llm)
    names.setdefault(current, route[1])
    available = [{"modelId": model_id, "name": name} for model_id, name in names.items()]
    return {
        "models": {"currentModelId": current, "availableModels": available},
        "configOptions": [_option(current, names)],
    }


def chosen_route(llm: Llm, model_id: str, options: AgentOptions) -> AgentOptions:
    """``options`` with the route that ``model_id`` names; the model need not be in a catalog."""
    provider, _, model = model_id.partition("/")
    reason = llm.usable(provider) if provider and model else "expected PROVIDER/MODEL"
    if reason is not None:
        raise invalid_params(f"model {model_id} cannot be used: {reason}")
    return AgentOptions(provider, model, options.max_tokens)


async def _routed_models(llm: Llm) -> dict[str, str]:
    """Every model of every usable provider: ``provider/model`` to its name."""
    names: dict[str, str] = {}
    for provider in llm.list_providers():
        if llm.usable(provider["id"]) is not None:
            continue
        try:
            models = await llm.list_models(provider["id"])
        except HarnessError:  # a catalog is advice
            continue
        for model in models:
            names[f"{provider['id']}/{model['id']}"] = f"{provider['name']}: {model['name']}"
    return names


def _option(current: str, names: Mapping[str, str]) -> dict[str, Any]:
    return {
        "id": OPTION,
        "name": "Model",
        "category": "model",
        "type": "select",
        "currentValue": current,
        "options": [{"value": model_id, "name": name} for model_id, name in names.items()],
    }
