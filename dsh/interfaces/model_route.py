"""Which model an agent talks to."""

from __future__ import annotations

from dsh.cordis import Context
from dsh.core.agent import AgentOptions
from dsh.core.seams import AgentDefaultModel


def route_of(ctx: Context, options: AgentOptions) -> tuple[str, str] | None:
    """Provider and model of an agent with these options, at this moment."""
    if options.provider is not None and options.model is not None:
        return options.provider, options.model
    default = ctx.get(AgentDefaultModel)
    selection = None if default is None else default.current_selection()
    return None if selection is None else (selection["provider"], selection["model"])
