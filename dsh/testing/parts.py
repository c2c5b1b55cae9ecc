"""The parts of the runtime a test can have around a plugin: which module provides which service."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from dsh.cordis import Context, resolve_plugin
from dsh.cordis.services import key_name

PARTS: Final[Mapping[str, str]] = {
    "llm": "dsh.llm.service",
    "sessions": "dsh.core.session_store",
    "systemPrompt": "dsh.core.system_prompt",
    "tools": "dsh.core.tools",
    "agents": "dsh.core.agents",
    "agentLoop": "dsh.core.agent_loop",
    "invariants": "dsh.core.invariants",
    "settings": "dsh.settings.memory",
    "fs": "dsh.files.local",
    "subprocess": "dsh.shell.subprocess",
    "shell": "dsh.shell.bash",
    "shellEnv": "dsh.shell.env",
}
"""Service names to the built-in plugin that provides each in a test."""

COMPANIONS: Final = ("dsh.core.session_invariant", "dsh.core.agent_invariant", "dsh.core.loop_invariant")
"""What watches over a running agent: the rules of its log, its states, each request rebuilt from the log."""


def needed_parts(wanted: Iterable[Any], plugins: Iterable[Any], given: Iterable[str] = ()) -> list[str]:
    """The parts for `wanted` services and for all that `plugins` declare to need, each after what it needs itself.

    Services in `given` are supplied otherwise. A need that is no part is left out: somebody else may provide it.
    """
    found: dict[str, None] = {}
    needs = [*(key_name(key) for key in wanted), *(name for plugin in plugins for name in resolve_plugin(plugin).needs)]
    for name in needs:
        for part in _with_needs(name):
            if part not in given:
                found[part] = None
    return list(found)


def _with_needs(name: str) -> Iterator[str]:
    if name not in PARTS:
        return
    for need in resolve_plugin(part(name)).needs:
        yield from _with_needs(need)
    yield name


def part(name: str) -> Any:
    """The plugin module behind a part."""
    return importlib.import_module(PARTS[name])


async def mount_companions(root: Context) -> None:
    """Let the rules of the spine be checked while it runs."""
    if "invariants" not in {each.name for each in root.runtime.services.implementations.values()}:
        await root.plugin(part("invariants"))
    for module in COMPANIONS:
        await root.plugin(importlib.import_module(module))
