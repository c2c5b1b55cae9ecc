"""What can be mounted here, and the JSON schema of what each plugin takes."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from dsh.cordis import CordisError, HarnessError, resolve_plugin
from dsh.cordis.records import record
from dsh.loader import names
from dsh.loader.include import IncludeConfig
from dsh.loader.resolve import ENTRY_POINTS, load, resolve

from .service_graph import provided_names

_NAME_FIRST = re.compile(r"^(?:(?:the )?(?:row|plugin) )?`[\w-]+`(?:, the service `\w+`)?: ", re.I)
"""How a plugin's documentation may begin; the name is known here."""


@record
class KnownPlugin:
    """A plugin that rows may name: all its names, the one for new files first, and what it declares as `Config`."""

    names: tuple[str, ...]
    declared: Any = None
    about: str = ""
    """The first sentence of its documentation."""

    @property
    def schema(self) -> Mapping[str, Any] | None:
        """The JSON schema of its config; `None` if it declares none."""
        has_one = isinstance(self.declared, type) and hasattr(self.declared, "json_schema")
        return self.declared.json_schema() if has_one else None


def built_in_plugins() -> Iterator[KnownPlugin]:
    """The plugins of the name table that are built, and those of installed distributions. Imports them all."""
    for short in dict.fromkeys([*names.PLUGINS, *names.CORDIS_PLUGINS]):
        spelled = names.spellings(short)
        if names.is_group(short):
            continue
        found = IncludePlugin if names.is_include(short) else find_plugin_named(short, Path())
        if found is not None:
            yield KnownPlugin(spelled, found.declared, found.about)
    from importlib.metadata import entry_points

    for point in entry_points(group=ENTRY_POINTS):
        found = find_plugin_named(point.name, Path())
        if found is not None:
            yield found


def providers_of(service: str) -> list[str]:
    """The names of built-in plugins that provide a service. Imports them all: for a check or a start that fails."""
    found = []
    for each in built_in_plugins():
        target = resolve(each.names[0], Path())
        if target.module is None:
            continue
        spec = resolve_plugin(load(target))
        provided, _ = provided_names(sys.modules.get(target.module))
        if service in provided or service in spec.provides:
            found.append(each.names[0])
    return found


def find_plugin_named(name: str, base_dir: Path) -> KnownPlugin | None:
    """The plugin behind one row name in files of a folder; `None` if there is none, or its code is broken."""
    if names.is_include(name):
        return IncludePlugin
    try:
        target = resolve(name, base_dir)
        if target.kind != "plugin":
            return None
        found = load(target)
        spec = resolve_plugin(found)
    except (HarnessError, CordisError):
        return None
    return KnownPlugin((name,), spec.Config, about_plugin(getattr(found, "__doc__", None)))


def about_plugin(documentation: str | None) -> str:
    """What a plugin is for: the first sentence of its documentation, without its name in front."""
    words = " ".join((documentation or "").strip().split("\n\n")[0].split())
    words = _NAME_FIRST.sub("", words.replace("``", "`")).replace("`", "")
    head, dot, _ = words.partition(". ")
    return words[:1].upper() + (head + "." if dot else words)[1:]


IncludePlugin = KnownPlugin(
    names.spellings("include"), IncludeConfig, "Mounts the rows of another file, with patches of its own."
)
GROUP_NAMES = names.spellings("group")
