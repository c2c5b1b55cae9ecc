"""What can be known of plugins: which there are, read without importing any, and everything about one of them."""

from __future__ import annotations

import ast
import inspect
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

from dsh.cordis import HarnessError, resolve_plugin
from dsh.interfaces.known_plugins import about_plugin
from dsh.interfaces.service_graph import provided_names, service_name
from dsh.loader import names
from dsh.loader.include import IncludeConfig, walk_composition
from dsh.loader.resolve import ENTRY_POINTS, Target, load, resolve
from dsh.loader.sources import Source
from dsh.settings.keys import KeyInfo, keys_of

Kind = Literal["built-in", "installed", "file"]
"""Where a plugin comes from: this package, another distribution, a file that a row names by its path."""


@dataclass(slots=True)
class ListedPlugin:
    """A plugin that a row may name. `rows`: addresses of the rows that mount it; `about`: one line."""

    name: str
    kind: Kind
    module: str
    attribute: str | None = None
    file: str | None = None
    about: str = ""
    rows: list[str] = field(default_factory=list)
    distribution: str | None = None


def list_plugins(source: Source | None = None) -> list[ListedPlugin]:
    """Built-in plugins, those of installed distributions, and the files of a composition. Imports none of them.

    Raises LoadError for a composition that cannot be read.
    """
    found: dict[tuple[str, str | None], ListedPlugin] = {}
    for each in (*_built_in(), *_installed()):
        found.setdefault((each.module, each.attribute), each)
    if source is None:
        return list(found.values())
    for tree, row in walk_composition(source):
        if row.disabled is True:
            continue
        try:
            target = resolve(row.name, tree.base_dir)
        except HarnessError:
            continue  # a check says it
        place = place_of(target)
        if place is None:
            continue
        known = found.get(place)
        if known is None:
            file = str(target.path) if target.path is not None else module_file(place[0])
            kind: Kind = "file" if target.path is not None else "installed"
            known = found[place] = ListedPlugin(row.name, kind, *place, file, _about(file, place[1]))
        known.rows.append(tree.prefix + row.id)
    mounted = {each.file for each in found.values()}
    for path in sorted((source.base_dir / "plugins").glob("*.py")):
        if str(path) not in mounted and _may_be_plugin(path):
            name = f"./plugins/{path.name}"
            found[str(path), None] = ListedPlugin(name, "file", "", None, str(path), _about(str(path), None))
    return list(found.values())


def place_of(target: Target) -> tuple[str, str | None] | None:
    """Module and attribute of what a name stands for; None for a group and for what is never mounted."""
    if target.kind == "include":
        return "dsh.loader.include", None
    return (target.module, target.attribute) if target.kind == "plugin" and target.module is not None else None


def _built_in() -> Iterator[ListedPlugin]:
    for short, place in {**names.PLUGINS, **names.CORDIS_PLUGINS}.items():
        if place == names.GROUP:
            continue
        module, _, attribute = ("dsh.loader.include" if place == names.INCLUDE else place).partition(":")
        file = module_file(module)
        if file is not None:
            about = _about(file, attribute or None)
            yield ListedPlugin(names.PREFIX + short, "built-in", module, attribute or None, file, about)


def _installed() -> Iterator[ListedPlugin]:
    from importlib.metadata import entry_points

    for point in entry_points(group=ENTRY_POINTS):
        module, _, attribute = point.value.partition(":")
        file = module_file(module)
        found = ListedPlugin(point.name, "installed", module, attribute or None, file, _about(file, attribute or None))
        if point.dist is not None:
            found.distribution = f"{point.dist.name} {point.dist.version}"
        yield found


def module_file(module: str) -> str | None:
    """The source file of a module, found without importing it or the packages around it; None if there is none."""
    path: list[str] | None = None
    file: str | None = None
    for part in module.split("."):
        spec = PathFinder.find_spec(part, path)
        if spec is None:
            return None
        file, path = spec.origin, list(spec.submodule_search_locations or ())
    return file


def _about(file: str | None, attribute: str | None) -> str:
    """The first sentence of a plugin's documentation, read from its source."""
    tree = _parsed(file)
    if tree is None:
        return ""
    found: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef = tree
    for node in tree.body:
        is_body = isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))
        if is_body and node.name == attribute and ast.get_docstring(node):  # type: ignore[attr-defined, arg-type]
            found = node  # type: ignore[assignment]
    return about_plugin(ast.get_docstring(found))


def _may_be_plugin(path: Path) -> bool:
    """Whether a source file defines what the loader takes as a plugin: `apply`, `plugin`, or one class of a service."""
    if path.name.startswith(("test_", "_", "conftest")):
        return False
    tree = _parsed(str(path))
    for node in tree.body if tree is not None else ():
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name in ("apply", "plugin"):
            return True
        if isinstance(node, ast.ClassDef) and any(word.arg == "name" for word in node.keywords):
            return True
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        if any(isinstance(each, ast.Name) and each.id == "plugin" for each in targets):
            return True
    return False


def _parsed(file: str | None) -> ast.Module | None:
    try:
        return ast.parse(Path(file).read_bytes()) if file is not None and file.endswith(".py") else None
    except (OSError, SyntaxError, ValueError):
        return None


# --- one plugin -----------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class PluginFacts:
    """Everything that can be told of one plugin without starting it."""

    listed: ListedPlugin
    doc: str
    keys: list[KeyInfo]
    has_config: bool
    needs: list[str]
    uses: list[str]
    """Services that it asks for and can do without."""
    provides: list[str]
    opaque: bool
    """It provides something more whose name cannot be read from its source."""
    declares: list[tuple[str, str]]
    """Events that it defines, with the way they are dispatched."""
    listens: list[str]


def plugin_facts(listed: ListedPlugin, target: Target) -> PluginFacts:
    """Import a plugin and look at it. Raises PluginImportError, CordisError."""
    if target.kind == "include":
        return PluginFacts(listed, listed.about, keys_of(IncludeConfig), True, [], [], [], False, [], [])
    found = load(target)
    spec = resolve_plugin(found)
    assert target.module is not None
    modules = _modules(target.module)
    provided, opaque = set(spec.provides), False
    uses: set[str] = set()
    listens: dict[str, None] = {}
    declares: dict[str, str] = {}
    for module in modules:
        names_here, unknown = provided_names(module)
        provided |= names_here
        opaque = opaque or unknown
        for value in vars(module).values():
            event = value.__dict__.get("__event__") if isinstance(value, type) else None
            if event is not None and value.__module__ == module.__name__:
                declares[event.name] = event.mode
        for verb, argument in _context_calls(module):
            if verb == "get":
                uses.add(service_name(argument, module) or "")
            elif (heard := _event_name(argument, module)) is not None:
                listens[heard] = None
    docs = [inspect.getdoc(each) or "" for each in (modules[0], spec.body) if not isinstance(each, type(None))]
    own = spec.Config
    return PluginFacts(
        listed,
        next(filter(None, docs), ""),
        keys_of(own),
        own is not None,
        sorted(spec.needs),
        sorted(uses - spec.needs.keys() - provided - {""}),
        sorted(provided),
        opaque,
        sorted(declares.items()),
        list(listens),
    )


def _modules(name: str) -> list[ModuleType]:
    """The module of a plugin and, of a folder, the modules in it that are imported."""
    inside = f"{name}."
    is_folder = hasattr(sys.modules[name], "__path__")
    return [
        module
        for key, module in sorted(sys.modules.items())
        if module is not None and (key == name or (is_folder and key.startswith(inside)))
    ]


@cache
def _source_tree(file: str) -> ast.Module | None:
    return _parsed(file)


def _context_calls(module: ModuleType) -> Iterator[tuple[str, ast.expr]]:
    """Calls `….get(x)` and `….on(x)` on something called ctx, as verb and first argument."""
    file = getattr(module, "__file__", None)
    tree = _source_tree(os.fspath(file)) if file else None
    for node in ast.walk(tree) if tree is not None else ():
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or not node.args:
            continue
        holder = node.func.value
        called = holder.attr if isinstance(holder, ast.Attribute) else getattr(holder, "id", "")
        if node.func.attr in ("get", "on") and called.lstrip("_") in ("ctx", "context", "root", "caller"):
            yield node.func.attr, node.args[0]


def _event_name(node: ast.expr, module: ModuleType) -> str | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    event: Any = getattr(getattr(module, node.id, None), "__event__", None) if isinstance(node, ast.Name) else None
    return event.name if event is not None else None
