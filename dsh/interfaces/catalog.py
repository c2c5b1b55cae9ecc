"""The model routes of a running composition: which there are, what is missing for their use, which is the default."""

from __future__ import annotations

import asyncio
from typing import Any

from dsh.cordis import Context, describe_error
from dsh.core.seams import AgentDefaultModel
from dsh.llm.adapter import ModelInfo
from dsh.llm.service import Llm

CATALOG_SECONDS = 10.0


async def catalog(ctx: Context, llm: Llm) -> dict[str, Any]:
    """`{providers: [{id, name, unusable, models, error?}], default}`: `unusable` is None or the reason; a model whose
    price is stated has `prices`."""
    rates = llm.prices()

    def priced(model: ModelInfo) -> dict[str, Any]:
        stated = rates.get(f"{model['provider']}/{model['id']}")
        return {**model} if stated is None else {**model, "prices": stated.to_wire()}

    async def models_of(provider: str) -> dict[str, Any]:
        try:
            async with asyncio.timeout(CATALOG_SECONDS):
                return {"models": [priced(model) for model in await llm.list_models(provider)]}
        except TimeoutError:
            return {"models": [], "error": f"no answer within {CATALOG_SECONDS:g} s"}
        except Exception as error:
            return {"models": [], "error": describe_error(error)}

    infos = llm.list_providers()
    found = await asyncio.gather(*(models_of(info["id"]) for info in infos))
    providers = [
        {"id": info["id"], "name": info["name"], "unusable": llm.usable(info["id"]), **models}
        for info, models in zip(infos, found, strict=True)
    ]
    selection = None if (default := ctx.get(AgentDefaultModel)) is None else default.current_selection()
    return {"providers": providers, "default": None if selection is None else dict(selection)}
