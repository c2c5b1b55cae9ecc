"""Values as lines of YAML: on one line, or as a block indented to where it shall stand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from .yamlio import DialectDumper, dump_yaml

STEP = 2
"""Columns by which a block is indented below what it belongs to."""


class _FlowDumper(DialectDumper):
    """Everything on one line: text with line breaks is quoted."""


def _represent_line(dumper: DialectDumper, value: str) -> yaml.Node:
    style = '"' if any(mark in value for mark in "\n\x85\u2028\u2029") else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", str(value), style=style)


_FlowDumper.add_representer(str, _represent_line)
_FlowDumper.add_multi_representer(str, _represent_line)


def render_flow(value: Any, *, inside: bool = False) -> str:
    """`value` on one line; with `inside` fit to stand in a flow collection, where fewer texts go without quotes."""
    text = yaml.dump(
        [plain_value(value)] if inside else plain_value(value),
        Dumper=_FlowDumper,
        default_flow_style=True,
        width=float("inf"),
        allow_unicode=True,
        sort_keys=False,
    )
    line = str(text).removesuffix("...\n").strip("\n")
    return line[1:-1] if inside else line


def render_entry(head: str, value: Any, indent: int) -> list[str]:
    """The lines of `head` (a key with its colon, a dash) followed by `value`, inside a collection at `indent`."""
    if is_block(value):
        return [head, *render_block(value, indent + STEP)]
    if is_literal(value):
        style, *lines = dump_yaml(value).removesuffix("\n").split("\n")
        pad = " " * indent
        return [f"{head} {style}", *(pad + line if line else line for line in lines)]
    return [f"{head} {render_flow(value)}"]


def render_block(value: Any, indent: int) -> list[str]:
    """The lines of a non-empty mapping or list in block style, indented by `indent` spaces."""
    pad = " " * indent
    lines: list[str] = []
    if isinstance(value, Mapping):
        for key, item in value.items():
            lines.extend(render_entry(f"{pad}{render_flow(str(key))}:", item, indent))
        return lines
    for item in value:
        entry = render_entry(f"{pad}-", item, indent)
        if is_block(item):  # the first line of the item stands behind its dash
            entry[:2] = [f"{pad}- {entry[1][indent + STEP :]}"]
        lines.extend(entry)
    return lines


def is_block(value: Any) -> bool:
    """Whether the value is written over several lines: a mapping or list with something in it."""
    return isinstance(value, (Mapping, list, tuple)) and len(value) > 0


def is_literal(value: Any) -> bool:
    """Whether the text is written over several lines. One that ends in a line break would need a final line break."""
    return isinstance(value, str) and "\n" in value[:-1] and value[-1] != "\n" and dump_yaml(value).startswith("|")


def plain_value(value: Any) -> Any:
    """A value in plain mappings and lists; expressions stay."""
    if isinstance(value, Mapping):
        return {str(key): plain_value(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain_value(item) for item in value]
    return value
