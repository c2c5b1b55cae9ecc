"""The order in which a model is shown its tools."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING

from . import texts
from .prompt_render import PromptError

if TYPE_CHECKING:
    from dsh.llm.types import ToolSchema


def tool_order_problem(order: Sequence[str]) -> str | None:
    """What is wrong with a configured `toolOrder`, or None."""
    twice = next((name for index, name in enumerate(order) if name in order[:index]), None)
    if twice is not None:
        return texts.tool_order_twice(twice)
    return None if texts.REST in order else texts.TOOL_ORDER_REST


def order_tools(schemas: Iterable[ToolSchema], order: Sequence[str] | None, known: Collection[str]) -> list[ToolSchema]:
    """The tools by name, or as `order` lists them with the unlisted ones, by name, at its marker.

    `known` holds every name that may stand in `order`, restricted tools included. Raises `PromptError` for another one.
    """
    ordered = sorted(schemas, key=itemgetter("name"))
    if texts.REST in known or any(schema["name"] == texts.REST for schema in ordered):
        raise PromptError(texts.TOOL_ORDER_RESERVED)
    if order is None:
        return ordered
    if unknown := [name for name in order if name != texts.REST and name not in known]:
        raise PromptError(texts.tool_order_unknown(unknown, sorted(known)))
    by_name = {schema["name"]: schema for schema in ordered}
    rest = [schema for schema in ordered if schema["name"] not in order]
    arranged: list[ToolSchema] = []
    for name in order:
        if name == texts.REST:
            arranged.extend(rest)
        elif name in by_name:
            arranged.append(by_name[name])
    return arranged
