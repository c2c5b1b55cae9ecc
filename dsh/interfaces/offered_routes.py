"""Model providers that rows name and no row offers, found without starting anything."""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from dsh.cordis.nearest import did_you_mean
from dsh.loader.problems import Problem
from dsh.loader.resolve import Target, resolve
from dsh.loader.row_checks import row_problem

from .service_graph import RowServices

_REGISTERS: Final = re.compile(r"\bregister_adapter\b")
_MODELS: Final = re.compile(r"\bllm\b", re.I)
_OWN: Final = "dsh."
"""Only of built-in plugins is it known that a key `provider` of their config names a model provider."""


def unknown_providers(rows: Sequence[RowServices]) -> Iterator[tuple[Problem, bool]]:
    """What is said of each provider that no row offers, and whether that is certain to be a mistake.

    A candidate that a built-in plugin would offer is none: what is not mounted is passed over when the model is chosen.
    """
    named = [
        (each, keys, provider)
        for each in rows
        if (_target(each).module or "").startswith(_OWN)
        for keys, provider in _providers_in(each.row.config if each.row is not None else None)
    ]
    if not named:
        return
    offered: set[str] = set()
    opaque: list[str] = []
    for each in rows:
        routes, is_opaque = routes_of(_target(each))
        offered |= routes
        opaque += [each.address] if is_opaque else []
    built_in: dict[str, str] | None = None
    for each, keys, provider in named:
        if provider in offered:
            continue
        assert each.source is not None and each.row is not None
        built_in = _built_in() if built_in is None else built_in
        text = f'no row offers the model provider "{provider}"'
        if provider in built_in and "candidates" in keys:
            continue
        if provider in built_in:
            text += f": add one named {built_in[provider]}"
        elif opaque:
            text += f" (unless {', '.join(opaque)} does)"
        else:
            known = sorted(offered)
            text += did_you_mean(provider, known) or f" (there {_are(known)})"
        yield row_problem(each.source, each.row, text, "validate", ("config", *keys)), not opaque


def _are(known: Sequence[str]) -> str:
    return "is none" if not known else f"is {known[0]}" if len(known) == 1 else f"are {', '.join(known)}"


def _providers_in(config: Any, keys: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """The providers that a config names, with their keys."""
    if isinstance(config, Mapping):
        for key, item in config.items():
            if key == "provider" and isinstance(item, str):
                yield (*keys, key), item
            else:
                yield from _providers_in(item, (*keys, key))
    elif isinstance(config, list):
        for at, item in enumerate(config):
            yield from _providers_in(item, (*keys, at))


def routes_of(target: Target) -> tuple[set[str], bool]:
    """The providers that a plugin's code registers, and whether it may register others than can be read from it."""
    module = sys.modules.get(target.module or "")
    own = (target.module or "").startswith(_OWN)
    try:
        source = inspect.getsource(module) if module is not None else ""
    except (OSError, TypeError):
        source = ""
    if not _REGISTERS.search(source):
        return set(), not own and (target.path is None or not source or _MODELS.search(source) is not None)
    routes: set[str] = set()
    opaque = False
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "register_adapter":
            listed = node.args[0] if node.args else None
            items = listed.elts if isinstance(listed, (ast.List, ast.Tuple)) else [None]
            names = [_text(item, module) for item in items]
            routes |= {name for name in names if name is not None}
            opaque = opaque or None in names
    return routes, opaque


def _text(node: ast.expr | None, module: Any) -> str | None:
    """The text that an expression stands for: written out, or a name of the module."""
    if isinstance(node, ast.Name):
        found = getattr(module, node.id, None)
        return found if isinstance(found, str) else None
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def _target(each: RowServices) -> Target:
    assert each.source is not None
    return resolve(each.plugin, each.source.base_dir)


def _built_in() -> dict[str, str]:
    """The providers of built-in plugins, each with the name of the plugin. Imports them all."""
    from .known_plugins import built_in_plugins

    found: dict[str, str] = {}
    for each in built_in_plugins():
        for route in routes_of(resolve(each.names[0], Path()))[0]:
            found.setdefault(route, each.names[0])
    return found
